# ruff: noqa: S608 - columns are numbered, values are not part of the text
"""One task of a fill: looks for rows without a value in some data files, and writes those files again.

The files are read twice and never held whole: first the keys of the rows that lack a value, which meet the values that
were read from the source, then all columns, batch by batch, into the new file. Rows that are deleted by position are
left out, so that their delete files can go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.iceberg.commit.row_reader import ExistingFile, live_rows
from instep.destinations.rows import merged
from instep.stage.conform import compact_json
from instep.stage.files.partitioned import writer_for
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.spec import StagedFile, StageSpec
from instep.stage.task import ChunkProgress, Report
from instep.temporary import temporary

MEMORY = "1GB"
STAGED_ROWS = 1_000_000
"""About the most rows of values that are looked at together."""


@dataclass(frozen=True)
class FillTask:
    """One task's data files."""

    table: TableMetadata
    """Metadata without snapshots, which are not needed and may be many."""
    spec: StageSpec
    """Specification of the files to write."""
    key: tuple[str, ...]
    columns: tuple[str, ...]
    meta: str
    """The column of notes, where values did not fit (`holds`); "" leaves notes as they are."""
    holds: bool
    values: tuple[ExistingFile, ...]
    """The files with the values, staged ones or those of an earlier snapshot."""
    files: tuple[ExistingFile, ...]
    io: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def gets(self) -> tuple[str, ...]:
        """The columns that a row gets."""
        return (*self.columns, *((self.meta,) if self.meta else ()))


@dataclass(frozen=True)
class Rewritten:
    """The files in place of the data file `path`, and how many rows of it have changed."""

    path: str
    files: tuple[StagedFile, ...]
    rows: int


def fill_part(part: FillTask, attempt: int, report: Report | None) -> list[Rewritten]:
    """Return the files of the part that change; the others are not written."""
    work = _FillRun(part, load_file_io(dict(part.io), part.spec.location))
    done = []
    for number, filled_rows in sorted(_found(work).items()):
        done.append(_rewrite(work, part.files[number], filled_rows, attempt))
        if report is not None:
            size = sum(f.bytes for f in done[-1].files)
            report(ChunkProgress(part.spec.table, sum(f.rows for f in done[-1].files), size, 1))
    return done


@dataclass(frozen=True)
class _FillRun:
    part: FillTask
    io: FileIO

    def batches(self, old: ExistingFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return a file's standing rows in order, as the table has these columns."""
        return live_rows(self.part.table, self.io, old, columns)

    def kinds(self, columns: Sequence[str]) -> list[pa.DataType]:
        projected = schema_to_pyarrow(self.part.table.schema(), include_field_ids=False)
        return [projected.field(c).type for c in columns]

    def staged(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of one file of values, some at a time: key, columns and notes."""
        names = [*self.part.key, *self.part.gets]
        schema = pa.schema(list(zip(names, self.kinds(names), strict=True)))
        batches, count = list[pa.RecordBatch](), 0
        for batch in self.batches(self.part.values[number], names):
            columns = [_as(batch.column(f.name), f.type) for f in schema]
            batches.append(pa.record_batch(columns, schema=schema))
            count += len(batch)
            if count >= STAGED_ROWS:
                yield pa.Table.from_batches(batches, schema)
                batches, count = [], 0
        if batches:
            yield pa.Table.from_batches(batches, schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


@dataclass
class _FilledRows:
    """Rows of one data file that get something: their places among its standing rows, and the values, in step."""

    places: list[Any] = field(default_factory=list)
    values: list[pa.Table] = field(default_factory=list)


def _found(work: _FillRun) -> dict[int, _FilledRows]:
    """Return the rows to fill by the file's index in the part; what exceeds memory goes to a temporary folder."""
    part, rows_of = work.part, defaultdict[int, _FilledRows](_FilledRows)
    with temporary("fill") as spill:
        config: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": spill, "threads": 1}
        with closing(duckdb.connect(":memory:", config=config)) as db:
            db.register("lacking", _lacking(work))
            db.execute("CREATE TEMP TABLE t AS SELECT * FROM lacking")
            for number in sorted({n for old in part.files for n in old.values}):
                for staged in work.staged(number):
                    met = _match_staged(db, part, staged)
                    values = staged.select(list(part.gets))
                    for place in np.flatnonzero(np.bincount(met["f"], minlength=1)):
                        rows = met["f"] == place
                        rows_of[int(place)].places.append(met["p"][rows])
                        rows_of[int(place)].values.append(values.take(pa.array(met["n"][rows])))
    return rows_of


def _lacking(work: _FillRun) -> pa.RecordBatchReader:
    """Return the keys (k0, ...) of rows that lack a value, with the file (f), the place in it (p), which columns lack
    one (u0, ...) and the note (m)."""
    part = work.part
    keys, count = work.kinds(part.key), len(part.columns)
    names = ["f", "p", *(f"k{i}" for i in range(len(keys))), *(f"u{i}" for i in range(count)), "m"]
    schema = pa.schema(
        list(zip(names, [pa.int32(), pa.int64(), *keys, *[pa.bool_()] * count, pa.string()], strict=True))
    )

    def batches() -> Iterator[pa.RecordBatch]:
        columns = [*part.key, *part.columns, *([part.meta] if part.holds else [])]
        for number, old in enumerate(part.files):
            start = 0
            for batch in work.batches(old, columns):
                rows = len(batch)
                lacks = [batch.column(c).is_null() for c in part.columns]
                note = _as(batch.column(part.meta), pa.string()) if part.holds else pa.nulls(rows, pa.string())
                place = [pa.repeat(pa.scalar(number, pa.int32()), rows), pa.array(np.arange(start, start + rows))]
                key = [_as(batch.column(c), kind) for c, kind in zip(part.key, keys, strict=True)]
                some = lacks[0]
                for more in lacks[1:]:
                    some = pc.or_(some, more)
                yield pa.record_batch([*place, *key, *lacks, note], schema=schema).filter(some)
                start += rows

    return pa.RecordBatchReader.from_batches(schema, batches())


def _match_staged(db: duckdb.DuckDBPyConnection, part: FillTask, staged: pa.Table) -> Mapping[str, Any]:
    """Return the rows that get a value, or a note, from these staged rows: f and p as in `_lacking`, n the staged
    row."""
    names = ["n", *(f"k{i}" for i in range(len(part.key))), *(f"s{i}" for i in range(len(part.columns))), "m"]
    columns = [
        pa.array(np.arange(len(staged))),
        *(staged.column(c) for c in part.key),
        *(staged.column(c).is_valid() for c in part.columns),
        staged.column(part.meta).cast(pa.string()) if part.meta else pa.nulls(len(staged), pa.string()),
    ]
    db.register("v", pa.table(columns, names=names))
    on = " AND ".join(f"t.k{i} = v.k{i}" for i in range(len(part.key)))
    gets = [f"(t.u{i} AND v.s{i})" for i in range(len(part.columns))]
    if part.holds:
        gets += [f"(t.u{i} AND {_names('v', c)} AND NOT {_names('t', c)})" for i, c in enumerate(part.columns)]
    sql = f"SELECT t.f, t.p, v.n FROM t JOIN v ON {on} WHERE {' OR '.join(gets)}"
    arrays = db.execute(sql).fetchnumpy()
    db.unregister("v")
    return {name: np.asarray(arrays[name], dtype=np.int64) for name in ("f", "p", "n")}


def _names(side: str, column: str) -> str:
    """Return whether the note of a row names a column."""
    text = compact_json({"field": column})[1:-1].replace("'", "''")
    return f"coalesce(contains({side}.m, '{text}'), false)"


def _rewrite(work: _FillRun, old: ExistingFile, filled_rows: _FilledRows, attempt: int) -> Rewritten:
    part = work.part
    places, values = np.concatenate(filled_rows.places), pa.concat_tables(filled_rows.values)
    last = int(places.max())
    which = np.full(last + 1, -1, dtype=np.int64)
    which[places] = np.arange(len(places))
    writer = writer_for(part.spec, old.number, attempt)
    try:
        start = 0
        for batch in work.batches(old, part.spec.schema.names):
            places_here = np.full(len(batch), -1, dtype=np.int64)
            inside = which[start : start + len(batch)]
            places_here[: len(inside)] = inside
            writer.write(_batch(part, batch, places_here, values))
            start += len(batch)
        return Rewritten(old.path, writer.close(), int(np.count_nonzero(which >= 0)))
    except BaseException:
        writer.abort()
        raise


def _batch(part: FillTask, batch: pa.RecordBatch, which: Any, values: pa.Table) -> pa.RecordBatch:
    """Return the batch with values filled in. `which` has, for each row of the batch, its row number in `values`, or
    -1."""
    schema = part.spec.schema
    columns = {f.name: _as(batch.column(f.name), f.type) for f in schema}
    hit = np.flatnonzero(which >= 0)
    if len(hit):
        index = pa.array(which, mask=which < 0)
        for name in part.columns:
            new = values.column(name).combine_chunks().take(index)
            columns[name] = _first(columns[name], _as(new, schema.field(name).type))
        if part.meta:
            columns[part.meta] = _notes(part, columns, hit, values.column(part.meta).take(pa.array(which[hit])))
    return pa.record_batch([columns[f.name] for f in schema], schema=schema)


def _first(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return the old values, and the new ones where they are NULL."""
    place = np.where(np.asarray(old.is_valid()), np.arange(len(old)), np.arange(len(old)) + len(old))
    if not old.null_count:
        return old
    if old.null_count == len(old):
        return new
    return pa.concat_arrays([old, new]).take(pa.array(place))


def _notes(part: FillTask, columns: Mapping[str, pa.Array], hit: Any, staged: pa.ChunkedArray) -> pa.Array:
    """Return the notes of the batch: a column that has a value now is no longer noted, one that did not fit is."""
    old = columns[part.meta]
    if old.null_count == len(old) and staged.null_count == len(staged):
        return old
    texts = old.to_pylist()
    for at, new in zip(hit.tolist(), staged.to_pylist(), strict=True):
        if texts[at] or new:
            lacking = {c for c in part.columns if not columns[c][at].is_valid}
            texts[at] = merged(texts[at], new, lacking, part.columns)
    return pa.array(texts, old.type)
