"""Answers about schemas, from the store alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from instep.control import object_history, schema_history
from instep.control.queries.context import QueryContext
from instep.errors import NotFound
from instep.operations.queries.schemas import GetObjectHistory, GetSchema, GetVersion, ListVersions
from instep.operations.spec import QueryWork
from instep.schema.catalog.catalog import catalog_to_dict
from instep.store.catalogs.clones import Copy
from instep.store.store import Store


@dataclass(frozen=True)
class SchemaDocument(schema_history.SchemaVersion):
    """A version of a schema, with its tables."""

    catalog: Mapping[str, Any] = field(default_factory=dict)
    """The tables, as `catalog_from_dict` reads them."""
    copies: tuple[Copy, ...] = ()
    """The clones that the destination retains, where the schema is the one of now."""

    @classmethod
    def of(cls, store: Store, version: schema_history.SchemaVersion, copies: Sequence[Copy] = ()) -> SchemaDocument:
        """Return the document of a version."""
        catalog = catalog_to_dict(schema_history.catalog_of(store, version))
        return cls(**vars(version), catalog=catalog, copies=tuple(copies))

    @property
    def known(self) -> schema_history.SchemaVersion:
        """The version without its tables."""
        own = {name: value for name, value in vars(self).items() if name not in ("catalog", "copies")}
        return schema_history.SchemaVersion(**own)


class SchemaAsOf(QueryWork):
    """A schema as of now, or as of some time."""

    def find(self, context: QueryContext, query: GetSchema) -> SchemaDocument:
        """Return the schema. Raises InstepError where nothing is known of that time."""
        store, name = context.store, context.connection(query.connection)
        when = schema_history.moment(query.at) if query.at is not None else None
        version = schema_history.version_at(store, name, query.side, when)
        copies = store.copies.existing(name) if query.at is None and query.side != "source" else ()
        return SchemaDocument.of(store, version, copies)


class VersionList(QueryWork):
    """Versions of one side's schemas by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListVersions, after: Sequence[Any] | None, limit: int
    ) -> Sequence[schema_history.SchemaVersion]:
        """Return versions, newest first."""
        known = schema_history.versions(context.store, context.connection(query.connection), query.side)[::-1]
        return [one for one in known if after is None or one.version < after[0]][:limit]

    def place(self, item: schema_history.SchemaVersion) -> Sequence[Any]:
        """Return the version's number on its side."""
        return (item.version,)


class VersionDetails(QueryWork):
    """One version of a side's schema by its number."""

    def find(self, context: QueryContext, query: GetVersion) -> SchemaDocument:
        """Return the schema that the version is."""
        for found in schema_history.versions(context.store, context.connection(query.connection), query.side):
            if found.version == query.version:
                return SchemaDocument.of(context.store, found)
        raise NotFound.of("version", str(query.version))


class ObjectDetails(QueryWork):
    """One table or column through all accepted versions."""

    def find(self, context: QueryContext, query: GetObjectHistory) -> object_history.ObjectHistory:
        """Return the history. Raises InstepError for an object that no version has."""
        return object_history.trail(context.store, context.connection(query.connection), query.of)
