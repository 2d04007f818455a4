"""Every write: what it needs a body for, what it says of things that there are not, If-Match, and that a token stands
for one request with all that it asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import PROJECT, Api, project, recorded, serve

from instep.bootstrap import open_server
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.access import NEEDS
from instep.store.catalogs.backfills import BY_PERSON

# bodies that are right, by the end of a route
BODIES: dict[str, dict[str, Any]] = {
    "/pause": {"reason": "x"}, "/apply": {"plan": "j-1"}, "/undo": {"what": "c-1"},
    "/declare-rename": {"old": "a.b", "new": "a.c"},
    "/set-key": {"table": "a.b", "key": ["id"]}, "/set-cursor": {"table": "a.b"},
    "/matches": {"table": "a.b", "key": {"id": "7"}}, "/erase": {"table": "a.b", "ids": ["q-1"]},
    "/savepoints": {"table": "a.b"}, "/restore": {"table": "a.b", "snapshot": "7"},
    "/repair": {"table": "a.b"}, "/changes/preview": {"change": "c-1"},
    "/changes/sample-rename": {"change": "c-1"},
    "/changes/publish": {"change": "c-1", "fingerprint": "f"},
    "/selection": {"verb": "off", "objects": ["main"]},
    "/backfills": {"table": "main.item"}, "/backfills/cancel": {"table": "main.item"}, "/discard": {"ids": ["q-1"]},
    "/snooze": {"duration": "3d"}, "/skip": {"connections": ["eu"], "reason": "x"}, "/{name}": {"spec": {}},
    "/settings": {"spec": {}}, "/comments": {"text": "x"}, "/keys/{key}/password": {"password": "x" * 12},
    "/detector/options": {"values": {"frequency": 1800}},
    "/policy/test": {"cases": [{"change": "table.added", "table": "a.b", "expect": "apply"}]},
    "/policy/simulation": {"name": "p", "policy": {}},
}  # fmt: skip
BARE = ("/approve", "/reject", "/link", "/ignore", "/reopen", "/cancel", "/retry", "/open", "{name}/test")
"""Ends of routes that take no body."""


def body_of(route: str) -> dict[str, Any] | None:
    """None where a route takes no body."""
    if route.startswith("DELETE") or (route.endswith(BARE) and not route.endswith("/backfills/cancel")):
        return None
    fitting = [end for end in BODIES if route.endswith(end) and (not route.startswith("POST /keys") or "/keys" in end)]
    return BODIES[max(fitting, key=len)] if fitting else {}


def at(route: str, name: str = "nope") -> tuple[str, str]:
    method, path = route.split(" ")
    for part in ("connection", "name", "change", "job", "rollout", "key"):
        path = path.replace(f"{{{part}}}", name)
    return method, path.replace("{delivery}", "7")


OF_ONE = sorted(route for route in NEEDS if not route.startswith("GET") and "{" in route)
MAKES = [route for route in OF_ONE if route.startswith("PUT") and not route.endswith(("/settings", "/filters/{name}"))]
"""A PUT makes what there is not."""


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server to which nothing is done; changes wait there."""
    with project(tmp_path_factory.mktemp("writes")) as app:
        recorded(app.store, "eu", "a", "b")
        yield serve(app)
        assert (app.store.audit.page(), app.store.jobs.counts(), app.store.events.after()) == ([], {}, [])


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server whose connection eu has accepted a table."""
    with project(tmp_path_factory.mktemp("busy")) as app:
        columns = tuple(Column(c, parse("int64")) for c in ("id", "note"))
        app.store.accepted.add("eu", Catalog.of([Table("main", "item", columns)]), who="ann", why="w")
        yield serve(app)


@pytest.mark.parametrize("route", [r for r in OF_ONE if r not in MAKES and not r.startswith("PUT /filters")])
def test_what_there_is_not_is_not_written(still: Api, route: str) -> None:
    method, path = at(route)
    found = still.call(method, path, body=body_of(route))
    assert (found.status_code, found.json()["code"]) == (404, "not_found"), found.text
    assert still.store.audit.page() == []
    assert still.store.jobs.counts() == {}


@pytest.mark.parametrize("route", MAKES)
def test_what_there_is_not_has_no_etag(still: Api, route: str) -> None:
    method, path = at(route)
    for match in ("*", '"x"'):
        found = still.call(method, path, body={"spec": {}}, headers={"If-Match": match})
        assert (found.status_code, found.json()["code"]) == (412, "precondition_failed")
    assert still.call("GET", path).status_code == 404


@pytest.mark.sampled
@pytest.mark.parametrize("route", [r for r in OF_ONE if body_of(r) is not None])
def test_unknown_fields_and_other_shapes_are_mistakes(still: Api, route: str) -> None:
    method, path = at(route, "eu")
    for body in ([], "x", 7, {**(body_of(route) or {}), "surprise": "canary"}):
        found = still.call(method, path, body=body)
        assert (found.status_code, found.json()["code"]) == (422, "invalid"), (body, found.text)
        assert "canary" not in found.text
        assert found.json()["errors"]
    assert still.store.audit.page() == []


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "", "application/xml"])
def test_every_write_is_json(still: Api, media: str) -> None:
    for route in OF_ONE:
        method, path = at(route, "eu")
        headers = {**still.key("admin"), "Content-Type": media}
        found = still.client.request(method, f"/api/v1{path}", content=b'{"reason": "x"}', headers=headers)
        assert (found.status_code, found.json()["code"]) == (415, "media_type"), route


# a write whose If-Match is looked at, its body
MATCHED: list[tuple[str, dict[str, Any]]] = [
    ("/connections/eu/pause", {"reason": "x"}), ("/connections/eu/resume", {}),
    ("/connections/eu/detector/enable", {}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), MATCHED)
def test_only_what_was_read_is_written(api: Api, path: str, body: dict[str, Any]) -> None:
    read = path.rpartition("/")[0] if "detector" in path else "/connections/eu"
    tag = api.call("GET", read).headers["etag"]
    for match, status in (('"other"', 412), (f"W/{tag}", 412), (tag.strip('"'), 412), (f'"a", {tag}', 200)):
        found = api.call("POST", path, body=body, headers={"If-Match": match})
        assert found.status_code == status, match
        assert len(api.store.audit.page()) == (status == 200)
    assert api.call("POST", path, body=body, headers={"If-Match": "x" * 1001}).status_code == 422


def test_a_rehearsal_is_held_to_what_was_read_too(still: Api) -> None:
    found = still.call("POST", "/connections/eu/resume", body={}, params={"dry_run": 1}, headers={"If-Match": '"old"'})
    assert found.status_code == 412


class TestTokens:
    """A token stands for a request with its method, address, parameters and body."""

    @pytest.fixture
    def api(self, tmp_path: Path) -> Iterator[Api]:
        tmp_path.joinpath("instep.yml").write_text(PROJECT)
        with open_server(tmp_path, insecure_dev=True) as app:
            yield serve(app)

    def removable(self, api: Api) -> None:
        spec = {"source": "db", "destination": "lake"}
        assert api.call("POST", "/connections", body={"name": "mine", "spec": spec}).status_code == 201

    def delete(self, api: Api, **params: Any) -> Any:
        said = {"confirm": "mine", **params}
        return api.call("DELETE", "/connections/mine", params=said, headers={"Idempotency-Key": "t-1"})

    def test_other_parameters_are_another_request(self, api: Api) -> None:
        """Else whoever asks for the tables to be dropped would be told that they are, and they would stay."""
        self.removable(api)
        first = self.delete(api, tables="keep")
        assert first.status_code == 202
        for other in ({"tables": "drop"}, {"tables": "keep", "abandon": "true"}, {}):
            found = self.delete(api, **other)
            assert (found.status_code, found.json()["code"]) == (422, "repeated_differently"), other
        [job] = api.store.jobs.unfinished(["mine"])
        assert (job.id, job.options["tables"], job.options["abandon"]) == (first.json()["id"], "keep", False)

    def test_their_order_says_nothing(self, api: Api) -> None:
        self.removable(api)
        first = self.delete(api, tables="drop")
        url = "/connections/mine?tables=drop&confirm=mine&dry_run=false"
        again = api.call("DELETE", url, headers={"Idempotency-Key": "t-1"})
        assert (again.status_code, again.json()) == (202, first.json())
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]

    def test_the_method_counts(self, api: Api) -> None:
        headers, body = {"Idempotency-Key": "t-1"}, {"spec": {"type": "sqlite", "path": "new.db"}}
        assert api.call("PUT", "/sources/new", body=body, headers=headers).status_code == 201
        found = api.call("PATCH", "/sources/new", body=body, headers=headers)
        assert (found.status_code, found.json()["code"]) == (422, "repeated_differently")
        again = api.call("PUT", "/sources/new", body=body, headers=headers)
        assert (again.status_code, again.json()["object"]["version"]) == (201, 1)

    def test_a_rehearsal_keeps_no_token(self, api: Api) -> None:
        headers, body = {"Idempotency-Key": "t-1"}, {"reason": "x"}
        dry = api.call("POST", "/connections/eu/pause", body=body, headers=headers, params={"dry_run": "true"})
        real = api.call("POST", "/connections/eu/pause", body={"reason": "y"}, headers=headers)
        assert (dry.json()["dry_run"], real.status_code, real.json()["changed"]) == (True, 200, True)
        assert "idempotent-replayed" not in real.headers


# columns of a cancellation, its answer, the columns whose backfills go
LEFT: list[tuple[dict[str, Any], int, set[str]]] = [
    ({"table": "main.item"}, 200, {"", "note"}), ({"table": "main.item", "columns": ["note"]}, 200, {"note"}),
    ({"table": "main.item", "columns": ["id"]}, 200, set()), ({"table": "main.item", "columns": ["no"]}, 404, set()),
    ({"table": "item"}, 404, set()), ({"table": ""}, 422, set()), ({}, 422, set()),
    ({"table": "main.item", "columns": ["note"] * 10_001}, 422, set()),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "gone"), LEFT)
def test_backfills_that_nobody_wants_any_more(busy: Api, body: dict[str, Any], status: int, gone: set[str]) -> None:
    for column in ("", "note"):
        busy.store.backfills.request("eu", ("main", "item"), column=column, why=f"{BY_PERSON}ann")
    rehearsed = busy.call("POST", "/connections/eu/backfills/cancel", body=body, params={"dry_run": "true"})
    assert (rehearsed.status_code, len(busy.store.backfills.waiting("eu"))) == (status, 2)
    found = busy.call("POST", "/connections/eu/backfills/cancel", "operator", body)
    assert found.status_code == status, found.text
    assert {b.column for b in busy.store.backfills.waiting("eu")} == {"", "note"} - gone
    if status == 200:
        assert {b["column"] for b in found.json()["backfills"]} == gone
        assert {b["status"] for b in found.json()["backfills"]} <= {"cancelled"}
        assert busy.store.audit.page()[0].action == "connection.backfill_cancel"


# a request that asks for work, whose body makes no sense
SENSELESS: list[tuple[str, dict[str, Any]]] = [
    ("plans", {"sample": -1}), ("plans", {"sample": 100_001}), ("plans", {"why": "x" * 1001}), ("undo", {"what": ""}),
    ("impact", {"models": []}), ("quarantine/matches", {"table": "a.b", "key": {}}),
    ("quarantine/matches", {"table": "a.b", "key": {"id": [7]}}), ("quarantine/erase", {"table": "a.b", "ids": []}),
    ("declare-rename", {"old": "a.b"}), ("declare-rename", {"old": "a.b", "new": ""}), ("sync", {"tables": [""]}),
    ("sync", {"tables": ["a.b"] * 10_001}), ("sync", {"full": "perhaps"}), ("quarantine/discard", {}),
    ("quarantine/discard", {"tables": [], "ids": []}), ("quarantine/replay", {"tables": "main.item"}),
    ("set-key", {"table": "a.b", "key": []}), ("set-key", {"table": "a.b", "key": ["id"], "way": "swap"}),
    ("restore", {"table": "a.b"}), ("restore", {"table": "a.b", "snapshot": "x"}), ("savepoints", {}), ("repair", {}),
    ("restore", {"table": "a.b", "snapshot": "7", "at": "2026-03-01"}), ("selection", {"verb": "drop"}),
    ("set-cursor", {"column": "id"}), ("set-cursor", {"table": "a.b", "column": ""}),
    ("pause", {"reason": ""}), ("pause", {"reason": "x", "table": ["item"]}), ("resume", {"table": ["a", "b", "c"]}),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "body"), SENSELESS)
def test_work_that_makes_no_sense(still: Api, verb: str, body: dict[str, Any]) -> None:
    found = still.call("POST", f"/connections/eu/{verb}", body=body)
    assert (found.status_code, found.json()["code"]) == (422, "invalid"), found.text
    assert (still.store.jobs.counts(), still.store.pauses.active("eu"), still.store.audit.page()) == ({}, [], [])


# what is sent as an answer to many changes, which of them still wait
ANSWERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"answer": "approved", "kinds": ["column"]}, set()),
    ({"answer": "rejected", "tables": ["main.*"], "patterns": ["*.[ab]"]}, {"c"}),
    ({"answer": "ignored", "patterns": ["main.item.?"], "connection": "eu"}, {"c"}),
]


@pytest.mark.parametrize(("body", "left"), ANSWERS)
def test_one_answer_to_many(api: Api, body: dict[str, Any], left: set[str]) -> None:
    recorded(api.store, "eu", "a", "b")
    recorded(api.store, "us", "c")
    found = api.call("POST", "/changes/answers", "approver", body)
    assert (found.status_code, found.json()["answered"]) == (200, 3 - len(left)), found.text
    assert {r.column for r in api.store.reviews.find(None, ("open",))} == left


# an answer to many that is refused, and its status
NO_ANSWERS: list[tuple[dict[str, Any], int]] = [
    ({"answer": "approved", "kinds": ["table"]}, 422), ({"answer": "approved", "ids": ["c-none"]}, 404),
    ({"answer": "approved", "connection": "nope", "kinds": ["column"]}, 404), ({"answer": "maybe"}, 422),
    ({"answer": "rejected", "kinds": ["column"], "hash": True}, 422), ({"kinds": ["column"]}, 422),
    ({"answer": "approved", "kinds": ["column"], "tables": ["main.none"]}, 422),
    ({"answer": "approved", "kinds": ["column"], "connection": "us"}, 422),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status"), NO_ANSWERS)
def test_answers_to_nothing(still: Api, body: dict[str, Any], status: int) -> None:
    found = still.call("POST", "/changes/answers", "approver", body)
    assert found.status_code == status, found.text
    assert {r.status for r in still.store.reviews.find("eu")} == {"open"}


def test_keys_that_ask_too_often_are_told_when_to_come_again(tmp_path: Path) -> None:
    from instep.server.rates import Rates

    with project(tmp_path) as app:
        api = serve(app, rates=Rates(requests=2))
        answers = [api.call("POST", "/connections/eu/pause", body={"reason": "x"}) for _ in range(3)]
        assert [a.status_code for a in answers] == [200, 200, 429]
        assert answers[2].json()["code"] == "too_many_requests"
        assert 1 <= int(answers[2].headers["retry-after"]) <= 60
        assert len(app.store.audit.page()) == 2, "what is refused is not done"
        assert api.call("GET", "/me", "viewer").status_code == 200, "another key is another one"
