"""The first rows of a table, without opening more files than hold them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import CastSample, Ref
from instep.destinations.casts import tried
from instep.destinations.iceberg.evolve.undo import arrow_type
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.records import read_table
from instep.destinations.iceberg.write.load import load_ours
from instep.schema.catalog.types import DataType


def sample_cast(lake: Lake, ref: Ref, column: str, kind: DataType, key: Sequence[str], rows: int) -> CastSample:
    """See `Destination.sample_cast`."""
    table, metadata = load_ours(lake, ref)
    found = read_table(ref, metadata).by_name.get(column)
    if found is None or table.metadata.current_snapshot() is None:
        return CastSample()
    sample = first_rows(table, tuple(dict.fromkeys([column, *key])), rows)
    return tried(sample, column, key, found.type, kind, arrow_type(kind, column))


def first_rows(table: IcebergTable, columns: tuple[str, ...], rows: int) -> pa.Table:
    """As many files as it takes for `rows`, these columns of them."""
    scan = table.scan(selected_fields=columns, limit=rows)
    tasks, held = [], 0
    for task in scan.plan_files():
        tasks.append(task)
        held += task.file.record_count
        if held >= rows:
            break
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter, scan.case_sensitive, rows)
    return reader.to_table(tasks)
