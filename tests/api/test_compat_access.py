"""Who may do what over `/v1`: the same deed takes the same role there as over `/api/v1`."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat

from instep.control.compat import CompatDocuments
from instep.control.resources.api_keys import ROLES
from instep.server.fivetran_api.http.route import NEEDS, of_change

VALUES = {
    "{id}": "shop", "{schema}": "main", "{table}": "item", "{column}": "name", "{group}": "lake", "{user}": "user_x",
}  # fmt: skip


def test_every_route_that_writes_has_a_role(compat: Compat) -> None:
    paths: dict[str, Any] = compat.client.get("/v1/openapi.json").json()["paths"]
    writes = {
        f"{method.upper()} {path.removeprefix('/v1')}"
        for path, methods in paths.items()
        for method in methods
        if method in ("post", "put", "patch", "delete")
    }
    assert writes == {route for route in NEEDS if not route.startswith("GET ")}


def test_a_route_without_a_role_does_not_start(compat: Compat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(NEEDS, "GET /groups")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="GET /groups"):
        compat.hasty(1)


def path_of(route: str, **names: str) -> str:
    """The path of a route with things that are there, or with these names."""
    path = route.partition(" ")[2].replace("{any:plural}", "teams").replace("{parents:plural}", "connections")
    for said, value in VALUES.items():
        path = path.replace(said, names.get(said.strip("{}"), value))
    return path


@pytest.mark.parametrize("groups", [(), ("lake",), ("pond",)], ids=["all", "own", "other"])
def test_each_role_and_group_may_do_what_the_matrix_says(compat: Compat, groups: tuple[str, ...]) -> None:
    """Of things that are not there, so that nothing is done by whom it is allowed to."""
    given = {role: compat.key(role, *groups) for role in ROLES}
    for route, needed in NEEDS.items():
        if route == "GET /users/{id}":  # who asks sees itself, others are whole administrators' to see
            continue
        method, path = route.split(" ")[0], path_of(route, id="none", group="none")
        for role in ROLES:
            found = compat.client.request(method, f"/v1{path}", auth=given[role],
                                          json=None if method == "GET" else {})  # fmt: skip
            less = ROLES.index(role) < ROLES.index(needed.role)
            assert (found.status_code == 403) == (less or (needed.whole and bool(groups))), (route, role, found.text)
            assert found.status_code < 500, (route, found.text)


def test_what_a_key_is_not_for_is_not_there(compat: Compat) -> None:
    other = compat.key("admin", "pond")
    for route, needed in NEEDS.items():
        method = route.split(" ")[0]
        if "{id}" not in route or needed.whole or "/users/" in route or "connector-types" in route:
            continue
        there = "lake" if "/groups" in route or "/destinations" in route else "shop"
        told = []
        for name in (there, "none"):
            path = path_of(route, id=name)
            found = compat.client.request(method, f"/v1{path}", auth=other, json=None if method == "GET" else {})
            told.append((found.status_code, found.json()["code"], found.json()["message"].replace(name, "X")))
        assert told[0] == told[1], route
        assert told[0][0] in (400, 404), route


def test_who_has_less_is_refused(compat: Compat) -> None:
    keys = {role: compat.key(role) for role in ROLES}
    for route, needed in NEEDS.items():
        for role in ROLES[: ROLES.index(needed.role)]:
            answer = compat.ask(route.split()[0], path_of(route), {}, 403, auth=keys[role])
            assert answer["message"] == f"Your key has the role {role}; this takes {needed.role}."
            entry = next(iter(compat.store.audit.page()))
            assert (entry.action, entry.target) == ("access.refused", route.replace(" ", " /v1"))
            assert (entry.detail, keys[role][0] in entry.actor) == ({"role": role, "needed": needed.role}, True)


CHANGES = [
    ("stop and start", {"paused": True}, "operator"),
    ("read again", {"is_historical_sync": True}, "operator"),
    ("stop, with what is permanent", {"group_id": "lake", "service": "sqlite", "paused": True}, "operator"),
    ("how often", {"sync_frequency": 60}, "approver"),
    ("stop and how often", {"paused": True, "sync_frequency": 60}, "approver"),
    ("where from", {"config": {"path": "other.db"}}, "admin"),
]


@pytest.mark.parametrize(("name", "body", "role"), CHANGES, ids=[c[0] for c in CHANGES])
def test_what_is_changed_says_who_may(compat: Compat, name: str, body: dict[str, Any], role: str) -> None:
    assert of_change(body).role == role
    for less in ROLES[1 : ROLES.index(role)]:
        compat.ask("PATCH", "/connections/shop", body, 403, auth=compat.key(less))
    compat.ask("PATCH", "/connections/shop", body, auth=compat.key(role))


@pytest.mark.parametrize("mode", ["EXCLUDE", "INCLUDE"])
def test_a_look_that_switches_takes_who_may_switch(compat: Compat, mode: str) -> None:
    path, operator = "/connections/shop/schemas/reload", compat.key("operator")
    compat.ask("POST", path, {"exclude_mode": mode}, 403, auth=operator)
    assert compat.worker.ended == []
    compat.ask("POST", path, auth=operator)
    compat.ask("POST", path, {"exclude_mode": mode}, auth=compat.key("approver"))


def test_who_may_not_have_the_source_looked_at_gets_what_the_last_look_found(compat: Compat) -> None:
    compat.ask("POST", "/connections/shop/schemas/reload")
    compat.sql("alter table item add column price real")
    path = "/connections/shop/schemas/main/tables/item/columns"
    before = len(compat.worker.ended)
    assert "price" not in compat.data("GET", path, auth=compat.key("viewer"))["columns"]
    assert len(compat.worker.ended) == before
    assert "price" in compat.data("GET", path, auth=compat.key("operator"))["columns"]


@pytest.mark.parametrize("body", [{"config": None}, {"config": {"token": None}}, {"note": "x"}])
def test_what_is_kept_of_one_without_a_source_is_nobody_s_to_wipe(compat: Compat, body: dict[str, Any]) -> None:
    """A null leaves as it is what it names, and of such a connection everything that is sent is kept."""
    made = {"group_id": "lake", "service": "itunes_connect", "config": {"schema": "apps", "token": "t"}}
    compat.ask("POST", "/connections", made, 201)
    compat.ask("PATCH", "/connections/apps", body, 403, auth=compat.key("operator"))
    compat.ask("PATCH", "/connections/apps", body)
    assert CompatDocuments(compat.store).opened("foreign", "apps")["config"] == made["config"]
