"""The first rows of a table that is read batch by batch."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def first_rows(batches: Iterable[pa.RecordBatch], limit: int, schema: pa.Schema) -> pa.Table:
    """Return at most `limit` rows, as `schema` has them; no batch is asked for once they are there."""
    parts, left = list[pa.RecordBatch](), limit
    for batch in batches if left else ():
        parts.append(batch.slice(0, left))
        left -= parts[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(parts).cast(schema) if parts else schema.empty_table()
