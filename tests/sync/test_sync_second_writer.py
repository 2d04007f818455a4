"""Another program appends to a Delta table of ours, merges into it and cleans its log; the next sync goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from into_world import world_into

from instep.destinations.delta.destination import DeltaDestination
from instep.destinations.delta.table_state import DeltaTableState, require
from instep.project.sections.tables import TableSettings
from sync_world import MakeWorld, World, cursor

REF = ("shop", "t")


def table(world: World, settings: TableSettings) -> str:
    """A loaded table, with a column whose name in files is another one; its folder."""
    world.settings["t"] = settings
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, name text, u int NOT NULL)",
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
    )
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN late int", "UPDATE t SET late = 10, u = 4 WHERE id = 3")
    world.sync()
    assert {f.name: f.physical for f in state(world).fields}["late"].startswith("col-")
    return str(state(world).folder)


def state(world: World) -> DeltaTableState:
    assert isinstance(world.destination, DeltaDestination)
    return require(world.destination.warehouse, REF)


def append(folder: str, **row: Any) -> None:
    columns = {"id": pa.int32(), "name": pa.string(), "u": pa.int32(), "late": pa.int32()}
    there = pa.schema(DeltaTable(folder).schema().to_arrow())
    rows = {n: [row.get(n)] for n in there.names}
    typed = pa.schema([pa.field(f.name, columns.get(f.name, pa.schema(there).field(f.name).type)) for f in there])
    write_deltalake(folder, pa.table(rows, schema=typed), mode="append")


def merge(folder: str, rows: pa.Table) -> None:
    merger = DeltaTable(folder).merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
    values = {name: f"s.{name}" for name in rows.column_names}
    merger.when_matched_update(values).when_not_matched_insert(values).execute()


@pytest.mark.parametrize("settings", [TableSettings(), cursor("u")], ids=["whole", "cursor"])
def test_another_writer_appends_and_merges_and_syncs_go_on(
    make_world: MakeWorld, request: pytest.FixtureRequest, settings: TableSettings
) -> None:
    world = world_into(make_world, request, "sqlite", "delta")
    folder = table(world, settings)
    append(folder, id=100, name="theirs", u=0)
    merge(folder, pa.table({"id": [2, 101], "name": ["changed", "merged"]}))
    assert ("changed", 2) in world.rows("t", "name", "u")
    DeltaTable(folder).create_checkpoint()
    world.destination = DeltaDestination(world.destination.config)  # what was read before is not known any more
    world.run("UPDATE t SET name = 'ours', u = 5 WHERE id = 2", "INSERT INTO t VALUES (4, 'd', 6, 11)")
    world.sync()
    ours = [(1, "a", 1, None), (2, "ours", 5, None), (3, "c", 4, 10), (4, "d", 6, 11)]
    assert world.rows("t") == ours, "rows that the source does not have have left"
    assert world.differing() == {}
    seen = QueryBuilder().register("t", DeltaTable(folder)).execute("select id, late from t where late is not null")
    assert sorted(pa.table(seen.read_all()).to_pylist(), key=lambda r: r["id"]) == [
        {"id": 3, "late": 10},
        {"id": 4, "late": 11},
    ]


def test_another_writers_commit_during_a_sync_is_not_lost(
    make_world: MakeWorld, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_into(make_world, request, "sqlite", "delta")
    folder = table(world, TableSettings())
    came = list[int]()
    land = DeltaTableState.files.func  # type: ignore[attr-defined]

    def files(self: DeltaTableState) -> Any:
        if not came:
            came.append(1)
            append(folder, id=100, name="between", u=0)
        return land(self)

    world.run("UPDATE t SET name = 'ours' WHERE id = 1")
    monkeypatch.setattr(DeltaTableState, "files", property(files))
    report = world.sync()
    monkeypatch.undo()
    assert came
    if world.statuses(report)["t"] != "ok":
        world.sync()
    names = {row[0]: row[1] for row in world.rows("t", "id", "name")}
    assert names == {1: "ours", 2: "b", 3: "c"}, "the row that is not at the source was looked at, and has left"
    marked = {row[0] for row in world.rows("t", "id", deleted=True)}
    assert 100 in marked


def test_records_outlive_what_others_do_to_a_log(
    make_world: MakeWorld, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The commits of ours are gone, and what is left is another program's checkpoint."""
    world = world_into(make_world, request, "sqlite", "delta")
    folder = table(world, cursor("u"))
    ours = state(world).snapshot.version
    append(folder, id=100, name="theirs", u=0)
    there = DeltaTable(folder)
    there.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 hours"})
    there.create_checkpoint()
    there.cleanup_metadata()
    there.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    world.destination = DeltaDestination(world.destination.config)
    assert min(state(world).log.versions()) > ours, "no commit of ours is left"
    world.run("INSERT INTO t VALUES (5, 'e', 7, 12)")
    report = world.sync()
    assert next(t.read for t in report.tables) == 2, "from the cursor's last value on"
    assert (5, "e", 7, 12) in world.rows("t")
