# ruff: noqa: S608 - columns are numbered
"""The work of one task of a large merge or fill. There are three kinds, one after the other:

1. rows of some files, of the table or staged ones, are dealt out by their key, into one file that the next tasks share;
2. those of some keys are joined, as in a small merge; what becomes of the table's rows is dealt out by their files;
3. files that have such rows are written again.

Each holds the rows of its own part and no others. What lies between them is Parquet beside the table, which is read by
row group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.delta.files import BATCH, Writing, batches, io_of, rows_in, staged_path, write
from instep.destinations.delta.merge_work import (
    DeltaMergeWork,
    FillWork,
    counts,
    filled_rows,
    join_by_key,
    latest_time,
    marks,
)
from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.rewrite import Places, RowEdit, new_rows, rewritten
from instep.destinations.delta.rows import brief_columns, fields_by_name, numbered, places, table_rows
from instep.destinations.delta.shape import DeltaField
from instep.destinations.delta.table_state import DeltaTableState
from instep.stage.files.object_store import opened, path_at
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile
from instep.stage.task import Report
from instep.temporary import temporary

MEMORY = "1GB"
FLUSH_BYTES = 128 << 20
"""Rows that a task deals out, until they become row groups."""
Side = Literal["table", "staged", "keys"]


@dataclass(frozen=True)
class MergeJob:
    """The settings that all tasks of a merge share."""

    state: DeltaTableState
    """Has no files."""
    work: DeltaMergeWork | FillWork
    run: str
    folder: str
    """Where what lies between the tasks is."""
    parts: int
    """Rows are dealt out into `parts` by their key."""

    def names(self, side: Side) -> Sequence[str]:
        return {"table": self.work.compared, "staged": self.work.carried, "keys": self.work.how.key}[side]

    def schema(self, side: Side) -> pa.Schema:
        """Return the columns of rows that are dealt out: numbered ones, then where the row is."""
        place = {"f": pa.int32(), "p": pa.int64()} if side == "table" else {"n": pa.int64()}
        return numbered(fields_by_name(self.state, self.names(side)), **place)


@dataclass(frozen=True)
class Dealt:
    """A file of rows that were dealt out: its row groups by part."""

    uri: str
    groups: Mapping[int, tuple[int, ...]]


class Dealer:
    """Deal rows out into one file, whose row groups have rows of one part each."""

    def __init__(self, job: MergeJob, name: str, schema: pa.Schema) -> None:
        self._place, self._name, self._schema = StorageFolder(job.folder, io_of(job.state)), name, schema
        self._rows = defaultdict[int, list[pa.RecordBatch]](list)
        self._groups = defaultdict[int, list[int]](list)
        self._bytes = self._written = 0
        self._file: Any = None
        self._writer: Any = None

    def put(self, rows: pa.RecordBatch, parts: Any) -> None:
        """Take rows, each with the number of its part."""
        if not len(rows):
            return
        order = np.argsort(parts, kind="stable")
        ordered, of = rows.take(pa.array(order)), parts[order]
        starts = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(of)]
        for start, end in pairwise(starts):
            self._rows[int(of[start])].append(ordered.slice(start, end - start))
        self._bytes += ordered.nbytes
        if self._bytes >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._file = self._place.create(f"{self._name}.parquet")
            self._writer = pq.ParquetWriter(self._file.sink, self._schema, compression="zstd", compression_level=1)
        for part, rows in sorted(self._rows.items()):
            table = pa.Table.from_batches(rows, self._schema)
            self._writer.write_table(table, row_group_size=len(table))
            self._groups[part].append(self._written)
            self._written += 1
        self._rows.clear()
        self._bytes = 0

    def close(self) -> Dealt | None:
        """Return the file; None if there were no rows."""
        if self._rows:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        self._file.finish()
        return Dealt(self._file.uri, {part: tuple(groups) for part, groups in self._groups.items()})


def dealt_rows(job: MergeJob, files: Sequence[Dealt], part: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part."""
    for file in files:
        if groups := file.groups.get(part):
            with pq.ParquetFile(opened(path_at(file.uri, io_of(job.state)))) as parquet:
                for group in groups:
                    yield from parquet.iter_batches(BATCH, row_groups=[group])


@contextmanager
def task_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to an engine of this task's own; what does not fit into memory goes to a folder that leaves."""
    with temporary("merge") as spill:
        config: dict[str, Any] = {
            "memory_limit": MEMORY,
            "temp_directory": spill,
            "threads": 1,
            "preserve_insertion_order": "false",
            "arrow_large_buffer_size": "true",
            "arrow_lossless_conversion": "true",
        }
        with closing(duckdb.connect(":memory:", config=config)) as db:
            db.execute("SET timezone = 'UTC'")
            yield db


@dataclass(frozen=True)
class DealTask:
    """Some files of one side, dealt out by key. Those of the table are in `state`, with their `numbers` in the whole
    table; staged ones come with the number of their first row."""

    job: MergeJob
    number: int
    side: Side
    state: DeltaTableState
    numbers: tuple[int, ...] = ()
    staged: tuple[tuple[int, StagedFile], ...] = ()
    among: tuple[StagedFile, ...] = ()
    """Only rows count that have a key of these."""


def deal(part: DealTask, attempt: int, report: Report | None) -> Dealt | None:
    """Deal the rows of the part's files out by key."""
    job = part.job
    schema, key = job.schema(part.side), len(job.work.how.key)
    dealer = Dealer(job, f"{part.side}-{part.number}-{attempt}", schema)
    with task_engine() as db:
        for rows in _table_part(part, db, schema) if part.side == "table" else _staged_part(part, schema):
            dealer.put(rows, _part_of(db, rows, key, job.parts))
    return dealer.close()


def _part_of(db: duckdb.DuckDBPyConnection, rows: pa.RecordBatch, key: int, parts: int) -> Any:
    """Return the part of each row; keys that are equal here have the same hash."""
    if parts == 1:
        return np.zeros(len(rows), dtype=np.int64)
    names = [f"c{i}" for i in range(key)]
    db.register("x", pa.table([*(rows.column(n) for n in names), np.arange(len(rows))], names=[*names, "i"]))
    sql = f"SELECT CAST(hash({', '.join(names)}) % {parts} AS BIGINT) AS part FROM x ORDER BY i"
    return db.execute(sql).fetchnumpy()["part"]


def _staged_part(part: DealTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    state = part.state
    fields = fields_by_name(state, part.job.names(part.side))
    for start, file in part.staged:
        for rows in batches(staged_path(state, file), fields, by_id=True):
            numbers = pa.array(np.arange(start, start + len(rows)))
            yield pa.RecordBatch.from_arrays([*rows.columns, numbers], schema=schema)
            start += len(rows)


def _table_part(part: DealTask, db: duckdb.DuckDBPyConnection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    state, work = part.state, part.job.work
    fields = fields_by_name(state, work.compared)
    among = _places_of(part, db) if part.among else None
    for number, file in enumerate(state.files):
        own = None if among is None else np.sort(among[among[:, 0] == number, 1])
        if own is not None and not len(own):
            continue
        start = 0
        for rows in rows_in(state, file, fields):
            at = np.arange(start, start + len(rows))
            start += len(rows)
            if own is not None:
                low, high = np.searchsorted(own, [at[0], start])
                rows, at = rows.take(pa.array(own[low:high] - at[0])), own[low:high]
            here = pa.repeat(pa.scalar(part.numbers[number], pa.int32()), len(rows))
            columns = brief_columns(rows, work.compared, work.brief)
            yield pa.RecordBatch.from_arrays([*columns, here, pa.array(at)], schema=schema)


def _places_of(part: DealTask, db: duckdb.DuckDBPyConnection) -> Places:
    """Return the rows that have a staged key, by the file's number in this part."""
    work, state = part.job.work, part.state
    fields = fields_by_name(state, work.how.key)

    def keys() -> Iterator[pa.RecordBatch]:
        for file in part.among:
            for rows in batches(staged_path(state, file), fields, by_id=True):
                yield pa.RecordBatch.from_arrays(rows.columns, schema=numbered(fields))

    db.register("requested", pa.RecordBatchReader.from_batches(numbered(fields), keys()))
    db.execute("CREATE TEMP TABLE k AS SELECT DISTINCT * FROM requested").fetchall()
    db.register("t", table_rows(state, work.how.key))
    return places(db, f"SELECT f, p FROM t SEMI JOIN k ON {work.same_key('t', 'k')}")


@dataclass(frozen=True)
class JoinTask:
    """The rows of one `part` by key."""

    job: MergeJob
    part: int
    table: tuple[Dealt, ...]
    staged: tuple[Dealt, ...]
    keys: tuple[Dealt, ...]
    starts: Any = field(repr=False)
    """The first file of each group that is written again together."""
    by: tuple[DeltaField, ...] | None = None

    def groups(self, files: Any) -> Any:
        """Return the group that each of these files is in."""
        return np.searchsorted(self.starts, files, side="right") - 1


@dataclass(frozen=True)
class JoinedRows:
    """The result for some rows: how many of each kind, the files of the table that change, those that were written
    with new rows, and by kind what is to be done to rows of the table."""

    found: Mapping[str, int]
    absent: int
    nulls: int
    twins: int
    at: int | None = None
    touched: tuple[int, ...] = ()
    added: tuple[Action, ...] = ()
    edits: Mapping[str, Dealt] = field(default_factory=dict)


def join_rows(part: JoinTask, attempt: int, report: Report | None) -> JoinedRows:
    """Find what becomes of the rows, and write the new ones."""
    job, work = part.job, part.job.work
    assert isinstance(work, DeltaMergeWork), "a fill has its own"
    readers = [
        pa.RecordBatchReader.from_batches(job.schema(side), dealt_rows(job, getattr(part, side), part.part))
        for side in ("keys", "table")
    ]
    with task_engine() as db:
        nulls, twins = join_by_key(db, work, _compared(part), readers[0] if work.how.keys else None, readers[1])
        found, absent = counts(db, work)
        if nulls or twins:
            return JoinedRows(found, absent, nulls, twins)
        lines = {
            what: places(db, f"SELECT {columns} FROM met WHERE what = '{what}' ORDER BY n, f, p")
            for what, columns in (("updated", "f, p, n"), ("marked", "f, p"), ("removed", "f, p"), ("inserted", "n"))
            if what in found
        }
        at = latest_time(db, work)
    touched = [lines[w][:, 0] for w in ("updated", "marked", "removed") if w in lines]
    edits = dict[str, Dealt | None]()
    for what in ("marked", "removed"):
        if what in lines:
            edits[what] = _placed(part, what, lines[what], attempt)
    if "updated" in lines:
        edits["updated"] = _updated(part, lines["updated"], attempt)
    added = _inserted(part, lines["inserted"][:, 0], attempt) if "inserted" in lines else []
    files = np.unique(np.concatenate(touched)).tolist() if touched else []
    return JoinedRows(
        found, absent, 0, 0, at, tuple(files), tuple(added), {w: d for w, d in edits.items() if d is not None}
    )


def fill_rows(part: JoinTask, attempt: int, report: Report | None) -> JoinedRows:
    """Find the rows that get a value or another note, and what they get."""
    job, work = part.job, part.job.work
    assert isinstance(work, FillWork), "a merge has its own"
    staged, table = (
        pa.RecordBatchReader.from_batches(job.schema(side), dealt_rows(job, getattr(part, side), part.part))
        for side in ("staged", "table")
    )
    with task_engine() as db:
        edit = filled_rows(db, work, staged, table)
    schema = _edit_schema(job, "updated")
    dealer = Dealer(job, f"updated-{part.part}-{attempt}", schema)
    if edit.values is not None and len(edit.at):
        columns = [*edit.values.columns, pa.array(edit.at[:, 0], pa.int32()), pa.array(edit.at[:, 1])]
        for batch in pa.Table.from_arrays(columns, schema=schema).to_batches(BATCH):
            dealer.put(batch, part.groups(batch.column("f").to_numpy()))
    written = dealer.close()
    files = tuple(np.unique(edit.at[:, 0]).tolist())
    edits = {} if written is None else {"updated": written}
    return JoinedRows({"updated": len(edit.at)}, 0, 0, 0, touched=files, edits=edits)


def _compared(part: JoinTask) -> pa.RecordBatchReader:
    """Return the compared columns of the staged rows."""
    job, work = part.job, part.job.work
    assert isinstance(work, DeltaMergeWork), "a fill compares nothing"
    names = work.names
    schema = numbered(fields_by_name(job.state, names), n=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in dealt_rows(job, part.staged, part.part):
            columns = brief_columns(batch.select(range(len(names))), names, work.brief)
            yield pa.RecordBatch.from_arrays([*columns, batch.column("n")], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _picked(part: JoinTask, numbers: Any) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Yield the staged rows with these numbers (in ascending order), and the place of each among them."""
    for batch in dealt_rows(part.job, part.staged, part.part):
        here = np.searchsorted(numbers, own := batch.column("n").to_numpy())
        hit = np.flatnonzero(numbers[np.minimum(here, len(numbers) - 1)] == own)
        if len(hit):
            yield batch.take(pa.array(hit)), here[hit]


def _edit_schema(job: MergeJob, what: str) -> pa.Schema:
    work = job.work
    fields = fields_by_name(job.state, work.edits) if what == "updated" else []
    return numbered(fields, f=pa.int32(), p=pa.int64())


def _placed(part: JoinTask, what: str, at: Places, attempt: int) -> Dealt | None:
    schema = _edit_schema(part.job, what)
    dealer = Dealer(part.job, f"{what}-{part.part}-{attempt}", schema)
    for start in range(0, len(at), BATCH):
        f, p = at[start : start + BATCH].T
        dealer.put(pa.RecordBatch.from_arrays([pa.array(f, pa.int32()), pa.array(p)], schema=schema), part.groups(f))
    return dealer.close()


def _updated(part: JoinTask, at: Places, attempt: int) -> Dealt | None:
    work, schema = part.job.work, _edit_schema(part.job, "updated")
    dealer = Dealer(part.job, f"updated-{part.part}-{attempt}", schema)
    columns = [work.carried.index(name) for name in work.edits]
    for rows, here in _picked(part, at[:, 2]):
        f, p = at[here, 0], at[here, 1]
        values = [*(rows.column(i) for i in columns), pa.array(f, pa.int32()), pa.array(p)]
        dealer.put(pa.RecordBatch.from_arrays(values, schema=schema), part.groups(f))
    return dealer.close()


def _inserted(part: JoinTask, numbers: Any, attempt: int) -> list[Action]:
    job = part.job
    names = list(job.work.carried)
    rows = (pa.RecordBatch.from_arrays(batch.columns[: len(names)], names=names) for batch, _ in _picked(part, numbers))
    writing = Writing(job.run, part.part, attempt)
    return write(job.state, job.state.layout, writing, new_rows(job.state, job.state.layout, rows), part.by)


@dataclass(frozen=True)
class RewriteTask:
    """Files of one `group` that are written again: those in `state`, with their `numbers` in the whole table."""

    job: MergeJob
    group: int
    state: DeltaTableState
    numbers: tuple[int, ...]
    edits: Mapping[str, tuple[Dealt, ...]]
    at: int | None
    """The time of rows that leave."""
    by: tuple[DeltaField, ...] | None = None


def rewrite_files(part: RewriteTask, attempt: int, report: Report | None) -> list[Action]:
    """Write the files again, with what becomes of their rows."""
    state, work = part.state, part.job.work
    edits = list[RowEdit]()
    for what, files in part.edits.items():
        schema = _edit_schema(part.job, what)
        rows = pa.Table.from_batches(dealt_rows(part.job, files, part.group), schema)
        if not len(rows):
            continue
        f, p = (rows.column(name).to_numpy() for name in ("f", "p"))
        at = np.stack([np.searchsorted(part.numbers, f), p], axis=1)
        values = None
        if what == "updated":
            values = rows.select(range(len(schema) - 2)).rename_columns(list(work.edits))
        elif what == "marked":
            assert isinstance(work, DeltaMergeWork), "a fill marks no row"
            values = marks(state, work, part.at, len(rows))
        edits.append(RowEdit(at, values))
    rows = rewritten(state, range(len(state.files)), edits)
    return write(state, state.layout, Writing(part.job.run, part.job.parts + part.group, attempt), rows, part.by)
