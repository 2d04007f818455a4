"""A few values of one column, read from the source in this process: never kept, shown or logged by who asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from instep.schema.catalog.catalog import Column, Table
from instep.schema.planning.naming import quote
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange, Snapshot
from instep.stage.spec import Chunk, ReadSession
from instep.sync.context import SyncContext
from instep.sync.detection.filters import where_of


def alone(table: Table, column: Column, where: str = "") -> TableRead:
    """Read only this column of a source table."""
    return TableRead(table, table, (ColumnRead(column, column),), where)


def values(
    context: SyncContext, snapshot: Snapshot, session: ReadSession, table: Table, column: Column, most: int
) -> Iterator[pa.Array]:
    """Up to `most` values that are not NULL, from the first and the last chunk: half of them from each, if there are
    two."""
    read = alone(table, column, where_of(context, table))
    chunks = sorted(snapshot.chunks(read, f"{table.path}.{column.name}", CursorRange()), key=_number)
    ends = chunks[:1] + chunks[1:][-1:]
    for place, chunk in enumerate(ends):
        left = most // len(ends) if place else most - most // len(ends) * (len(ends) - 1)
        for batch in session.read(_limited(context, chunk, column, left)):
            found = batch.column(0).drop_null()[:left]
            left -= len(found)
            yield found
            if not left:
                break


def _number(chunk: Chunk) -> int:
    return chunk.number


def _limited(context: SyncContext, chunk: Chunk, column: Column, most: int) -> Chunk:
    """SQL that stops by itself; the column keeps the name by which readers know its type."""
    if not chunk.query.startswith("SELECT "):
        return chunk
    label = quote(str(column.type), "mysql" if context.source.kind in ("mysql", "mariadb") else "ansi")
    query = f"WITH s(v) AS ({chunk.query}) SELECT v AS {label} FROM s WHERE v IS NOT NULL LIMIT {most:d}"  # noqa: S608
    return replace(chunk, query=query)
