# ruff: noqa: F811 - the imported `spark` is a fixture
"""Upserts that Spark finds by keys, places and hashes: row by row what this process makes of the same rows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from instep.destinations.base import Commit, LoadOutcome, Merge
from instep.destinations.iceberg.commit import row_reader
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.position_deletes import Deletes
from instep.destinations.iceberg.commit.row_reader import KeySpan
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import key_ranges, spark_upsert
from instep.errors import Conflict, DestinationError, Fenced
from instep.schema.maintenance import Maintenance
from instep.spark.merge import Edits
from lake import ID, ORDERS, PREFIX, REF, column, create, rows_of, spark, stage, table, with_spark, write  # noqa: F401

Row = dict[str, Any]
COLUMNS = ["id", "name", "amount", f"{PREFIX}deleted"]


def lakes(folder: Path) -> tuple[IcebergDestination, IcebergDestination]:
    """One whose upserts are made in this process, one whose upserts are Spark's."""
    here, there = (
        IcebergConfig.resolved(name="lake", warehouse=str(folder / "here")),
        IcebergConfig.resolved(name="lake", warehouse=str(folder / "there")),
    )
    return IcebergDestination(here), IcebergDestination(there.model_copy(update={"upsert_rows": 0}))


EQUAL: list[tuple[str, Any, Any]] = [
    ("f", math.nan, math.nan), ("f", 0.0, -0.0), ("g", -0.0, 0.0), ("g", None, None), ("n", "", ""), ("n", None, None),
    ("d", Decimal("1.5"), Decimal("1.50")), ("l", [["x", None], None], [["x", None], None]), ("l", [], []),
    ("s", {"a": None, "B c": math.nan}, {"a": None, "B c": math.nan}), ("s", None, None),
    ("p", [{"x": 0.0}], [{"x": -0.0}]), ("at", datetime(1969, 3, 1, tzinfo=UTC), datetime(1969, 3, 1, tzinfo=UTC)),
]  # fmt: skip
OTHER: list[tuple[str, Any, Any]] = [
    ("f", math.nan, 1.5), ("f", None, 0.0), ("f", math.inf, -math.inf), ("g", 0.5, 0.25), ("n", None, ""),
    ("n", "a", "a "), ("n", "a", "A"), ("n", "é", "e\u0301"), ("d", Decimal("1.5"), Decimal("-1.5")),
    ("d", Decimal(10**27), Decimal(10**27 + 1)), ("w", None, False), ("w", True, False), ("i", None, 0), ("i", 1, -1),
    ("day", date(1, 1, 1), date(1, 1, 2)), ("local", datetime(1, 1, 1), datetime(1, 1, 1, 0, 0, 0, 1)),
    ("at", datetime(1969, 3, 1, tzinfo=UTC), datetime(1969, 3, 1, 0, 0, 0, 1, tzinfo=UTC)), 
    ("t", "12:00:00", "12:00:01"),
    ("b", b"\x00\xff", b"\x00"), ("b", None, b""), ("u", bytes(16), bytes(15) + b"\x01"), ("j", '{"a": 1}', '{"a":1}'),
    ("l", [["x"], None], [["x", None]]), ("l", [["x"], ["y"]], [["x", "y"]]), ("l", [], None), ("l", [None], []),
    ("l", [None], [[]]), ("l", [["x", None]], [[None, "x"]]), ("s", None, {"a": None, "B c": None}),
    ("s", {"a": 1, "B c": None}, {"a": None, "B c": 1.0}), ("p", [{"x": None}], [None]), ("p", [], [None]),
]  # fmt: skip
TYPES = {
    "f": "float64", "g": "float32", "n": "string", "d": "decimal(38,10)", "w": "boolean", "i": "int32", "day": "date",
    "local": "timestamp", "at": "timestamptz", "t": "time", "b": "binary", "u": "uuid", "j": "json",
    "l": "array(array(string))", "s": 'struct("a" int8, "B c" float64)', "p": 'array(struct("x" float64))',
}  # fmt: skip


@with_spark
def test_values_of_every_type_are_compared_exactly(tmp_path: Path, spark: Any) -> None:
    wanted = table(ID, *(column(n, kind) for n, kind in TYPES.items()), column("m", "string"), name="all")
    pairs = [*EQUAL, *OTHER]
    old = [{"id": i, name: value, "m": "ab"} for i, (name, value, _) in enumerate(pairs)]
    new = [{"id": i, name: value, "m": "ab"} for i, (name, _, value) in enumerate(pairs)]
    old += [{"id": 1000, "n": "a", "m": "bc"}, {"id": 1001, "n": None, "m": "x"}]  # a value moves to the next column
    new += [{"id": 1000, "n": "ab", "m": "c"}, {"id": 1001, "n": "x", "m": None}]
    new = [{**row, f"{PREFIX}synced": 7} for row in new]
    differing = {*range(len(EQUAL), len(pairs)), 1000, 1001}
    for lake in lakes(tmp_path):
        create(lake, wanted)
        lake.write.overwrite(wanted.ref, [stage(lake, wanted.ref, old)], Commit("run-1", 1))
        how, commit = Merge(("id",), complete=True), Commit("run-2", 1)
        done = lake.write.merge(lambda: spark, wanted.ref, [stage(lake, wanted.ref, new)], how, commit)
        assert done == LoadOutcome(0, len(differing))
        found = lake.write.read(wanted.ref, ["id", f"{PREFIX}synced"]).read_all()
        synced = found.column(1).cast("int64").to_pylist()
        assert {i for i, at in zip(found.column(0).to_pylist(), synced, strict=True) if at == 7} == differing


def _rows(at: random.Random) -> list[Row]:
    """Some keys twice, some names and amounts missing."""
    keys = [at.randrange(30) for _ in range(20)]
    amounts = [Decimal(1), Decimal(2), None]
    return [{"id": k, "name": at.choice(["x", "y", None]), "amount": at.choice(amounts)} for k in keys]


UPSERTS = [
    ("complete", "soft", True), ("complete", "hard", True), ("complete", "soft", False),
    ("keys", "soft", True), ("keys", "hard", True),
    ("requested", "soft", True), ("requested", "hard", False), ("cursor", "soft", True), ("plain", "ignore", False),
    ("since", "soft", True),
]  # fmt: skip


@pytest.mark.sampled
@with_spark
@pytest.mark.parametrize(("kind", "deletes", "few"), UPSERTS)
def test_any_upserts_lead_where_those_of_this_process_lead(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, kind: str, deletes: Any, few: bool
) -> None:
    if few:  # few rows of a range, whose files have keys of all ranges
        for name, value in {"RANGE_ROWS": 6, "SMALLEST_ROWS": 1, "MOST_READS": 99}.items():
            monkeypatch.setattr(key_ranges, name, value)
    else:
        monkeypatch.setattr("instep.spark.merge.BROADCAST_BYTES", 0)
        monkeypatch.setattr(key_ranges, "MOST_READS", 0)
    at = random.Random(f"{kind} {deletes}")
    loads = [[_rows(at), _rows(at)] for _ in range(2)]
    keys = [{"id": i} for i in range(0, 36, 2)]
    found = list[Any]()
    for lake in lakes(tmp_path):
        create(lake)
        lake.write.claim(REF, 1)
        outcomes = list[Any]()
        for fence, parts in enumerate(loads, 1):
            lake.write.claim(REF, fence)
            how = Merge(("id",), complete=kind == "complete", deletes=deletes)
            how = replace(how, cursor="amount") if kind == "cursor" else how
            if kind == "since":
                how = replace(how, key=(), since=("amount", "2"))
            if kind in ("keys", "requested"):
                how = replace(how, **{kind: (stage(lake, REF, keys, only=["id"]),)})
            files = [stage(lake, REF, rows, chunk=n) for n, rows in enumerate(parts)]
            commit = Commit(f"run-{fence}", fence, f"c{fence}")
            outcomes.append(lake.write.merge(lambda: spark, REF, files, how, commit))
        state = lake.schema.state(REF)
        assert state is not None
        found.append((outcomes, rows_of(lake, columns=COLUMNS), replace(state, bytes=0, version="")))
    assert found[0] == found[1]


def test_ranges_follow_the_files_and_each_key_is_in_one() -> None:
    """A file for each million keys, and one of changed rows that has keys of all: rows are read twice at most."""
    million = 1_000_000
    staged = [[KeySpan(n * million, (n + 1) * million - 1, million)] for n in range(40)]
    table = [*staged, [KeySpan(7, 40 * million - 1, million)], [KeySpan(None, None, 10)]]
    ranges = key_ranges.key_ranges(staged, table, 8 * million)
    assert ranges is not None
    assert len(ranges) == 14, "three files and a part of the others each"
    assert [r.high for r in ranges[:-1]] == [r.low for r in ranges[1:]]
    assert (ranges[0].low, ranges[-1].high) == (None, None)
    assert all(r.low % million == 0 for r in ranges[1:] if r.low is not None), "a range begins where a file does"
    assert sorted(n for r in ranges for n in r.staged) == list(range(40)), "each staged file is read once"
    assert all({40, 41} <= {*r.files} for r in ranges)


@pytest.mark.parametrize("bounds", [(0, 9_999_999), (None, None)])
def test_keys_in_no_order_are_not_read_range_by_range(bounds: tuple[int | None, int | None]) -> None:
    files = [[KeySpan(*bounds, 1_000_000)] for _ in range(40)]
    ranges = key_ranges.key_ranges(files, files, 8_000_000)
    assert ranges is None or len(ranges) == 1


def test_keys_far_apart_are_divided_as_well() -> None:
    least, most = -(2**63), 2**63 - 1
    files = [[KeySpan(least, least + 4, 5)], [KeySpan(0, 0, 5)], [KeySpan(most - 4, most, 5)]]
    ranges = key_ranges.key_ranges(files, files, 10)
    assert ranges is not None
    assert [r.staged for r in ranges] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("within", [(None, 7), (7, 23), (23, None), (90, 99), (None, None)])
def test_a_range_decodes_its_row_groups_and_knows_the_places_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: tuple[int | None, int | None]
) -> None:
    lake, decoded = lakes(tmp_path)[0], list[Any]()
    create(lake)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": n} for n in range(30)])], Commit("run-1", 1))
    loaded = lake.lake.load(REF)
    assert loaded is not None
    (task,) = loaded.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    pq.write_table(pq.read_table(path), path, row_group_size=4)
    real = row_reader._decoded
    monkeypatch.setattr(row_reader, "_decoded", lambda *args: decoded.append(args[4:]) or real(*args))
    found = row_reader.numbered(row_reader.existing_rows(loaded, [row_reader.old_file(0, task)], within), ["id"])
    low, high = within[0] or 0, 30 if within[1] is None else within[1]
    ids = [n for n in range(30) if low <= n < high]
    assert [(r["c0"], r["p"]) for r in found.read_all().to_pylist()] == [(n, n) for n in ids]
    assert decoded == (
        [()] if within == (None, None) else [(n,) for n in range(8) if {*range(4 * n, 4 * n + 4)} & {*ids}]
    )


@with_spark
@pytest.mark.parametrize("twice", [False, True])
def test_a_whole_compare_moves_no_rows_between_tasks(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    """Also where a range has to be joined after all, nothing is missed: here a key is staged twice."""
    lake, joins = lakes(tmp_path)[1], list[Any]()
    create(lake)
    lake.write.overwrite(
        REF, [stage(lake, REF, [{"id": 10 * n + i} for i in range(10)], chunk=n) for n in range(6)], Commit("run-1", 1)
    )
    real = spark_upsert.find_edits
    monkeypatch.setattr(spark_upsert, "find_edits", lambda *args: joins.append(args) or real(*args))
    for name, value in {"RANGE_ROWS": 20, "SMALLEST_ROWS": 1, "GROUP_ROWS": 0}.items():
        monkeypatch.setattr(key_ranges, name, value)
    parts = [[{"id": 10 * n + i, "name": "new" if i == n else None} for i in range(10)] for n in range(1, 7)]
    parts += [[{"id": 69, "name": "newest"}]] * twice
    files = [stage(lake, REF, rows, chunk=n) for n, rows in enumerate(parts)]
    done = lake.write.merge(lambda: spark, REF, files, Merge(("id",), complete=True), Commit("run-2", 1))
    assert done == LoadOutcome(10, 5, 10)
    assert sorted(i for i, n, _ in rows_of(lake) if n) == sorted([11, 22, 33, 44, 55, 66] + [69] * twice)
    assert joins == []


@with_spark
def test_a_merge_that_is_refused_or_fails_leaves_no_files(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes(tmp_path)[1]
    create(lake)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": 1, "name": "old"}])], Commit("run-1", 1))
    written = spark_upsert.data_files

    def overtaken(*args: Any) -> Any:
        lake.write.claim(REF, 9)
        return written(*args)

    monkeypatch.setattr(spark_upsert, "data_files", overtaken)
    files = [stage(lake, REF, [{"id": 1, "name": "late"}, {"id": 2, "name": "late"}])]
    with pytest.raises(Fenced):
        lake.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit("run-2", 2))
    assert [n for _, n, _ in rows_of(lake)] == ["old"]
    assert not list(tmp_path.rglob("*-merge-*"))
    assert lake.lake.names(lake.lake.staging) == []


@with_spark
def test_a_table_that_moved_there_and_back_while_spark_read_it_is_not_merged(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes(tmp_path)[1]
    create(lake)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": 1, "name": "old"}])], Commit("run-1", 1))
    real = spark_upsert.find_edits

    @contextmanager
    def read_between(*args: Any) -> Iterator[Any]:
        loaded = lake.lake.load(REF)
        assert loaded is not None
        first = loaded.metadata.current_snapshot_id
        assert first is not None
        lake.write.append(REF, [stage(lake, REF, [{"id": 2, "name": "gone"}])], Commit("run-1", 1))
        with real(*args) as edits:
            loaded.refresh()
            with loaded.manage_snapshots() as snapshots:
                snapshots.rollback_to_snapshot(first)
            yield edits

    monkeypatch.setattr(spark_upsert, "find_edits", read_between)
    monkeypatch.setattr(key_ranges, "MOST_READS", 0)
    files = [stage(lake, REF, [{"id": 2, "name": "new"}])]
    with pytest.raises(Conflict, match="moved under this run"):
        lake.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit("run-1", 1))
    assert [n for _, n, _ in rows_of(lake)] == ["old"]


@with_spark
def test_a_small_change_of_a_table_adds_one_file_and_no_compaction(tmp_path: Path, spark: Any) -> None:
    """However many files the table and the staged rows have: what is not changed is not written again."""
    lake = lakes(tmp_path)[1]
    create(lake)
    parts = [[{"id": 10 * n + i, "name": "old"} for i in range(10)] for n in range(7)]
    lake.write.overwrite(REF, [stage(lake, REF, rows, chunk=n) for n, rows in enumerate(parts)], Commit("run-1", 1))
    before = lake.maintenance.layout(REF)
    for rows in parts[:3]:
        rows[4]["name"] = "new"
    files = [stage(lake, REF, rows, chunk=n) for n, rows in enumerate(parts)]
    how = Merge(("id",), complete=True)
    assert lake.write.merge(lambda: spark, REF, files, how, Commit("run-2", 1)) == LoadOutcome(0, 3)
    after = lake.maintenance.layout(REF)
    assert (before.files, after.files, after.deletes) == (7, 8, 3)
    assert not lake.maintenance.due(REF, Maintenance())
    assert sorted(i for i, n, _ in rows_of(lake) if n == "new") == [4, 14, 24]


@with_spark
@pytest.mark.parametrize(("rows", "sent"), [(1_000_001, True), (4_000_000, True), (5_000_000, False)])
def test_rows_that_no_key_names_are_dropped_where_they_are_read(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, rows: int, sent: bool
) -> None:
    """1 % of a hundred million rows, and those at the boundary of its cursor, do not have all of them sorted by key."""
    lake, plans = lakes(tmp_path)[1], list[str]()
    create(lake)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": n} for n in range(9)])], Commit("run-1", 1))
    real = spark_upsert.find_edits

    @contextmanager
    def of_many(session: Any, plan: Any, settings: Any, files: Any) -> Iterator[Any]:
        with real(session, plan, settings, replace(files, rows=rows)) as edits:
            plans.append(edits.frame._jdf.queryExecution().analyzed().toString())
            yield edits

    monkeypatch.setattr(spark_upsert, "find_edits", of_many)
    monkeypatch.setattr(key_ranges, "MOST_READS", 0)
    files = [stage(lake, REF, [{"id": 3, "name": "new"}])]
    assert lake.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit("run-2", 1)) == LoadOutcome(0, 1)
    assert ["LeftSemi" in plan for plan in plans] == [sent]


@with_spark
def test_snapshots_may_expire_while_spark_reads_the_table(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes(tmp_path)[1]
    create(lake)
    for n in range(3):
        lake.write.overwrite(REF, [stage(lake, REF, [{"id": 1, "name": f"old{n}"}])], Commit("run-1", 1))
    real = spark_upsert.find_edits

    @contextmanager
    def read_between(*args: Any) -> Iterator[Any]:
        with real(*args) as edits:
            loaded = lake.lake.load(REF)
            assert loaded is not None
            first = loaded.metadata.snapshots[0].snapshot_id
            assert first != loaded.metadata.current_snapshot_id
            loaded.maintenance.expire_snapshots().by_ids([first]).commit()
            yield edits

    monkeypatch.setattr(spark_upsert, "find_edits", read_between)
    monkeypatch.setattr(key_ranges, "MOST_READS", 0)
    files = [stage(lake, REF, [{"id": 1, "name": "new"}])]
    assert lake.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit("run-1", 1)) == LoadOutcome(0, 1)
    assert [n for _, n, _ in rows_of(lake)] == ["new"]


@with_spark
@pytest.mark.parametrize("several", [False, True])
def test_a_task_opens_each_file_once(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    """Values that are not read of the source come from the table's files, whichever staged file a row is in. Many bytes
    to read are more than one task's."""
    lake, number = lakes(tmp_path)[1], 6
    create(lake)
    old = [{"id": n, "name": f"n{n}", "amount": 1} for n in range(number * number)]
    new = [{"id": n, "amount": 2} for n in range(number * number)]
    old_files = [stage(lake, REF, old[k::number], chunk=k) for k in range(number)]
    lake.write.overwrite(REF, old_files, Commit("run-1", 1))
    opened, tasks, run = Counter[str](), list[int](), Edits.run
    batches = row_reader._batches

    def counted(rows: Any, at: int, columns: Any) -> Any:
        opened[rows.files[at].file_path] += 1
        return batches(rows, at, columns)

    def run_here(self: Edits, write: Any, work: Any, kinds: Any, by: str, count: int) -> Any:
        if write is not spark_upsert.write_rows:
            return run(self, write, work, kinds, by, count)
        tasks.append(count)
        return run(self, write, work, kinds, by, count) if several else [write(work, self.frame.toArrow(), 0, 0)]

    monkeypatch.setattr(Edits, "run", run_here)
    monkeypatch.setattr(row_reader, "_batches", counted)
    if several:
        monkeypatch.setattr(spark_upsert, "READ_BYTES", 4_000)
    files = [stage(lake, REF, new[k * number : (k + 1) * number], chunk=k) for k in range(number)]
    how = Merge(("id",), complete=True, unread=frozenset(["name"]))
    done = lake.write.merge(lambda: spark, REF, files, how, Commit("run-2", 1))
    assert done == LoadOutcome(0, number * number)
    assert {i: (n, a) for i, n, a in rows_of(lake)} == {row["id"]: (row["name"], 2) for row in old}
    assert (tasks > [1]) is several
    assert several or (len(opened), {*opened.values()}) == (2 * number, {1})


@with_spark
@pytest.mark.parametrize("at", [0, 1])
def test_deletes_by_value_of_another_program_are_named(tmp_path: Path, spark: Any, at: int) -> None:
    lake = lakes(tmp_path)[at]
    create(lake)
    lake.write.overwrite(REF, [stage(lake, REF, [{"id": n} for n in range(3)])], Commit("run-1", 1))
    loaded = lake.lake.load(REF)
    assert loaded is not None
    path = f"{loaded.location()}/data/theirs.parquet"
    field = loaded.schema().find_field("id").field_id
    ids = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": str(field)})])
    size, _ = write(Path(path.removeprefix("file://")), pa.table([[1]], schema=ids))
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES, file_path=path, file_format=FileFormat.PARQUET, partition=Record(),
        record_count=1, file_size_in_bytes=size, equality_ids=[field],
    )  # fmt: skip
    deletes.spec_id = 0
    change = TableCommit(loaded)
    change.delta([], Deletes([deletes], []), {})
    change.land(1)
    files = [stage(lake, REF, [{"id": 2}])]
    with pytest.raises(DestinationError, match="equality deletes") as error:
        lake.write.merge(lambda: spark, REF, files, Merge(("id",)), Commit("run-2", 1))
    assert "rewrite_data_files" in str(error.value.hint)
