"""The selection of a connection with many tables: names are at hand, and only the tables of a page are read in full.

The documents of the last catalogs are cached: they are large, and change with a detection or a new version alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from instep.control.selection.coming import Coming
from instep.control.selection.listing import ObjectListing
from instep.control.selection.selections import SwitchedConnection, place_in
from instep.errors import SchemaError
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Table, table_from_dict
from instep.schema.planning.naming import flaw_of
from instep.schema.policy.new_objects import FirstLook
from instep.schema.selection.selection import Pattern
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.first_look import first_look
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
        tables = {(one["schema"], one["name"]): one for one in document.get("tables", ())}
        return cls(tables, {ref: table_from_dict({**one, "columns": ()}) for ref, one in tables.items()})

    @cached_property
    def names(self) -> Mapping[Ref, frozenset[str]]:
        """The names of the columns that are read, by table."""
        return {
            ref: frozenset(c["name"] for c in one["columns"] if not c.get("retained"))
            for ref, one in self.tables.items()
        }

    @cached_property
    def flaws(self) -> Mapping[tuple[str, ...], str]:
        """Tables and columns with a name that no destination can hold, and why."""
        tables = {ref: why for ref in self.tables if (why := flaw_of(ref[1]) or (ref[0] and flaw_of(ref[0])))}
        every = {name for own in self.names.values() for name in own}
        flawed = {name: why for name in every if (why := flaw_of(name))}
        found: dict[tuple[str, ...], str] = {ref: f"it {why}" for ref, why in tables.items()}
        for ref, own in self.names.items() if flawed else ():
            found |= {(*ref, one): f"it {flawed[one]}" for one in own if one in flawed}
        return found

    def matching(self, patterns: tuple[Pattern, ...]) -> Mapping[Ref, frozenset[str]]:
        """Return the columns outside keys that one of these patterns matches, by table. The last answer is cached."""
        if patterns not in self._matches:
            found = {ref: _matched(patterns, ".".join(filter(None, ref)), one) for ref, one in self.tables.items()}
            self._matches.clear()
            self._matches[patterns] = {ref: names for ref, names in found.items() if names}
        return self._matches[patterns]

    def table(self, ref: Ref) -> Table | None:
        """Return a table with its columns; None if it is not in the catalog."""
        found = self.tables.get(ref)
        return None if found is None else table_from_dict(found)

    def catalog(self, refs: Collection[Ref]) -> Catalog:
        """Return all tables; only these have their columns."""
        whole = {ref: table_from_dict(self.tables[ref]) for ref in refs if ref in self.tables}
        return Catalog.of({**self.outlines, **whole}.values())


def _matched(patterns: tuple[Pattern, ...], path: str, table: Mapping[str, Any]) -> frozenset[str]:
    names = (one["name"] for one in table["columns"] if not one.get("key"))
    return frozenset(name for name in names if any(one.matches(f"{path}.{name}") for one in patterns))


@lru_cache(maxsize=_CATALOGS)
def _source(store: Store, connection: str, at: datetime | None) -> CatalogDocument:
    return CatalogDocument.of(store.discoveries.document(connection))


@lru_cache(maxsize=_CATALOGS)
def _accepted(store: Store, connection: str, version: int) -> CatalogDocument:
    return CatalogDocument.of(store.accepted.document(connection, version))


@lru_cache(maxsize=_CATALOGS)
def _destination(store: Store, connection: str, version: int) -> CatalogDocument:
    found = CatalogDocument.of(store.schemas.document(connection, "destination", version))
    by_source_name = {one.get("alias", ""): one for one in found.tables.values()}
    return replace(found, tables={("", path): one for path, one in by_source_name.items()})


@lru_cache(maxsize=_CATALOGS)
def _first_look(store: Store, connection: str, at: datetime | None) -> FirstLook:
    seen = store.discoveries.get(connection)
    return first_look(store, connection, seen.catalog if seen else Catalog(), seen.identity if seen else "")


@dataclass(frozen=True)
class PartialSelection:
    """The selection of a connection, of which tables are read in full as they are needed."""

    project: Project
    store: Store
    connection: str

    @cached_property
    def seen(self) -> CachedDiscovery:
        """The last discovery, without its tables."""
        return self.store.discoveries.without_catalog(self.connection) or CachedDiscovery(Catalog(), "")

    @cached_property
    def source(self) -> CatalogDocument:
        """The tables that the source had at the last detection."""
        return _source(self.store, self.connection, self.seen.at)

    @cached_property
    def version(self) -> int:
        """The number of the latest accepted version; 0 before the first."""
        latest = self.store.accepted.latest(self.connection)
        return latest.version if latest else 0

    @cached_property
    def accepted(self) -> CatalogDocument:
        """The accepted tables."""
        return _accepted(self.store, self.connection, self.version)

    def destination_table(self, path: str) -> Table | None:
        """Return the destination's table for the source's one with this path, as it was last seen."""
        versions = self.store.schemas.history(self.connection, "destination")
        return _destination(self.store, self.connection, versions[0].version if versions else 0).table(("", path))

    @cached_property
    def known(self) -> Mapping[Ref, Mapping[str, Any]]:
        """All tables by their names: documents of the source, else of what is accepted. What the source lists and keeps
        from being read has no columns."""
        closed = {(path[0], path[1]): {"columns": ()} for path in self.seen.denied if len(path) == 2}
        there = {ref: one for ref, one in self.accepted.tables.items() if not one.get("retained")}
        both = {**closed, **there, **self.source.tables}
        return {ref: both[ref] for ref in sorted(both)}

    def listing(self, refs: Iterable[Ref]) -> ObjectListing:
        """Return the listing in which these tables have their columns, and all that were switched."""
        switches = self.store.switches.of(self.connection)
        ids = {one.table_id for one in switches if one.table_id}
        moved = {ref for ref, one in self.source.tables.items() if one.get("id") in ids} if ids else set()
        whole = {*refs, *(one.ref for one in switches if one.table), *moved}
        seen = replace(self.seen, catalog=self.source.catalog(whole))
        place = place_in(self.project, self.store, self.connection, seen, self.accepted.catalog(whole))
        found = ObjectListing(place, columns=True)
        if not self.version:
            found.coming = self._coming(place, found)
        return found

    def _coming(self, place: SwitchedConnection, listing: ObjectListing) -> Coming:
        on = frozenset(t.ref for t in place.source.tables if t.path in place.now.on and t.ref not in place.denied)
        first = _first_look(self.store, self.connection, self.seen.at)
        return Coming(place, first, listing.switches, listing.reviews, on, frozenset())


@dataclass(frozen=True)
class Searched:
    """A parsed search: a part of a name, or after `re:` an expression for a whole path. Raises SchemaError."""

    text: str

    def __post_init__(self) -> None:
        """Refuse a wrong expression before anything is read."""
        self.pattern  # noqa: B018

    @cached_property
    def pattern(self) -> Pattern | None:
        """The expression; None for a part of a name."""
        if self.text == "re:":
            raise SchemaError("the expression after re: is empty", hint="write one, such as re:public\\..*")
        return Pattern(self.text) if self.text.startswith("re:") else None

    @cached_property
    def _part(self) -> str:
        return self.text.casefold()

    def fits(self, path: str) -> bool:
        """Return True if a table's path fits."""
        return self.pattern.matches(path) if self.pattern else self._part in path.casefold()

    def columns(self, table: Mapping[str, Any], path: str) -> int:
        """Return how many columns of a table fit, by their own names or, for an expression, by their paths."""
        names = (one["name"] for one in table["columns"] if not one.get("retained"))
        if self.pattern is not None:
            return sum(self.pattern.matches(f"{path}.{name}") for name in names)
        return sum(self._part in name.casefold() for name in names)
