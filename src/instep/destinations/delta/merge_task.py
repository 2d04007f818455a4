# ruff: noqa: S608 - columns are numbered
"""The work of one task of a large merge or fill. There are four kinds, one after the other:

1. rows of some files, of the table or staged ones, are dealt out by their key, into one file that the next tasks share:
   of a merge their keys, places and hashes of what is compared, of a fill keys and values;
2. those of some keys are joined, as in a small merge; what becomes of the table's rows is dealt out by their files;
3. of a merge, staged rows that come are read at their places, and no others: new ones are written, those that take the
   place of another are dealt out by its file;
4. files that have rows of which something becomes are written again.

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

from instep.destinations.delta.files import BATCH, Writing, as_type, batches, io_of, rows_in, staged_path, write
from instep.destinations.delta.merge_work import (
    FillWork,
    HashedMergeWork,
    counts,
    filled_rows,
    join_by_key,
    load_both,
    marks,
)
from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.rewrite import FileRows, Places, RowEdit, new_rows, rewritten
from instep.destinations.delta.rows import fields_by_name, numbered, places, table_rows
from instep.destinations.delta.shape import DeltaField, arrow_type
from instep.destinations.delta.table_state import DeltaTableState
from instep.stage.duckdb_memory import STREAMS, duckdb_version
from instep.stage.files.object_store import opened, path_at
from instep.stage.files.place import StorageFolder, clear_errors
from instep.stage.key_hashes import check_version, hashable, hashed_key, other_form
from instep.stage.spec import StagedFile
from instep.stage.task import Report
from instep.temporary import temporary

MEMORY = "1GB"
FLUSH_BYTES = 128 << 20
"""Rows that a task deals out, until they become row groups."""
Side = Literal["table", "staged", "keys"]


_GROUPED = pa.schema([("n", pa.int64()), ("f", pa.int32()), ("p", pa.int64())])
"""Staged rows that come, by their number, and the place of the row that each takes the place of."""


@dataclass(frozen=True)
class MergeJob:
    """The settings that all tasks of a merge share. `state` has no files; `folder` is where what lies between the tasks
    is. Rows are dealt out into `parts` by their key. `version`: that of DuckDB, whose hashes these are."""

    state: DeltaTableState
    work: HashedMergeWork | FillWork
    run: str
    folder: str
    """Folder of the files between the tasks."""
    parts: int
    version: str = field(default_factory=duckdb_version)

    @property
    def key(self) -> Sequence[str]:
        return self.work.how.key if isinstance(self.work, HashedMergeWork) else self.work.key

    def names(self, side: Side) -> Sequence[str]:
        """Return the columns that are read."""
        if isinstance(self.work, FillWork):
            return self.work.names
        return {"table": self.work.compared, "staged": self.work.names, "keys": self.key}[side]

    def bears(self, side: Side) -> Mapping[str, str]:
        """Return the columns that rows bear when they are dealt out, by what they are called then."""
        work = self.work
        names = {f"c{i}": name for i, name in enumerate(work.names if isinstance(work, FillWork) else self.key)}
        if isinstance(work, FillWork) or side == "keys":
            return names
        marked = work.system.deleted if side == "table" else ""
        return names | {what: name for what, name in (("cursor", work.how.cursor), ("deleted", marked)) if name}

    def hashed(self, side: Side) -> bool:
        """Return whether rows bear hashes of their values."""
        return isinstance(self.work, HashedMergeWork) and side != "keys"

    def schema(self, side: Side) -> pa.Schema:
        """Return the columns of rows that are dealt out, the last ones where the row is."""
        types = {f.name: arrow_type(f.type) for f in fields_by_name(self.state, self.names(side))}
        hashes = {"h0": pa.int64(), "h1": pa.int64()} if self.hashed(side) else {}
        own = {what: types[name] for what, name in self.bears(side).items()}
        return pa.schema([*(own | hashes | _place(side)).items()])


def _place(side: Side) -> dict[str, pa.DataType]:
    return {"f": pa.int32(), "p": pa.int64()} if side == "table" else {"n": pa.int64()}


@dataclass(frozen=True)
class PartedFile:
    """A file of rows that were dealt out: its row groups by part."""

    uri: str
    groups: Mapping[int, tuple[int, ...]]


class PartedFileWriter:
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
            with clear_errors(self._file.uri):
                self._writer = pq.ParquetWriter(self._file.sink, self._schema, compression="zstd", compression_level=1)
        for part, rows in sorted(self._rows.items()):
            table = pa.Table.from_batches(rows, self._schema)
            with clear_errors(self._file.uri):
                self._writer.write_table(table, row_group_size=len(table))
            self._groups[part].append(self._written)
            self._written += 1
        self._rows.clear()
        self._bytes = 0

    def close(self) -> PartedFile | None:
        """Return the file; None if there were no rows."""
        if self._rows:
            self._flush()
        if self._writer is None:
            return None
        with clear_errors(self._file.uri):
            self._writer.close()
        self._file.finish()
        return PartedFile(self._file.uri, {part: tuple(groups) for part, groups in self._groups.items()})


def dealt_rows(job: MergeJob, files: Sequence[PartedFile], part: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part."""
    for file in files:
        if groups := file.groups.get(part):
            with pq.ParquetFile(opened(path_at(file.uri, io_of(job.state)))) as parquet:
                for group in groups:
                    yield from parquet.iter_batches(BATCH, row_groups=[group])


@contextmanager
def task_engine(*, streams: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to an engine of this task's own; what does not fit into memory goes to a folder that leaves. `streams`:
    see `duckdb_cursor`."""
    with temporary("merge") as spill:
        config: dict[str, Any] = {
            "memory_limit": MEMORY,
            "temp_directory": spill,
            "threads": 1,
            "preserve_insertion_order": "false",
            "arrow_large_buffer_size": "true",
            "arrow_lossless_conversion": "true",
        }
        with closing(duckdb.connect(":memory:", config=config | STREAMS if streams else config)) as db:
            db.execute("SET timezone = 'UTC'")
            yield db


@dataclass(frozen=True)
class DealTask:
    """Some files of one side, dealt out by key. Those of the table are in `state`, with their `numbers` in the whole
    table; staged ones come with the number of their first row. `among`: only rows count that have a key of these.
    `before`: values are those of an earlier version, in `state`, where the columns were called so."""

    job: MergeJob
    number: int
    side: Side
    state: DeltaTableState
    numbers: tuple[int, ...] = ()
    staged: tuple[tuple[int, StagedFile], ...] = ()
    among: tuple[StagedFile, ...] = ()
    before: tuple[str, ...] = ()

    def rows(self, db: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
        """Yield what is read of the rows: numbered columns, then where the row is."""
        schema = numbered(fields_by_name(self.job.state, self.job.names(self.side)), **_place(self.side))
        if self.before:
            return _values_before(self, schema)
        return _table_part(self, db, schema) if self.side == "table" else _staged_part(self, schema)


def deal(part: DealTask, attempt: int, report: Report | None) -> PartedFile | None:
    """Deal the rows of the part's files out."""
    job, side = part.job, part.side
    check_version(job.version)
    schema = job.schema(side)
    dealer = PartedFileWriter(job, f"{side}-{part.number}-{attempt}", schema)
    at = {name: i for i, name in enumerate(job.names(side))}
    bears = [at[name] for name in job.bears(side).values()]
    with task_engine() as db:
        for rows in part.rows(db):
            parts, hashes = _hashes(db, job, side, rows)
            columns = [*(rows.column(i) for i in bears), *hashes, *(rows.column(name) for name in _place(side))]
            dealer.put(pa.RecordBatch.from_arrays(columns, schema=schema), parts)
    return dealer.close()


def _hashes(db: duckdb.DuckDBPyConnection, job: MergeJob, side: Side, rows: pa.RecordBatch) -> tuple[Any, list[Any]]:
    """Return the part of each row, and the hashes that it bears. Keys and values that are equal have the same ones."""
    names, select = job.names(side), list[str]()
    coming = pa.table(
        [*rows.columns[: len(names)], np.arange(len(rows))], names=[*rows.schema.names[: len(names)], "i"]
    )
    db.register("coming", coming)
    if job.parts > 1:
        select.append(f"CAST(hash({', '.join(f'c{i}' for i in range(len(job.key)))}) % {job.parts} AS BIGINT) AS part")
    if job.hashed(side):
        assert isinstance(job.work, HashedMergeWork), "a fill compares nothing"
        compared = set(job.work.values)
        own = [f"c{i}" for i, name in enumerate(names) if name in compared]
        first = hashable(db, own) if own else []
        second = [other_form(coming.schema.field(c), value) for c, value in zip(own, first, strict=True)][::-1]
        select += [f"{hashed_key(v) if v else '0::BIGINT'} AS h{n}" for n, v in enumerate((first, second))]
    hashes = db.execute(f"SELECT {', '.join(select)} FROM coming ORDER BY i").fetchnumpy() if select else {}
    parts = hashes.pop("part", None)
    return np.zeros(len(rows), np.int64) if parts is None else parts, [pa.array(h) for h in hashes.values()]


def _staged_part(part: DealTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    state = part.state
    fields = fields_by_name(state, part.job.names(part.side))
    for start, file in part.staged:
        for rows in batches(staged_path(state, file), fields, by_id=True):
            numbers = pa.array(np.arange(start, start + len(rows)))
            yield pa.RecordBatch.from_arrays([*rows.columns, numbers], schema=schema)
            start += len(rows)


def _values_before(part: DealTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows that had a value, in the types of today."""
    fields, key = fields_by_name(part.state, part.before), len(part.job.key)
    for file in part.state.files:
        for rows in rows_in(part.state, file, fields):
            has = np.any([c.is_valid().to_numpy(zero_copy_only=False) for c in rows.columns[key:]], axis=0)
            some = rows.filter(pa.array(has))
            columns = [as_type(c, f.type) for c, f in zip(some.columns, schema, strict=False)]
            yield pa.RecordBatch.from_arrays([*columns, pa.array(np.arange(len(some)))], schema=schema)


def _table_part(part: DealTask, db: duckdb.DuckDBPyConnection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    state = part.state
    fields = fields_by_name(state, part.job.names("table"))
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
            file_numbers = pa.repeat(pa.scalar(part.numbers[number], pa.int32()), len(rows))
            yield pa.RecordBatch.from_arrays([*rows.columns, file_numbers, pa.array(at)], schema=schema)


def _places_of(part: DealTask, db: duckdb.DuckDBPyConnection) -> Places:
    """Return the rows that have a staged key, by the file's number in this part."""
    work, state, key = part.job.work, part.state, part.job.key
    fields = fields_by_name(state, key)

    def keys() -> Iterator[pa.RecordBatch]:
        for file in part.among:
            for rows in batches(staged_path(state, file), fields, by_id=True):
                yield pa.RecordBatch.from_arrays(rows.columns, schema=numbered(fields))

    db.register("requested", pa.RecordBatchReader.from_batches(numbered(fields), keys()))
    db.execute("CREATE TEMP TABLE k AS SELECT DISTINCT * FROM requested").fetchall()
    db.register("t", table_rows(state, key))
    return places(db, f"SELECT f, p FROM t SEMI JOIN k ON {work.same_key('t', 'k')}")


@dataclass(frozen=True)
class JoinTask:
    """The rows of one `part` by key. `starts`: the first file of each group that is written again together;
    `staged_starts`: the first row of each group of staged files that is read together."""

    job: MergeJob
    part: int
    table: tuple[PartedFile, ...]
    staged: tuple[PartedFile, ...]
    keys: tuple[PartedFile, ...]
    starts: Any = field(repr=False)
    staged_starts: Any = field(repr=False)

    def reader(self, side: Side) -> pa.RecordBatchReader:
        files: tuple[PartedFile, ...] = getattr(self, side)
        return pa.RecordBatchReader.from_batches(self.job.schema(side), dealt_rows(self.job, files, self.part))


def group_of(starts: Any, numbers: Any) -> Any:
    """Return the group that each of these numbers is in; a group has all from its start to the next one's."""
    return np.searchsorted(starts, numbers, side="right") - 1


@dataclass(frozen=True)
class JoinedRows:
    """The result for some rows: how many of each kind, the files of the table that change, by kind what is to be done
    to rows of the table, and the staged rows that `come`."""

    counts: Mapping[str, int]
    absent: int
    nulls: int
    duplicates: int
    touched: tuple[int, ...] = ()
    edits: Mapping[str, PartedFile] = field(default_factory=dict)
    come: PartedFile | None = None


def join_rows(part: JoinTask, attempt: int, report: Report | None) -> JoinedRows:
    """Find what becomes of the rows, by their hashes."""
    work = part.job.work
    assert isinstance(work, HashedMergeWork), "a fill has its own"
    keys = part.reader("keys") if work.how.keys else None
    with task_engine(streams=True) as db:
        load_both(db, part.reader("staged"), part.reader("table"))
        nulls, twins = join_by_key(db, work, keys)
        counted, absent = counts(db, work)
        if nulls or twins:
            return JoinedRows(counted, absent, nulls, twins)
        gone = {
            w: places(db, f"SELECT f, p FROM met WHERE what = '{w}'") for w in ("marked", "removed") if w in counted
        }
        came = places(db, "SELECT n, coalesce(f, -1), coalesce(p, -1) FROM met WHERE what IN ('inserted', 'updated')")
    dealt_by = {what: _dealt_places(part, what, lines, attempt) for what, lines in gone.items()}
    edits: dict[str, PartedFile] = {what: dealt for what, dealt in dealt_by.items() if dealt is not None}
    touched = np.unique(np.concatenate([came[came[:, 1] >= 0, 1], *(lines[:, 0] for lines in gone.values())]))
    come = PartedFileWriter(part.job, f"come-{part.part}-{attempt}", _GROUPED)
    for n, f, p in (lines.T for lines in _slices(came)):
        rows = [pa.array(n), pa.array(f, pa.int32()), pa.array(p)]
        come.put(pa.RecordBatch.from_arrays(rows, schema=_GROUPED), group_of(part.staged_starts, n))
    return JoinedRows(counted, absent, 0, 0, tuple(touched.tolist()), edits, come.close())


def _slices(lines: Places) -> Iterator[Places]:
    return (lines[start : start + BATCH] for start in range(0, len(lines), BATCH))


def _dealt_places(part: JoinTask, what: str, at: Places, attempt: int) -> PartedFile | None:
    schema = _edit_schema(part.job, what)
    dealer = PartedFileWriter(part.job, f"{what}-{part.part}-{attempt}", schema)
    for f, p in (lines.T for lines in _slices(at)):
        rows = [pa.array(f, pa.int32()), pa.array(p)]
        dealer.put(pa.RecordBatch.from_arrays(rows, schema=schema), group_of(part.starts, f))
    return dealer.close()


def fill_rows(part: JoinTask, attempt: int, report: Report | None) -> JoinedRows:
    """Find the rows that get a value or another note, and what they get."""
    job, work = part.job, part.job.work
    assert isinstance(work, FillWork), "a merge has its own"
    with task_engine() as db:
        edit = filled_rows(db, work, part.reader("staged"), part.reader("table"))
    schema = _edit_schema(job, "updated")
    dealer = PartedFileWriter(job, f"updated-{part.part}-{attempt}", schema)
    if edit.values is not None and len(edit.at):
        columns = [*edit.values.columns, pa.array(edit.at[:, 0], pa.int32()), pa.array(edit.at[:, 1])]
        for batch in pa.Table.from_arrays(columns, schema=schema).to_batches(BATCH):
            dealer.put(batch, group_of(part.starts, batch.column("f").to_numpy()))
    written = dealer.close()
    files = tuple(np.unique(edit.at[:, 0]).tolist())
    edits = {} if written is None else {"updated": written}
    return JoinedRows({"updated": len(edit.at)}, 0, 0, 0, touched=files, edits=edits)


@dataclass(frozen=True)
class PickTask:
    """A `group` of staged files, with the number of the first row of each, of which rows come. `starts`: the first file
    of each group of the table's."""

    job: MergeJob
    group: int
    staged: tuple[tuple[int, StagedFile], ...]
    come: tuple[PartedFile, ...]
    starts: Any = field(repr=False)
    by: tuple[DeltaField, ...] | None = None


@dataclass(frozen=True)
class PickedRows:
    """The files with new rows, and what rows of the table become."""

    added: tuple[Action, ...] = ()
    updated: PartedFile | None = None


def pick_rows(part: PickTask, attempt: int, report: Report | None) -> PickedRows:
    """Read the rows that come, write those that are new, and deal out the others."""
    job, work = part.job, part.job.work
    assert isinstance(work, HashedMergeWork), "a fill has all values"
    come = pa.Table.from_batches(dealt_rows(job, part.come, part.group), _GROUPED).sort_by("n")
    schema = _edit_schema(job, "updated")
    dealer = PartedFileWriter(job, f"updated-{part.group}-{attempt}", schema)
    new = bool((come.column("f").to_numpy() < 0).any())
    names = [c.name for c in work.table.columns] if new else list(work.edits)

    def inserted() -> Iterator[pa.RecordBatch]:
        for rows, f, p in _picked(part, come, names):
            hits = np.flatnonzero(f >= 0)
            some = rows.take(pa.array(hits))
            values = [*(some.column(name) for name in work.edits), pa.array(f[hits]), pa.array(p[hits])]
            dealer.put(pa.RecordBatch.from_arrays(values, schema=schema), group_of(part.starts, f[hits]))
            if len(hits) < len(rows):
                yield rows.take(pa.array(np.flatnonzero(f < 0)))

    added = list[Action]()
    if new:
        layout = job.state.layout
        writing = Writing(job.run, 2 * part.group + 1, attempt)
        added = write(job.state, layout, writing, new_rows(job.state, layout, inserted()), part.by)
    else:
        for _ in inserted():
            raise AssertionError("none of these rows is new")
    return PickedRows(tuple(added), dealer.close())


def _picked(part: PickTask, come: pa.Table, names: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Any, Any]]:
    """Yield the staged rows that come, and the place of the row that each takes the place of."""
    state = part.job.state
    fields = fields_by_name(state, names)
    n, f, p = (come.column(name).to_numpy() for name in ("n", "f", "p"))
    for start, file in part.staged:
        if len(np.unique(np.searchsorted(n, [start, start + file.rows]))) < 2:
            continue
        for rows in batches(staged_path(state, file), fields, by_id=True):
            low, high = np.searchsorted(n, [start, start + len(rows)])
            if low < high:
                own = rows.take(pa.array(n[low:high] - start))
                yield pa.RecordBatch.from_arrays(own.columns, names=list(names)), f[low:high], p[low:high]
            start += len(rows)


def _edit_schema(job: MergeJob, what: str) -> pa.Schema:
    work = job.work
    fields = fields_by_name(job.state, work.edits) if what == "updated" else []
    return numbered(fields, f=pa.int32(), p=pa.int64())


@dataclass(frozen=True)
class RewriteTask:
    """Files of one `group` that are written again: those in `state`, with their `numbers` in the whole table."""

    job: MergeJob
    group: int
    state: DeltaTableState
    numbers: tuple[int, ...]
    edits: Mapping[str, tuple[PartedFile, ...]]
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
            assert isinstance(work, HashedMergeWork), "a fill marks no row"
            values = marks(state, work, part.at, len(rows))
        edits.append(RowEdit(at, values))
    rows = rewritten(state, [FileRows(n) for n in range(len(state.files))], edits)
    return write(state, state.layout, Writing(part.job.run, 2 * part.group, attempt), rows, part.by)
