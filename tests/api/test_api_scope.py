"""A key that is for some groups learns nothing of other groups' objects: what is theirs is answered word for word as
what there is not, and what is asked of the store does not grow with what is theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, recorded, serve
from sqlalchemy import event

from instep.bootstrap import open_server
from instep.model import Member
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.access import NEEDS, PREFIX, WHOLE
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.work.rollouts import RolloutDraft

FILE = """\
sources: {db: {type: sqlite, path: shop.db}, hrdb: {type: sqlite, path: hr.db}}
destinations: {lake: {type: duckdb, path: a.duckdb}, vault: {type: duckdb, path: b.duckdb}}
policies:
  plain: {preset: approve}
  salaries: {preset: approve, rules: [{on: [column.added], match: "hr.salaries.*", decide: review}]}
channels: {alarm: {type: webhook, url: "${env:ALARM_URL}", secret: "${env:ALARM_SECRET}"}}
connections:
  filed: {source: hrdb, destination: vault, tags: [hr], policy: salaries, notify: [{to: alarm, on: [failed]}]}
"""
UNKNOWN = "c-ffffffffffff"
ON = {"selection": [{"verb": "on", "object": "main.refunds"}]}


@dataclass
class World:
    api: Api
    mine: str
    theirs: str
    their_job: str
    their_run: str
    their_plan_job: str
    their_rollout: str

    def ask(self, method: str, path: str, body: Any = None, role: str = "approver", **more: Any) -> Any:
        headers = {**self.api.key(role, "eu"), **more.pop("headers", {})}
        return self.api.client.request(method, f"{PREFIX}{path}", json=body, headers=headers, **more)


def rollout(api: Api, *names: str) -> str:
    members = tuple(Member("", name, 1, "waiting", "applies", "") for name in names)
    what = {"selection": [["on", "main.refunds"]]}
    return api.store.rollouts.add(RolloutDraft(what, {"matching": ["*"]}, ("rest",), {}, members, "ann")).id


def table(name: str) -> Table:
    return Table("main", name, (Column("id", parse("int64"), nullable=False, key=1),))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("ALARM_URL", "https://example.com/x")
    monkeypatch.setenv("ALARM_SECRET", "hush" * 8)
    (tmp_path / "instep.yml").write_text(FILE)
    with open_server(tmp_path, insecure_dev=True) as app:
        for name, tag, source, lake, policy in (
            ("own", "eu", "db", "lake", "plain"), ("other", "hr", "hrdb", "vault", "salaries"),
        ):  # fmt: skip
            spec = {"source": source, "destination": lake, "tags": [tag], "policy": policy}
            app.objects.put("connection", name, spec, who="test")
            app.store.accepted.add(name, Catalog.of([table("orders")]), who="test", why="first")
            app.store.discoveries.save(name, CachedDiscovery(Catalog.of([table("orders"), table("refunds")]), "f"))
        api = serve(app)
        mine, theirs = recorded(api.store, "own", "note")[0].id, recorded(api.store, "other", "bonus")[0].id
        job, _ = api.store.jobs.enqueue("other", "sync")
        plan, _ = api.store.jobs.enqueue("other", "plan")
        run = api.store.runs.claim("other", "sync").id
        yield World(api, mine, theirs, job.id, run, plan.id, rollout(api, "own", "other"))


def same(world: World, ask: Callable[[str], Any], theirs: str, unknown: str) -> None:
    """Both answers, but for the name that the request itself has."""
    told = [ask(name) for name in (theirs, unknown)]
    bodies = [one.text.replace(name, "NAME") for one, name in zip(told, (theirs, unknown), strict=True)]
    assert told[0].status_code == told[1].status_code
    assert bodies[0] == bodies[1]


def group(**said: Any) -> dict[str, Any]:
    return {"group": said, **ON}


def change(text: str) -> dict[str, Any]:
    return {"group": {"tags": ["eu"]}, "change": {"change": text, "verdict": "approved"}}


BODIES: dict[str, Any] = {
    "pause": {"reason": "x"}, "undo": {"what": "c-1"}, "apply": {"plan": "j-1"},
    "declare-rename": {"old": "a.b", "new": "a.c"},
    "set-key": {"table": "a.b", "key": ["id"]}, "set-cursor": {"table": "a.b"}, "savepoints": {"table": "a.b"},
    "repair": {"table": "a.b"}, "changes/preview": {"change": "c-1"},
    "changes/publish": {"change": "c-1", "fingerprint": "f"},
    "changes/sample-rename": {"change": "c-1"}, "restore": {"table": "a.b", "snapshot": "7"},
    "selection": {"verb": "off", "objects": ["main"]},
    "backfills": {"table": "main.orders"}, "backfills/cancel": {"table": "main.orders"}, "settings": {"spec": {}},
    "quarantine/discard": {"ids": ["q-1"]}, "quarantine/erase": {"table": "a.b", "ids": ["q-1"]},
    "quarantine/matches": {"table": "a.b", "key": {"id": "7"}},
    "policy/test": {"cases": [{"change": "table.added", "table": "a.b", "expect": "apply"}]},
    "policy/simulation": {"name": "p", "policy": {}}, "snooze": {"duration": "3d"},
    "comments": {"text": "x"},
    "skip": {"connections": ["own"], "reason": "x"}, "detector/options": {"values": {"frequency": 1800}},
}  # fmt: skip
"""Bodies that are right, by the end of a route."""
PARTS = {
    "{connection}": ("other", "nobody"), "{change}": ("theirs", UNKNOWN), "{job}": ("their_job", "j-none"),
    "{run}": ("their_run", "r-none"), "{plan}": ("p-1", "p-none"), "{rollout}": ("their_rollout", "w-none"),
}  # fmt: skip
OBJECTS = {"sources": "hrdb", "destinations": "vault", "policies": "salaries", "channels": "alarm"}
OF_THE_KEY = ("GET /keys", "PUT /filters", "DELETE /filters")
PLACED = sorted(r for r in NEEDS if "{" in r and r not in WHOLE and not r.startswith(OF_THE_KEY))


@pytest.mark.sampled
@pytest.mark.parametrize("route", PLACED)
def test_what_is_theirs_is_not_there_in_any_path(world: World, route: str) -> None:
    method, path = route.split(" ")
    part = next((one for one in PARTS if one in path), "{name}")
    plural = path.split("/")[1]
    theirs, unknown = PARTS.get(part, (OBJECTS.get(plural, ""), "absent"))
    theirs = str(getattr(world, theirs, theirs))
    body = None
    if method != "GET" and method != "DELETE":
        ends = [end for end in BODIES if path.endswith(f"/{end}")]
        bare = path.endswith(("/approve", "/reject", "/ignore", "{job}/cancel", "{job}/retry", "{name}/test"))
        body = None if bare else BODIES[max(ends, key=len)] if ends else {}

    def ask(name: str) -> Any:
        at = path.replace(part, name).replace("{version}", "1")
        params = world.api.taken(
            route,
            {"of": "a.b", "table": "a.b", "path": "a.b", "kind": "x", "before": "0", "after": "1", "pattern": "*"},
        )
        found = world.ask(method, at, body, "admin", params=params)
        assert found.status_code in (403, 404), found.text
        return found

    same(world, ask, theirs, unknown)


NAMED: dict[str, tuple[Callable[[World, str], Any], str, str]] = {
    "a change of a rollout": (lambda w, n: w.ask("POST", "/rollouts", change(n)), "theirs", UNKNOWN),
    "a part of a change": (lambda w, n: w.ask("POST", "/rollouts", change(n)), "c-", "c-zz"),
    "a change by kind": (
        lambda w, n: w.ask("POST", "/rollouts", change(f"column.added:main.item.{n}")), "bonus", "absent",
    ),
    "a connection of a rollout": (lambda w, n: w.ask("POST", "/rollouts", group(connections=[n])), "other", "nobody"),
    "a tag of a rollout": (lambda w, n: w.ask("POST", "/rollouts", group(tags=[n])), "hr", "none"),
    "a destination of a rollout": (lambda w, n: w.ask("POST", "/rollouts", group(destinations=[n])), "vault", "none"),
    "a pattern of a rollout": (lambda w, n: w.ask("POST", "/rollouts", group(matching=[n])), "oth*", "xyz*"),
    "a canary": (lambda w, n: w.ask("POST", "/rollouts", {**group(tags=["eu"]), "canary": [n]}), "other", "nobody"),
    "a preset": (
        lambda w, n: w.ask("POST", "/rollouts", {"group": {"tags": ["eu"]}, "preset": n}), "salaries", "absent",
    ),
    "changes to answer": (
        lambda w, n: w.ask("POST", "/changes/answers", {"answer": "approved", "ids": [n]}), "theirs", UNKNOWN,
    ),
    "patterns to answer": (
        lambda w, n: w.ask("POST", "/changes/answers", {"answer": "approved", "patterns": [n]}), "main.item.b*", "z*",
    ),
    "kinds to answer": (
        lambda w, n: w.ask("POST", "/changes/answers", {"answer": "rejected", "kinds": ["column"], "patterns": [n]}),
        "*.bonus", "*.none",
    ),
    "a connection to answer": (
        lambda w, n: w.ask("POST", "/changes/answers", {"answer": "approved", "connection": n, "patterns": ["*"]}),
        "other", "nobody",
    ),
    "what is undone": (lambda w, n: w.ask("POST", "/connections/own/undo", {"what": n}), "theirs", UNKNOWN),
    "a run that is undone": (lambda w, n: w.ask("POST", "/connections/own/undo", {"what": n}), "their_run", "r-none"),
    "a plan that is applied": (
        lambda w, n: w.ask("POST", "/connections/own/apply", {"plan": n}), "their_plan_job", "j-none",
    ),
    "the policy of a simulation": (
        lambda w, n: w.ask("POST", "/connections/own/policy/simulation", {"name": n, "policy": {}}), "salaries", "none",
    ),
    "a job by how it begins": (lambda w, n: w.ask("GET", f"/queue/{n}"), "j-20", "j-19"),
    **{
        f"the list of {what} of a connection": (
            lambda w, n, what=what: w.ask("GET", f"/{what}", params={"connection": n}), "other", "nobody",
        ) for what in ("changes", "runs", "events", "queue", "events/stream")
    },
    **{
        f"{field}, {method}": (
            lambda w, n, field=field, method=method: w.ask(
                method, "/connections/own/settings", {"spec": settings(w, method, field, n)}
            ), theirs, "absent",
        )
        for method in ("PUT", "PATCH")
        for field, theirs in (
            ("policy", "salaries"), ("source", "hrdb"), ("destination", "vault"), ("notify", "alarm"), ("tags", "hr"),
        )
    },
}  # fmt: skip


def settings(world: World, method: str, field: str, name: str) -> dict[str, Any]:
    whole = world.ask("GET", "/connections/own/settings").json()["spec"] if method == "PUT" else {}
    said: Any = [{"to": name, "on": ["failed"]}] if field == "notify" else [name] if field == "tags" else name
    return {**whole, field: said}


@pytest.mark.sampled
@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("what", NAMED)
def test_what_is_theirs_is_not_there_by_any_name(world: World, what: str, dry_run: bool) -> None:
    ask, theirs, unknown = NAMED[what]
    theirs = str(getattr(world, theirs, theirs))
    if dry_run:
        plain = world.ask
        world.ask = lambda method, path, body=None, role="approver", **more: plain(  # type: ignore[method-assign]
            method, path, body, role, **({"params": {"dry_run": "true"}} if method != "GET" else {}) | more
        )
    for name in (theirs, unknown):
        if what not in ("the policy of a simulation",):
            assert ask(world, name).status_code in (403, 404, 422), name
    same(world, lambda name: ask(world, name), theirs, unknown)


def test_what_is_refused_tells_no_names(world: World) -> None:
    for name in ("salarie", "absent"):
        found = world.ask("PATCH", "/connections/own/settings", {"spec": {"policy": name}})
        assert (found.status_code, found.json()["errors"][0]["at"]) == (422, "/spec/policy")
        assert "salaries" not in found.text
    assert world.ask("GET", "/policies/salaries").status_code == 404


def test_other_mistakes_beside_a_policy_are_told_first_either_way(world: World) -> None:
    def ask(name: str) -> Any:
        return world.ask("PATCH", "/connections/own/settings", {"spec": {"policy": name, "surprise": 1}})

    assert "surprise" in ask("salaries").text
    same(world, ask, "salaries", "absent")


def test_a_policy_that_is_seen_may_be_named(world: World) -> None:
    for spec in ({"policy": "approve"}, {"policy": None}, {"policy": "allow_columns", "hash": []}):
        found = world.ask("PATCH", "/connections/own/settings", {"spec": spec})
        assert found.status_code == 200, found.text
    second = {"source": "db", "destination": "lake", "tags": ["eu"], "policy": "plain"}
    world.api.app.objects.put("connection", "own2", second, who="test")
    assert world.ask("PATCH", "/connections/own/settings", {"spec": {"policy": "plain"}}).status_code == 200
    whole = world.api.call("PATCH", "/connections/own/settings", "approver", {"spec": {"policy": "salaries"}})
    assert whole.status_code == 200, whole.text
    assert world.ask("PATCH", "/connections/own/settings", {"spec": {"policy": "salaries"}}).status_code == 200


def test_a_rollout_may_name_its_own_change_whole(world: World) -> None:
    for path in ("/rollouts", "/rollouts?dry_run=true"):
        assert world.ask("POST", path, change(world.mine[:5])).status_code == 422
    found = world.ask("POST", "/rollouts", change(world.mine))
    assert (found.status_code, [c["connection"] for c in found.json()["connections"]]) == (201, ["own"])
    whole = world.api.call("POST", "/rollouts", "approver", {**change(world.theirs), "group": {"matching": ["*"]}})
    assert whole.status_code == 201


def test_who_carries_on_a_rollout_reads_its_job(world: World) -> None:
    api, whole = world.api, world.their_rollout
    made = world.ask("POST", "/rollouts", group(tags=["eu"])).json()["rollout"]["id"]
    found = world.ask("POST", f"/rollouts/{made}/advance", {})
    job = found.json()["job"]
    assert found.status_code == 202
    for path in (f"/jobs/{job}", f"/queue/{job}"):
        assert (world.ask("GET", path).status_code, world.ask("GET", path).json()["kind"]) == (200, "rollout")
    assert [one["id"] for one in world.ask("GET", "/queue").json()["items"]] == [job]
    foreign = api.call("POST", f"/rollouts/{whole}/advance", "approver", {}).json()["job"]
    for path in (f"/jobs/{foreign}", f"/queue/{foreign}"):
        assert world.ask("GET", path).status_code == 404
    assert [one["id"] for one in world.ask("GET", "/queue").json()["items"]] == [job]
    assert {job, foreign} < {one["id"] for one in api.get("/queue")["items"]}
    assert world.ask("POST", f"/queue/{foreign}/cancel").status_code == 404
    assert world.ask("POST", f"/queue/{job}/cancel").status_code == 200


@contextmanager
def counted(api: Api) -> Iterator[list[str]]:
    asked: list[str] = []

    def note(_a: Any, _b: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    engine = api.store._db.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize("path", ["/queue", "/queue?limit=1", "/queue?status=dead", "/rollouts", "/rollouts?limit=1"])
def test_what_is_theirs_costs_no_queries(world: World, path: str) -> None:
    api, numbers = world.api, list[int]()
    second = {"source": "db", "destination": "lake", "tags": ["eu"], "policy": "plain"}
    api.app.objects.put("connection", "own2", second, who="test")
    api.store.jobs.enqueue("own", "sync")
    rollout(api, "own")
    world.ask("GET", path)
    for more in (0, 600):
        with api.store.transaction():
            for number in range(more):
                api.store.jobs.enqueue("other", "sync", key=f"k{number}")
        for _ in range(more // 10):
            rollout(api, "own", "other")
        with counted(api) as asked:
            found = world.ask("GET", path)
        assert (found.status_code, len(found.json()["items"])) == (200, 0 if "dead" in path else 1)
        assert found.json()["next_cursor"] is None
        numbers.append(len(asked))
    assert numbers[0] == numbers[1]


def test_pages_of_a_queue_are_the_same_as_the_whole(world: World) -> None:
    ids = [world.api.store.jobs.enqueue("own", "sync", key=f"k{number}")[0].id for number in range(7)]
    world.api.store.jobs.enqueue("other", "sync", key="more")
    for role in ("viewer", None):
        found, cursor = list[str](), None
        while cursor is not None or not found:
            params = {"limit": "3", **({"cursor": cursor} if cursor else {})}
            page = world.ask("GET", "/queue", params=params).json() if role else world.api.get("/queue", params=params)
            found, cursor = [*found, *(one["id"] for one in page["items"])], page["next_cursor"]
        assert len(found) == len(set(found))
        assert set(ids) == set(found) if role else set(ids) < set(found)
    assert world.ask("GET", "/queue", params={"cursor": "x"}).status_code == 400
