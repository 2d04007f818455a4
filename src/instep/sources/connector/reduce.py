# ruff: noqa: S608 - columns are numbered
"""Reduce the operations on a table to those that count: the last of each key, and those that an update builds on.

An upsert replaces the row, a delete removes it, an update touches the columns that were given, of a row that these
operations brought or else of one that is at the destination. What a delete or a truncate has removed is not there to be
updated.

What one chunk of a connector's table reads: columns of the raw files of some segments, in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from instep.errors import ReadError
from instep.schema.catalog.catalog import ROW_ID
from instep.schema.catalog.types import Unknown
from instep.sources.connector.segment import DELETE, EACH, GIVEN, NOTES, OP, RECORD, SEQ, UPDATE, UPSERT, SegmentTable
from instep.stage.casts.text import is_text, plain, to_text
from instep.stage.rowid import RowIds, row_texts

What = Literal["rows", "gone", "changed"]
STEP = 1 << 40
"""Numbers of operations that one segment has at most."""
OWN = (OP, SEQ, GIVEN, RECORD, NOTES)
BATCH = 65_536


@dataclass(frozen=True)
class SegmentScan:
    """A table's files of one segment; `cut` is the place of its last truncate, -1 without."""

    files: tuple[str, ...]
    cut: int = -1
    updates: int = 0

    @classmethod
    def of(cls, folder: str, table: SegmentTable) -> SegmentScan:
        files = tuple(str(Path(folder) / f.path) for f in table.files)
        return cls(files, max(table.truncates, default=-1), table.updates)


@dataclass(frozen=True)
class ConnectorScan:
    """A read of a segment's rows."""

    table: str
    what: What
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """Columns of the rows that are `what`, in this order. The row id is the key of a table that has no other."""
    parts: tuple[SegmentScan, ...]
    texts: tuple[str, ...] = ()
    """Columns of texts, of which a file may have values of one other type alone: these are texts as well, as they are
    beside others."""

    def to_text(self) -> str:
        """Return the text form for a chunk's query."""
        parts = [[list(p.files), p.cut, p.updates] for p in self.parts]
        return json.dumps([self.table, self.what, self.key, self.columns, parts, self.texts])

    @classmethod
    def from_text(cls, text: str) -> ConnectorScan:
        table, what, key, columns, some, texts = json.loads(text)
        parts = tuple(SegmentScan(tuple(files), cut, updates) for files, cut, updates in some)
        return cls(table, what, tuple(key), tuple(columns), parts, tuple(texts))

    @property
    def cut(self) -> int:
        """The operations below it, by number, are from before the last truncate; -1 without one."""
        return max((number(at, p.cut) for at, p in enumerate(self.parts) if p.cut >= 0), default=-1)

    @property
    def updates(self) -> int:
        return sum(p.updates for p in self.parts)

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[pa.Array, Mapping[str, pa.Array]]]:
        """Yield (numbers, the columns that the file has, the row id included) batch by batch, in the order in which
        they were sent, without what a later truncate has removed."""
        cut, ids = self.cut, RowIds()
        for at, part in enumerate(self.parts):
            if number(at + 1, 0) <= cut:
                continue
            for file in part.files:
                for batch in self._file(file, columns):
                    numbers = pc.add(batch[SEQ], number(at, 0))
                    if cut >= 0:
                        after = pc.greater(numbers, cut)
                        batch = {name: values.filter(after) for name, values in batch.items()}
                        numbers = numbers.filter(after)
                    if ROW_ID in columns:
                        batch[ROW_ID] = row_ids(batch, len(numbers), ids)
                    yield numbers, batch | {n: to_text(plain(batch[n])) for n in self.texts if is_other(batch, n)}

    def _file(self, file: str, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        try:
            with pq.ParquetFile(file) as source:
                names = source.schema_arrow.names
                columns_read = set(names) if ROW_ID in columns else {*columns, SEQ} & set(names)
                for batch in source.iter_batches(BATCH, columns=[n for n in names if n in columns_read]):
                    yield dict(zip(batch.schema.names, batch.columns, strict=True))
        except (OSError, pa.ArrowInvalid) as error:
            raise ReadError(f"{self.table}: a file of its operations cannot be read: {error}") from error


def is_other(columns: Mapping[str, pa.Array], name: str) -> bool:
    """Return whether a column has values that are no texts."""
    kind = plain(columns[name].slice(0, 0)).type if name in columns else pa.null()
    return not (pa.types.is_null(kind) or is_text(kind))


def number(part: int, place: int) -> int:
    """Return the place of an operation among those of all parts."""
    return part * STEP + place


def row_ids(columns: Mapping[str, pa.Array], rows: int, ids: RowIds) -> pa.Array:
    """Return each record's SHA-256 in hex: of its number, if it has one, else of its values that are not NULL by
    name, in any order. Numbers count by value, whatever their type: 1, 1.0 and 1.00 are one. `ids` counts records of
    equal values, where each is a row."""
    records = columns.get(RECORD, pa.nulls(rows))
    numbers = records.to_pylist() if records.null_count == 0 else []
    if numbers and numbers[0] != EACH:
        return pa.array([sha256(b"#%d" % number).hexdigest() for number in numbers], pa.string())
    texts = {name: (canonical(values), Unknown()) for name, values in columns.items() if name not in OWN}
    array = row_texts(texts, rows)
    if numbers:
        return ids.of(array)
    return pa.array((sha256(text).hexdigest() for text in array.to_pylist()), pa.string())


def canonical(values: pa.Array) -> pa.Array:
    """Return the text that identifies a value, without the zeros that only a type adds."""
    values = plain(values)
    kind, texts = values.type, to_text(values)
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return texts
    bare = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
    return pc.replace_substring_regex(bare, r"\.$", "")


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Ends:
    """Numbers of the operations whose rows land as they are, and of the deletes that removed a row for good; `all`: of
    how many operations. Rows that updates changed are in the tables `grown` and `open` (see `mixed`)."""

    whole: Numbers
    gone: Numbers
    all: int
    mixed: bool


def reduce(db: duckdb.DuckDBPyConnection, scan: ConnectorScan) -> Ends:
    """Read the keys of all operations; makes the table `parts` of those that updates touch."""
    keys = [f"k{i}" for i in range(len(scan.key))]
    total = _load(db, scan, keys)
    by = ", ".join(keys)
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE ends AS SELECT {by}, row_number() OVER () AS g, base >> 2 AS base, "
        f"base & 3 AS op, up FROM (SELECT {by}, max((n << 2) | op) FILTER (WHERE op <> {UPDATE}) AS base, "
        f"max(n) FILTER (WHERE op = {UPDATE}) AS up FROM ops GROUP BY {by})"
    ).fetchall()
    whole = _numbers(db, f"op = {UPSERT} AND (up IS NULL OR up < base)")
    gone = _numbers(db, f"op = {DELETE}")
    mixed = scan.updates > 0
    if mixed:
        loose = "false" if scan.cut >= 0 else "e.base IS NULL"
        same = " AND ".join(f"o.{k} = e.{k}" for k in keys)
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE parts AS SELECT o.n, o.op, e.g, e.base IS NULL AS loose FROM ops AS o "
            f"JOIN ends AS e ON {same} WHERE ({loose}) OR (e.op = {UPSERT} AND e.up > e.base AND o.n >= e.base)"
        ).fetchall()
    db.execute("DROP TABLE ops; DROP TABLE ends").fetchall()
    return Ends(whole, gone, total, mixed)


def _load(db: duckdb.DuckDBPyConnection, scan: ConnectorScan, keys: Sequence[str]) -> int:
    """Create the table `ops` and return the number of its rows. Keys are compared as texts."""
    schema = pa.schema([("n", pa.int64()), ("op", pa.int8()), *((k, pa.string()) for k in keys)])
    total = 0

    def coming() -> Iterator[pa.RecordBatch]:
        nonlocal total
        for numbers, columns in scan.batches((OP, *scan.key)):
            total += len(numbers)
            texts = [canonical(columns[k]) for k in scan.key]
            yield pa.RecordBatch.from_arrays([numbers, columns[OP], *texts], schema=schema)

    db.register("coming", pa.RecordBatchReader.from_batches(schema, coming()))
    db.execute("CREATE OR REPLACE TEMP TABLE ops AS SELECT * FROM coming").fetchall()
    db.unregister("coming")
    return total


def _numbers(db: duckdb.DuckDBPyConnection, where: str) -> Numbers:
    numbers: Numbers = db.execute(f"SELECT base FROM ends WHERE {where} ORDER BY base").fetchnumpy()["base"]
    return np.asarray(numbers, np.int64)


def membership_mask(numbers: pa.Array, members: Numbers) -> pa.Array:
    """Return a mask of the numbers that are among the sorted `members`."""
    own = numbers.to_numpy()
    if not len(members):
        return pa.array(np.zeros(len(own), bool))
    at = np.minimum(np.searchsorted(members, own), len(members) - 1)
    return pa.array(members[at] == own)


def mixed(db: duckdb.DuckDBPyConnection, scan: ConnectorScan, *, loose: bool) -> Iterator[pa.RecordBatch]:
    """Yield rows made of several operations: those that rest on an upsert, or (`loose`) on a row of the destination.
    The last column is the JSON list of the columns given."""
    _load_raw(db, scan)
    some = [
        f"last(r.c{i} ORDER BY p.n) FILTER (WHERE p.op = {UPSERT} OR list_contains(r.given, {i})) AS c{i}"
        for i in range(len(scan.columns))
    ]
    given_places = "list_sort(list_distinct(flatten(list(r.given)))) AS given"
    pairs = f"parts AS p JOIN raw AS r ON p.n = r.n WHERE p.loose = {loose}"
    sql = f"SELECT {', '.join([*some, given_places])} FROM {pairs} GROUP BY p.g"
    for batch in db.sql(sql).to_arrow_reader(BATCH):
        names = [json.dumps([scan.columns[i] for i in some]) for some in batch.column(len(scan.columns)).to_pylist()]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns[:-1], pa.array(names, pa.string())], names=[*scan.columns, GIVEN]
        )


def _load_raw(db: duckdb.DuckDBPyConnection, scan: ConnectorScan) -> None:
    """Create the table `raw`: the values of the operations in `parts`; `given` are places of columns."""
    part_numbers: Numbers = np.asarray(db.execute("SELECT n FROM parts ORDER BY n").fetchnumpy()["n"], np.int64)
    kinds = _kinds(scan)
    fields = [("n", pa.int64()), ("given", pa.list_(pa.int32())), *((f"c{i}", k) for i, k in enumerate(kinds))]
    schema = pa.schema(fields)

    def coming() -> Iterator[pa.RecordBatch]:
        for numbers, columns in scan.batches((GIVEN, *scan.columns)):
            mask = membership_mask(numbers, part_numbers)
            filtered = {name: values.filter(mask) for name, values in columns.items()}
            rows = numbers.filter(mask)
            if len(rows):
                values = [_as(filtered.get(c), k, len(rows)) for c, k in zip(scan.columns, kinds, strict=True)]
                given_places = _places(filtered[GIVEN], scan)
                yield pa.RecordBatch.from_arrays([rows, given_places, *values], schema=schema)

    db.register("coming", pa.RecordBatchReader.from_batches(schema, coming()))
    db.execute("CREATE OR REPLACE TEMP TABLE raw AS SELECT * FROM coming").fetchall()
    db.unregister("coming")


def _places(given_names: pa.Array, scan: ConnectorScan) -> pa.Array:
    """Return the positions of the columns that each operation gave and that are read."""
    places = {name: at for at, name in enumerate(scan.columns)}
    places_of: dict[str | None, list[int]] = {None: []}
    texts = plain(given_names).to_pylist()
    for text in set(texts) - {None}:
        places_of[text] = [places[name] for name in json.loads(text) if name in places]
    return pa.array([places_of[text] for text in texts], pa.list_(pa.int32()))


def _kinds(scan: ConnectorScan) -> list[pa.DataType]:
    """Return the type that holds a column's values in all files: their type where they agree, else text."""
    data_types: dict[str, set[pa.DataType]] = {name: set() for name in scan.columns}
    for _, batch in scan.batches(scan.columns):
        for name, values in batch.items():
            if name in data_types:
                data_types[name].add(plain(values.slice(0, 0)).type)
    return [next(iter(kinds)) if len(kinds) == 1 else pa.string() for kinds in data_types.values()]


def _as(values: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind)
    values = plain(values)
    return values if values.type == kind else canonical(values)
