"""A run that dies at a segment's boundaries, then another one: no row is lost or doubled, the state is never ahead."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from connector_world import CHECKPOINT, PLAYER, Step, upserts
from forks import Forks
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.drawn(3)]
POINTS = (
    "sync.staged", "sync.commit.before", "sync.commit.after", "sync.cleared", "connector.segment.committed",
    "connector.segment.saved.before", "connector.segment.saved.after",
)  # fmt: skip
FILE_POINTS = ("connector.file.copied", "connector.file.placed@2", "sync.staged", "sync.commit.before@2")
"""From the first byte of a file below `uploads` to the commit of its row."""
SCHEMA = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", "v": "LONG"}}]
STEPS: list[Step] = [
    *upserts("t", {"id": 1, "v": 1}, {"id": 2, "v": 1}, {"id": 3, "v": 1}),
    *upserts("log", {"n": 1}, {"n": 2}),
    CHECKPOINT,
    ["update", "t", {"id": 1, "v": 2}],
    ["delete", "t", {"id": 2}],
    *upserts("t", {"id": 4, "v": 2, "late": "x"}),
    *upserts("log", {"n": 2}, {"n": 3}),
    CHECKPOINT,
    ["truncate", "t"],
    *upserts("t", {"id": 4, "v": 3}, {"id": 5, "v": 3}),
    ["update", "t", {"id": 5, "v": 4}],
    CHECKPOINT,
]
BY_STATE = {
    0: [],
    6: [(1, 1), (2, 1), (3, 1)],
    12: [(1, 2), (3, 1), (4, 2)],
    17: [(4, 3), (5, 4)],
}
PROJECT = """version: 1
engine: local
sources:
  api:
    type: connector
    path: connector
    configuration: {{script: {folder}/script.json}}
    limits: {{ahead: 1}}
destinations:
  there: {into}
connections:
  shop: {{source: api, destination: there}}
"""
INTO = {"duckdb": "{type: duckdb, path: w.db}", "iceberg": "{type: iceberg, warehouse: lake}"}


class Project:
    """A project in a folder, synced in processes of their own."""

    def __init__(self, forked: Forks, folder: Path, into: str) -> None:
        self.forked, self.folder, self.into = forked, folder, into
        (folder / "connector").mkdir()
        (folder / "connector" / "connector.py").write_text(PLAYER)
        (folder / "script.json").write_text(json.dumps({"schema": SCHEMA, "steps": STEPS}))
        (folder / "instep.yml").write_text(PROJECT.format(folder=folder, into=INTO[into]))

    def sync(self, *options: str, crash: str = "") -> int | None:
        return self.forked.instep("sync", *options, crash=crash, folder=self.folder).code

    @property
    def state(self) -> int:
        with Store(f"sqlite:///{self.folder / '.instep/state.db'}") as store:
            return int(store.connectors.get("shop").state.get("at", 0))

    def files(self) -> dict[str, str]:
        """Whatever is below `uploads`."""
        place = self.folder / "uploads" / "shop"
        return {str(p.relative_to(place)): p.read_text() for p in place.rglob("*") if p.is_file()}

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        there = (
            DuckDbDestination(DuckDbConfig.resolved(name="there", path=str(self.folder / "w.db")))
            if self.into == "duckdb"
            else IcebergDestination(IcebergConfig.resolved(name="there", warehouse=str(self.folder / "lake")))
        )
        if ("shop", table) not in there.schema.tables():
            return []
        rows = there.write.read(("shop", table)).read_all().to_pylist()
        return sorted(tuple(r[c] for c in columns) for r in rows if not r["_instep_deleted"])


@pytest.mark.sampled
@pytest.mark.parametrize("into", ["duckdb", "iceberg"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_boundary(forked: Forks, tmp_path: Path, point: str, into: str) -> None:
    project = Project(forked, tmp_path, into)
    for time in (1, 2, 2):
        project.sync(crash=f"{point}@{time}=kill")
        ahead = [state for state in BY_STATE if state >= project.state]
        assert project.rows("t", "id", "v") in [BY_STATE[s] for s in ahead], "the state is not ahead of the rows"
    assert project.sync() == 0
    assert project.state == 17
    assert project.rows("t", "id", "v") == BY_STATE[17]
    assert project.rows("log", "n") == [(1,), (2,), (3,)]


def test_an_error_of_the_connector_keeps_what_came_before(forked: Forks, tmp_path: Path) -> None:
    project = Project(forked, tmp_path, "duckdb")
    steps = [*STEPS[:12], *upserts("t", {"id": 9, "v": 9}), ["fail", "no more"]]
    (tmp_path / "script.json").write_text(json.dumps({"schema": SCHEMA, "steps": steps}))
    assert project.sync() != 0
    assert (project.state, project.rows("t", "id", "v")) == (12, BY_STATE[12])
    (tmp_path / "script.json").write_text(json.dumps({"schema": SCHEMA, "steps": STEPS}))
    assert project.sync() == 0
    assert (project.state, project.rows("t", "id", "v")) == (17, BY_STATE[17])


@pytest.mark.sampled
@pytest.mark.parametrize("point", FILE_POINTS)
def test_killed_between_a_file_and_its_row(forked: Forks, tmp_path: Path, point: str) -> None:
    project = Project(forked, tmp_path, "duckdb")
    steps = [
        ["file", "upsert", "t", {"id": 1}, "a/1.txt", "one"], CHECKPOINT,
        ["file", "upsert", "t", {"id": 2}, "2.txt", "two"], CHECKPOINT,
        ["file", "update", "t", {"id": 1}, "a/1.txt", "three"], CHECKPOINT,
    ]  # fmt: skip
    (tmp_path / "script.json").write_text(json.dumps({"schema": SCHEMA, "steps": steps}))
    assert project.sync(crash=f"{point}=kill") == -signal.SIGKILL
    found = project.files()
    assert all(f"t/{path}" in found for _, path in project.rows("t", "id", "_fivetran_file_path"))
    assert project.sync() == 0
    assert project.rows("t", "id", "_fivetran_file_path") == [(1, "a/1.txt"), (2, "2.txt")]
    assert project.files() == {"t/a/1.txt": "three", "t/2.txt": "two"}
