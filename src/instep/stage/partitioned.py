"""Files of one partition each, whatever the order in which their rows come and however many partitions they meet.

One file is open at a time. Rows are held until there is a row group of them, then laid by as runs sorted by partition
in a file of its own on the local disk; the runs become Parquet files, a partition after the other, once they are large
or the chunk is over.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.ipc as ipc

from instep.errors import StageError
from instep.stage.names import file_name
from instep.stage.partition import Partition, Partitioning, by_partition
from instep.stage.place import Place, clear_errors
from instep.stage.spec import StagedFile, StageSpec
from instep.stage.writer import GROUP_BYTES, GROUP_ROWS, ChunkWriter, ParquetFile, assert_schema, repetitive

SPILL_BYTES = 1 << 30
"""Rows that are laid by at most before they become files; less on the disk, where they are compressed."""
MAX_PARTITIONS = 10_000
"""Of one chunk. Each is a file, and each file an entry of the table's metadata."""


def writer_for(spec: StageSpec, chunk: int, attempt: int) -> ChunkWriter | PartitionedWriter:
    """What writes the files of one chunk."""
    return ChunkWriter(spec, chunk, attempt) if spec.partition is None else PartitionedWriter(spec, chunk, attempt)


class PartitionedWriter:
    """As ChunkWriter, for a spec with partitions."""

    def __init__(self, spec: StageSpec, chunk: int, attempt: int) -> None:
        assert spec.partition is not None, "rows without partitions are a ChunkWriter's"
        self.spec, self.chunk, self.attempt = spec, chunk, attempt
        self.by: Partitioning = spec.partition
        self.place = Place(spec.location, spec.io)
        self.files: list[StagedFile] = []
        self._buffer: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._laid = 0
        self._runs: _Runs | None = None
        self._file: ParquetFile | None = None
        self._met: set[Partition] = set()

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of exactly the spec's schema; raises StageError for any other."""
        assert_schema(batch.schema, self.spec)
        if not len(batch):
            return
        self._buffer.append(batch)
        self._rows += len(batch)
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._lay_by()

    @property
    def bytes(self) -> int:
        """Bytes written so far, the open file included."""
        return sum(f.bytes for f in self.files) + (self._file.size if self._file else 0)

    def close(self) -> tuple[StagedFile, ...]:
        if self._runs is None:
            for partition, rows in by_partition(self._held(), self.by):
                self._write(partition, iter([rows]))
        else:
            self._lay_by()
            self._drain()
        return tuple(self.files)

    def abort(self) -> None:
        """Drops the open file and what was laid by; finished files stay, unadopted, for whoever clears the folder."""
        self._buffer.clear()
        if self._file is not None:
            self._file.drop()
            self._file = None
        if self._runs is not None:
            self._runs.drop()
            self._runs = None

    def _held(self) -> pa.Table:
        rows = pa.Table.from_batches(self._buffer, self.spec.schema)
        self._buffer, self._rows, self._bytes = [], 0, 0
        return rows

    def _lay_by(self) -> None:
        if not self._buffer:
            return
        self._runs = self._runs or _Runs(self.spec.schema)
        self._laid += self._bytes
        for partition, rows in by_partition(self._held(), self.by):
            self._runs.add(partition, rows)
        if self._laid >= SPILL_BYTES:
            self._drain()

    def _drain(self) -> None:
        runs, self._runs, self._laid = self._runs, None, 0
        if runs is None:
            return
        try:
            for partition, tables in runs.sorted():
                self._write(partition, tables)
        finally:
            runs.drop()

    def _write(self, partition: Partition, tables: Iterator[pa.Table]) -> None:
        """The rows of one partition, as one file if `file_bytes` allow for it."""
        self._met.add(partition)
        if len(self._met) > MAX_PARTITIONS:
            raise StageError(
                f"{self.spec.table}: its rows belong to more than {MAX_PARTITIONS:,} partitions within one chunk",
                hint="choose coarser ones: month instead of day, or bucket(16, column) instead of the column",
            )
        group: list[pa.RecordBatch] = []
        for table in tables:
            group += table.to_batches()
            if sum(map(len, group)) >= GROUP_ROWS or sum(b.nbytes for b in group) >= GROUP_BYTES:
                self._put(group, partition)
                group = []
        self._put(group, partition)
        self._finish(partition)

    def _put(self, group: list[pa.RecordBatch], partition: Partition) -> None:
        if not group:
            return
        if self._file is None:
            name = file_name(self.spec.run, self.chunk, self.attempt, len(self.files))
            self._file = ParquetFile(self.spec, self.place, name, repetitive(group[0]))
        self._file.write(group)
        if self._file.size >= self.spec.file_bytes:
            self._finish(partition)

    def _finish(self, partition: Partition) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self.files.append(replace(file.finish(self.chunk), partition=partition))


class _Runs:
    """Rows on the local disk, in pieces of one partition each. The file has no name: it leaves with its process."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile(prefix="instep-partitions-")  # noqa: SIM115 - `drop` closes it
        self._options = ipc.IpcWriteOptions(compression="lz4")
        self._writer = ipc.new_file(pa.PythonFile(self._file, "w"), schema, options=self._options)
        self._pieces: dict[Partition, list[int]] = defaultdict(list)
        self._count = 0

    def add(self, partition: Partition, rows: pa.Table) -> None:
        with clear_errors(tempfile.gettempdir()):
            for batch in rows.combine_chunks().to_batches():
                self._writer.write_batch(batch)
                self._pieces[partition].append(self._count)
                self._count += 1

    def sorted(self) -> Iterator[tuple[Partition, Iterator[pa.Table]]]:
        """Each partition once, with its rows in the order in which they came."""
        with clear_errors(tempfile.gettempdir()):
            self._writer.close()
        self._file.seek(0)
        reader = ipc.open_file(pa.PythonFile(self._file, "r"))
        for partition, pieces in self._pieces.items():
            yield partition, (pa.Table.from_batches([reader.get_batch(n)]) for n in pieces)

    def drop(self) -> None:
        self._file.close()
