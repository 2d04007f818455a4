"""The selection of a connection with many tables: names are at hand, and only the tables of a page are read in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from instep.control.selection.listing import ObjectListing
from instep.control.selection.selections import SwitchedConnection, place_in
from instep.control.selection.upcoming_objects import UpcomingObjects
from instep.errors import SchemaError
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.policy.new_objects import FirstLook
from instep.schema.selection.selection import Pattern
from instep.store.catalog_documents import CatalogDocument, Ref, source_document, version_document
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.first_look import first_look
from instep.store.store import Store

_CATALOGS = 6
"""Catalogs that are cached: those of two connections."""


@lru_cache(maxsize=_CATALOGS)
def _destination(store: Store, connection: str, version: int) -> CatalogDocument:
    destination = CatalogDocument.of(store.schemas.document(connection, "destination", version))
    by_source_name = {table.get("alias", ""): table for table in destination.tables.values()}
    return replace(destination, tables={("", path): one for path, one in by_source_name.items()})


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
        return source_document(self.store, self.connection, self.seen.at)

    @cached_property
    def version(self) -> int:
        """The number of the latest accepted version; 0 before the first."""
        latest = self.store.accepted.latest(self.connection)
        return latest.version if latest else 0

    @cached_property
    def accepted(self) -> CatalogDocument:
        """The accepted tables."""
        return version_document(self.store, self.connection, self.version)

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
        ids = {switch.table_id for switch in switches if switch.table_id}
        moved = {ref for ref, one in self.source.tables.items() if one.get("id") in ids} if ids else set()
        whole = {*refs, *(one.ref for one in switches if one.table), *moved}
        seen = replace(self.seen, catalog=self.source.catalog(whole))
        place = place_in(self.project, self.store, self.connection, seen, self.accepted.catalog(whole))
        object_listing = ObjectListing(place, columns=True)
        if not self.version:
            object_listing.upcoming = self._upcoming(place, object_listing)
        return object_listing

    def _upcoming(self, place: SwitchedConnection, listing: ObjectListing) -> UpcomingObjects:
        on = frozenset(t.ref for t in place.source.tables if t.path in place.now.on and t.ref not in place.denied)
        first = _first_look(self.store, self.connection, self.seen.at)
        return UpcomingObjects(place, first, listing.switches, listing.reviews, on, frozenset())


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
