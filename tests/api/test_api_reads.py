"""What can be read: pages, single things, the stream, the description and its page."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, project, recorded, serve

from instep.events import Paused, TableMaintained
from instep.model import PATTERN, TableRun
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.access import NEEDS, OPEN, PREFIX
from instep.server.paging import cursor, place
from instep.server.problems import TITLES, ApiProblem
from instep.server.routes.health import page
from instep.store.catalogs.plans import PlannedStep

ROOT = Path(__file__).parents[2]
MANY = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {a: {preset: approve}, b: {preset: stop}, c: {preset: block_all}}
connections:
""" + "".join(f"  shop{n:02}: {{tags: [t{n % 3}], policy: {'abc'[n % 3]}}}\n" for n in range(20))


def walk(api: Api, path: str, limit: int, **params: Any) -> list[dict[str, Any]]:
    """All pages of a list."""
    found: list[dict[str, Any]] = []
    behind: str | None = None
    while True:
        asked = {"limit": limit, **params, **({"cursor": behind} if behind else {})}
        answer = api.get(path, params=asked)
        assert len(answer["items"]) <= limit
        found += answer["items"]
        behind = answer["next_cursor"]
        if behind is None:
            return found


@pytest.mark.parametrize("limit", [1, 7, 20, 100])
def test_connections_in_pages(tmp_path: Path, limit: int) -> None:
    with project(tmp_path, MANY) as app:
        api = serve(app)
        names = [one["name"] for one in walk(api, "/connections", limit)]
        assert names == [f"shop{n:02}" for n in range(20)]
        assert [o["name"] for o in walk(api, "/connections", limit, search="P1")] == names[10:]
        assert [o["name"] for o in walk(api, "/connections", limit, tag="t1")] == names[1::3]
        assert [(p["name"], p["spec"]["preset"]) for p in walk(api, "/policies", limit)] == [
            ("a", "approve"), ("b", "stop"), ("c", "block_all")
        ]  # fmt: skip


def test_what_a_connection_is_up_to(api: Api) -> None:
    def status() -> str:
        return str(api.get("/connections/eu")["status"])

    assert status() == "new"
    run = api.store.runs.claim("eu", "sync")
    assert status() == "running"
    api.store.runs.finish(run, "failed", "the source is gone")
    assert status() == "failing"
    api.store.runs.finish(api.store.runs.claim("eu", "sync"), "done")
    assert status() == "idle"
    recorded(api.store, "eu", "note")
    assert status() == "waiting"
    api.store.pauses.pause("eu", "manually")
    found = api.get("/connections/eu")
    assert (found["status"], found["waiting"], found["last_run"]["status"]) == ("paused", 1, "done")
    assert [p["reason"] for p in found["pauses"]] == ["manually"]
    assert (found["source"], found["destination"], found["namespace"]) == ("db", "lake", "eu")
    api.store.pauses.resume("eu", who="test")
    api.store.jobs.enqueue("eu", "detect", source="db")
    assert status() == "waiting"
    job = api.store.jobs.claim("w", kinds=("detect",))
    assert status() == "processing"
    assert job is not None
    api.store.jobs.finish(job)
    assert status() == "waiting"


def test_changes_in_pages_and_by_filter(api: Api) -> None:
    mine = recorded(api.store, "eu", *"abcde")
    recorded(api.store, "us", *"xy")
    api.store.reviews.decide(mine[0].id, "approved", "ann")
    assert len({one["id"] for one in walk(api, "/changes", 2)}) == 7
    assert len(walk(api, "/changes", 2, connection="eu")) == 5
    assert [o["id"] for o in walk(api, "/changes", 2, status="approved")] == [mine[0].id]
    assert len(walk(api, "/changes", 3, status=["approved", "open"], kind="column.added")) == 7
    assert walk(api, "/changes", 3, kind="table.added") == []
    one = api.get(f"/changes/{mine[0].id}")
    assert (one["table"], one["column"], one["status"]) == (["main", "item"], "a", "approved")
    assert api.call("GET", "/changes?status=done").status_code == 422
    assert api.call("GET", "/changes?connection=nope").status_code == 404


def test_runs_with_tables_and_plans_with_steps(api: Api) -> None:
    for _ in range(3):
        run = api.store.runs.claim("eu", "sync", detail={"why": "x"})
        api.store.runs.record_tables(TableRun(run.id, ("main", "item"), "done", read=3))
        api.store.runs.finish(run, "done")
        step = PlannedStep("s1", "eu.item", "add column", "add note")
        plan = api.store.plans.open(
            "eu", "p", {"steps": []}, [step], base_accepted="a", base_destination="d", run=run.id
        )
    runs = walk(api, "/runs", 2, connection="eu", status="done", kind="sync")
    assert [r["fence"] for r in runs] == [3, 2, 1]
    found = api.get(f"/runs/{run.id}")
    assert found["outcomes"] == {"done": 1}
    assert [p["id"] for p in found["plans"]] == [plan.id]
    assert [(t["table"], t["read"]) for t in walk(api, f"/runs/{run.id}/tables", 1)] == [("main.item", 3)]
    assert [s["text"] for s in walk(api, f"/runs/{run.id}/steps", 1)] == ["add note"]
    assert [p["id"] for p in walk(api, "/connections/eu/plans", 2)] == ["p-3", "p-2", "p"]
    assert [s["text"] for s in api.get(f"/plans/{plan.id}")["steps"]] == ["add note"]
    for path in (f"/runs/{run.id[:-1]}", "/runs/r-", "/plans/p-9"):
        assert api.call("GET", path).status_code == 404


def test_schemas_as_they_were(api: Api) -> None:
    for names in (("id",), ("id", "note"), ("id", "note", "more")):
        columns = tuple(Column(n, parse("int64")) for n in names)
        api.store.accepted.add("eu", Catalog.of([Table("main", "item", columns)]), who="ann", why="let in")
    found = walk(api, "/connections/eu/history", 2)
    assert [v["version"] for v in found] == [3, 2, 1]
    shown = api.get("/connections/eu/history/2")
    assert [c["name"] for c in shown["catalog"]["tables"][0]["columns"]] == ["id", "note"]
    assert walk(api, "/connections/eu/history", 2, side="destination") == []
    assert api.call("GET", "/connections/eu/history/9").status_code == 404
    assert api.call("GET", "/connections/eu/history/x").status_code == 422


def test_a_policy_as_it_stands(api: Api) -> None:
    found = api.get("/connections/eu/policy")
    assert (found["preset"], found["where"]) == ("approve", "instep.yml:3")
    assert {k["kind"] for k in found["kinds"]} >= {"column.added", "table.removed"}


def test_the_tables_of_a_run_and_of_a_connection_come_in_pages(api: Api) -> None:
    """Of two plans and five tables with three outcomes; one table is accepted no more, one was in an earlier run."""
    names = [("", "loose"), ("main", "a"), ("main", "b"), ("main", "c"), ("main", "d")]
    accepted = [Table(*ref, (Column("id", parse("int64")),)) for ref in [*names, ("main", "before")]]
    api.store.accepted.add("eu", Catalog.of(accepted), who="ann", why="baseline", base="")
    earlier = api.store.runs.claim("eu", "sync")
    api.store.runs.record_tables(*(TableRun(earlier.id, ("main", name), "done") for name in ("before", "gone", "a")))
    api.store.runs.finish(earlier, "done")
    run = api.store.runs.claim("eu", "sync")
    outcomes = dict(zip(names, ("done", "failed", "done", "paused", "failed"), strict=True))
    api.store.runs.record_tables(*(TableRun(run.id, ref, status) for ref, status in outcomes.items()))
    api.store.runs.record_tables(TableRun(run.id, ("", "main.nothing*"), "missing", PATTERN))
    api.store.events.add(TableMaintained("eu", run.id, "main.b", 9, 3, 900, 300, 6, 1, 0, 0, 0.5))
    for plan in ("p-x", "p-y"):
        steps = [PlannedStep(f"s{n}", "eu.item", "add column", f"{plan} {n}") for n in range(3)]
        api.store.plans.open("eu", plan, {}, steps, base_accepted="", base_destination="", run=run.id)
    api.store.runs.finish(run, "partial")
    found = api.get(f"/runs/{run.id}")
    assert found["outcomes"] == {"done": 2, "failed": 2, "missing": 1, "paused": 1}
    assert "tables" not in found
    assert "steps" not in found["plans"][0]
    of_run = [t["table"] for t in walk(api, f"/runs/{run.id}/tables", 2)]
    assert of_run == ["loose", "main.nothing*", "main.a", "main.b", "main.c", "main.d"]
    assert [t["table"] for t in walk(api, f"/runs/{run.id}/tables", 1, status="failed")] == ["main.a", "main.d"]
    texts = [one["text"] for one in walk(api, f"/runs/{run.id}/steps", 2)]
    assert texts == [f"{plan} {n}" for plan in ("p-x", "p-y") for n in range(3)]
    status = api.get("/connections/eu/status")
    assert (status["outcomes"], status["unmatched"]) == ({"done": 3, "failed": 2, "paused": 1}, 1)
    assert (status["maintained"], status["last_maintained"]["files"]) == (1, 3)
    path = "/connections/eu/status/tables"
    shown = walk(api, path, 2)
    assert [one["table"][1] for one in shown] == ["loose", "main.nothing*", "a", "b", "before", "c", "d"]
    assert [one["table"][1] for one in shown if one["maintained"]] == ["b"]
    assert [one["table"][1] for one in walk(api, path, 1, search="MAIN.B")] == ["b", "before"]
    assert [one["table"][1] for one in walk(api, path, 1, status="failed")] == ["a", "d"]
    assert api.call("GET", path, params={"limit": 201}).status_code == 422


def test_nothing_is_held_before_the_first_load(api: Api) -> None:
    assert api.get("/connections/eu/quarantine", "operator") == {
        "items": [],
        "next_cursor": None,
        "unreadable": [],
        "waiting": {},
    }


class TestEvents:
    def test_pages(self, api: Api) -> None:
        api.store.events.add(*(Paused("eu", str(n), "") for n in range(5)))
        assert [e["data"]["reason"] for e in walk(api, "/events", 2)] == ["4", "3", "2", "1", "0"]
        assert walk(api, "/events", 2, type="resumed") == []

    def test_the_stream_goes_on_where_it_was_left(self, api: Api) -> None:
        api.store.events.add(*(Paused("eu", f"reason {n}", "") for n in range(3)))
        text = api.call("GET", "/events/stream?after=1").text
        assert re.findall(r"^id: (\d+)$", text, re.M) == ["2", "3"]
        assert text.startswith("retry: ")
        data = json.loads(re.findall(r"^data: (.*)$", text, re.M)[0])
        assert (data["number"], data["data"]["reason"]) == (2, "reason 1")
        last = api.call("GET", "/events/stream?after=0", headers={"Last-Event-ID": "2"}).text
        assert re.findall(r"^id: (\d+)$", last, re.M) == ["3"]
        assert re.findall(r"^id: (\d+)$", api.call("GET", "/events/stream").text, re.M) == []
        assert api.call("GET", "/events/stream", headers={"Last-Event-ID": "x"}).status_code == 422


@pytest.mark.parametrize(
    "text", ["", "x", "!!!", cursor([1, 2, 3]), cursor(["x"]), cursor([1.5]), cursor([True]), cursor([2**63]), "W1tb"]
)
def test_what_is_no_cursor(api: Api, text: str) -> None:
    with pytest.raises(ApiProblem):
        place(text, int)
    assert api.call("GET", "/events", params={"cursor": text}).status_code == 400


@pytest.mark.parametrize("when", ["2026-01-01", "0001-01-01T00:00:00+14:00", "x", 1, None])
def test_a_time_in_a_cursor_is_checked(api: Api, when: Any) -> None:
    assert api.call("GET", "/runs", params={"cursor": cursor([when, "r"])}).status_code == 400


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "9" * 30])
def test_what_is_no_limit(api: Api, limit: str) -> None:
    found = api.call("GET", "/changes", params={"limit": limit})
    assert (found.status_code, found.json()["errors"][0]["at"]) == (422, "query.limit")


class TestDescription:
    def test_the_file_is_what_the_server_says(self, api: Api) -> None:
        spec = importlib.util.spec_from_file_location("openapi", ROOT / "scripts" / "openapi.py")
        assert spec is not None
        assert spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        made = script.documents()
        for name, text in made.items():
            assert (script.FOLDER / name).read_text() == text, "run scripts/openapi.py"
        assert json.loads(made["openapi.json"]) == api.client.get(f"{PREFIX}/openapi.json").json()
        assert json.loads(made["compatible-openapi.json"]) == api.client.get("/v1/openapi.json").json()

    def test_every_route_tells_its_role_and_its_problems(self, api: Api) -> None:
        paths = api.client.get(f"{PREFIX}/openapi.json").json()["paths"]
        for route, role in NEEDS.items():
            method, path = route.split(" ")
            said = paths[PREFIX + path][method.lower()]
            assert said["x-role"] == role
            assert said["security"] == [{"bearer": []}, {"basic": []}]
            assert {"400", "401", "403", "404", "422", "429"} <= said["responses"].keys()

    def test_the_page_has_all_of_it_and_nothing_from_elsewhere(self, api: Api) -> None:
        text = api.client.get(f"{PREFIX}/docs").text
        for route in (name for name in NEEDS if name not in OPEN):
            method, path = route.split(" ")
            assert f"{method} {PREFIX}{path}" in text
        assert all(f'id="problem-{code}"' in text for code in TITLES)
        assert "<script" not in text
        assert re.findall(r'(?:src|href)="(?!#)([^"]*)"', text) == ["docs.css", "openapi.json"]
        assert api.client.get(f"{PREFIX}/docs.css").headers["content-type"].startswith("text/css")

    def test_texts_of_the_page_are_escaped(self) -> None:
        api = {
            "info": {"title": "<b>"},
            "paths": {"/<x>": {"get": {"description": "<i>"}}},
            "components": {"schemas": {}},
        }
        assert not re.search(r"<b>|<x>|<i>", page(api))


def test_not_ready_without_its_store(api: Api) -> None:
    place = api.app.project.root / ".instep" / "state.db"
    api.store.close()
    for file in place.parent.iterdir():
        file.unlink()
    place.mkdir()
    assert api.client.get("/readyz").status_code == 503
    assert api.client.get("/healthz").status_code == 200


def test_links_of_problems_lead_to_the_page(api: Api) -> None:
    found = api.call("GET", "/nothing").json()
    path, _, anchor = found["docs"].partition("#")
    assert f'id="{anchor}"' in api.client.get(path).text
