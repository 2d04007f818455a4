"""Partitions of Delta tables that the settings say: every operation leaves rows and partition values right."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.files import batches, path_of
from instep.destinations.delta.table_state import DeltaTableState, find
from instep.project.sections.tables import TableSettings
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import step_from_dict, step_to_dict
from instep.schema.policy.policy import Rule
from instep.sync.operations.maintain import maintain
from instep.sync.operations.restore import prepare, restore
from instep.sync.operations.set_key import carry_out
from instep.sync.operations.set_key import prepare as rekeying
from instep.sync.progress import Silent
from lake import with_spark
from sync_world import MakeWorld, World, cursor, preset

pytestmark = pytest.mark.drawn(5)

TABLE = "CREATE TABLE t (id int PRIMARY KEY, region varchar(40), at timestamp, amount decimal(9,2), note text)"
ROWS = """INSERT INTO t VALUES
 (1, 'a/b=c%d', '1969-12-31 23:59:59.5', -1.25, 'x'), (2, ' ', '1970-01-01 00:00:00', 0, 'y'),
 (3, NULL, NULL, NULL, NULL), (4, 'ä€😀', '2024-02-29 12:00:00', 9999999.99, 'z'),
 (-5, 'a/b=c%d', '0001-01-01', 7, '')"""
MOVES = (
    "UPDATE t SET region = 'b', at = '2031-05-05' WHERE id = 1",
    "DELETE FROM t WHERE id = 3",
    "INSERT INTO t (id, region, at) VALUES (6, '__HIVE_DEFAULT_PARTITION__', '1970-01-01')",
)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return delta(make_world("sqlite"))


@pytest.fixture
def served(make_world: MakeWorld) -> World:
    """Over PostgreSQL, the source with ids."""
    return delta(make_world())


def delta(world: World) -> World:
    destination: Any = DeltaDestination(DeltaConfig.resolved(name="warehouse", warehouse=str(world.folder / "delta")))
    world.destination, world.engine = destination, "local"
    return world


def held(world: World) -> DeltaTableState:
    there: Any = world.destination
    found = find(there.warehouse, ("shop", "t"))
    assert found is not None
    return found


def by(world: World) -> list[str]:
    return list(held(world).snapshot.metadata["partitionColumns"])


def wrong_places(world: World) -> list[str]:
    """Data files with a row that belongs elsewhere, told without our own way of writing values down."""
    table = held(world)
    names = {f.physical for f in table.by}
    wrong = []
    for file in table.files:
        said, stats = file["partitionValues"], json.loads(file["stats"])
        rows = pa.Table.from_batches(list(batches(path_of(table, file), table.by)))
        values = {name: {_said(v) for v in pc.unique(rows[name]).to_pylist()} for name in names}
        if values != {n: {v} for n, v in said.items()} or names & stats["nullCount"].keys():
            wrong.append(f"{said} holds {values}")
    return wrong


def _said(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case datetime():
            text = str(value.replace(tzinfo=None))
            return text.replace(" ", "T") + (".000000" * ("." not in text)) + "Z" if value.tzinfo else text
        case date() | Decimal():
            return str(value)
    return str(value)


def synced(world: World, **wanted: Any) -> None:
    """A sync that leaves everything as it should be."""
    report = world.sync(**wanted)
    assert [t.error for t in report.tables if t.error] == []
    assert (report.status, wrong_places(world), world.differing()) == ("done", [], {})


def changed(world: World, *statements: str) -> None:
    world.run(*statements)
    synced(world)


def begun(world: World, *columns: str) -> World:
    world.settings["t"] = TableSettings(partition=columns)
    changed(world, TABLE, ROWS)
    assert by(world) == list(columns)
    return world


def test_a_new_table_is_partitioned_from_its_first_commit(world: World) -> None:
    begun(world, "region", "amount")
    assert len(held(world).files) == 5
    assert [s.text for s in world.preview().plan.steps] == []
    changed(world, *MOVES)
    assert {f["partitionValues"]["region"] for f in held(world).files} >= {"b", "__HIVE_DEFAULT_PARTITION__"}


@pytest.mark.slow
@pytest.mark.parametrize("columns", [("region",), ("at",), ("amount", "region"), ("id",)])
def test_rows_that_move_to_another_partition(served: World, columns: tuple[str, ...]) -> None:
    begun(served, *columns)
    changed(served, *MOVES)
    changed(served, "UPDATE t SET note = 'again', region = NULL WHERE id IN (1, 4)", "DELETE FROM t WHERE id = 2")
    changed(served, "INSERT INTO t (id, region) VALUES (3, 'back')")
    assert len(served.rows("t")) == 5
    synced(served, full=True)


def test_an_empty_text_is_held_back_where_it_would_read_as_null(world: World) -> None:
    begun(world, "region")
    world.run("INSERT INTO t (id, region, note) VALUES (7, '', 'n')", "UPDATE t SET region = '' WHERE id = 1")
    report = world.sync()
    assert (report.status, wrong_places(world)) == ("done", [])
    assert world.rows("t", "id", "region", "note")[-1] == (7, None, "n")
    assert [t.invalid_values for t in report.tables] == [2]
    meta = {r[0]: r[1] for r in world.rows("t", "id", "_instep_meta")}
    assert "an empty text, which is NULL in a partition" in meta[7]
    assert "an empty text, which is NULL in a partition" in meta[1]
    assert world.differing() == {}
    world.settings["t"] = world.settings["t"].model_copy(update={"on_invalid_value": "fail"})
    world.run("INSERT INTO t (id, region) VALUES (8, '')")
    [table] = world.sync().tables
    assert (table.status, "an empty text" in table.error) == ("failed", True)


def test_other_partitions_come_with_the_next_whole_load(world: World) -> None:
    world.settings["t"] = cursor("id", deletes="ignore")
    changed(world, TABLE, ROWS)
    world.settings["t"] = cursor("id", deletes="ignore", partition=("region",))
    made = world.preview().plan
    assert [s.text for s in made.steps] == ["partition new files by region"]
    assert [
        r
        for r in made.remarks
        if "the next load of the whole table partitions its files so: run `instep sync --full`" in r
    ]
    changed(world, MOVES[2])
    assert (by(world), world.preview().plan.steps) == ([], ())
    synced(world, full=True)
    assert (by(world), len(held(world).files)) == (["region"], 5)
    world.settings["t"] = world.settings["t"].model_copy(update={"partition": ("amount", "region")})
    changed(world, "INSERT INTO t (id) VALUES (70)")
    assert (by(world), held(world).record.by) == (["region"], ("amount", "region"))
    world.settings["t"] = world.settings["t"].model_copy(update={"partition": ("region",)})
    changed(world, "INSERT INTO t (id) VALUES (71)")
    assert held(world).record.by is None
    world.settings["t"] = cursor("id", deletes="ignore")
    synced(world)
    synced(world, full=True, kind="backfill", tables=frozenset({"main.t"}))
    assert by(world) == []


@pytest.mark.slow
def test_maintenance_puts_files_of_one_partition_together(world: World) -> None:
    world.settings["t"] = TableSettings(partition=("odd",))
    world.run("CREATE TABLE t (id int PRIMARY KEY, odd int)", "INSERT INTO t VALUES (0, 0)")
    synced(world)
    for number in range(1, 7):
        changed(world, f"INSERT INTO t VALUES ({number}, {number % 2})")  # noqa: S608
    context = replace(world.context, maintenance=Maintenance(min_files=3))
    [done] = maintain(context, "", Silent(), lambda: None).tables
    assert (done.error, done.done.files_before, done.done.files) == ("", 7, 2)
    assert [f["partitionValues"] for f in held(world).files if f] in ([{"odd": "0"}, {"odd": "1"}],
                                                                     [{"odd": "1"}, {"odd": "0"}])  # fmt: skip
    assert (wrong_places(world), world.differing()) == ([], {})
    changed(world, "UPDATE t SET odd = 2 WHERE id > 4")


@pytest.mark.slow
def test_a_filled_column_moves_rows_to_their_partitions(served: World) -> None:
    served.policy = preset("allow_all", backfill="column")
    served.settings["t"] = cursor("n", deletes="ignore")
    served.run("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)", "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    synced(served)
    changed(served, "ALTER TABLE t ADD COLUMN color text")
    served.settings["t"] = cursor("n", deletes="ignore", partition=("color",))
    synced(served)
    synced(served, full=True)
    assert [list(f["partitionValues"].values()) for f in held(served).files] == [[None]]
    changed(served, "UPDATE t SET color = 'blue', n = 7 WHERE id = 2", "INSERT INTO t VALUES (5, 9, 'red')")
    assert sorted(value or "" for f in held(served).files for value in f["partitionValues"].values()) == [
        "",
        "blue",
        "red",
    ]


@pytest.mark.slow
def test_columns_of_partitions_are_renamed_and_widened_and_never_dropped(served: World) -> None:
    begun(served, "region", "amount")
    served.policy = preset("allow_all", removed="drop")
    changed(served, "ALTER TABLE t RENAME COLUMN region TO area", "INSERT INTO t (id, area) VALUES (7, 'n')")
    assert "it cannot be partitioned by region: there is no such column" in "; ".join(served.preview().plan.remarks)
    assert by(served) == ["area", "amount"]
    served.settings["t"] = TableSettings(partition=("area", "amount"))
    assert [s.text for s in served.preview().plan.steps] == []
    assert {frozenset(f["partitionValues"]) for f in held(served).files} == {frozenset({"region", "amount"})}
    changed(
        served,
        "ALTER TABLE t ALTER COLUMN amount TYPE decimal(12,2)",
        "UPDATE t SET amount = 1234567890.12 WHERE id = 1",
    )
    served.run("ALTER TABLE t DROP COLUMN area")
    assert (served.sync().status, by(served)) == ("done", ["area", "amount"])
    assert "area" in {f.name for f in held(served).fields}, "it is kept instead of dropped"
    served.policy = preset("allow_all", Rule(("column.retyped",), "apply"))
    served.run("ALTER TABLE t ALTER COLUMN amount TYPE text")
    assert "cannot be rewritten from decimal(12,2) to string: the table's partitions" in "; ".join(served.sync().notes)
    assert wrong_places(served) == []


@pytest.mark.slow
def test_a_column_that_is_rewritten_beside_them(served: World) -> None:
    begun(served, "region")
    served.policy = preset("allow_all", Rule(("column.retyped",), "apply"))
    changed(served, "ALTER TABLE t ALTER COLUMN amount TYPE text")
    changed(served, *MOVES)
    assert by(served) == ["region"]


@pytest.mark.slow
def test_a_restored_version_keeps_its_partitions(served: World) -> None:
    begun(served, "region")
    first = held(served).snapshot.version
    changed(served, *MOVES)
    restore(served.context, prepare(served.context, served.accepted("t").path, first), ["*.t"])
    assert ([r[0] for r in served.rows("t", "id")], wrong_places(served)) == ([-5, 1, 2, 3, 4], [])
    synced(served)
    served.settings["t"] = TableSettings(partition=("note",))
    synced(served, full=True)
    points = served.destination.lifecycle.savepoints.savepoints(("shop", "t"))
    assert {p.why_not for p in points if not p.current} == {
        "its files lie in other partitions: load the table whole instead"
    }


@pytest.mark.slow
def test_a_new_generation_keeps_its_partitions(served: World) -> None:
    begun(served, "region", "amount")
    served.policy = preset("allow_all", Rule(("table.replaced",), "apply"))
    new = TABLE.replace(", amount decimal(9,2)", "")
    served.run("DROP TABLE t", new, "INSERT INTO t (id, region) VALUES (7, 'z'), (8, NULL)")
    synced(served)
    assert by(served) == ["region", "amount"], "which is kept without values"
    served.settings["t"] = TableSettings(partition=("region",))
    served.sync()
    carry_out(served.context, rekeying(served.context, served.accepted("t").path, ["id"], "clear"), ["*"])
    synced(served)
    assert by(served) == ["region"]


FAULTS = [
    ("day(at)", "it cannot be partitioned by day(at): Delta has partitions by columns alone, none by day"),
    ("nope", "it cannot be partitioned by nope: there is no such column"),
    ("ratio", "it cannot be partitioned by ratio: identity does not take float64"),
]


@pytest.mark.slow
def test_what_cannot_be_is_noted_and_the_table_stays_as_it_is(served: World) -> None:
    served.settings["t"] = TableSettings(partition=("region",))
    served.run(TABLE.replace("note text", "note text, ratio double precision"), ROWS.replace(")", ", NULL)"))
    synced(served)
    for term, why in FAULTS:
        served.settings["t"] = TableSettings(partition=("region", term), sort=("id",))
        report = served.sync()
        told = "; ".join(report.notes)
        assert (report.status, why in told) == ("done", True), (why, report.notes)
        assert "`properties` and `sort` are for Iceberg" in told
        assert by(served) == ["region"]


@pytest.mark.slow
@pytest.mark.parametrize("column", ["n", "b", "d", "tz", "u"])
def test_values_of_each_type(served: World, column: str) -> None:
    served.settings["t"] = TableSettings(partition=(column,))
    served.run(
        "CREATE TABLE t (id int PRIMARY KEY, n bigint, b bool, d date, tz timestamptz, u uuid)",
        "INSERT INTO t VALUES (1, -9223372036854775808, true, '0001-01-01', '1969-12-31 23:59:59.999999Z', "
        "'00000000-0000-0000-0000-000000000001'), (2, NULL, NULL, NULL, NULL, NULL), "
        "(3, 9223372036854775807, false, '9999-12-31', '2026-01-01Z', NULL)",
    )
    synced(served)
    changed(served, "UPDATE t SET n = 5, b = NULL, d = '1970-01-01', tz = '0001-01-01Z', u = NULL WHERE id = 1")


@pytest.mark.slow
def test_times_that_no_reader_knows_are_held_back(served: World) -> None:
    served.settings["t"] = TableSettings(partition=("d",))
    served.run("CREATE TABLE t (id int PRIMARY KEY, d date)", "INSERT INTO t VALUES (1, '0044-03-15 BC')")
    [table] = served.sync().tables
    assert (table.invalid_values, served.rows("t"), wrong_places(served)) == (1, [(1, None)], [])


@pytest.mark.slow
def test_a_table_without_a_key_and_appends(served: World) -> None:
    served.settings["t"] = cursor("n", mode="append", partition=("name",))
    served.run("CREATE TABLE t (name text, n int)", "INSERT INTO t VALUES ('a', 1), ('b', 12)")
    synced(served)
    changed(served, "INSERT INTO t VALUES ('c', 12), ('a', 31)")
    served.settings["t"] = cursor("n", mode="append", partition=())
    changed(served, "INSERT INTO t VALUES ('d', 40), ('a', 41)")
    assert (by(served), len(held(served).files)) == (["name"], 5)


def test_the_steps_as_sql(world: World) -> None:
    world.settings["t"] = TableSettings(partition=("region", "at"))
    world.run(TABLE)
    steps = world.preview().plan.steps
    assert [step_from_dict(step_to_dict(s)) for s in steps] == list(steps)
    [made] = world.destination.schema.render_ddl(steps)
    assert made.endswith("\n) USING delta\nPARTITIONED BY (`region`, `at`);")


@pytest.mark.slow
def test_versions_of_rows_in_partitions(served: World) -> None:
    served.settings["t"] = TableSettings(history=True, partition=("region",))
    served.run(TABLE, ROWS)
    assert (served.sync().status, wrong_places(served)) == ("done", [])
    served.run("UPDATE t SET region = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 4")
    assert (served.sync().status, wrong_places(served)) == ("done", [])
    rows = served.rows("t", "id", "region", "_instep_current", deleted=True)
    assert [r[1:] for r in rows if r[0] == 1] == [("a/b=c%d", False), ("b", True)]
    assert served.differing() == {}


@with_spark
@pytest.mark.slow
def test_tasks_of_spark_write_files_of_one_partition(make_world: MakeWorld) -> None:
    world = delta(make_world())
    world.engine = "spark"
    begun(world, "region", "at")
    changed(world, *MOVES)
    assert len(held(world).files) >= 5
