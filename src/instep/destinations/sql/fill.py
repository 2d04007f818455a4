# ruff: noqa: S608 - names are quoted
"""How staged values meet rows that have none, as plain SQL statements: PostgreSQL's and DuckDB's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from instep.destinations.base import Fill, FillSize
from instep.destinations.notes import merged
from instep.destinations.sql.merge import q, within
from instep.destinations.sql.records import Record
from instep.destinations.sql.staged import ORDER
from instep.errors import DestinationError

NOTES, PLACE, NOTE = "_instep_notes", "_instep_place", "_instep_note"
NOT_LOADED = "it has not been loaded yet"


class Counting(Protocol):
    def name(self, schema: str, table: str) -> str: ...
    def count(self, sql: str) -> int: ...


def fill_size(session: Counting, record: Record, columns: Mapping[str, int], rows: int) -> FillSize:
    """Return the table counts as one file. Nothing is left to do once all of these backfills have been through it."""
    if record.state is None:
        return FillSize(why_not=NOT_LOADED)
    count = 0
    if not set(columns.values()) <= set(record.fills):
        lacks = " OR ".join(f"{q(c)} IS NULL" for c in columns)
        table, mine = session.name(*record.ref), within(record.within)
        count = session.count(f"SELECT count(*) FROM {table} WHERE ({lacks}) AND {mine}")
    share = count / rows if rows else 0
    return FillSize(int(count > 0), count, int(record.state.bytes * share), 1)


def check_loaded(record: Record) -> None:
    if record.state is None:
        why = f"table {'.'.join(record.ref)} cannot be filled: {NOT_LOADED}"
        raise DestinationError(why, hint="load the whole table again")


@dataclass(frozen=True)
class FillSql:
    """The statements of one fill. `target`: the table as SQL names it; `staged`: a table with the staged values,
    numbered by ORDER. `documents`: columns of a type that the database does not compare, so that their texts are. What
    `notes` answers becomes, by `changed`, the rows (PLACE, NOTE) of a table NOTES; then `update` is run."""

    work: Fill
    target: str
    staged: str
    documents: frozenset[str] = frozenset()

    @property
    def notes(self) -> str:
        """Number, old note, staged note, and of each column whether it has no value then, of rows with a note."""
        meta = q(self.work.meta)
        lacks = ", ".join(f"t.{q(c)} IS NULL AND s.{q(c)} IS NULL" for c in self.work.columns)
        return (
            f"SELECT s.{ORDER}, t.{meta}::text, s.{meta}::text, {lacks} FROM {self.target} AS t "
            f"JOIN {self.staged} AS s ON {self._same} WHERE t.{meta} IS NOT NULL OR s.{meta} IS NOT NULL"
        )

    def changed(self, found: Iterable[Sequence[Any]]) -> list[tuple[int, str | None]]:
        """Return what notes become, by number: a column that has a value now is not noted any more, one whose staged
        value did not fit is."""
        columns = list(self.work.columns)
        notes = [
            (place, merged(old, new, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns), old)
            for place, old, new, *lacking in found
        ]
        return [(place, note) for place, note, old in notes if note != old]

    @property
    def update(self) -> str:
        """Return the UPDATE of rows that get a value or another note."""
        meta = q(self.work.meta)
        sets = [f"{q(c)} = coalesce(t.{q(c)}, s.{q(c)})" for c in self.work.columns]
        sets.append(f"{meta} = CASE WHEN s.{PLACE} IS NULL THEN t.{meta} ELSE s.{NOTE} END")
        gets = " OR ".join(f"(t.{q(c)} IS NULL AND s.{q(c)} IS NOT NULL)" for c in self.work.columns)
        noted = f"LEFT JOIN {NOTES} AS n ON n.{PLACE} = v.{ORDER}"
        return (
            f"UPDATE {self.target} AS t SET {', '.join(sets)} "
            f"FROM (SELECT v.*, n.{PLACE}, n.{NOTE} FROM {self.staged} AS v {noted}) AS s "
            f"WHERE {self._same} AND ({gets} OR s.{PLACE} IS NOT NULL)"
        )

    @property
    def _same(self) -> str:
        texts = {k: "::text" if k in self.documents else "" for k in self.work.key}
        return " AND ".join(f"t.{q(k)}{texts[k]} = s.{q(k)}{texts[k]}" for k in self.work.key)
