# ruff: noqa: S608 - names are quoted
"""Casts within the transaction: PostgreSQL's own where it changes no value, else those that loads use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from instep.destinations.casts import cast_all
from instep.destinations.postgres.server import PostgresSession
from instep.destinations.postgres.shape import arrow_type, as_document, sql_type
from instep.destinations.sql.merge import q
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import DataType

BATCH = 20_000
_NEW = "_instep_values"


def converted(name: str, before: DataType, after: DataType) -> str:
    """Return a column (quoted) of the type `before` as SQL of the type `after`, which holds every value."""
    return f"{name}::{sql_type(after)}"


def rewrite(session: PostgresSession, table: str, place: str, before: DataType, column: Column) -> None:
    """Add `column` with the values that the column at `place`, of the type `before`, holds; IllegalChange if one does
    not fit."""
    kind = sql_type(column.type)
    session.run(f"CREATE TEMP TABLE {_NEW} (n tid, v {kind}) ON COMMIT DROP")
    for batch in _cast(session, table, place, before, column):
        copy_rows(session, _NEW, batch)
    session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {kind}")
    session.run(f"ANALYZE {_NEW}")
    session.run(f"UPDATE {table} AS t SET {q(column.name)} = s.v FROM {_NEW} AS s WHERE t.ctid = s.n")
    session.run(f"DROP TABLE {_NEW}")


def _cast(
    session: PostgresSession, table: str, place: str, before: DataType, column: Column
) -> Iterator[list[tuple[Any, ...]]]:
    target = arrow_type(column.type)
    sql = f"SELECT ctid::text, {shown(place, before)} FROM {table} WHERE {q(place)} IS NOT NULL"
    with session.db.cursor("instep_rewrite") as cursor:
        cursor.execute(sql.encode())
        while rows := cursor.fetchmany(BATCH):
            old = pa.array([_plain(v) for _, v in rows], arrow_type(before))
            new = cast_all(column.name, old, before, column.type, target)
            yield [(n, v) for (n, _), v in zip(rows, new.to_pylist(), strict=True)]


def shown(name: str, kind: DataType, side: str = "") -> str:
    """Return a column as it is read: a document is its text."""
    column = f"{side}.{q(name)}" if side else q(name)
    return f"{column}::text" if as_document(kind) else column


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def copy_rows(session: PostgresSession, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Bring rows of Python values into a table of this transaction."""
    with session.db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)
