"""Streams that fail while others land: what may pass is tried again, what the configuration lacks is told at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airbyte_world import PLAYER, TEXT, AirbyteWorld, Line, error, record, records, state, status, stream
from instep.bootstrap import open_project
from instep.model import Job
from instep.worker.perform import JobEnd, perform

LIMITED: Line = {
    "type": "TRACE",
    "trace": {
        "type": "STREAM_STATUS",
        "emitted_at": 1,
        "stream_status": {
            "stream_descriptor": {"name": "users"},
            "status": "INCOMPLETE",
            "reasons": [{"type": "RATE_LIMITED", "rate_limited": {"quota_reset": 9}}],
        },
    },
}
ORDERS: list[Line] = [*records(1, 2, "orders"), state(2, 2, "orders"), status(name="orders")]
ENDS: list[tuple[str, list[Line], bool]] = [
    ("its error passes", [error("too many requests", "transient_error", "users"), status("INCOMPLETE")], True),
    ("an error of no stream passes", [error("too many requests", "transient_error"), status("INCOMPLETE")], True),
    ("its error is the configuration's", [error("no access", "config_error", "users"), status("INCOMPLETE")], False),
    ("its error is the system's", [error("boom", "system_error", "users"), status("INCOMPLETE")], False),
    ("one of its errors is the configuration's",
     [error("a", "transient_error", "users"), error("b", "config_error", "users"), status("INCOMPLETE")], False),
    ("another stream's error passes", [error("a", "transient_error", "orders"), status("INCOMPLETE")], False),
    ("its own error counts before one of no stream",
     [error("a", "transient_error"), error("b", "config_error", "users"), status("INCOMPLETE")], False),
    ("its source lets it read no more", [LIMITED], True),
    ("it does not say why", [status("INCOMPLETE")], False),
    ("what it sends is wrong",
     [error("a", "transient_error", "users"), record(name="x"), state(1, 1), status()], False),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "passes"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS])
def test_the_report_names_streams_that_may_be_complete_later(
    world: AirbyteWorld, lines: list[Line], passes: bool
) -> None:
    world.streams = [stream(name=TEXT), stream("orders")]
    report = world.read(*ORDERS, *lines)
    assert world.statuses(report) == {"users": "failed", "orders": "done"}
    assert report.retryable == (("users",) if passes else ())


PROJECT = """version: 1
engine: local
sources:
  api: {{type: airbyte, command: [{python}, player.py]}}
destinations:
  there: {{type: duckdb, path: w.db}}
connections:
  shop: {{source: api, destination: there}}
"""


def attempt(folder: Path, attempts: int, *lines: Line) -> tuple[JobEnd, Job]:
    """One attempt of a worker at a sync in which the connector sends this, and what became of the job."""
    streams = [stream(name=TEXT), stream("orders")]
    script: dict[str, Any] = {"streams": streams, "after": streams, "lines": lines, "specification": {}}
    (folder / "script.json").write_text(json.dumps(script))
    with open_project(folder) as app:
        app.store.jobs.enqueue("shop", "sync", key="test", attempts=attempts)
        job = app.store.jobs.claim("test")
        assert job is not None
        ended = perform(app, job)
        if ended.error:
            return ended, app.store.jobs.fail(job, ended.error, retryable=ended.transient, result=ended.result)
        return ended, app.store.jobs.finish(job, result=ended.result)


@pytest.mark.parametrize(
    ("kind", "attempts", "becomes"),
    [("transient_error", 3, "queued"), ("transient_error", 1, "done"), ("config_error", 3, "done")],
)
def test_a_worker_tries_again_what_may_pass(tmp_path: Path, kind: str, attempts: int, becomes: str) -> None:
    (tmp_path / "player.py").write_text(PLAYER)
    (tmp_path / "instep.yml").write_text(PROJECT.format(python=sys.executable))
    ended, job = attempt(tmp_path, attempts, *ORDERS, error("too many requests", kind, "users"), status("INCOMPLETE"))
    assert job.status == becomes
    assert ended.result["status"] == "partial"
    assert ended.result["failed"] == ["users: connector shop: too many requests"]
    assert bool(ended.error) == (becomes == "queued")
    with open_project(tmp_path) as app:
        assert [one.status for one in app.store.runs.history("shop")] == ["partial"]
        assert app.store.connectors.get("shop").state["streams"][0]["state"] == {"at": 2}, "the others are not lost"
