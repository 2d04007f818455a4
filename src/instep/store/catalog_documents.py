"""Catalogs as JSON has them, of which only the tables that are needed are read in full.

The documents of the last ones are cached: they are large, and change with a detection or a new version alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from instep.model import AcceptedVersion
from instep.schema.catalog.catalog import Catalog, Table, table_from_dict
from instep.schema.planning.naming import flaw_of
from instep.schema.selection.selection import Pattern
from instep.store.store import Store

Ref = tuple[str, str]
_CATALOGS = 6
"""Catalogs that are cached: those of two connections."""


@dataclass(frozen=True)
class CatalogDocument:
    """A catalog as JSON has it, by table, and its tables without their columns."""

    tables: Mapping[Ref, Mapping[str, Any]]
    outlines: Mapping[Ref, Table]
    _matches: dict[tuple[Pattern, ...], Mapping[Ref, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CatalogDocument:
        """Return the document of a catalog."""
        tables = {(table["schema"], table["name"]): table for table in document.get("tables", ())}
        return cls(tables, {ref: table_from_dict({**table, "columns": ()}) for ref, table in tables.items()})

    @cached_property
    def names(self) -> Mapping[Ref, frozenset[str]]:
        """The names of the columns that are read, by table."""
        return {
            ref: frozenset(c["name"] for c in table["columns"] if not c.get("retained"))
            for ref, table in self.tables.items()
        }

    @cached_property
    def flaws(self) -> Mapping[tuple[str, ...], str]:
        """Tables and columns with a name that no destination can hold, and why."""
        tables = {ref: why for ref in self.tables if (why := flaw_of(ref[1]) or (ref[0] and flaw_of(ref[0])))}
        every = {name for own in self.names.values() for name in own}
        flawed = {name: why for name in every if (why := flaw_of(name))}
        flaws: dict[tuple[str, ...], str] = {ref: f"it {why}" for ref, why in tables.items()}
        for ref, own in self.names.items() if flawed else ():
            flaws |= {(*ref, column): f"it {flawed[column]}" for column in own if column in flawed}
        return flaws

    def matching(self, patterns: tuple[Pattern, ...]) -> Mapping[Ref, frozenset[str]]:
        """Return the columns outside keys that one of these patterns matches, by table. The last answer is cached."""
        if patterns not in self._matches:
            matches = {ref: _matched(patterns, ".".join(filter(None, ref)), t) for ref, t in self.tables.items()}
            self._matches.clear()
            self._matches[patterns] = {ref: names for ref, names in matches.items() if names}
        return self._matches[patterns]

    def table(self, ref: Ref) -> Table | None:
        """Return a table with its columns; None if it is not in the catalog."""
        document = self.tables.get(ref)
        return None if document is None else table_from_dict(document)

    def catalog(self, refs: Collection[Ref]) -> Catalog:
        """Return all tables; only these have their columns."""
        whole = {ref: table_from_dict(self.tables[ref]) for ref in refs if ref in self.tables}
        return Catalog.of({**self.outlines, **whole}.values())


def _matched(patterns: tuple[Pattern, ...], path: str, table: Mapping[str, Any]) -> frozenset[str]:
    names = (column["name"] for column in table["columns"] if not column.get("key"))
    return frozenset(name for name in names if any(pattern.matches(f"{path}.{name}") for pattern in patterns))


@lru_cache(maxsize=_CATALOGS)
def source_document(store: Store, connection: str, at: datetime | None) -> CatalogDocument:
    """Return the catalog of the last discovery, which was at this time."""
    return CatalogDocument.of(store.discoveries.document(connection))


@lru_cache(maxsize=_CATALOGS)
def version_document(store: Store, connection: str, version: int) -> CatalogDocument:
    """Return the catalog of an accepted version; empty for 0."""
    return CatalogDocument.of(store.accepted.document(connection, version))


def accepted_document(store: Store, connection: str) -> tuple[AcceptedVersion | None, CatalogDocument]:
    """Return the latest accepted version of a connection, if it has one, with its catalog."""
    latest = store.accepted.latest(connection)
    return latest, version_document(store, connection, latest.version if latest else 0)
