"""If-Match: checked where there is an ETag to check it against, else refused before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, recorded, serve
from test_api_edges_writes import BARE, BODIES

from instep.bootstrap import open_server
from instep.control.resources import api_keys
from instep.events import ReviewNeeded
from instep.model import Member
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.access import NEEDS, PREFIX
from instep.server.writes import Write
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.work.rollouts import RolloutDraft

READS = ("/policy/test", "/policy/simulation", "/quarantine/matches")
"""What is asked with a document and changes nothing: it is no write, and has no If-Match."""
WRITES = sorted(route for route in NEEDS if not route.startswith("GET") and not route.endswith(READS))
MADE: dict[str, dict[str, Any]] = {
    "POST /rollouts": {"group": {"matching": ["*"]}, "selection": [{"verb": "on", "object": "main.refunds"}]},
    "POST /keys": {"name": "new", "role": "viewer"}, "POST /changes/answers": {"answer": "approved", "patterns": ["*"]},
    "POST /policies": {"name": "new", "spec": {"preset": "approve"}},
    "POST /sources": {"name": "new", "spec": {"type": "sqlite", "path": "new.db"}},
    "POST /destinations": {"name": "new", "spec": {"type": "duckdb", "path": "new.duckdb"}},
    "POST /channels": {"name": "new", "spec": {"type": "webhook", "url": "https://example.com/x", "secret": "x" * 32}},
    "POST /connections": {"name": "new", "spec": {"source": "db", "destination": "lake"}},
    "PUT /policies/{name}": {"spec": {"preset": "approve"}},
    "PUT /sources/{name}": {"spec": {"type": "sqlite", "path": "new.db"}},
    "PUT /destinations/{name}": {"spec": {"type": "duckdb", "path": "new.duckdb"}},
    "PUT /channels/{name}": {"spec": {"type": "webhook", "url": "https://example.com/x", "secret": "x" * 32}},
    "PUT /connections/{connection}/settings": {"spec": {"source": "db", "destination": "lake"}},
    "POST /connections/{connection}/selection": {"verb": "off", "objects": ["main.orders"]},
    "POST /connections/{connection}/backfills": {"table": "main.orders"},
    "POST /connections/{connection}/backfills/cancel": {"table": "main.orders"},
}  # fmt: skip


class World:
    """A connection `own` with one of all that a write is about."""

    def __init__(self, api: Api) -> None:
        app, store = api.app, api.store
        self.api = api
        app.objects.put("source", "db", {"type": "sqlite", "path": "shop.db"}, who="test")
        app.objects.put("destination", "lake", {"type": "duckdb", "path": "a.duckdb"}, who="test")
        app.objects.put("connection", "own", {"source": "db", "destination": "lake"}, who="test")
        app.objects.put("policy", "own", {"preset": "stop"}, who="test")
        app.objects.put("channel", "own", MADE["POST /channels"]["spec"], who="test")
        orders = Table("main", "orders", (Column("id", parse("int64"), nullable=False, key=1),))
        refunds = Table("main", "refunds", orders.columns)
        store.accepted.add("own", Catalog.of([orders]), who="test", why="first")
        store.discoveries.save("own", CachedDiscovery(Catalog.of([orders, refunds]), "f"))
        members = (Member("", "own", 1, "waiting", "applies", ""),)
        what = {"selection": [["on", "main.refunds"]]}
        job, _ = store.jobs.enqueue("own", "sync", key="other")
        self.parts = {
            "connection": "own", "change": recorded(store, "own", "note")[0].id, "job": job.id, "delivery": "1",
            "rollout": store.rollouts.add(RolloutDraft(what, {}, ("rest",), {}, members, "ann")).id,
            "key": api_keys.create(store, "other", "viewer", "test").key.id,
        }  # fmt: skip

    def dead(self) -> None:
        """A delivery that its receiver did not take, of another connection."""
        objects, store = self.api.app.objects, self.api.store
        objects.put("channel", "hook", MADE["POST /channels"]["spec"], who="test")
        told = {"source": "db", "destination": "lake", "notify": [{"on": ["review_needed"], "to": "hook"}]}
        objects.put("connection", "told", told, who="test")
        with store.transaction():
            store.events.add(ReviewNeeded("told", "c-1", "column note is new", "preset approve"))
        store.outbox.gather()
        claimed = store.outbox.claim()
        assert claimed is not None
        store.outbox.failed(claimed, "the receiver answered 500", seconds=0.1, code=500)
        self.parts["delivery"] = str(claimed.number)

    def path(self, route: str) -> str:
        path = route.split(" ")[1]
        parts = {**self.parts, "name": {"sources": "db", "destinations": "lake"}.get(path.split("/")[1], "own")}
        for part, value in parts.items():
            path = path.replace(f"{{{part}}}", value)
        return path + ("?confirm=own" if route == "DELETE /connections/{connection}" else "")

    def write(self, route: str, *, dry_run: bool = False, **headers: str) -> Any:
        path = self.path(route)
        path += f"{'&' if '?' in path else '?'}dry_run={str(dry_run).lower()}"
        body = {"what": self.parts["change"]} if route.endswith("/undo") else body_of(route)
        return self.api.call(route.split(" ")[0], path, body=body, headers=headers)

    def state(self) -> Any:
        store, objects = self.api.store, self.api.app.objects
        kept = [(o.kind, o.name, o.version) for kind in ("source", "connection", "policy") for o in objects.page(kind)]  # type: ignore[arg-type]
        changes = [(one.id, one.status, one.snoozed_until) for one in store.reviews.find()]
        jobs = [(one.id, one.status, one.stop) for one in store.jobs.find(limit=1000)]
        return kept, changes, jobs, store.switches.of("own"), store.audit.page(), store.rollouts.find()


def body_of(route: str) -> dict[str, Any] | None:
    if route in MADE:
        return MADE[route]
    if route.startswith("DELETE") or (route.endswith(BARE) and "backfills" not in route):
        return None
    ends = [end for end in BODIES if route.endswith(end)]
    return BODIES[max(ends, key=len)] if ends else {}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "instep.yml").write_text("engine: local\nshelves: [.]\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        yield World(serve(app))


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One to which nothing is done."""
    folder = tmp_path_factory.mktemp("still")
    (folder / "instep.yml").write_text("engine: local\nshelves: [.]\n")
    with open_server(folder, insecure_dev=True) as app:
        yield World(serve(app))


def checked(api: Api) -> set[str]:
    """The routes that say they know If-Match."""
    paths = api.get("/openapi.json")["paths"]
    return {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, methods in paths.items() for method, said in methods.items()
        if any(one["name"] == "If-Match" for one in said.get("parameters", ()))
    }  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("route", WRITES)
def test_a_stale_etag_is_never_answered_well(still: World, route: str) -> None:
    world = still
    known = route in checked(world.api)
    world.api.key("admin")
    for match in ('"stale"', 'W/"stale"', '"a", "b"', ""):
        before = world.state()
        found = world.write(route, **{"If-Match": match})
        assert world.state() == before
        if "{delivery}" in route:
            assert found.status_code == 404  # there is none; see test_api_channels
            continue
        expected = (412, "precondition_failed") if known else (400, "unreadable")
        assert (found.status_code, found.json()["code"]) == expected, found.text
        if not known:
            assert "If-Match" in found.json()["detail"]
            assert found.json()["detail"].startswith(route)


@pytest.mark.sampled
@pytest.mark.parametrize("route", [r for r in WRITES if "{delivery}" not in r])
def test_without_one_they_do_as_ever(still: World, route: str) -> None:
    """So that it is the header that is refused, and nothing else of the request."""
    if route == "DELETE /filters/{name}":
        saved = still.api.call("PUT", still.path(route), body={})
        assert saved.status_code < 300, saved.text
    told = still.write(route, dry_run=True)
    assert told.status_code not in (400, 404, 412), told.text


MATCHED = [route for route in WRITES if not route.startswith("POST") or "{" in route]


def read_of(route: str) -> str:
    """The address of what a write is about: the longest beginning of its own that can be read."""
    path = route.split(" ")[1]
    while f"GET {path}" not in NEEDS:
        path = path.rpartition("/")[0]
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("route", MATCHED)
def test_the_etag_that_was_just_read_is_accepted(world: World, route: str) -> None:
    if route not in checked(world.api):
        return
    world.dead()
    read = world.api.call("GET", world.path(f"GET {read_of(route)}"))
    for dry_run in (True, False):
        found = world.write(route, dry_run=dry_run, **{"If-Match": read.headers["etag"]})
        assert found.status_code not in (400, 404, 412, 500), found.text


def test_every_write_that_knows_if_match_is_about_something_that_is_read(still: World) -> None:
    found = checked(still.api)
    assert found <= set(MATCHED)
    parts = {"{delivery}", "{rollout}", "{change}", "{key}", "{connection}", "{name}"}
    assert {part for part in parts for route in found if part in read_of(route)} == parts


# the object that is read, the write
PAIRS = [
    ("/connections/own", "DELETE /connections/{connection}"),
    ("/connections/own/selection", "POST /connections/{connection}/selection"),
    ("/connections/own/selection?columns=true", "POST /connections/{connection}/selection"),
    ("/connections/own/settings", "PUT /connections/{connection}/settings"),
    ("/connections/own", "POST /connections/{connection}/pause"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("read", "route"), PAIRS)
def test_what_was_read_is_written_once(world: World, read: str, route: str) -> None:
    tag = world.api.call("GET", read).headers["etag"]
    assert world.api.call("GET", read, headers={"If-None-Match": tag}).status_code == 304
    done = world.write(
        route, **{"If-Match": tag, "Idempotency-Key": "once"} if "PUT" not in route else {"If-Match": tag}
    )
    assert done.status_code in (200, 202), done.text
    if "DELETE" not in route:
        assert world.write(route, **{"If-Match": tag}).status_code == 412


def test_a_selection_that_another_has_turned(world: World) -> None:
    at = "/connections/own/selection"
    tag = world.api.call("GET", at).headers["etag"]
    assert world.api.call("POST", at, body={"verb": "off", "objects": ["main.orders"]}).status_code == 200
    body = {"verb": "on", "objects": ["main.refunds"]}
    for params in ({}, {"dry_run": "true"}):
        found = world.api.call("POST", at, body=body, params=params, headers={"If-Match": tag})
        assert (found.status_code, found.json()["code"]) == (412, "precondition_failed")
    tag = world.api.call("GET", at).headers["etag"]
    assert world.api.call("POST", at, body=body, headers={"If-Match": f'"x", {tag}'}).status_code == 200


def test_the_first_of_two_people_is_held_to_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").write_text("engine: local\nshelves: [.]\nfour_eyes: true\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        world = World(serve(app))
        tag, short = (
            world.api.call("GET", "/connections/own", params={"freshness": one}).headers["etag"]
            for one in ("true", "false")
        )
        for match, status in (('"stale"', 412), (tag, 409), (short, 409)):
            assert world.write("DELETE /connections/{connection}", **{"If-Match": match}).status_code == status
        assert [one.action for one in world.api.store.audit.page()] == ["connection.delete.requested"] * 2


def test_a_write_that_forgets_to_check_is_taken_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Write, "check", lambda *_: None)
    world.api.key("admin")
    before = world.state()
    found = world.write("POST /changes/{change}/approve", **{"If-Match": '"stale"'})
    assert (found.status_code, "If-Match" in found.json()["detail"]) == (400, True)
    assert world.state() == before
