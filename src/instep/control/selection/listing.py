"""The selection as a schema config lists it: schemas and tables always, columns once they were touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from instep.control.selection.selections import SwitchedConnection
from instep.control.selection.upcoming_objects import Addition, UpcomingObjects
from instep.model import Review
from instep.operations.values import ReviewStatus
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes.describe import ColumnAdded, SchemaAdded, TableAdded
from instep.schema.policy.new_objects import Object
from instep.schema.selection.overrides import Switch, handling
from instep.schema.selection.selection import column_is_on, hashed, is_on

_ADDED = ("schema.added", "table.added", "column.added")
_WAITS: tuple[ReviewStatus, ...] = ("open", "approved", "rejected")


@dataclass(frozen=True)
class Listed:
    """One object of the selection."""

    schema: str
    table: str
    column: str
    enabled: bool
    hashed: bool | None
    """True for a hashed column; null for everything but columns."""
    why: str
    since: datetime | None = None
    """The time when the object was switched or found, if recorded."""
    who: str = ""
    """The person who switched it."""

    @property
    def path(self) -> str:
        return ".".join(filter(None, (self.schema, self.table, self.column)))


def listed(place: SwitchedConnection, *, columns: bool = False) -> list[Listed]:
    """Return schemas, tables and touched columns (all with `columns`), ordered by name; nothing before the first
    detection."""
    return list(ObjectListing(place, columns).all()) if place.known.tables else []


def tree(place: SwitchedConnection, objects: Sequence[Listed]) -> dict[str, Any]:
    """Return `schema_change_handling` and `schemas`, nested as in a schema config: `enabled` everywhere, `hashed`
    for columns; without `tables` and `columns` where none are listed."""
    schemas: dict[str, Any] = {}
    for one in objects:
        node = schemas.setdefault(one.schema, {"enabled": True})
        if one.table:
            node = node.setdefault("tables", {}).setdefault(one.table, {"enabled": True})
        if one.column:
            node = node.setdefault("columns", {}).setdefault(one.column, {})
        node["enabled"] = one.enabled
        if one.hashed is not None:
            node["hashed"] = one.hashed
    return {"schema_change_handling": handling(place.policy.preset), "schemas": schemas}


class ObjectListing:
    """A connection's selection, object by object."""

    def __init__(self, place: SwitchedConnection, columns: bool) -> None:
        self.place, self.every = place, columns
        store, name = place.store, place.connection
        self.switches = {(s.schema, s.table, s.column): s for s in store.switches.of(name)}
        self.reviews = {_about(r): r for r in reversed(store.reviews.find(name, _WAITS, kinds=_ADDED))}
        self.applied = {_about(r): r for r in store.reviews.find(name, ("applied",), kinds=_ADDED)}
        self.named: dict[tuple[str, str], list[str]] = {}
        for schema, table, column in (*self.switches, *self.reviews):
            if column:
                self.named.setdefault((schema, table), []).append(column)

    def all(self) -> Iterator[Listed]:
        """Return every object in order of the names."""
        tables = {t.ref: t for t in self.place.known.tables}
        chosen = [place for place, s in self.switches.items() if s.is_chosen]
        for schema, name, _ in chosen:
            if name and (schema, name) not in tables:
                tables[schema, name] = Table(schema, name, ())
        schemas = {ref[0] for ref in tables} | {s for s, name, _ in chosen if not name}
        for schema in sorted(schemas):
            yield self.schema(schema)
            for ref in sorted(r for r in tables if r[0] == schema):
                yield self.table(tables[ref])
                yield from self.columns(tables[ref])

    def schema(self, name: str) -> Listed:
        """Return a schema's listing: on unless it was switched off or the policy blocks it as a whole."""
        on, why = name not in self.place.now.schemas_off, "each of its tables is switched by itself"
        return self._one((name, "", ""), on, why, None, SchemaAdded(name))

    def table(self, table: Table) -> Listed:
        """Return a table's listing."""
        on, why = is_on(replace(self.place.now, schemas_off=frozenset()), table)
        if on and table.schema in self.place.now.schemas_off:
            why = f"{why}; the schema {table.schema} is switched off"
        if table.ref not in self.place.source.by_ref:
            why = f"{why}; it is not at the source"
        return self._one((*table.ref, ""), on, why, None, TableAdded(table))

    def columns(self, table: Table) -> Iterator[Listed]:
        """Return the listing of a table's columns, as far as they are listed."""
        names = self.named.get(table.ref, ())
        if not (names or self.every or self.place.now.covers_columns or self._is_unread(table)):
            return
        named = {c.name: c for c in table.live}
        gone = {c for c in names if c not in named and self._is_chosen((*table.ref, c))}
        for name in (*named, *sorted(gone)):
            column = named.get(name)
            if column is None:
                switch = self.switches[*table.ref, name]
                yield self._one((*table.ref, name), switch.enabled is not False, "not at the source", switch.hashed)
            elif self.every or self.is_decided(table, column):
                on, why = column_is_on(self.place.now, table, column)
                yield self._one((*table.ref, name), on, why, self.is_hashed(table, name, on), _added(table, column))

    def is_hashed(self, table: Table, name: str, on: bool) -> bool:
        """True if the column is hashed; of columns that are off, only a key column is, which stays hashed."""
        now = self.place.now
        return hashed(now if on else replace(now, off=frozenset(), exclude_columns=()), table.ref, name)

    def is_decided(self, table: Table, column: Column) -> bool:
        """Return True if a person or the file switched it, or the policy blocks it."""
        place = (*table.ref, column.name)
        left_out = bool(self.upcoming.left_out(place, _added(table, column)))
        off = not column_is_on(self.place.now, table, column)[0]
        return place in self.switches or left_out or off or hashed(self.place.now, table.ref, column.name)

    def _is_unread(self, table: Table) -> bool:
        """Return whether columns may have come to it that nobody has been told of."""
        closed = table.path in self.place.now.off or table.schema in self.place.now.schemas_off
        return closed or self.upcoming.has_late_columns(table.ref)

    def _is_chosen(self, place: Object) -> bool:
        switch = self.switches.get(place)
        return switch is not None and switch.is_chosen

    @cached_property
    def upcoming(self) -> UpcomingObjects:
        return UpcomingObjects.of(self.place, self.switches, self.reviews)

    def _one(self, place: Object, on: bool, why: str, hidden: bool | None, addition: Addition | None = None) -> Listed:
        """Return the entry of one object, by its switch, else by whether the next sync lets it in."""
        switch, review = self.switches.get(place), self.reviews.get(place)
        flag = bool(hidden) if place[2] else None
        out = self.upcoming.left_out(place, addition) if on and addition is not None else ""
        if switch is not None and switch.enabled is not None and not out:
            return Listed(*place, on, flag, why if place[1] else _WORD[on], switch.at, switch.who)
        if out:
            since = switch.at if switch else review.first_seen if review else None
            return Listed(*place, False, flag, out, since)
        since = self._since(place, switch)
        return Listed(*place, on, flag, why, since, switch.who if switch else "")

    def _since(self, place: tuple[str, str, str], switch: Switch | None) -> datetime | None:
        if switch is not None:
            return switch.at
        known = self.reviews.get(place) or self.applied.get(place)
        return known.first_seen if known else None


_WORD: Mapping[bool, str] = {True: "switched on", False: "switched off"}


def _about(review: Review) -> tuple[str, str, str]:
    if review.kind == "schema.added":
        return str(review.change.get("name", "")), "", ""
    return *review.table, review.column


def _added(table: Table, column: Column) -> ColumnAdded:
    return ColumnAdded(table.ref, column, table.columns.index(column))
