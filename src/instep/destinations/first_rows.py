"""The first rows of a table that is read batch by batch."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def first_rows(batches: Iterable[pa.RecordBatch], limit: int, schema: pa.Schema) -> pa.Table:
    """Return at most `limit` rows, as `schema` has them; no batch is asked for once they are there."""
    parts, left = [schema.empty_table()], limit
    for batch in batches if left else ():
        parts.append(pa.Table.from_batches([batch.slice(0, left)]).cast(schema))  # files differ in long and short texts
        left -= parts[-1].num_rows
        if not left:
            break
    return pa.concat_tables(parts)
