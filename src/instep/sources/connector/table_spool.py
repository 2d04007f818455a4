"""The rows of one table in one segment, on their way into Parquet files that have all the same columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.schema.catalog.promotion import promote
from instep.schema.catalog.types import DataType, String, Unknown
from instep.sources.connector.frames import Frame
from instep.sources.connector.segment import (
    DELETE,
    EACH,
    GIVEN,
    NOTES,
    OP,
    RECORD,
    SEQ,
    UPDATE,
    UPSERT,
    SegmentColumn,
    SegmentFile,
    SegmentTable,
    SegmentUpload,
    stored_name,
)
from instep.sources.connector.values import Values, arrow_type, converted, join, read_column, type_of

_FILE_BYTES = 128 << 20
_GROUP_ROWS, _GROUP_BYTES = 100_000, 24 << 20
_GIVEN = pa.dictionary(pa.int32(), pa.string())
_OWN = (
    pa.field(OP, pa.int8()),
    pa.field(SEQ, pa.int64()),
    pa.field(GIVEN, _GIVEN),
    pa.field(RECORD, pa.int64()),
    pa.field(NOTES, pa.string()),
)
_PIECES = {"q": 1, "d": 1, "b": 1}


@dataclass(frozen=True)
class Declaration:
    """A table as schema() declared it, or as it was first named."""

    schema: str
    name: str
    key: tuple[str, ...] = ()
    types: Mapping[str, DataType] = field(default_factory=dict)
    declared: bool = False
    cursor: str = ""

    @property
    def ref(self) -> tuple[str, str]:
        return self.schema, self.name

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class _SpooledBatch:
    rows: int
    own: tuple[pa.Array, ...]
    columns: Mapping[str, Values]
    bytes: int


@dataclass
class _SpooledColumn:
    """State of a column of the segment."""

    type: DataType
    invalid_values: int = 0
    wide: bool = False
    came: bool = False
    met: dict[DataType, None] = field(default_factory=dict)
    value_type: DataType = field(default_factory=Unknown)

    @property
    def stored(self) -> DataType:
        return String() if self.invalid_values else self.type


class TableSpool:
    """`number` makes its file names its own."""

    def __init__(self, folder: Path, number: int, declaration: Declaration) -> None:
        self._folder, self._declaration = folder, declaration
        self.rows, self.bytes = 0, 0
        self._stem = f"{re.sub(r'[^A-Za-z0-9]+', '-', declaration.label).strip('-')[:80] or 'table'}-t{number}"
        self._seen: dict[str, _SpooledColumn] = {name: _SpooledColumn(kind) for name, kind in declaration.types.items()}
        self._waiting: list[_SpooledBatch] = []
        self._rows, self._bytes = 0, 0
        self._steps: list[SegmentTable] = []
        self._reported: tuple[object, ...] = ()
        self._writer: pq.ParquetWriter | None = None
        self._written: list[tuple[str, tuple[tuple[str, DataType], ...]]] = []
        self._counts: Counter[int] = Counter()
        self.truncates: list[int] = []
        self.uploads: list[SegmentUpload] = []

    @property
    def declaration(self) -> Declaration:
        return self._declaration

    @property
    def operations(self) -> int:
        return self._counts.total() + len(self.truncates)

    @property
    def steps(self) -> int:
        """Return how often the columns differed from those of the part before."""
        return len(self._steps)

    @property
    def is_on_disk(self) -> bool:
        """True if some of its operations are in files, which no other segment can take."""
        return bool(self._written or self.uploads)

    @property
    def _writes(self) -> bool:
        return bool(self._counts[UPSERT] or self._counts[UPDATE])

    @property
    def label(self) -> str:
        """Return the table's path at the source."""
        return self._declaration.label

    def takes(self, later: TableSpool) -> bool:
        """True if what came later can be of the same segment: it takes back or changes nothing that is here, and no
        column that was inferred has another type in it."""
        if self._writes and (later._counts[DELETE] or later._counts[UPDATE] or later.truncates):
            return False
        for name, later_column in later._seen.items():
            column = self._seen.get(name)
            if column is None or name in self._declaration.types or Unknown() in (column.type, later_column.type):
                continue
            if column.type != later_column.type:
                return False
        return True

    def absorb(self, later: TableSpool) -> None:
        """Take the operations that came later. What was known of the columns between the two is kept as steps."""
        if not self._steps and self._counts:
            self._steps.append(self._step())
            self._reported = self._telling()
        if (telling := later._telling()) != self._reported:
            self._steps.append(later._step())
            self._reported = telling
        for name, later_column in later._seen.items():
            column = self._seen.setdefault(name, _SpooledColumn(later_column.type))
            column.type = later_column.type if isinstance(column.type, Unknown) else column.type
            column.invalid_values += later_column.invalid_values
            column.wide |= later_column.wide
            column.came |= later_column.came
            column.met |= later_column.met
            column.value_type = promote(column.value_type, later_column.value_type)
        self._waiting += later._waiting
        self._counts += later._counts
        self.truncates += later.truncates
        self._add_size(later.rows, later.bytes)

    def _add_size(self, rows: int, size: int) -> None:
        self.rows, self.bytes = self.rows + rows, self.bytes + size
        self._rows, self._bytes = self._rows + rows, self._bytes + size
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()

    def _telling(self) -> tuple[object, ...]:
        """Return a value that changes with every step."""
        kinds = (self._counts[UPSERT] > 0, self._counts[UPDATE] > 0, self._counts[DELETE] > 0)
        return (*kinds, *((name, seen.type, seen.came, seen.value_type) for name, seen in self._seen.items()))

    def _step(self) -> SegmentTable:
        """Return the table as this part alone describes it, without its rows."""
        columns = tuple(replace(c, invalid_values=0, met=()) for c in self._described())
        declaration, counts = self._declaration, self._counts
        return SegmentTable(
            declaration.schema,
            declaration.name,
            declaration.declared,
            declaration.key,
            columns,
            upserts=int(counts[UPSERT] > 0),
            updates=int(counts[UPDATE] > 0),
            deletes=int(counts[DELETE] > 0),
            cursor=declaration.cursor,
        )

    def add(self, frame: Frame) -> Counter[int]:
        """Return the operations of a frame, by number; raises ReadError if it cannot be read."""
        batch, counts = self._batch(frame)
        for name, values in batch.columns.items():
            seen = self._seen.setdefault(name, _SpooledColumn(Unknown()))
            if name not in self._declaration.types:
                seen.type, seen.wide = join(seen.type, seen.wide, values.type, values.wide)
                seen.met |= dict.fromkeys(map(type_of, values.kinds))
            seen.invalid_values += values.invalid_values
            seen.came = True
        for name, kinds in frame.head.get("found", {}).items():
            seen = self._seen[stored_name(name)]
            for kind in kinds:
                seen.value_type, _ = join(promote(seen.value_type, seen.type), False, type_of(kind), kind == "q")
        self._waiting.append(batch)
        self._counts += counts
        self._add_size(batch.rows, batch.bytes)
        return counts

    def _batch(self, frame: Frame) -> tuple[_SpooledBatch, Counter[int]]:
        rows, parts = int(frame.head["rows"]), iter(frame.parts())
        operations = next(parts)
        counts = Counter(operations.tobytes())
        own = [_array(pa.int8(), operations, rows), _array(pa.int64(), next(parts), rows)]
        given_columns = frame.head.get("given")
        own.append(
            pa.nulls(rows, _GIVEN)
            if given_columns is None
            else _updated_columns(given_columns, own[0], next(parts), rows)
        )
        own.append(_records(frame.head.get("first"), rows))
        own.append(_notes(frame.head.get("notes"), rows))
        columns = {}
        for name, kinds, placed in frame.head["columns"]:
            data = [next(parts) for kind in kinds for _ in range(_PIECES.get(kind, 2))]
            if placed:
                data.append(next(parts))
            stored = stored_name(name)
            columns[stored] = read_column(kinds, data, rows, self._declaration.types.get(stored))
        return _SpooledBatch(rows, tuple(own), columns, len(frame.body)), counts

    def _columns(self) -> tuple[tuple[str, DataType], ...]:
        """Return the columns of the files: declared ones, and those that had a value."""
        return tuple((name, seen.stored) for name, seen in self._seen.items())

    def _write(self) -> None:
        """Write what waits as a row group, of a new file if the columns differ from the last one's."""
        if not self._waiting:
            return
        columns = self._columns()
        if self._writer is not None and self._written[-1][1] != columns:
            self._close()
        if self._writer is None:
            path = f"{self._stem}-{len(self._written) + 1}.parquet"
            self._written.append((path, columns))
            self._writer = _writer(self._folder / path, _schema(columns))
        own = [pa.chunked_array([b.own[n] for b in self._waiting], f.type) for n, f in enumerate(_OWN)]
        values = [pa.chunked_array([_values(b, name, kind) for b in self._waiting]) for name, kind in columns]
        self._writer.write_table(pa.Table.from_arrays([*own, *values], schema=_schema(columns)))
        self._waiting, self._rows, self._bytes = [], 0, 0
        if (self._folder / self._written[-1][0]).stat().st_size >= _FILE_BYTES:
            self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        self._close()

    def close(self) -> SegmentTable:
        """Return the table as the manifest tells it. Files that were begun before the columns were known are
        rewritten."""
        self._write()
        self._close()
        columns = self._columns()
        for path, written_columns in self._written:
            if written_columns != columns:
                _rewrite(self._folder / path, written_columns, columns)
        files = tuple(_file(self._folder, path) for path, _ in self._written)
        counts = self._counts
        return SegmentTable(
            self._declaration.schema,
            self._declaration.name,
            self._declaration.declared,
            self._declaration.key,
            tuple(self._described()),
            files,
            counts[UPSERT],
            counts[UPDATE],
            counts[DELETE],
            tuple(self.truncates),
            tuple(self.uploads),
            tuple(self._steps) if len(self._steps) > 1 else (),
            self._declaration.cursor,
        )

    def _described(self) -> Iterator[SegmentColumn]:
        key, types = self._declaration.key, self._declaration.types
        for name in dict.fromkeys((*key, *self._seen)):
            seen = self._seen.get(name, _SpooledColumn(Unknown()))
            met = tuple(seen.met) if len(seen.met) > 1 else ()
            invalid_values, nullable = seen.invalid_values, name not in key
            yield SegmentColumn(
                name,
                seen.type,
                name in types,
                not nullable,
                nullable,
                invalid_values,
                met,
                not seen.came,
                seen.value_type,
            )


def _array(kind: pa.DataType, data: memoryview, rows: int) -> pa.Array:
    array = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])
    array.validate(full=True)
    return array


def _records(first: int | None, rows: int) -> pa.Array:
    """Return the numbers of the records; `first` is that of the first one, or what all have."""
    if first is None:
        return pa.nulls(rows, pa.int64())
    return pa.repeat(pa.scalar(first, pa.int64()), rows) if first == EACH else pa.array(range(first, first + rows))


def _notes(notes: Mapping[str, str] | None, rows: int) -> pa.Array:
    """Return the notes of a frame, which are by the place of their row."""
    if not notes:
        return pa.nulls(rows, pa.string())
    return pa.array([notes.get(str(at)) for at in range(rows)], pa.string())


def _updated_columns(lists: Sequence[Sequence[str]], operations: pa.Array, codes: memoryview, rows: int) -> pa.Array:
    """Return for each update the JSON list of its columns."""
    texts = pa.array([json.dumps(list(map(stored_name, names)), ensure_ascii=False) for names in lists], pa.string())
    index = pc.if_else(pc.equal(operations, UPDATE), _array(pa.int32(), codes, rows), pa.scalar(None, pa.int32()))
    return pa.DictionaryArray.from_arrays(index, texts)


def _values(batch: _SpooledBatch, name: str, kind: DataType) -> pa.Array:
    values = batch.columns.get(name)
    if values is None:
        return pa.nulls(batch.rows, arrow_type(kind))
    return converted(values.array, values.stored, kind)


def _schema(columns: Sequence[tuple[str, DataType]]) -> pa.Schema:
    return pa.schema([*_OWN, *(pa.field(name, arrow_type(kind)) for name, kind in columns)])


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    repeated = [f.name for f in schema if f.type in (pa.string(), _GIVEN)]
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, use_dictionary=repeated)


def _rewrite(
    path: Path, written_columns: Sequence[tuple[str, DataType]], columns: Sequence[tuple[str, DataType]]
) -> None:
    """Rewrite the same rows with other columns, row group by row group."""
    old_types, draft = dict(written_columns), path.with_suffix(".part")
    with pq.ParquetFile(path) as file, _writer(draft, _schema(columns)) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            own = [table.column(f.name).cast(f.type) for f in _OWN]
            values = [_again(table, name, old_types.get(name), kind) for name, kind in columns]
            writer.write_table(pa.Table.from_arrays([*own, *values], schema=_schema(columns)))
    draft.rename(path)


def _again(table: pa.Table, name: str, old_type: DataType | None, kind: DataType) -> pa.ChunkedArray:
    if old_type is None:
        return pa.chunked_array([pa.nulls(table.num_rows, arrow_type(kind))])
    chunks = [converted(chunk, old_type, kind) for chunk in table.column(name).chunks]
    return pa.chunked_array(chunks, arrow_type(kind))


def _file(folder: Path, path: str) -> SegmentFile:
    return SegmentFile(path, pq.read_metadata(folder / path).num_rows, (folder / path).stat().st_size)
