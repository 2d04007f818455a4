"""Work on request, from the request to what the worker has done: plans, their application, undo, backfills, the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, serve

from instep.bootstrap import App, open_server
from instep.worker.perform import perform

FILE = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {shop: {tags: [europe], policy: approve}}
"""


@dataclass
class Works(Api):
    """A server with a worker that works when it is told to."""

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.app.project.root / "shop.db")) as connection:
            connection.executescript(script)

    def done(self, answer: Any, status: str = "done") -> dict[str, Any]:
        """The job of an answer, once the worker has done it."""
        assert answer.status_code == 202, answer.text
        store, app = self.app.store, self.app
        assert isinstance(app, App)
        job = store.jobs.claim("test")
        assert job is not None
        assert answer.headers["location"] == f"/api/v1/jobs/{job.id}"
        ended = perform(app, job)
        store.jobs.note_run(job, ended.run)
        store.jobs.finish(job, "failed" if ended.error else "done", error=ended.error, result=ended.result)
        found: dict[str, Any] = self.get(f"/jobs/{job.id}")
        assert found["status"] == status, found
        return found

    def post(self, path: str, body: dict[str, Any] | None = None, role: str = "admin") -> Any:
        return self.call("POST", f"/connections/{path}", role, body or {})


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Works]:
    tmp_path.joinpath("instep.yml").write_text(FILE)
    with open_server(tmp_path, insecure_dev=True) as app:
        made = serve(app)
        works = Works(made.app, made.client)
        works.sql("create table item (id integer primary key, name text); insert into item values (1, 'pen')")
        from instep.sync.run import RunScope, sync

        sync(app.sync_context("shop"), RunScope(), engine=app.engine("shop"))
        yield works


def approved(api: Works) -> str:
    """A column that is new at the source, approved; the id of the change."""
    api.sql("alter table item add column note text")
    api.done(api.post("shop/plans"))
    [change] = api.get("/changes", params={"status": "open"})["items"]
    assert api.call("POST", f"/changes/{change['id']}/approve").status_code == 200
    return str(change["id"])


def test_from_a_plan_to_an_undo(api: Works) -> None:
    change = approved(api)
    made = api.done(api.post("shop/plans", role="operator"))
    assert made["result"]["drops"] == []
    assert any("note" in line for line in made["result"]["lines"])
    applied = api.done(api.post("shop/apply", {"plan": made["id"]}, "operator"))
    assert applied["run"].startswith("r-")
    assert api.get("/connections/shop/plans")["items"][0]["id"] == applied["result"]["id"]
    again = api.done(api.post("shop/apply", {"plan": made["id"]}), "failed")
    assert "moved" in again["error"] or "plan again" in again["error"]
    told = api.done(api.post("shop/undo", {"what": change, "preview": True}))
    assert "version" not in told["result"]
    undone = api.done(api.post("shop/undo", {"what": change}))["result"]
    assert undone["version"] > applied["result"]["version"]
    again = api.done(api.post("shop/undo", {"what": change}))["result"]
    assert (again["changes"], again["version"]) == ([], undone["version"]), "it is done already"
    events = [e["type"] for e in api.get("/events")["items"]]
    assert "change.undone" in events


def test_a_backfill_of_a_table_and_of_a_column(api: Works) -> None:
    assert api.done(api.post("shop/backfills", {"table": "main.item"}, "operator"))["result"]["tables"] == 1
    asked = api.post("shop/backfills", {"table": "main.item", "columns": ["name"]})
    [waits] = api.get("/connections/shop/backfills", params={"status": "requested"})["items"]
    assert (waits["table"], waits["column"]) == (["main", "item"], "name")
    api.done(asked)
    assert api.get("/connections/shop/backfills")["items"][0]["status"] == "done"


def test_rows_are_repaired_and_only_an_approver_lets_some_go(api: Works) -> None:
    api.sql("insert into item values (2, 'ink')")
    api.done(api.post("shop/sync", {}, "operator"))
    api.sql("update item set name = 'z' where id = 1; delete from item where id = 2")
    shown = api.done(api.post("shop/repair", {"table": "main.item", "preview": True}, "operator"))["result"]
    assert [shown["document"][name] for name in ("missing", "differing", "extra")] == [0, 1, 1]
    refused = api.done(api.post("shop/repair", {"table": "main.item"}, "operator"), "failed")
    assert "would be deleted" in refused["error"]
    assert api.post("shop/repair", {"table": "main.item"}, "viewer").status_code == 403
    allowed = {"table": "main.item", "allow": ["main.item"]}
    assert api.post("shop/repair", allowed, "operator").status_code == 403
    done = api.done(api.post("shop/repair", allowed, "approver"))["result"]
    assert (done["inserted"], done["updated"], done["deleted"], done["verdict"]["equal"]) == (0, 1, 1, True)
    assert "connection.repair" in [one.action for one in api.store.audit.page()]


REFUSED: list[tuple[str, dict[str, Any], str, int]] = [
    ("shop/backfills", {"table": "main.none"}, "operator", 404),
    ("shop/backfills", {"table": "main.item", "columns": ["none"]}, "operator", 404),
    ("shop/apply", {"plan": "j-none"}, "operator", 422),
    ("shop/apply", {"plan": "j-none", "allow": ["*"]}, "operator", 403),
    ("shop/apply", {"plan": "j-none", "allow": ["*"]}, "approver", 422),
    ("shop/undo", {"what": "c-none"}, "approver", 404),
    ("shop/undo", {"what": "r-none"}, "approver", 404),
    ("none/plans", {}, "operator", 404),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("path", "body", "role", "status"), REFUSED)
def test_what_makes_no_job(api: Works, path: str, body: dict[str, Any], role: str, status: int) -> None:
    found = api.post(path, body, role)
    assert (found.status_code, api.store.jobs.counts()) == (status, {}), found.text


def test_asking_twice_and_rehearsing(api: Works) -> None:
    rehearsed = api.call("POST", "/connections/shop/plans", body={}, params={"dry_run": "true"})
    assert (rehearsed.status_code, api.store.jobs.counts(), "location" in rehearsed.headers) == (200, {}, False)
    first, second = api.post("shop/plans"), api.post("shop/plans")
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]
    assert first.headers["location"] == second.headers["location"]


def test_the_end_of_a_connection(api: Works) -> None:
    at = "/connections/shop"
    found = api.call("DELETE", at, params={"confirm": "shop"})
    assert (found.status_code, found.json()["code"]) == (409, "conflict"), "the file says it"
    api.call("POST", "/connections", body={"name": "mine", "spec": {"source": "db", "destination": "lake"}})
    assert api.call("DELETE", "/connections/mine").json()["code"] == "blocked", "its name is the consent"
    ended = api.done(api.call("DELETE", "/connections/mine", params={"confirm": "mine", "tables": "drop"}))
    assert ended["result"]["connection"] == "mine"
    assert [c["name"] for c in api.get("/connections")["items"]] == ["shop"]


def test_a_key_for_a_group_sees_its_own_jobs(api: Works) -> None:
    job = api.post("shop/plans").json()["id"]
    for group, status in (("europe", 200), ("america", 404)):
        headers = api.key("viewer", group)
        assert api.client.get(f"/api/v1/jobs/{job}", headers=headers).status_code == status


def test_what_stands_at_the_destination_takes_an_operator_and_holds_no_row(api: Works) -> None:
    assert api.post("shop/tables", role="viewer").status_code == 403
    asked = api.post("shop/tables", {"table": "main.item", "preview": 1}, role="operator")
    assert (asked.status_code, "preview" in asked.text) == (422, True)
    found = api.done(api.post("shop/tables", {"table": "main.item"}, role="operator"))["result"]
    [table] = found["tables"]
    assert (table["table"], table["destination"], table["rows"], table["key"]) == ("main.item", "shop.item", 1, ["id"])
    assert [(one["column"], one["status"]) for one in found["columns"]] == [("id", "read"), ("name", "read")]
    assert found["preview"] is None
    assert "pen" not in str(found)
    failed = api.done(api.post("shop/tables", {"table": "main.nope"}, role="operator"), "failed")
    assert "connection shop has no table main.nope" in failed["error"]
