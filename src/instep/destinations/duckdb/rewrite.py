# ruff: noqa: S608 - names are quoted
"""Rewrites a column that DuckDB may not convert by itself: every value goes through the casts that loads use."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from instep.destinations.casts import cast_all
from instep.destinations.duckdb.file import Session
from instep.destinations.duckdb.shape import arrow_type, sql_type
from instep.destinations.sql.merge import q
from instep.schema.table import Column
from instep.schema.types import Boolean, DataType, Json

BATCH = 100_000


def rewrite(session: Session, table: str, place: str, before: DataType, column: Column) -> None:
    """Adds `column` with the values that the column at `place`, of the type `before`, holds; IllegalChange if one does
    not fit."""
    target = arrow_type(column.type)
    schema = pa.schema([("n", pa.int64()), ("v", target)])
    value = f"{q(place)}::VARCHAR" if isinstance(before, Json) else q(place)
    sql = f"SELECT rowid AS n, {value} AS v FROM {table} WHERE {q(place)} IS NOT NULL"

    # a boolean comes as an 8-bit integer of its own type, whose text would be a number
    def batches() -> Iterator[pa.RecordBatch]:
        for batch in session.batches(sql, BATCH):
            own = batch.column(1).cast(pa.bool_()) if isinstance(before, Boolean) else batch.column(1)
            values = cast_all(column.name, own, before, column.type, target)
            yield pa.record_batch([batch.column(0), values], schema=schema)

    made = pa.Table.from_batches(list(batches()), schema)
    session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {sql_type(column.type)}")
    session.db.register("_instep_values", made)
    session.run(f"UPDATE {table} AS t SET {q(column.name)} = s.v FROM _instep_values AS s WHERE t.rowid = s.n")
    session.db.unregister("_instep_values")
