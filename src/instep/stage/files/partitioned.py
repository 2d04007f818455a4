"""Files of one partition each, whatever the order in which their rows come and however many partitions they meet.

One file is open at a time. Rows are held until there is a row group of them, then laid by as runs sorted by partition
in a file of its own on the local disk; the runs become Parquet files, a partition after the other, once they are large
or the chunk is over.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.ipc as ipc

from instep.errors import StageError
from instep.stage.field_metadata import value_of
from instep.stage.files.place import clear_errors
from instep.stage.files.writer import Buffering, ChunkWriter, is_group
from instep.stage.partition import Partition, Partitioning, by_partition
from instep.stage.spec import StagedFile, StageSpec

SPILL_BYTES = 1 << 30
"""Rows that are laid by at most before they become files; less on the disk, where they are compressed."""
MAX_PARTITIONS = 10_000
"""Of one chunk. Each is a file, and each file an entry of the table's metadata."""


def writer_for(spec: StageSpec, chunk: int, attempt: int) -> Buffering:
    """Return a writer for the files of one chunk."""
    if spec.partition is None:
        return ChunkWriter(spec, chunk, attempt)
    partition = only_partition(spec.schema, spec.partition)
    return OnePartitionWriter(spec, chunk, attempt, partition) if partition else PartitionedWriter(spec, chunk, attempt)


def only_partition(schema: pa.Schema, by: Partitioning) -> Partition | None:
    """Return the partition of all rows, if that is told by columns that have one value in each of them."""
    values = list[str | None]()
    for term in by.terms:
        value = value_of(schema.field(term.column)) if term and term.transform == "identity" else None
        if term and value is None:
            return None
        values.append(value)
    return Partition(by.spec, tuple(values))


class OnePartitionWriter(Buffering):
    """Rows of one `partition` go into the files as they come."""

    def __init__(self, spec: StageSpec, chunk: int, attempt: int, partition: Partition) -> None:
        super().__init__(spec, chunk, attempt)
        self.partition = partition

    def close(self) -> tuple[StagedFile, ...]:
        self._hand_on(self._pop_buffer())
        self._finish(self.partition)
        return tuple(self.files)

    def _hand_on(self, group: list[pa.RecordBatch]) -> None:
        self._put(group, self.partition)


class PartitionedWriter(Buffering):
    """Writer for a spec with partitions."""

    def __init__(self, spec: StageSpec, chunk: int, attempt: int) -> None:
        assert spec.partition is not None, "rows without partitions are a ChunkWriter's"
        super().__init__(spec, chunk, attempt)
        self.by: Partitioning = spec.partition
        self._laid = 0
        self._runs: _Runs | None = None
        self._met: set[Partition] = set()

    def close(self) -> tuple[StagedFile, ...]:
        if self._runs is None:
            for partition, rows in self._parted(self._pop_buffer()):
                self._write(partition, iter([rows]))
        else:
            self._hand_on(self._pop_buffer())
            self._drain()
        return tuple(self.files)

    def abort(self) -> None:
        """Abort like any writer, and drop buffered rows."""
        super().abort()
        if self._runs is not None:
            self._runs.drop()
            self._runs = None

    def _parted(self, group: list[pa.RecordBatch]) -> Iterator[tuple[Partition, pa.Table]]:
        return by_partition(pa.Table.from_batches(group, self.spec.schema), self.by)

    def _hand_on(self, group: list[pa.RecordBatch]) -> None:
        if not group:
            return
        self._runs = self._runs or _Runs(self.spec.schema)
        self._laid += sum(batch.nbytes for batch in group)
        for partition, rows in self._parted(group):
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
        """Write the rows of one partition, as one file if `file_bytes` permits."""
        self._met.add(partition)
        if len(self._met) > MAX_PARTITIONS:
            raise StageError(
                f"{self.spec.table}: its rows belong to more than {MAX_PARTITIONS:,} partitions within one chunk",
                hint="choose coarser ones: month instead of day, or bucket(16, column) instead of the column",
            )
        group: list[pa.RecordBatch] = []
        for table in tables:
            group += table.to_batches()
            if is_group(sum(map(len, group)), sum(b.nbytes for b in group)):
                self._put(group, partition)
                group = []
        self._put(group, partition)
        self._finish(partition)


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
        """Yield each partition once, with its rows in the order in which they came."""
        with clear_errors(tempfile.gettempdir()):
            self._writer.close()
        self._file.seek(0)
        reader = ipc.open_file(pa.PythonFile(self._file, "r"))
        for partition, pieces in self._pieces.items():
            yield partition, (pa.Table.from_batches([reader.get_batch(n)]) for n in pieces)

    def drop(self) -> None:
        self._file.close()
