"""Staged files whose rows were not told apart by the table's current partition spec: they are written again.

That happens where a spec came after the tasks were told of none, or where files that were meant for a merge take the
place of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.base import Commit
from instep.destinations.iceberg.catalog import Lake
from instep.destinations.iceberg.files import arrow_schema, readable_files
from instep.destinations.iceberg.partition import partitioning, record_of
from instep.destinations.iceberg.shard_table import own_data, staged_schema
from instep.stage.partitioned import writer_for
from instep.stage.place import Place
from instep.stage.spec import StagedFile, StageSpec, SystemColumns


def split_files(
    lake: Lake, files: Sequence[StagedFile], table: Table, metadata: TableMetadata, commit: Commit
) -> list[StagedFile]:
    """Files for adoption under the spec of `metadata` (the table's, or the one that it gets); the others are copied
    into a folder of the run, whose sweep knows it. Raises StageError for a file that is not what the table needs."""
    odd = [f for f in files if f.rows and record_of(f, metadata) is None]
    if not odd:
        return list(files)
    schema = staged_schema(table) or metadata.schema()
    readable_files(odd, metadata, schema)
    spec = StageSpec(
        table=odd[0].table, columns=(), system=SystemColumns(), schema=arrow_schema(schema),
        location=f"{own_data(table)}/{commit.run}-split-{commit.fence}", quarantine="", run=commit.run, synced=0,
        io=lake.io(), partition=partitioning(metadata),
    )  # fmt: skip
    writer = writer_for(spec, 0, 0)
    try:
        for file in odd:
            for batch in _rows(file, spec):
                writer.write(batch)
        return [*(f for f in files if f not in odd), *writer.close()]
    except BaseException:
        writer.abort()
        raise


def _rows(file: StagedFile, spec: StageSpec) -> Iterator[pa.RecordBatch]:
    folder, _, name = file.path.rpartition("/")
    filesystem, path = Place(folder, spec.io).resolve(name)
    with filesystem.open_input_file(path) as stream, pq.ParquetFile(stream) as parquet:
        for batch in parquet.iter_batches():
            columns = zip(batch.columns, spec.schema, strict=True)
            yield pa.record_batch([c if c.type == f.type else c.cast(f.type) for c, f in columns], schema=spec.schema)
