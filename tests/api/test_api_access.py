"""Who is let in where: every route of the matrix with every role, and keys that are for some connections only."""

from __future__ import annotations

import base64
import itertools
from datetime import timedelta
from typing import Any

import pytest
from api_world import Api, recorded

from instep.control.resources import api_keys
from instep.control.resources.api_keys import ROLES, authenticate, in_scope, may
from instep.server.access import NEEDS, OPEN, PREFIX, WHOLE
from instep.server.app import check_matrix, route_names
from instep.store.history.events import Events

BODIES = ("POST", "PUT", "PATCH")
# work for a connection, with a body that makes sense
OF_ONE: list[tuple[str, dict[str, Any]]] = [
    ("set-key", {"table": "a.b", "key": ["id"]}), ("set-cursor", {"table": "a.b"}),
    ("quarantine/erase", {"table": "a.b", "ids": ["q-1"]}), ("impact", {}), ("tables", {"table": "a.b"}),
    ("savepoints", {"table": "a.b"}), ("restore", {"table": "a.b", "at": "2026-03-01"}), ("repair", {"table": "a.b"}),
]  # fmt: skip
OPEN_PATHS = [name.partition(" ")[2] for name in sorted(OPEN)]


def path_of(api: Api, route: str) -> str:
    """A route's path with things that are there."""
    [review] = api.store.reviews.find("eu") or recorded(api.store, "eu", "note")
    known = {"{connection}": "eu", "{change}": review.id, "{key}": "k-none", "{run}": "r-none", "{plan}": "p-none",
             "{job}": "j-none", "{version}": "1", "{name}": "none", "{delivery}": "1"}  # fmt: skip
    path = route.partition(" ")[2]
    for name, value in known.items():
        path = path.replace(name, value)
    return path


def test_no_route_is_missing_in_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    check_matrix()
    assert sorted(route_names()) == sorted({*NEEDS, *OPEN})
    monkeypatch.delitem(NEEDS, "GET /me")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="GET /me"):
        check_matrix()


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_the_matrix_says(api: Api, role: str) -> None:
    for route, needed in NEEDS.items():
        method, path = route.split(" ")[0], path_of(api, route)
        body = {} if method in BODIES else None
        found = api.call(method, path, role, body, params={"dry_run": "true"} if method != "GET" else None)
        assert (found.status_code == 403) == (ROLES.index(role) < ROLES.index(needed)), (route, found.text)
        assert found.status_code != 401
        assert found.status_code < 500, (route, found.text)


@pytest.mark.parametrize("groups", [("europe",), ("asia",)], ids=["own", "other"])
def test_each_role_of_a_group_may_do_what_the_matrix_says(api: Api, groups: tuple[str, ...]) -> None:
    for route, needed in NEEDS.items():
        method, path = route.split(" ")[0], path_of(api, route)
        body = {} if method in BODIES else None
        for role in ROLES:
            found = api.client.request(method, PREFIX + path, headers=api.key(role, *groups), json=body,
                                       params={"dry_run": "true"} if method != "GET" else None)  # fmt: skip
            less = ROLES.index(role) < ROLES.index(needed)
            assert (found.status_code == 403) == (less or route in WHOLE), (route, role, found.text)
            assert found.status_code < 500, (route, found.text)
            if groups == ("asia",) and "{connection}" in route and not less:
                assert found.status_code in (404, 422), (route, role, found.text)


def test_refusals_are_written_down(api: Api) -> None:
    assert api.call("GET", "/keys", "viewer").status_code == 403
    [entry] = api.get("/audit")["items"]
    assert (entry["action"], entry["target"]) == ("access.refused", "GET /keys")
    assert entry["detail"] == {"role": "viewer", "needed": "admin"}


@pytest.mark.sampled
@pytest.mark.parametrize("route", sorted(NEEDS))
def test_nobody_is_let_in_without_a_key(api: Api, route: str) -> None:
    method, path = route.split(" ")[0], path_of(api, route)
    found = api.client.request(method, PREFIX + path, json={} if method in BODIES else None)
    assert (found.status_code, found.json()["code"]) == (401, "unauthorized")
    assert found.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", OPEN_PATHS)
def test_open_routes_need_none(api: Api, path: str) -> None:
    assert api.client.get(path).status_code == 200


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_ways_to_send_a_key(api: Api) -> None:
    issued = api_keys.create(api.store, "ci", "viewer", "test")
    good, other = issued.secret, api_keys.create(api.store, "other", "viewer", "test")
    cases = {
        f"Bearer {good}": 200,
        f"bearer  {good}": 200,
        basic(issued.key.id, good): 200,
        basic(other.key.id, good): 401,
        basic("", good): 401,
        basic(issued.key.id, ""): 401,
        f"Bearer {good}x": 401,
        f"Bearer {good[:-1]}": 401,
        f"Token {good}": 401,
        "Basic !!!": 401,
        "Basic " + base64.b64encode(b"\xff\xfe").decode(): 401,
        "Bearer": 401,
        good: 401,
    }
    for header, status in cases.items():
        for path in (f"{PREFIX}/me", "/v1/account/info"):
            found = api.client.get(path, headers={"Authorization": header})
            assert found.status_code == status, (path, header)
            assert good not in found.text


def test_a_key_that_is_over_is_refused(api: Api) -> None:
    issued = api_keys.create(api.store, "ci", "viewer", "test", lasts=timedelta(microseconds=1))
    assert api.client.get(f"{PREFIX}/me", headers={"Authorization": f"Bearer {issued.secret}"}).status_code == 401
    api.key("viewer")
    [key] = [k for k in api.store.api_keys.page() if k.name == "viewer"]
    assert api.call("GET", "/me", "viewer").status_code == 200
    api_keys.revoke(api.store, key.id, "test")
    assert api.call("GET", "/me", "viewer").status_code == 401


class TestGroups:
    def test_lists_hold_only_what_the_key_is_for(self, api: Api) -> None:
        recorded(api.store, "eu", "a")
        recorded(api.store, "us", "b")
        for name in ("eu", "us"):
            api.store.runs.finish(api.store.runs.claim(name, "sync"), "done")
        headers = api.key("admin", "europe")
        for path in ("/connections", "/changes", "/runs", "/events"):
            items = api.client.get(PREFIX + path, headers=headers).json()["items"]
            assert {one.get("connection", one.get("name")) for one in items} <= {"eu"}
        assert len(api.client.get(f"{PREFIX}/changes", headers=headers).json()["items"]) == 1

    def test_the_rest_is_as_if_it_were_not_there(self, api: Api) -> None:
        [review] = recorded(api.store, "us", "b")
        run = api.store.runs.claim("us", "sync")
        api.store.plans.open("us", "p-1", {}, [], base_accepted="a", base_destination="d")
        headers = api.key("admin", "europe")
        paths = ("/connections/us", "/connections/us/policy", "/connections/us/history", "/connections/us/plans",
                 "/connections/us/quarantine", "/connections/us/selection", f"/changes/{review.id}",
                 f"/runs/{run.id}", "/plans/p-1",
                 "/changes?connection=us", "/runs?connection=us", "/events?connection=us")  # fmt: skip
        for path in paths:
            assert api.client.get(PREFIX + path, headers=headers).status_code == 404, path
        for path in (f"/changes/{review.id}/approve", "/connections/us/resume", "/connections/us/sync"):
            found = api.client.post(PREFIX + path, headers=headers, json={})
            assert found.status_code == 404, path
        assert api.store.reviews.get(review.id).status == "open"

    @pytest.mark.parametrize(("what", "body"), OF_ONE)
    def test_work_is_for_what_the_key_is_for(self, api: Api, what: str, body: dict[str, Any]) -> None:
        for name, status in (("us", 404), ("eu", 202)):
            found = api.client.post(
                f"{PREFIX}/connections/{name}/{what}", headers=api.key("admin", "europe"), json=body
            )
            assert found.status_code == status, found.text
        assert set(api.store.jobs.counts()) == {"queued"}
        assert {job.connection for job in api.store.jobs.find()} == {"eu"}

    def test_answers_to_many_stay_within(self, api: Api) -> None:
        [mine], [other] = recorded(api.store, "eu", "a"), recorded(api.store, "us", "a")
        headers = api.key("approver", "europe")
        body = {"answer": "approved", "kinds": ["column"]}
        found = api.client.post(f"{PREFIX}/changes/answers", headers=headers, json=body).json()
        assert [one["id"] for one in found["items"]] == [mine.id]
        assert api.store.reviews.get(other.id).status == "open"
        body = {"answer": "approved", "ids": [other.id]}
        assert api.client.post(f"{PREFIX}/changes/answers", headers=headers, json=body).status_code == 404

    @pytest.mark.parametrize("route", sorted(WHOLE))
    def test_what_is_about_the_whole_server_is_not_for_them(self, api: Api, route: str) -> None:
        method, path = route.split(" ")[0], path_of(api, route)
        found = api.client.request(method, PREFIX + path, headers=api.key("admin", "europe"),
                                   json={} if method in BODIES else None)  # fmt: skip
        assert found.status_code == 403

    def test_the_stream_is_of_the_keys_connections(self, api: Api) -> None:
        from instep.events import Paused

        events: Events = api.store.events
        events.add(Paused("us", "other", ""), Paused("eu", "mine", ""))
        found = api.client.get(f"{PREFIX}/events/stream?after=0", headers=api.key("viewer", "europe")).text
        assert "mine" in found
        assert "other" not in found


def test_roles_are_in_order() -> None:
    for (a, role), (b, needed) in itertools.product(enumerate(ROLES), repeat=2):
        assert may(role, needed) == (a >= b)
    assert not may("root", "viewer")


@pytest.mark.parametrize(
    ("groups", "tags", "inside"),
    [((), (), True), ((), ("a",), True), (("a",), ("a", "b"), True), (("a",), ("b",), False), (("a",), (), False)],
)
def test_scope(groups: tuple[str, ...], tags: tuple[str, ...], inside: bool) -> None:
    assert in_scope(groups, tags) == inside


def test_a_secret_is_kept_as_its_digest_only(api: Api, tmp_path: Any) -> None:
    issued = api_keys.create(api.store, "ci", "viewer", "test")
    assert authenticate(api.store, issued.secret) is not None
    api.store.close()
    assert issued.secret not in repr(issued)
    for file in (tmp_path / ".instep").iterdir():
        assert issued.secret[14:].encode() not in file.read_bytes()
