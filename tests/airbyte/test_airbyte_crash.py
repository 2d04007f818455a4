"""Runs that are killed at a barrier, and rows compared in every destination."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from airbyte_world import INTEGER, TEXT, airbyte_world, record, state, status, stream
from forks import Forks, forked
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.store.store import Store
from postgres_server import Database

__all__ = ["forked"]
POINTS = (
    "sync.commit.before", "sync.commit.after", "connector.segment.committed", "connector.segment.saved.before",
    "connector.segment.saved.after",
)  # fmt: skip
LAST = 6
COUNTING = """
import json, sys, time
command, arguments = sys.argv[1], sys.argv[2:]
def say(**message):
    print(json.dumps(message), flush=True)
if command == "spec":
    say(type="SPEC", spec={"connectionSpecification": {}})
elif command == "discover":
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"type": "string"}}}
    say(type="CATALOG", catalog={"streams": [{"name": "t", "json_schema": schema, "source_defined_cursor": True,
        "supported_sync_modes": ["incremental"], "source_defined_primary_key": [["id"]]}]})
elif command == "read":
    given = arguments[arguments.index("--state") + 1] if "--state" in arguments else ""
    at = json.load(open(given))[0]["stream"]["stream_state"]["at"] if given else 0
    while at < 6:
        for i in (at + 1, at + 2):
            say(type="RECORD", record={"stream": "t", "data": {"id": i, "v": str(i)}, "emitted_at": 1})
        at += 2
        say(type="STATE", state={"type": "STREAM", "stream": {"stream_descriptor": {"name": "t"},
            "stream_state": {"at": at}}, "sourceStats": {"recordCount": 2.0}})
        time.sleep(1.3)
    say(type="TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": {
        "stream_descriptor": {"name": "t"}, "status": "COMPLETE"}})
"""
PROJECT = """version: 1
engine: local
sources:
  api:
    type: airbyte
    command: [{python}, counting.py]
    limits: {{ahead: 1}}
destinations:
  there: {{type: duckdb, path: w.db}}
connections:
  shop: {{source: api, destination: there}}
"""


def saved(folder: Path) -> int:
    with Store(f"sqlite:///{folder / '.instep/state.db'}") as store:
        streams = store.connectors.get("shop").state.get("streams", ())
        return int(streams[0]["state"]["at"]) if streams else 0


def ids(folder: Path) -> list[int]:
    there = DuckDbDestination(DuckDbConfig.resolved(name="there", path=str(folder / "w.db")))
    if ("shop", "t") not in there.schema.tables():
        return []
    rows = there.write.read(("shop", "t")).read_all().to_pylist()
    return sorted(row["id"] for row in rows if not row["_instep_deleted"])


KEYLESS = COUNTING.replace('[["id"]]', "[]").replace('{"id": i, "v": str(i)}', '{"id": (i + 1) // 2}')
"""Each two records are the same."""


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("code", [COUNTING, KEYLESS], ids=["key", "no key"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_barrier(forked: Forks, tmp_path: Path, point: str, code: str) -> None:
    all_rows = [1, 1, 2, 2, 3, 3] if code is KEYLESS else list(range(1, LAST + 1))
    (tmp_path / "counting.py").write_text(code)
    (tmp_path / "instep.yml").write_text(PROJECT.format(python=sys.executable))
    for time in (1, 2):
        forked.instep("sync", crash=f"{point}@{time}=kill", folder=tmp_path)
        found, at = ids(tmp_path), saved(tmp_path)
        assert found == all_rows[: len(found)], "nothing is lost or doubled"
        assert len(found) >= at, "the state is not ahead of the rows"
    assert forked.instep("sync", folder=tmp_path).code == 0
    assert (ids(tmp_path), saved(tmp_path)) == (all_rows, LAST)


SHRINKING = (
    KEYLESS.replace("import json, sys, time", 'import json, os, sys, time\nagain = os.path.exists("again")')
    .replace('elif command == "read":', 'elif command == "read":\n    open("again", "w").close()')
    .replace("(at + 1, at + 2):", "(at + 1, at + 2)[: 1 if again else 2]:")
    .replace('{"recordCount": 2.0}', '{"recordCount": 1.0 if again else 2.0}')
)
"""Sends each record once when it is read again."""


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("point", POINTS)
def test_rows_behind_the_last_state_are_those_that_come_again(forked: Forks, tmp_path: Path, point: str) -> None:
    (tmp_path / "counting.py").write_text(SHRINKING)
    (tmp_path / "instep.yml").write_text(PROJECT.format(python=sys.executable))
    forked.instep("sync", crash=f"{point}@2=kill", folder=tmp_path)
    at = saved(tmp_path)
    assert forked.instep("sync", folder=tmp_path).code == 0
    assert ids(tmp_path) == [1, 1, 2, 2, 3, 3][:at] + [1, 2, 3][at // 2 :]


ROWS: list[dict[str, Any]] = [
    {"id": i, "name": f"n{i} é", "n": i * 1.5, "big": 2**62 + i, "ok": i % 2 == 0, "tags": f'["{i}"]'}
    for i in range(1, 41)
]


@pytest.mark.parametrize("into", ["duckdb", "iceberg", "postgres"])
def test_rows_are_the_same_in_each_destination(tmp_path: Path, request: pytest.FixtureRequest, into: str) -> None:
    database: Database | None = request.getfixturevalue("postgres") if into == "postgres" else None
    world = airbyte_world(tmp_path, into=into, database=database)
    tags = {"type": "array", "items": {"type": "string"}}
    world.streams = [
        stream(name=TEXT, n={"type": "number"}, big=INTEGER, ok={"type": "boolean"}, tags=tags),
        stream("all", incremental=False),
    ]
    sent = [record(**{**row, "tags": [str(row["id"])]}) for row in ROWS]
    whole = [record("all", id=i) for i in range(3)]
    world.read(*sent[:30], state(30, 30), *whole, *sent[30:], state(40, 10), status(), status(name="all"))
    changed = [record(id=7, name="other"), record(id=41)]
    world.read(*changed, state(41, 2), status(), record("all", id=9), status(name="all"))
    expected = [row for row in ROWS if row["id"] != 7] + [{"id": 7, "name": "other"}, {"id": 41}]
    assert world.records("users", *ROWS[0]) == sorted(expected, key=repr)
    assert world.ids("all") == [9]
    world.close()
