"""Partitions of Iceberg tables that the settings say: every operation leaves rows and partition values right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table import Table as IcebergTable

from instep.destinations.iceberg.metadata.layout import layout_of
from instep.project.sections.tables import TableSettings
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import step_from_dict, step_to_dict
from instep.schema.policy.policy import Rule
from instep.sync.operations.maintain import maintain
from instep.sync.operations.restore import prepare, restore
from instep.sync.progress import Silent
from sync_world import MakeWorld, World, cursor, preset

pytestmark = pytest.mark.drawn(5)

TABLE = "CREATE TABLE t (id int PRIMARY KEY, region varchar(20), at timestamp, amount decimal(9,2), note text)"
ROWS = """INSERT INTO t VALUES
 (1, 'a/b=c%d', '1969-12-31 23:59:59.5', -1.25, 'x'), (2, '', '1970-01-01 00:00:00', 0, 'y'),
 (3, NULL, NULL, NULL, NULL), (4, 'ä€😀', '2024-02-29 12:00:00', 9999999.99, 'z'),
 (-5, 'a/b=c%d', '0001-01-01', 7, '')"""
BY = ("bucket(4, id)", "region", "month(at)")


def table(world: World) -> IcebergTable:
    found: IcebergTable | None = world.destination.lake.load(("shop", "t"))
    assert found is not None
    return found


def entries(loaded: IcebergTable) -> Iterator[DataFile]:
    snapshot = loaded.current_snapshot()
    for manifest in snapshot.manifests(loaded.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=True):
            yield entry.data_file


def wrong_places(world: World) -> list[str]:
    """Data files with a row that belongs to another partition, by pyiceberg's own transforms; delete files that are not
    where their data file is."""
    loaded = table(world)
    files = {f.file_path: f for f in entries(loaded)}
    wrong = [path for path, f in files.items() if f.content == DataFileContent.DATA and not _is_right(loaded, f)]
    for task in loaded.scan().plan_files():
        for deletes in task.delete_files:
            if (deletes.spec_id, deletes.partition) != (task.file.spec_id, task.file.partition):
                wrong.append(deletes.file_path)
    return wrong


def _is_right(loaded: IcebergTable, file: DataFile) -> bool:
    spec, schema = loaded.specs()[file.spec_id], loaded.schema()
    rows = pq.read_table(file.file_path.removeprefix("file://"))
    names = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in rows.schema if f.metadata}
    for number, field in enumerate(spec.fields):
        change = field.transform.transform(schema.find_field(field.source_id).field_type)
        column = rows[names[field.source_id]] if field.source_id in names else pa.nulls(len(rows))
        values = [partition_record_value(field, v, schema) for v in column.to_pylist()]
        if {None if v is None else change(v) for v in values} != {file.partition[number]}:
            return False
    return True


def synced(world: World, **wanted: Any) -> None:
    """A sync that leaves everything as it should be."""
    report = world.sync(**wanted)
    assert [t.error for t in report.tables if t.error] == []
    assert (report.status, wrong_places(world), world.differing()) == ("done", [], {})


def begun(world: World, by: tuple[str, ...] = BY) -> World:
    world.settings["t"] = TableSettings(partition=by)
    world.run(TABLE, ROWS)
    assert world.sync().status == "done"
    return world


def test_a_new_table_is_partitioned_from_its_first_commit(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    spec = table(world).spec()
    assert [str(f.transform) for f in spec.fields] == ["bucket[4]", "identity", "month"]
    assert (wrong_places(world), world.differing()) == ([], {})
    assert len(list(entries(table(world)))) == 5
    assert [s.text for s in world.preview().plan.steps] == []
    world.run("UPDATE t SET region = 'q' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t (id) VALUES (9)")
    synced(world)


def changed(world: World, *statements: str) -> None:
    world.run(*statements)
    synced(world)


MOVES = (
    "UPDATE t SET region = 'b', at = '2031-05-05' WHERE id = 1",
    "DELETE FROM t WHERE id = 3",
    "INSERT INTO t (id, region, at) VALUES (6, '', '1970-01-01')",
)


@pytest.mark.slow
@pytest.mark.parametrize("by", [BY, ("day(at)", "truncate(2, region)"), ("bucket(3, amount)", "year(at)"), ("at",)])
def test_rows_that_move_to_another_partition(world: World, by: tuple[str, ...]) -> None:
    begun(world, by)
    changed(world, *MOVES)
    changed(world, "UPDATE t SET note = 'again', region = NULL WHERE id IN (1, 4)", "DELETE FROM t WHERE id = 2")
    changed(world, "INSERT INTO t (id, region) VALUES (3, 'back')")
    assert len(world.rows("t")) == 5


@pytest.mark.slow
def test_a_spec_that_changes_leaves_files_under_their_own(world: World) -> None:
    begun(world, ())
    for by in (("region",), ("region", "bucket(4, id)"), ("day(at)",), (), ("region",)):
        world.settings["t"] = TableSettings(partition=by)
        [text] = [s.text for s in world.preview().plan.steps]
        assert text == (f"partition new files by {', '.join(by)}" if by else "stop partitioning new files")
        changed(world, *MOVES)
        changed(world, "UPDATE t SET region = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 6", *RETURNS)
    specs = {f.spec_id for f in entries(table(world))}
    assert len(specs) > 2
    assert [len(s.fields) for s in table(world).specs().values()] == [0, 1, 2, 1], "a spec that was there is taken up"
    synced(world, full=True)


RETURNS = ("INSERT INTO t (id, region) VALUES (3, 'x')",)


@pytest.mark.slow
def test_maintenance_puts_files_of_one_partition_together(world: World) -> None:
    begun(world, ())
    world.settings["t"] = TableSettings(partition=("bucket(2, id)",))
    for number in range(10, 16):
        insert = f"INSERT INTO t (id) VALUES ({number})"  # noqa: S608
        changed(world, insert, f"UPDATE t SET note = 'n' WHERE id = {number - 1}")  # noqa: S608
    before = len(list(table(world).scan().plan_files()))
    context = replace(world.context, maintenance=Maintenance(min_files=3))
    [done] = maintain(context, "", Silent(), lambda: None).tables
    places = [(f.spec_id, f.partition[0]) for f in entries(table(world))]
    assert (done.error, before > 6, sorted(places)) == ("", True, [(1, 0), (1, 0), (1, 1), (1, 1)])
    assert (wrong_places(world), world.differing()) == ([], {})
    changed(world, "UPDATE t SET note = 'after' WHERE id > 0")


@pytest.mark.slow
def test_a_filled_column_moves_rows_to_their_partitions(world: World) -> None:
    world.policy = preset("allow_all", backfill="column")
    world.settings["t"] = cursor("n", deletes="ignore", partition=("id",))
    world.run("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)", "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    synced(world)
    world.settings["t"] = cursor("n", deletes="ignore", partition=("color",))
    world.run("ALTER TABLE t ADD COLUMN color text DEFAULT 'red'", "UPDATE t SET color = 'blue' WHERE id = 2")
    synced(world)
    assert sorted({f.partition[0] for f in entries(table(world)) if f.spec_id == 2}) == ["blue", "red"]
    changed(world, "UPDATE t SET color = 'green', n = 9 WHERE id = 1")


@pytest.mark.slow
def test_columns_of_partitions_are_renamed_and_widened_and_never_dropped(world: World) -> None:
    begun(world, ("region", "bucket(4, amount)"))
    world.policy = preset("allow_all", removed="drop")
    changed(world, "ALTER TABLE t RENAME COLUMN region TO area", "INSERT INTO t (id, area) VALUES (7, 'n')")
    assert "it cannot be partitioned by region: there is no such column" in "; ".join(world.preview().plan.remarks)
    assert [t.column for t in _terms(world)] == ["area", "amount"]
    world.settings["t"] = TableSettings(partition=("area", "bucket(4, amount)"))
    assert [s.text for s in world.preview().plan.steps] == []
    changed(
        world,
        "ALTER TABLE t ALTER COLUMN amount TYPE decimal(12,2)",
        "UPDATE t SET amount = 1234567890.12 WHERE id = 1",
    )
    world.run("ALTER TABLE t DROP COLUMN area")
    report = world.sync()
    assert (report.status, wrong_places(world)) == ("done", [])
    assert "area" in table(world).schema().column_names, "it is kept instead of dropped"


def _terms(world: World) -> list[Any]:
    return list(layout_of(json.loads(table(world).metadata.model_dump_json())).partition)


@pytest.mark.slow
def test_a_column_that_is_rewritten_beside_them(world: World) -> None:
    begun(world, ("region",))
    world.policy = preset("allow_all", Rule(("column.retyped",), "apply"))
    changed(world, "ALTER TABLE t ALTER COLUMN amount TYPE text")
    changed(world, *MOVES)


@pytest.mark.slow
def test_a_restored_snapshot_of_an_earlier_spec(world: World) -> None:
    begun(world, ("region",))
    world.settings["t"] = TableSettings(partition=("bucket(2, id)",))
    changed(world, *MOVES)
    loaded = table(world)
    first = loaded.history()[0].snapshot_id
    made = prepare(world.context, world.accepted("t").path, first)
    restore(world.context, made, ["*.t"])
    assert [r[0] for r in world.rows("t", "id")] == [-5, 1, 2, 3, 4]
    assert wrong_places(world) == []
    synced(world)


FAULTS = [
    ("day(region)", "it cannot be partitioned by day(region): day does not take string"),
    ("nope", "it cannot be partitioned by nope: there is no such column"),
    ("ratio", "it cannot be partitioned by ratio: identity does not take float64"),
    ("truncate(3, at)", "it cannot be partitioned by truncate(3, at): truncate does not take timestamp"),
]


def test_what_cannot_be_is_noted_and_the_table_stays_as_it_is(world: World) -> None:
    world.settings["t"] = TableSettings(partition=("region",))
    world.run(TABLE.replace("note text", "note text, ratio double precision"), ROWS.replace(")", ", NULL)"))
    synced(world)
    for term, why in FAULTS:
        world.settings["t"] = TableSettings(partition=("region", term))
        report = world.sync()
        assert (report.status, why in "; ".join(report.notes)) == ("done", True), (why, report.notes)
        assert [t.column for t in _terms(world)] == ["region"]


@pytest.mark.slow
def test_a_table_without_a_key(world: World) -> None:
    world.settings["t"] = TableSettings(partition=("region",))
    world.run("CREATE TABLE t (region text, n int)", "INSERT INTO t VALUES ('a', 1), ('a', 1), (NULL, 2), ('', 3)")
    synced(world)
    changed(
        world, "INSERT INTO t VALUES ('b', 4)", "DELETE FROM t WHERE n = 2", "UPDATE t SET region = 'c' WHERE n = 3"
    )


@pytest.mark.slow
def test_appends_by_cursor(world: World) -> None:
    world.settings["t"] = cursor("n", mode="append", partition=("truncate(10, n)",))
    world.run("CREATE TABLE t (name text, n int)", "INSERT INTO t VALUES ('a', 1), ('b', 12)")
    synced(world)
    changed(world, "INSERT INTO t VALUES ('c', 12), ('d', 31)")
    assert sorted({f.partition[0] for f in entries(table(world))}) == [0, 10, 30]


def test_the_steps_as_sql(world: World) -> None:
    begun(world, ("region", "day(at)"))
    world.settings["t"] = TableSettings(partition=("bucket(8, id)", "region"))
    [one] = world.preview().plan.steps
    assert step_from_dict(step_to_dict(one)) == one
    assert world.destination.schema.render_ddl([one]) == [
        "ALTER TABLE `shop`.`t` DROP PARTITION FIELD day(`at`);",
        "ALTER TABLE `shop`.`t` ADD PARTITION FIELD bucket(8, `id`);",
    ]


@pytest.mark.slow
def test_an_earlier_spec_goes_with_its_last_snapshot_and_its_columns_are_free(world: World) -> None:
    begun(world, ("region",))
    world.settings["t"] = TableSettings()
    synced(world)
    context = replace(world.context, maintenance=Maintenance(max_snapshot_age=0, keep_snapshots=1))
    assert "an earlier partition spec (region)" in str(world.destination.schema.guards([("shop", "t")]))
    [done] = maintain(context, "", Silent(), lambda: None).tables
    assert (done.done.files_before, done.done.rewritten, done.done.files) == (4, 4, 4)
    assert {f.spec_id for f in entries(table(world))} == {0}
    changed(world, "UPDATE t SET note = 'n'")
    [done] = maintain(context, "", Silent(), lambda: None).tables
    assert (done.error, done.done.snapshots > 0, table(world).specs().keys()) == ("", True, {0})
    assert world.destination.schema.guards([("shop", "t")]) == {}
    world.policy = preset("allow_all", removed="drop")
    changed(world, "ALTER TABLE t DROP COLUMN region")
    assert "region" not in table(world).schema().column_names
    world.settings["t"] = TableSettings(partition=("day(at)",))
    changed(world, *(m.replace("region = 'b', ", "").replace(" region,", "").replace("'', ", "") for m in MOVES))


@pytest.mark.slow
def test_a_new_generation_waits_until_nothing_stands_on_the_old_columns(world: World) -> None:
    begun(world, ("region",))
    world.policy = preset("allow_all", Rule(("table.replaced",), "apply"))
    world.run("DROP TABLE t", TABLE, "INSERT INTO t (id, region) VALUES (7, 'z')")
    [note] = world.sync().notes
    assert "cannot get a new generation: the partition spec (region) uses it" in note
    assert "take it out of `partition` in instep.yml" in note
    assert len(world.rows("t")) == 5
    world.settings["t"] = TableSettings()
    world.sync()
    context = replace(world.context, maintenance=Maintenance(max_snapshot_age=0, keep_snapshots=1))
    for _ in range(2):
        maintain(context, "", Silent(), lambda: None)
    synced(world)
    assert world.rows("t", "id", "region") == [(7, "z")]
    world.settings["t"] = TableSettings(partition=("region",))
    changed(world, *MOVES)
