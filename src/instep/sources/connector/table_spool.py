"""The rows of one table in one segment, on their way into Parquet files that have all the same columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.schema.types import DataType, String, Unknown
from instep.sources.connector.frames import Frame
from instep.sources.connector.segment import (
    DELETE,
    GIVEN,
    OP,
    SEQ,
    UPDATE,
    UPSERT,
    SegmentColumn,
    SegmentFile,
    SegmentTable,
    SegmentUpload,
)
from instep.sources.connector.values import Values, arrow_type, join, read_column, settled, type_of

_FILE_BYTES = 128 << 20
_GROUP_ROWS, _GROUP_BYTES = 100_000, 24 << 20
_GIVEN = pa.dictionary(pa.int32(), pa.string())
_OWN = (pa.field(OP, pa.int8()), pa.field(SEQ, pa.int64()), pa.field(GIVEN, _GIVEN))
_PIECES = {"q": 1, "d": 1, "b": 1}


@dataclass(frozen=True)
class Declaration:
    """A table as schema() declared it, or as it was first named."""

    schema: str
    name: str
    key: tuple[str, ...] = ()
    types: Mapping[str, DataType] = field(default_factory=dict)
    declared: bool = False

    @property
    def ref(self) -> tuple[str, str]:
        return self.schema, self.name

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class _Batch:
    rows: int
    own: tuple[pa.Array, ...]
    columns: Mapping[str, Values]
    bytes: int


@dataclass
class _Seen:
    """What is known of a column of the segment."""

    type: DataType
    misfits: int = 0
    wide: bool = False
    came: bool = False
    met: dict[DataType, None] = field(default_factory=dict)

    @property
    def stored(self) -> DataType:
        return String() if self.misfits else self.type


class TableSpool:
    """`number` makes its file names its own."""

    def __init__(self, folder: Path, number: int, said: Declaration) -> None:
        self._folder, self._said = folder, said
        self._stem = f"{re.sub(r'[^A-Za-z0-9]+', '-', said.label).strip('-')[:80] or 'table'}-t{number}"
        self._seen: dict[str, _Seen] = {name: _Seen(kind) for name, kind in said.types.items()}
        self._waiting: list[_Batch] = []
        self._writer: pq.ParquetWriter | None = None
        self._written: list[tuple[str, tuple[tuple[str, DataType], ...]]] = []
        self._counts: Counter[int] = Counter()
        self.truncates: list[int] = []
        self.uploads: list[SegmentUpload] = []

    @property
    def operations(self) -> int:
        return self._counts.total() + len(self.truncates)

    def add(self, frame: Frame) -> Counter[int]:
        """The operations of a frame, by number; raises ReadError if it cannot be read."""
        batch, counts = self._batch(frame)
        for name, values in batch.columns.items():
            seen = self._seen.setdefault(name, _Seen(Unknown()))
            if name not in self._said.types:
                seen.type, seen.wide = join(seen.type, seen.wide, values.type, values.wide)
                seen.met |= dict.fromkeys(map(type_of, values.kinds))
            seen.misfits += values.misfits
            seen.came = True
        self._waiting.append(batch)
        self._counts += counts
        if sum(b.rows for b in self._waiting) >= _GROUP_ROWS or sum(b.bytes for b in self._waiting) >= _GROUP_BYTES:
            self._write()
        return counts

    def _batch(self, frame: Frame) -> tuple[_Batch, Counter[int]]:
        rows, parts = int(frame.head["rows"]), iter(frame.parts())
        operations = next(parts)
        counts = Counter(operations.tobytes())
        own = [_array(pa.int8(), operations, rows), _array(pa.int64(), next(parts), rows)]
        given = frame.head.get("given")
        own.append(pa.nulls(rows, _GIVEN) if given is None else _given(given, own[0], next(parts), rows))
        columns = {}
        for name, kinds, placed in frame.head["columns"]:
            data = [next(parts) for kind in kinds for _ in range(_PIECES.get(kind, 2))]
            if placed:
                data.append(next(parts))
            columns[name] = read_column(kinds, data, rows, self._said.types.get(name))
        return _Batch(rows, tuple(own), columns, len(frame.body)), counts

    def _columns(self) -> tuple[tuple[str, DataType], ...]:
        """Those of the files: declared ones, and those that had a value."""
        return tuple((name, seen.stored) for name, seen in self._seen.items())

    def _write(self) -> None:
        """What waits becomes a row group, of a new file if the columns are not those of the last one."""
        if not self._waiting:
            return
        columns = self._columns()
        if self._writer is not None and self._written[-1][1] != columns:
            self._close()
        if self._writer is None:
            path = f"{self._stem}-{len(self._written) + 1}.parquet"
            self._written.append((path, columns))
            self._writer = _writer(self._folder / path, _schema(columns))
        self._writer.write_table(self._table(columns))
        self._waiting = []
        if (self._folder / self._written[-1][0]).stat().st_size >= _FILE_BYTES:
            self._close()

    def _table(self, columns: Sequence[tuple[str, DataType]]) -> pa.Table:
        own = [pa.chunked_array([b.own[n] for b in self._waiting], f.type) for n, f in enumerate(_OWN)]
        found = [pa.chunked_array([_values(b, name, kind) for b in self._waiting]) for name, kind in columns]
        return pa.Table.from_arrays([*own, *found], schema=_schema(columns))

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        self._close()

    def close(self) -> SegmentTable:
        """The table as the manifest tells it. Files that were begun before the columns were known are written again."""
        self._write()
        self._close()
        columns = self._columns()
        for path, had in self._written:
            if had != columns:
                _rewrite(self._folder / path, had, columns)
        files = tuple(_file(self._folder, path) for path, _ in self._written)
        counts = self._counts
        return SegmentTable(
            self._said.schema, self._said.name, self._said.declared, self._said.key, tuple(self._described()), files,
            counts[UPSERT], counts[UPDATE], counts[DELETE], tuple(self.truncates), tuple(self.uploads),
        )  # fmt: skip

    def _described(self) -> Iterator[SegmentColumn]:
        key, types = self._said.key, self._said.types
        for name in dict.fromkeys((*key, *self._seen)):
            seen = self._seen.get(name, _Seen(Unknown()))
            met = tuple(seen.met) if len(seen.met) > 1 else ()
            yield SegmentColumn(
                name, seen.type, name in types, name in key, name not in key, seen.misfits, met, not seen.came
            )


def _array(kind: pa.DataType, data: memoryview, rows: int) -> pa.Array:
    array = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])
    array.validate(full=True)
    return array


def _given(lists: Sequence[Sequence[str]], operations: pa.Array, codes: memoryview, rows: int) -> pa.Array:
    """For each update the JSON list of its columns."""
    texts = pa.array([json.dumps(names, ensure_ascii=False) for names in lists], pa.string())
    index = pc.if_else(pc.equal(operations, UPDATE), _array(pa.int32(), codes, rows), pa.scalar(None, pa.int32()))
    return pa.DictionaryArray.from_arrays(index, texts)


def _values(batch: _Batch, name: str, kind: DataType) -> pa.Array:
    values = batch.columns.get(name)
    if values is None:
        return pa.nulls(batch.rows, arrow_type(kind))
    return settled(values.array, values.stored, kind)


def _schema(columns: Sequence[tuple[str, DataType]]) -> pa.Schema:
    return pa.schema([*_OWN, *(pa.field(name, arrow_type(kind)) for name, kind in columns)])


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    repeated = [f.name for f in schema if f.type in (pa.string(), _GIVEN)]
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, use_dictionary=repeated)


def _rewrite(path: Path, had: Sequence[tuple[str, DataType]], columns: Sequence[tuple[str, DataType]]) -> None:
    """The same rows with other columns, row group by row group."""
    before, draft = dict(had), path.with_suffix(".part")
    with pq.ParquetFile(path) as file, _writer(draft, _schema(columns)) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            own = [table.column(f.name).cast(f.type) for f in _OWN]
            found = [_again(table, name, before.get(name), kind) for name, kind in columns]
            writer.write_table(pa.Table.from_arrays([*own, *found], schema=_schema(columns)))
    draft.rename(path)


def _again(table: pa.Table, name: str, had: DataType | None, kind: DataType) -> pa.ChunkedArray:
    if had is None:
        return pa.chunked_array([pa.nulls(table.num_rows, arrow_type(kind))])
    chunks = [settled(chunk, had, kind) for chunk in table.column(name).chunks]
    return pa.chunked_array(chunks, arrow_type(kind))


def _file(folder: Path, path: str) -> SegmentFile:
    return SegmentFile(path, pq.read_metadata(folder / path).num_rows, (folder / path).stat().st_size)
