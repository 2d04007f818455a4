"""Four eyes over the end of a connection, by both APIs and by the command."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, serve
from compat_world import Compat, compatible

from instep.bootstrap import open_server
from instep.cli.main import main
from instep.control.resources import api_keys
from instep.model import Job
from instep.sync.run import RunScope, sync
from instep.worker.perform import perform

FILE = """\
engine: local
four_eyes: true
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: l.duckdb}}
"""
MINE = {"confirm": "mine", "tables": "drop"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    tmp_path.joinpath("instep.yml").write_text(FILE)
    with open_server(tmp_path, insecure_dev=True) as app:
        made = serve(app)
        made.call("POST", "/connections", body={"name": "mine", "spec": {"source": "db", "destination": "lake"}})
        yield made


def ends(api: Api, who: str = "", **params: Any) -> Any:
    """A deletion that the admin asks for, or the admin called `who`."""
    headers: dict[str, str] = {}
    if who:
        if who not in api.secrets:
            api.secrets[who] = api_keys.create(api.store, who, "admin", "test").secret
        headers = {"Authorization": f"Bearer {api.secrets[who]}"}
    return api.call("DELETE", "/connections/mine", params={**MINE, **params}, headers=headers)


def test_the_first_is_refused_and_the_second_begins_it(api: Api) -> None:
    rehearsed = ends(api, dry_run="true")
    assert (rehearsed.status_code, api.store.events.latest(types=("operation.requested",))) == (409, [])
    refused = ends(api)
    assert (refused.status_code, refused.json()["code"]) == (409, "blocked")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "its tables are DROPPED: with four_eyes this takes two people" in refused.json()["detail"]
    assert ends(api).status_code == 409
    assert ends(api, "other", tables="keep").status_code == 409, "it is another request"
    assert api.store.jobs.counts() == {}
    assert [e.action for e in api.store.audit.page()].count("connection.delete.requested") == 3
    assert ends(api, "other").status_code == 202
    job = api.store.jobs.claim("test")
    assert job is not None
    assert perform(api.app, job).error == ""
    assert api.store.objects.get("connection", "mine") is None


TABLES = """
    create table item (id integer primary key, size integer); insert into item values (1, 1);
"""


def held(api: Api) -> str:
    """The id of a value that did not fit."""
    for script in (TABLES, "insert into item values (2, 'wide')"):
        with closing(sqlite3.connect(api.app.project.root / "shop.db")) as connection:
            connection.executescript(script)
        sync(api.app.sync_context("mine"), RunScope(), engine=api.app.engine("mine"))
    [one] = api.get("/connections/mine/quarantine")["items"]
    return str(one["id"])


def works(api: Api) -> tuple[Job, str]:
    """The next job and the error that it ended with."""
    job = api.store.jobs.claim("test")
    assert job is not None
    ended = perform(api.app, job)
    api.store.jobs.finish(job, "failed" if ended.error else "done", error=ended.error, result=ended.result)
    return api.store.jobs.get(job.id), ended.error


def test_while_the_connection_is_busy_everybody_s_request_counts(api: Api) -> None:
    path, body = "/connections/mine/quarantine/discard", {"ids": [held(api)]}
    api.call("POST", "/connections/mine/verify", body={})
    busy = api.store.jobs.claim("other")
    assert busy is not None
    other = {"Authorization": f"Bearer {api_keys.create(api.store, 'other', 'admin', 'test').secret}"}
    asked = [api.call("POST", path, body=body, headers=headers) for headers in ({}, other, {}, other)]
    assert [a.status_code for a in asked] == [202, 202, 200, 200]
    ids = [a.json()["id"] for a in asked]
    assert ids[:2] == ids[2:]
    api.store.jobs.finish(busy)
    first, error = works(api)
    assert (first.id, first.result["problem"]["type"]) == (ids[0], "Blocked")
    assert f"only {first.who} has asked for it" in error
    second, error = works(api)
    assert (second.id, error, second.result["discarded"]) == (ids[1], "", len(body["ids"]))
    assert first.who != second.who


def approved_removal(api: Api) -> dict[str, Any]:
    """The change of a column that has gone at the source, which admin has approved."""
    spec = {"source": "db", "destination": "lake", "policy": "approve"}
    api.call("PUT", "/connections/mine/settings", body={"spec": spec})
    held(api)
    with closing(sqlite3.connect(api.app.project.root / "shop.db")) as connection:
        connection.executescript("alter table item drop column size")
    api.call("POST", "/connections/mine/detect", body={})
    works(api)
    [change] = [c for c in api.get("/changes?status=open")["items"] if c["kind"] == "column.removed"]
    assert api.call("POST", f"/changes/{change['id']}/approve", body={}).status_code == 200
    return dict(change)


def test_a_plan_waits_for_whoever_asks_for_it(api: Api) -> None:
    """Its approver comes first, and the job that applies it would be refused; somebody else's is one of its own."""
    change = approved_removal(api)
    other = {"Authorization": f"Bearer {api_keys.create(api.store, 'other', 'admin', 'test').secret}"}
    api.call("POST", "/connections/mine/plans", body={}, headers=other)
    plan, error = works(api)
    assert error == ""
    body = {"plan": plan.id, "allow": ["*"]}
    asked = [api.call("POST", "/connections/mine/apply", body=body, headers=h) for h in ({}, other, {}, other)]
    assert [a.status_code for a in asked] == [202, 202, 200, 200]
    assert "four_eyes" in works(api)[1]
    done, error = works(api)
    assert (done.who.startswith("other"), error) == (True, "")
    assert [c["status"] for c in api.get("/changes")["items"] if c["id"] == change["id"]] == ["applied"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_sync_for_its_approver_becomes_one_for_whoever_asks_next(api: Api, begun: bool) -> None:
    """One that waits is for both of them; beside one that runs already the other gets one of their own."""
    change = approved_removal(api)
    other = {"Authorization": f"Bearer {api_keys.create(api.store, 'other', 'operator', 'test').secret}"}
    first = api.call("POST", "/connections/mine/sync", body={}).json()
    running = api.store.jobs.claim("test") if begun else None
    second, again = (api.call("POST", "/connections/mine/sync", body={}, headers=other) for _ in range(2))
    assert (again.status_code, again.json()["id"]) == (200, second.json()["id"])
    assert (second.status_code, second.json()["id"] == first["id"]) == ((202, False) if begun else (200, True))
    asked = [e.data["who"].partition(" ")[0] for e in api.store.events.after(0, types=("sync.requested",))]
    assert asked == ["admin", "other"]
    if running is not None:
        assert perform(api.app, running).error == ""
        assert status(api, change) == "approved", "it is not carried out for its approver"
        api.store.jobs.finish(running)
    done, error = works(api)
    assert ("other" in done.who, "admin" in done.who, error) == (True, not begun, "")
    assert status(api, change) == "applied"


def status(api: Api, change: dict[str, Any]) -> str:
    return str(next(c["status"] for c in api.get("/changes")["items"] if c["id"] == change["id"]))


def test_a_job_cannot_get_around_it(api: Api) -> None:
    job, _ = api.store.jobs.enqueue(
        "mine", "delete_connection", options={"tables": "keep", "named": "mine"}, who="mallory"
    )
    claimed = api.store.jobs.claim("test")
    assert claimed is not None
    assert claimed.id == job.id
    ended = perform(api.app, claimed)
    assert "only mallory has asked for it" in ended.error
    assert not ended.transient
    assert api.store.objects.get("connection", "mine") is not None


@pytest.fixture
def compat(tmp_path: Path) -> Iterator[Compat]:
    with compatible(tmp_path, file="four_eyes: true\n") as opened:
        yield opened


def test_the_compatible_api_asks_for_two_as_well(compat: Compat) -> None:
    said = compat.ask("DELETE", "/connections/shop", status=409)
    assert "takes two people" in said["message"]
    assert compat.store.objects.get("connection", "shop") is not None
    other = api_keys.create(compat.store, "other", "admin", "test")
    answer = compat.client.delete("/v1/connections/shop", auth=(other.key.id, other.secret))
    assert answer.status_code == 200, answer.text
    assert compat.store.objects.get("connection", "shop") is None


@pytest.mark.parametrize("begun", [False, True])
def test_the_older_form_of_a_sync_counts_for_whoever_asks(compat: Compat, begun: bool) -> None:
    """It joins a sync that waits, and comes behind one that runs for somebody else alone."""
    compat.worker.stop()
    first, _ = compat.store.jobs.enqueue("shop", "sync", who="ann")
    assert not begun or compat.store.jobs.claim("test")
    for _ in range(2):
        compat.ask("POST", "/connections/shop/force")
    waits = compat.store.jobs.queued("shop", "sync")
    assert waits is not None
    assert ("ann, " in waits.who, waits.id == first.id, len(compat.store.jobs.unfinished(["shop"]))) == (
        not begun, not begun, 1 + begun,
    )  # fmt: skip


def test_the_command_says_who_is_missing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--project", str(api.app.project.root), "connection", "delete", "mine", "--confirm", "mine"]
    api.app.project.root.joinpath("instep.yml").write_text(FILE + "connections: {mine: {}}\n")
    assert main(words) == 3
    said = capsys.readouterr().err
    assert "connection delete: its tables are kept: with four_eyes this takes two people" in said
    assert "another person has to request the same within 7 days" in said
