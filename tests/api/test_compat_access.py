"""Who may do what over `/v1`: the same deed takes the same role there as over `/api/v1`."""

from __future__ import annotations

from typing import Any

import pytest
from compat_world import Compat

from instep.api.compat.matrix import NEEDS, of_change
from instep.control.kept import Kept
from instep.control.keys import ROLES

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
    assert writes == set(NEEDS)


@pytest.mark.parametrize("route", sorted(NEEDS))
def test_who_has_less_is_refused(compat: Compat, route: str) -> None:
    method, path = route.split()
    for said, value in VALUES.items():
        path = path.replace(said, value)
    for role in ROLES[: ROLES.index(NEEDS[route])]:
        given = compat.key(role)
        answer = compat.ask(method, path, {}, 403, auth=given)
        assert answer["message"] == f"Your key has the role {role}; this takes {NEEDS[route]}."
        entry = next(iter(compat.store.audit.page()))
        assert (entry.action, entry.target) == ("access.refused", route.replace(" ", " /v1"))
        assert (entry.detail, given[0] in entry.actor) == ({"role": role, "needed": NEEDS[route]}, True)


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
    assert of_change(body) == role
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
    assert Kept(compat.store).opened("foreign", "apps")["config"] == made["config"]
