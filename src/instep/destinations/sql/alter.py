"""What changes tables of a database alike, whichever database it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from instep.destinations.base import Commit, Ref
from instep.destinations.sql.evolve import Evolution, moved_values
from instep.destinations.sql.merge import q
from instep.destinations.sql.records import Parked, Record, numbered
from instep.errors import DestinationError
from instep.schema.catalog.catalog import Column, Table

SCHEMA = "_instep"
"""The schema of the tables in which a database keeps our records."""
PARKED = "_instep_dropped_"
"""How names of parked tables and columns begin."""
MOVING = "_instep_moving_"


class SqlSession(Protocol):
    """A transaction of a database."""

    def run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a statement answers."""
        ...

    def name(self, schema: str, table: str) -> str:
        """Return a table as SQL names it."""
        ...


@dataclass(frozen=True)
class DroppedTable:
    """A dropped table: it waits in its schema under the name `place` since `at` (milliseconds since 1970 UTC)."""

    ref: Ref
    place: str
    source_id: str | None
    at: int
    text: str


def parked(dropped: Sequence[DroppedTable], source_id: str | None) -> DroppedTable | None:
    """Return the table that was dropped last among those of one name and had this source id."""
    return next((d for d in dropped if d.source_id == source_id), None)


def named(ref: Ref) -> str:
    return ".".join(ref)


def missing(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} is not there", hint="plan again")


def foreign(ref: Ref, place: str) -> DestinationError:
    """Return what is said of a table in `place` that something else made."""
    return DestinationError(
        f"table {named(ref)} exists and is not ours: no record of it is in {place}",
        hint="choose another namespace or table name",
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def plain(table: Table) -> Table:
    return replace(table, comment=table.comment or None)


def refuse_another(there: Record, table: Table) -> None:
    """Raise DestinationError if the table that has the name of one that is to come back is another one."""
    if there.table.id != table.id:
        hint = "rename or drop that one first"
        raise DestinationError(f"another table is called {named(there.ref)} by now", hint=hint)


def gone(ref: Ref) -> DestinationError:
    """Return what is said of a dropped table that was let go."""
    hint = "its time for undoing is over: restore a backup"
    return DestinationError(f"table {named(ref)} is not kept any more", hint=hint)


def taken_along(session: SqlSession, record: Record, commit: Commit) -> Record:
    """Return the record, once the values of a shard's rows went to other columns."""
    if commit.part and commit.part.moves:
        session.run(moved_values(session.name(*record.ref), record, commit.part))
    return record


def hide_column(session: SqlSession, table: str, column: Column, place: str) -> None:
    """Let a dropped column wait under another name."""
    session.run(f"ALTER TABLE {table} RENAME COLUMN {q(column.name)} TO {q(place)}")
    if not column.nullable:
        session.run(f"ALTER TABLE {table} ALTER COLUMN {q(place)} DROP NOT NULL")


def rename_columns(session: SqlSession, table: str, evolution: Evolution) -> None:
    """Rename all at once: a name may be another column's until its own turn comes."""
    names = [(s.place, s.column.name) for s in evolution.columns if s.place and s.rewrite is None]
    moves = [(a, b) for a, b in names if a != b]
    for number, (before, _) in enumerate(moves):
        session.run(f"ALTER TABLE {table} RENAME COLUMN {q(before)} TO {q(f'{MOVING}{number}')}")
    for number, (_, after) in enumerate(moves):
        session.run(f"ALTER TABLE {table} RENAME COLUMN {q(f'{MOVING}{number}')} TO {q(after)}")


def evolved(record: Record, evolution: Evolution, wanted: Table, places: Sequence[tuple[Column, Parked]]) -> Record:
    """Return the record of a table with its next columns; `places` are those that it loses, and where they wait."""
    back = {s.parked.place for s in evolution.columns if s.parked}
    return numbered(
        replace(
            record,
            table=replace(wanted, columns=tuple(s.column for s in evolution.columns)),
            numbers=evolution.numbers(record),
            parked=(*(p for p in record.parked if p.place not in back), *(p for _, p in places)),
        )
    )
