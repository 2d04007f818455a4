# ruff: noqa: F811 - the imported `spark` is a fixture
"""A column of a large table is rewritten in parts: a run that ends in between leaves those that are finished."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.destinations.base import HERE, Commit, FileWorkers, Merge
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.facets import Destination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.parts import RewriteArea
from instep.errors import Conflict, Fenced, IllegalChange
from instep.schema.catalog.layout import PartitionTerm, TableLayout
from instep.schema.changes.describe import TableAdded
from instep.schema.planning.step import RewriteColumn, SetLayout, step
from instep.stage.files.partitioned import writer_for
from instep.stage.files.place import StorageFolder
from instep.stage.partition import Partition
from instep.stage.spec import StagedFile, StageSpec, SystemColumns
from lake import ID, REF, column, create, rows_of, spark, stage, table, with_spark  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""PySpark leaves the sockets of its calls to the garbage collector."""
A, B = column("a", "int32"), column("b", "string")
TEXT, NUMBER = column("a", "string"), column("b", "int32")
BEFORE, AFTER = table(ID, A, B), table(ID, TEXT, B)


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    """Five files, each a part."""
    monkeypatch.setattr("instep.destinations.parts.PART_ROWS", 1)
    made: Destination = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    if request.param == "iceberg":
        made = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(made, BEFORE)
    for n in range(5):
        rows = [{"id": 10 + 10 * n + i, "a": i, "b": str(n)} for i in range(3)]
        made.write.append(REF, [stage(made, REF, rows)], Commit("load", 1, "c"))
    return made


def retype(lake: Destination, run: str, fence: int, workers: FileWorkers = HERE) -> None:
    lake.schema.execute(REF, [step(REF, RewriteColumn(REF, A, TEXT))], AFTER, Commit(run, fence), workers)


EXPECTED = [(10 + 10 * n + i, str(i), str(n)) for n in range(5) for i in range(3)]


def stopped(rows: int, error: type[BaseException] = KeyboardInterrupt) -> FileWorkers:
    """FileWorkers that end once so many rows are written."""

    def on_progress(count: int, size: int) -> None:
        if count > rows:
            raise error

    return FileWorkers(on_progress=on_progress)


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("rewrite-*/*"))


def writers(folder: Path) -> Counter[str]:
    """How many data files of the rewrite each run has written, by what their names begin with."""
    return Counter(p.name.split("-")[0] for p in files(folder) if p.suffix == ".parquet")


def test_the_next_run_goes_on(lake: Destination, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        retype(lake, "first", 2, stopped(9))
    assert rows_of(lake) == [(key, int(a), b) for key, a, b in EXPECTED], "nothing of it is seen"
    assert len([p for p in files(tmp_path) if p.suffix == ".json"]) == 3
    seen = list[tuple[int, int]]()
    lake.lifecycle.remove_uncommitted_files(REF, {"first": 2})
    retype(lake, "second", 3, FileWorkers(on_progress=lambda rows, size: seen.append((rows, size))))
    assert rows_of(lake) == EXPECTED
    assert writers(tmp_path) == {"first": 3, "second": 2}
    assert [p for p in files(tmp_path) if p.suffix != ".parquet"] == []
    assert seen[0][0] > 9, "what was finished counts"
    assert seen[-1][0] == 15
    state = lake.schema.state(REF)
    assert state is not None
    assert (state.cursor, state.rows) == ("c", 15)


def test_rows_that_came_in_between_are_rewritten_with_the_others(lake: Destination, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        retype(lake, "first", 2, stopped(9))
    changed = [stage(lake, REF, [{"id": 10, "a": 7, "b": "new"}, {"id": 99, "a": 1, "b": "x"}])]
    lake.write.merge(None, REF, changed, Merge(("id",)), Commit("between", 3, "d"))
    retype(lake, "second", 4)
    assert rows_of(lake) == [(10, "7", "new"), *EXPECTED[1:], (99, "1", "x")]
    assert writers(tmp_path)["first"] >= 2


def test_a_record_counts_only_if_it_is_whole_and_its_files_are_there(lake: Destination, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        retype(lake, "first", 2, stopped(9))
    records = [p for p in files(tmp_path) if p.suffix == ".json"]
    records[0].write_text(records[0].read_text()[:-20])
    lost = json.loads(records[1].read_text())[0]["path"].rpartition("/")[2]
    next(p for p in files(tmp_path) if p.name == lost).unlink()
    retype(lake, "second", 3)
    assert rows_of(lake) == EXPECTED
    assert writers(tmp_path) == {"first": 1, "second": 4}


def test_another_type_takes_nothing_over(lake: Destination, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        retype(lake, "first", 2, stopped(9))
    wide = column("a", "decimal(9,1)")
    lake.schema.execute(REF, [step(REF, RewriteColumn(REF, A, wide))], table(ID, wide, B), Commit("second", 3))
    assert rows_of(lake) == [(key, Decimal(a), b) for key, a, b in EXPECTED]
    assert writers(tmp_path) == {"first": 3, "second": 5}


def test_a_run_that_is_late_deletes_nothing_of_the_next(lake: Destination) -> None:
    """Both are at it; the later one has claimed the table."""

    def overtake(count: int, size: int) -> None:
        if count == 15:
            lake.write.claim(REF, 5)
            with pytest.raises(KeyboardInterrupt):
                retype(lake, "later", 5, stopped(14))

    late = FileWorkers(on_progress=overtake)
    with pytest.raises((Fenced, Conflict)):
        retype(lake, "late", 4, late)
    retype(lake, "later", 5)
    assert rows_of(lake) == EXPECTED


def test_values_that_do_not_fit_leave_no_file_of_the_run(lake: Destination, tmp_path: Path) -> None:
    lake.write.append(REF, [stage(lake, REF, [{"id": 77, "a": 1, "b": "x"}])], Commit("load", 1, "d"))
    before = sorted(tmp_path.rglob("*.parquet"))
    change = [step(REF, RewriteColumn(REF, B, NUMBER))]
    with pytest.raises(IllegalChange, match="'b'"):
        lake.schema.execute(REF, change, table(ID, A, NUMBER), Commit("first", 2))
    assert sorted(tmp_path.rglob("*.parquet")) == before
    assert files(tmp_path) == []


@with_spark
def test_spark_goes_on_with_what_another_engine_has_left(lake: Destination, tmp_path: Path, spark: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        retype(lake, "first", 2, stopped(9))
    large(lake)
    retype(lake, "second", 3, FileWorkers(lambda: spark))
    assert rows_of(lake) == EXPECTED
    assert writers(tmp_path) == {"first": 3, "second": 2}


@with_spark
def test_values_that_do_not_fit_are_told_by_spark_as_here(lake: Destination, tmp_path: Path, spark: Any) -> None:
    lake.write.append(REF, [stage(lake, REF, [{"id": 77, "a": 1, "b": "x"}])], Commit("load", 1, "d"))
    large(lake)
    change = [step(REF, RewriteColumn(REF, B, NUMBER))]
    with pytest.raises(IllegalChange, match="column 'b': values do not fit int32"):
        lake.schema.execute(REF, change, table(ID, A, NUMBER), Commit("first", 2), FileWorkers(lambda: spark))
    assert files(tmp_path) == []
    assert len(rows_of(lake)) == 16


def large(lake: Any) -> None:
    """Whatever there is from now on is for tasks of Spark."""
    if lake.kind == "iceberg":
        object.__setattr__(lake.lake.config, "upsert_rows", 0)
    lake.schema.upsert_rows = 0


def test_a_partitioned_table_keeps_its_partitions(lake: Destination, tmp_path: Path) -> None:
    other = table(ID, A, B, name="other")
    layout = TableLayout(partition=(PartitionTerm("identity", "b"),))
    steps = [step(other.ref, TableAdded(other)), step(other.ref, SetLayout(other.ref, TableLayout(), layout))]
    lake.schema.execute(other.ref, steps, other, Commit("make", 1))
    by = lake.write.target(other.ref).partition
    assert by is not None
    for n in range(2):
        target = lake.write.target(other.ref)
        spec = StageSpec("other", (), SystemColumns(), target.schema, target.location, "", "load", 0, partition=by)
        writer = writer_for(spec, n, 0)
        rows = [{"id": 10 + 10 * n + i, "a": i, "b": "xy"[i % 2], "_instep_deleted": False} for i in range(4)]
        for batch in pa.Table.from_pylist(rows, schema=target.schema).to_batches():
            writer.write(batch)
        lake.write.append(other.ref, writer.close(), Commit(f"load-{n}", 1, "c"))
    after = table(ID, TEXT, B, name="other")
    change = [step(other.ref, RewriteColumn(other.ref, A, TEXT))]
    with pytest.raises(KeyboardInterrupt):
        lake.schema.execute(other.ref, change, after, Commit("first", 2), stopped(2))
    lake.schema.execute(other.ref, change, after, Commit("second", 3))
    assert rows_of(lake, other.ref) == [(10 + 10 * n + i, str(i), "xy"[i % 2]) for n in range(2) for i in range(4)]
    assert writers(tmp_path) == {"first": 1, "second": 3}
    assert lake.schema.layouts is not None
    assert lake.schema.layouts.recorded([other.ref])[other.ref].partition == layout.partition


VALUES = (None, True, 7, "text", b"\x00\xff", 0.1, float("inf"), Decimal("1.50"))


def test_a_record_brings_back_what_was_written(tmp_path: Path) -> None:
    area = RewriteArea(StorageFolder(str(tmp_path)), "a run")
    (tmp_path / "f.parquet").write_bytes(b"")
    file = StagedFile("0", 3, str(tmp_path / "f.parquet"), 5, 9, b"\x00footer", Partition(2, VALUES))
    area.record("key", [file])
    assert area.finished() == {"key": (file,)}
    area.check([file])
    (tmp_path / "f.parquet").unlink()
    assert area.finished() == {}
    with pytest.raises(Conflict):
        area.check([file])
