"""A connection's schema config: its schemas and tables, and the columns that somebody has set, as a tree.

Keys are the source's names. What may not be switched carries a lock that says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from instep.control.selection.listing import Listed, listed
from instep.control.selection.selections import SwitchedConnection, SwitchTarget, check
from instep.errors import Blocked, SchemaError
from instep.operations.values import Verb
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.planning.naming import Naming, assign, unusable
from instep.schema.selection.overrides import Handling, handling

SyncMode = Literal["SOFT_DELETE", "HISTORY", "LIVE"]
Reason = Literal["SYSTEM_TABLE", "SYSTEM_COLUMN", "DELETED", "OTHER"]
Ref = tuple[str, str]


@dataclass(frozen=True)
class Lock:
    """Reason why an object cannot be switched; `text` is for people."""

    reason: Reason
    text: str = ""


@dataclass(frozen=True)
class ColumnConfig:
    """A column in a schema config."""

    name: str
    destination: str
    """The name there."""
    enabled: bool
    hashed: bool
    key: bool
    """True if rows are identified by it."""
    lock: Lock | None = None


@dataclass(frozen=True)
class TableConfig:
    """A table in a schema config."""

    name: str
    destination: str
    enabled: bool
    sync_mode: SyncMode | None
    """Mode of the sync; None for a table without a key: there is nothing to choose."""
    readable: bool
    """True if its columns are known."""
    lock: Lock | None
    columns: tuple[ColumnConfig, ...] = ()


@dataclass(frozen=True)
class SchemaEntry:
    name: str
    destination: str
    enabled: bool
    tables: tuple[TableConfig, ...] = ()


@dataclass(frozen=True)
class SchemaConfig:
    handling: Handling
    schemas: tuple[SchemaEntry, ...]


def schema_config(place: SwitchedConnection, naming: Naming) -> SchemaConfig | None:
    """Return the tree; None before the first detection, when nothing is known."""
    if not place.known.tables:
        return None
    objects = listed(place)
    view = _View(place, naming, {(one.schema, one.table) for one in objects if one.column})
    schemas = groupby(objects, key=lambda one: one.schema)
    return SchemaConfig(handling(place.policy.preset), tuple(view.schema(list(of)) for _, of in schemas))


def table_columns(place: SwitchedConnection, naming: Naming, ref: Ref) -> tuple[ColumnConfig, ...] | None:
    """Return all columns of one table that the source has, in its order; None if there is no such table."""
    table = place.known.get(ref)
    if table is None:
        return None
    alone = replace(place, source=_only(place.source, ref), accepted=_only(place.accepted, ref))
    view = _View(alone, naming, {ref})
    columns = [one for one in listed(alone, columns=True) if (one.schema, one.table) == ref and one.column]
    order = {c.name: n for n, c in enumerate(table.columns)}
    return tuple(view.column(one) for one in sorted(columns, key=lambda one: order.get(one.column, len(order))))


def _only(catalog: Catalog, ref: Ref) -> Catalog:
    return Catalog.of(t for t in catalog.tables if t.ref == ref)


class _View:
    """One connection, with the names that its objects have or will have at the destination."""

    def __init__(self, place: SwitchedConnection, naming: Naming, detailed: Set[Ref]) -> None:
        self.place, self.naming = place, naming
        self.named = named(place, naming, detailed)

    def schema(self, objects: list[Listed]) -> SchemaEntry:
        head, *rest = objects
        tables: list[list[Listed]] = []
        for one in rest:
            if one.column:
                tables[-1].append(one)
            else:
                tables.append([one])
        return SchemaEntry(head.schema, self.naming.namespace, head.enabled, tuple(map(self.table, tables)))

    def table(self, objects: list[Listed]) -> TableConfig:
        head, *columns = objects
        ref = head.schema, head.table
        table = self.place.known.get(ref)
        named = self.named.get(ref)
        return TableConfig(
            head.table,
            named.alias if named else head.table,
            head.enabled,
            sync_mode=self.sync_mode(ref, table) if table else None,
            readable=table is not None and ref not in self.place.denied,
            lock=self.table_lock(head, table),
            columns=tuple(map(self.column, columns)),
        )

    def sync_mode(self, ref: Ref, table: Table) -> SyncMode | None:
        settings = self.place.settings(table)
        if not self.key(ref):
            return None
        if settings.history:
            return "HISTORY"
        return "LIVE" if settings.deletes == "hard" else "SOFT_DELETE"

    def key(self, ref: Ref) -> tuple[str, ...]:
        """Return the table's key: the accepted one, the settings', the source's, in this order."""
        known, accepted = self.place.known.get(ref), self.place.accepted.get(ref)
        key = self.place.settings(known).key if known else ()
        return key or (accepted.key if accepted else ()) or (known.key if known else ())

    def table_lock(self, item: Listed, table: Table | None) -> Lock | None:
        ref = item.schema, item.table
        if table is None or ref not in self.place.source.by_ref:
            return Lock("DELETED")
        why = self.place.denied.get(ref) or self.unusable.get(ref, "")
        return Lock("OTHER", why) if why else self.lock(item, SwitchTarget(item.schema, table), "OTHER")

    @property
    def unusable(self) -> Mapping[tuple[str, ...], str]:
        return self.named.unusable

    def column(self, item: Listed) -> ColumnConfig:
        ref = item.schema, item.table
        table = self.place.known.get(ref)
        column = table.by_name.get(item.column) if table else None
        named = self.named.get(ref)
        alias = named.by_name.get(item.column) if named else None
        return ColumnConfig(
            item.column,
            alias.alias if alias else item.column,
            item.enabled,
            bool(item.hashed),
            key=item.column in self.key(ref),
            lock=self.column_lock(item, table, column),
        )

    def column_lock(self, item: Listed, table: Table | None, column: Column | None) -> Lock | None:
        at_source = self.place.source.get((item.schema, item.table))
        if table is None or column is None or at_source is None or item.column not in at_source.by_name:
            return Lock("DELETED")
        if item.column in (*self.key(table.ref), self.place.settings(table).cursor or table.cursor):
            return Lock("SYSTEM_COLUMN")
        why = self.place.denied.get((*table.ref, item.column)) or self.unusable.get((*table.ref, item.column), "")
        return Lock("OTHER", why) if why else self.lock(item, SwitchTarget(item.schema, table, column), "OTHER")

    def lock(self, item: Listed, target: SwitchTarget, reason: Reason) -> Lock | None:
        """Return the lock that prevents switching it to the other side."""
        verb: Verb = "off" if item.enabled else "on"
        try:
            check(self.place, verb, target)
        except Blocked as error:
            return Lock(reason, f"{error.message}; {error.hint}")
        return None


@dataclass(frozen=True)
class Named:
    """Tables and columns with their names at the destination in `alias`; `unusable` are those that cannot have one."""

    tables: Mapping[Ref, Table]
    unusable: Mapping[tuple[str, ...], str]

    def get(self, ref: Ref) -> Table | None:
        return self.tables.get(ref)


def named(place: SwitchedConnection, naming: Naming, detailed: Set[Ref] | None = None) -> Named:
    """Return the names at the destination: of what is accepted its own, of the rest the one of today. Columns are named
    in the `detailed` tables only (None: in all)."""
    wrong = unusable(place.known, place.accepted)
    fit = Catalog.of(_fitting(place, wrong, detailed))
    try:
        return Named({t.ref: t for t in assign(fit, naming).tables}, wrong)
    except SchemaError:
        return Named({t.ref: _plain(t) for t in fit.tables}, wrong)


def _fitting(
    place: SwitchedConnection, wrong: Mapping[tuple[str, ...], str], detailed: Set[Ref] | None
) -> Iterator[Table]:
    for table in place.known.tables:
        if table.ref in wrong:
            continue
        accepted = place.accepted.get(table.ref)
        shown = detailed is None or table.ref in detailed
        names = {c.name: c.alias for c in accepted.columns} if accepted and shown else {}
        columns = (c for c in table.columns if (*table.ref, c.name) not in wrong) if shown else ()
        given = tuple(replace(c, alias=names.get(c.name, c.alias)) for c in columns)
        yield replace(table, columns=given, alias=accepted.alias if accepted else table.alias)


def _plain(table: Table) -> Table:
    columns = tuple(replace(c, alias=c.alias or c.name) for c in table.columns)
    return replace(table, columns=columns, alias=table.alias or table.name)
