"""Writes target batches as Parquet files with field ids, and proves that each is what was promised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.errors import StageError
from instep.stage.files.names import file_name, stored_name, stored_schema
from instep.stage.files.place import StorageFolder, clear_errors
from instep.stage.partition import Partition
from instep.stage.spec import StagedFile, StageSpec

GROUP_ROWS = 1 << 18
GROUP_BYTES = 64 << 20
_LEVELS = {"zstd": 1}
_SAMPLE = 4_096
"""Rows of a file that tell which of its columns repeat their values."""
_LONG = 1_024
"""Bytes of an average value of a column that is not asked for that: a dictionary would hold all of them."""


def is_group(rows: int, bytes: int) -> bool:
    """Return whether these are enough for a row group of their own."""
    return rows >= GROUP_ROWS or bytes >= GROUP_BYTES


class Buffering(ABC):
    """Files of one chunk, of which one is open at a time. Rows are held until there is a row group of them."""

    def __init__(self, spec: StageSpec, chunk: int, attempt: int) -> None:
        self.spec, self.chunk, self.attempt = spec, chunk, attempt
        self.place = StorageFolder(spec.location, spec.io)
        self.files: list[StagedFile] = []
        self._buffer: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._file: ParquetFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of exactly the spec's schema; raises StageError for any other."""
        assert_schema(batch.schema, self.spec)
        for part in _parts(batch):
            self._buffer_batch(part)

    def _buffer_batch(self, batch: pa.RecordBatch) -> None:
        self._buffer.append(batch)
        self._rows += len(batch)
        self._bytes += batch.nbytes
        if is_group(self._rows, self._bytes):
            self._hand_on(self._pop_buffer())

    @property
    def bytes(self) -> int:
        """Bytes written so far, the open file included."""
        return sum(f.bytes for f in self.files) + (self._file.size if self._file else 0)

    @abstractmethod
    def close(self) -> tuple[StagedFile, ...]:
        """Return all files, once the rows that are still held are in one."""

    def abort(self) -> None:
        """Drop the open file; finished ones stay, unadopted, for whoever clears the run's folder."""
        self._buffer.clear()
        if self._file is not None:
            self._file.drop()
            self._file = None

    @abstractmethod
    def _hand_on(self, group: list[pa.RecordBatch]) -> None:
        """Process a row group; groups come in the order of their rows."""

    def _pop_buffer(self) -> list[pa.RecordBatch]:
        """Return the rows that are held, which are no longer held."""
        rows, self._buffer, self._rows, self._bytes = self._buffer, [], 0, 0
        return rows

    def _put(self, group: list[pa.RecordBatch], partition: Partition | None = None) -> None:
        """Write to the open file, which is finished once it passes `file_bytes`."""
        if not group:
            return
        if self._file is None:
            name = file_name(self.spec.run, self.chunk, self.attempt, len(self.files))
            self._file = ParquetFile(self.spec, self.place, name, repetitive(group[0]))
        self._file.write(group)
        if self._file.size >= self.spec.file_bytes:
            self._finish(partition)

    def _finish(self, partition: Partition | None = None) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self.files.append(replace(file.finish(self.chunk), partition=partition))


class ChunkWriter(Buffering):
    """Rows go into the files as they come."""

    def close(self) -> tuple[StagedFile, ...]:
        self._hand_on(self._pop_buffer())
        self._finish()
        return tuple(self.files)

    def _hand_on(self, group: list[pa.RecordBatch]) -> None:
        self._put(group)


class ParquetFile:
    """One Parquet file being written."""

    def __init__(self, spec: StageSpec, place: StorageFolder, name: str, repetitive: list[str]) -> None:
        self.spec, self.uri = spec, place.child(name)
        self._file = place.create(name)
        self._schema = stored_schema(spec.schema)
        self._writer: Any = None
        with self._dropping(), clear_errors(self.uri):  # it writes the first bytes
            self._writer = pq.ParquetWriter(
                self._file.sink,
                self._schema,
                compression=spec.compression,
                compression_level=_LEVELS.get(spec.compression),
                store_schema=False,
                write_page_index=False,
                use_dictionary=[stored_name(spec.schema.field(n)) for n in repetitive],
            )

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches, self.spec.schema)
        if self._schema is not self.spec.schema:
            table = pa.Table.from_arrays(table.columns, schema=self._schema)
        with self._dropping(), clear_errors(self.uri):
            self._writer.write_table(table, row_group_size=len(table))

    def finish(self, chunk: int) -> StagedFile:
        with self._dropping():
            with clear_errors(self.uri):
                self._writer.close()
            metadata = self._writer.writer.metadata
            assert_written(metadata, self.spec)
            size = self._file.finish()
        footer = pa.BufferOutputStream()
        metadata.write_metadata_file(footer)
        return StagedFile(self.spec.table, chunk, self.uri, metadata.num_rows, size, footer.getvalue().to_pybytes())

    def drop(self) -> None:
        """Close and delete the file."""
        if self._writer is not None:
            self._writer.is_open = False  # else it writes a footer when it is collected
        self._file.drop()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.drop()
            raise


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of which none is more than a row group, but for a single row."""
    rows = max(1, len(batch) * GROUP_BYTES // max(batch.nbytes, GROUP_BYTES))
    yield from (batch.slice(start, rows) for start in range(0, len(batch), rows))


def repetitive(batch: pa.RecordBatch) -> list[str]:
    """Return columns worth a dictionary: for others, building one costs a quarter of the time and a fifth more
    space."""
    sample = batch.slice(0, _SAMPLE)
    named = zip(sample.schema.names, sample.columns, strict=True)
    flat = [(name, c) for name, c in named if not isinstance(c, pa.ExtensionArray) and not pa.types.is_nested(c.type)]
    short = [(name, column) for name, column in flat if column.nbytes <= _LONG * len(sample)]
    return [name for name, column in short if 2 * len(pc.unique(column)) <= len(sample)]


def assert_schema(schema: pa.Schema, spec: StageSpec) -> None:
    """Raise StageError unless names, types, units and field ids are the spec's, in its order."""
    if schema is not spec.schema:
        _compare(list(_leaves(schema)), list(_leaves(spec.schema)), spec)


def assert_written(metadata: pq.FileMetaData, spec: StageSpec) -> None:
    """Check the schema in a finished file's footer as `assert_schema` does."""
    _compare(list(_leaves(metadata.schema.to_arrow_schema())), list(_leaves(stored_schema(spec.schema))), spec)


_Leaf = tuple[str, str, str]


def _compare(leaves: list[_Leaf], expected: list[_Leaf], spec: StageSpec) -> None:
    if leaves == expected:
        return
    pairs = [(f, w) for f, w in zip(leaves, expected, strict=False) if f != w]
    was, must = pairs[0] if pairs else (f"{len(leaves)} fields", f"{len(expected)} fields")
    raise StageError(
        f"{spec.table}: a staged file would hold {_show(was)} where the table has {_show(must)}",
        hint="nothing was committed; the destination table changed during the run: sync again",
    )


def _show(leaf: _Leaf | str) -> str:
    return leaf if isinstance(leaf, str) else f"{leaf[0]} {leaf[1]} (field id {leaf[2] or 'none'})"


def _leaves(fields: pa.Schema | pa.StructType | list[pa.Field], path: str = "") -> Iterator[_Leaf]:
    """Yield (path, type without sizes of offsets, field id) of each field, depth first."""
    for field in fields:
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        name = f"{path}{field.name}"
        identity = (field.metadata or {}).get(b"PARQUET:field_id", b"").decode()
        if pa.types.is_struct(kind):
            yield name, "struct", identity
            yield from _leaves(list(kind), f"{name}.")
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield name, "list", identity
            yield from _leaves([kind.value_field], f"{name}.")
        elif pa.types.is_map(kind):
            yield name, "map", identity
            yield from _leaves([kind.key_field, kind.item_field], f"{name}.")
        else:
            yield name, str(kind).removeprefix("large_"), identity
