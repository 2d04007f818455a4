# ruff: noqa: S608 - names are quoted, values are parameters or literals of ours
"""The SQL of both databases that joins staged rows with those of a table, and staged values with rows without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from instep.destinations.base import Fill, LoadOutcome, Merge
from instep.destinations.rows import merged
from instep.destinations.sql.staged import ORDER
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import quote
from instep.stage.spec import SystemColumns


def q(name: str) -> str:
    return quote(name, "ansi")


def text_literal(text: str) -> str:
    """Return `text` as an SQL string; it has no NUL."""
    return "'" + text.replace("'", "''") + "'"


def shard_condition(pair: tuple[str, str] | None, side: str = "") -> str:
    """Return the condition that a row of a shared table is of one shard, by its column and name; all are without
    one."""
    if pair is None:
        return "true"
    column, shard = pair
    return f"{side}{'.' if side else ''}{q(column)} = {text_literal(shard)}"


def columns(names: Sequence[str], side: str = "") -> str:
    return ", ".join(f"{side}.{q(n)}" if side else q(n) for n in names)


_NUMBER = "_instep_number"


@dataclass(frozen=True)
class MergeSql:
    """The statements of one merge."""

    table: Table
    system: SystemColumns
    how: Merge
    target: str
    """The table as SQL names it."""
    staged: str
    """A table with the staged rows, one a key."""
    keys: str
    """Table with all keys of the source, "" without."""
    now: str
    """The time, as SQL, of rows that leave or return."""
    requested: str = ""
    """Table with the keys that the source was asked for, "" without."""
    documents: frozenset[str] = frozenset()
    """Columns of a type that the database does not compare, so that their texts are."""
    within: tuple[str, str] | None = None
    """The rows of one shard, no other ones are gone."""
    others: str = ""
    """A table with all keys of the staged rows, where `staged` lacks those that the target has as they are.
    `outcome` runs its statements, in one transaction."""

    @cached_property
    def stamped_columns(self) -> tuple[str, ...]:
        return tuple(c for c in (self.system.synced, self.system.deleted) if c)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Columns whose values are compared: retained and unread ones are not."""
        out = {*self.stamped_columns, *self.how.key, *self.how.unread}
        return tuple(c.name for c in self.table.live if c.name not in out)

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{self._at(a, k)} = {self._at(b, k)}" for k in self.how.key)

    def _at(self, side: str, name: str) -> str:
        """Return a column as it is compared."""
        return f"{side}.{q(name)}::text" if name in self.documents else f"{side}.{q(name)}"

    @cached_property
    def deleted_condition(self) -> str:
        """Return the SQL condition that the row `t` is marked as deleted."""
        return f"coalesce(t.{q(self.system.deleted)}, false)" if self.system.deleted else "false"

    @property
    def update(self) -> str:
        """Rows that came with another value, or were marked as deleted; an older version is none."""
        names = (*self.values, *self.stamped_columns)
        if not names:
            return ""
        differs = [
            self.deleted_condition,
            *(f"{self._at('t', c)} IS DISTINCT FROM {self._at('s', c)}" for c in self.values),
        ]
        sets = ", ".join(f"{q(c)} = s.{q(c)}" for c in names)
        older = f" AND NOT coalesce(s.{q(c)} < t.{q(c)}, false)" if (c := self.how.cursor) else ""
        return (
            f"UPDATE {self.target} AS t SET {sets} FROM {self.staged} AS s "
            f"WHERE {self.same_key('t', 's')} AND ({' OR '.join(differs)}){older}"
        )

    @property
    def insert(self) -> str:
        names = columns([c.name for c in self.table.columns])
        exists = f"SELECT 1 FROM {self.target} AS t WHERE {self.same_key('t', 's')}"
        return f"INSERT INTO {self.target} ({names}) SELECT {names} FROM {self.staged} AS s WHERE NOT EXISTS ({exists})"

    @property
    def remove(self) -> str:
        """Rows that the source has no more; "" where nothing is known of them."""
        if self.how.deletes == "ignore" or not (self.keys or self.requested or self.how.complete):
            return ""
        sides = [s for s in (self.others or self.staged, self.keys) if s]
        lost = " AND ".join(f"NOT EXISTS (SELECT 1 FROM {s} AS s WHERE {self.same_key('t', 's')})" for s in sides)
        if self.within:
            lost += f" AND {shard_condition(self.within, 't')}"
        if self.requested:
            lost += f" AND EXISTS (SELECT 1 FROM {self.requested} AS a WHERE {self.same_key('t', 'a')})"
        if self.how.deletes == "hard":
            return f"DELETE FROM {self.target} AS t WHERE {lost}"
        if not self.system.deleted:
            return ""
        synced = f", {q(self.system.synced)} = {self.now}" if self.system.synced else ""
        assigned = f"{q(self.system.deleted)} = true{synced}"
        return f"UPDATE {self.target} AS t SET {assigned} WHERE NOT {self.deleted_condition} AND {lost}"

    @property
    def live(self) -> str:
        """Counts the rows that are not marked as deleted. Where they are as many as the keys of the source, none of
        those is `absent` or `returned`: every other row was removed."""
        own = shard_condition(self.within, "t")
        return f"SELECT count(*) FROM {self.target} AS t WHERE NOT {self.deleted_condition} AND {own}"

    @property
    def count_absent(self) -> str:
        """Counts the keys of the source that no row has."""
        exists = f"SELECT 1 FROM {self.target} AS t WHERE {self.same_key('t', 'k')}"
        return f"SELECT count(*) FROM {self.keys} AS k WHERE NOT EXISTS ({exists})"

    @property
    def count_returned(self) -> str:
        """Counts the rows that are marked as deleted though the source has their key."""
        exists = f"SELECT 1 FROM {self.keys} AS k WHERE {self.same_key('t', 'k')}"
        return f"SELECT count(*) FROM {self.target} AS t WHERE {self.deleted_condition} AND EXISTS ({exists})"

    def outcome(self, count: Callable[[str], int]) -> LoadOutcome:
        """Run the statements by `count`, which answers the rows that one has changed, or what it counts."""
        updated = count(self.update) if self.update else 0
        inserted = count(self.insert)
        deleted = count(self.remove) if self.remove else 0
        if not self.keys or (self.remove and count(self.live) == sum(f.rows for f in self.how.keys)):
            return LoadOutcome(inserted, updated, deleted)
        return LoadOutcome(inserted, updated, deleted, count(self.count_absent), count(self.count_returned))

    @property
    def _key(self) -> str:
        return ", ".join(f"{q(k)}::text" if k in self.documents else q(k) for k in self.how.key)

    @property
    def count_staged_duplicates(self) -> str:
        """Count one if a key is staged more than once."""
        twins = f"SELECT 1 FROM {self.staged} GROUP BY {self._key} HAVING count(*) > 1 LIMIT 1"
        return f"SELECT count(*) FROM ({twins}) AS twins"

    @property
    def last(self) -> str:
        """Return the last staged row of each key: the highest by cursor, then the last one that came."""
        order = f"{q(self.how.cursor)} DESC NULLS LAST, {ORDER} DESC" if self.how.cursor else f"{ORDER} DESC"
        numbered = (
            f"SELECT *, row_number() OVER (PARTITION BY {self._key} ORDER BY {order}) AS {_NUMBER} FROM {self.staged}"
        )
        return f"SELECT * FROM ({numbered}) AS numbered WHERE {_NUMBER} = 1"

    def null_keys(self, rows: str) -> str:
        """Count the rows of a staged table that lack a part of their key."""
        lacks = " OR ".join(f"{q(k)} IS NULL" for k in self.how.key)
        return f"SELECT count(*) FROM {rows} WHERE {lacks}"

    @property
    def count_table_duplicates(self) -> str:
        """Counts the keys of staged rows that the table holds more than once."""
        key = ", ".join(self._at("t", k) for k in self.how.key)
        exists = f"SELECT 1 FROM {self.others or self.staged} AS s WHERE {self.same_key('t', 's')}"
        met = f"SELECT 1 FROM {self.target} AS t WHERE EXISTS ({exists})"
        return f"SELECT count(*) FROM ({met} GROUP BY {key} HAVING count(*) > 1) AS twins"


NOTES, PLACE, NOTE = "_instep_notes", "_instep_place", "_instep_note"


@dataclass(frozen=True)
class FillSql:
    """The statements of one fill."""

    work: Fill
    target: str
    """The table as SQL names it."""
    staged: str
    """A table with the staged values, numbered by ORDER."""
    documents: frozenset[str] = frozenset()
    """Columns of a type that the database does not compare, so that their texts are. What `notes` answers becomes,
    by `changed`, the rows (PLACE, NOTE) of a table NOTES; then `update` is run."""

    @property
    def notes(self) -> str:
        """Number, old note, staged note, and of each column whether it has no value then, of rows with a note."""
        meta = q(self.work.meta)
        lacks = ", ".join(f"t.{q(c)} IS NULL AND s.{q(c)} IS NULL" for c in self.work.columns)
        return (
            f"SELECT s.{ORDER}, t.{meta}::text, s.{meta}::text, {lacks} FROM {self.target} AS t "
            f"JOIN {self.staged} AS s ON {self._same} WHERE t.{meta} IS NOT NULL OR s.{meta} IS NOT NULL"
        )

    def changed(self, rows: Iterable[Sequence[Any]]) -> list[tuple[int, str | None]]:
        """Return the next notes, by number: a column that has a value now is removed, one whose staged value did not
        fit is added."""
        columns = list(self.work.columns)
        notes = [
            (place, merged(old, new, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns), old)
            for place, old, new, *lacking in rows
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
