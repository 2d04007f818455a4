"""The difference of two versions of a schema, one change at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from instep.control import schema_history
from instep.control.queries.context import QueryContext
from instep.errors import NotFound
from instep.operations.queries.history import CompareVersions
from instep.operations.spec import QueryWork
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import change_to_dict, column_of, describe, table_of
from instep.schema.changes.version import BREAKING, VersionDiff, between
from instep.store.store import Store

EMPTY = 0
"""The number of the schema before all versions, which has no tables."""


@dataclass(frozen=True)
class ComparedChange:
    """One change between two versions."""

    number: int
    """Its place in the list, from 1 on."""
    kind: str
    """A kind of change, or `dropped` for what was retained after its removal and is no longer."""
    table: str
    """`schema.table`; "" for a schema."""
    column: str
    summary: str
    breaking: bool
    """True if it breaks readers of the destination."""
    change: Mapping[str, Any]
    """The change with the objects before and after."""


@dataclass(frozen=True)
class ComparedVersions:
    """The two versions, and the number of changes between them."""

    before: schema_history.SchemaVersion | None
    """The first version; null for the empty schema before all versions."""
    after: schema_history.SchemaVersion | None
    """The other version; null likewise."""
    total: int
    """Number of all changes."""
    breaking: int
    """Number of those that break readers."""


class VersionComparison(QueryWork):
    """The changes between two versions, by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: CompareVersions, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ComparedChange]:
        """Return changes. Raises NotFound for a version that there is not."""
        self._compare(context, query)
        begin = after[0] if after else 0
        return self._changes[begin : begin + limit]

    def place(self, item: ComparedChange) -> Sequence[Any]:
        """Return the number of the change."""
        return (item.number,)

    def page_summary(self, context: QueryContext, query: CompareVersions) -> ComparedVersions:
        """Return the versions and how much differs."""
        return ComparedVersions(*self._versions, len(self._changes), sum(change.breaking for change in self._changes))

    def _compare(self, context: QueryContext, query: CompareVersions) -> None:
        store, name = context.store, context.connection(query.connection)
        known = {version.version: version for version in schema_history.versions(store, name, query.side)}
        for number in (query.before, query.after):
            if number != EMPTY and number not in known:
                raise NotFound.of("version", str(number))
        self._versions = (known.get(query.before), known.get(query.after))
        self._diff = _diff(store, *self._versions)

    @cached_property
    def _changes(self) -> list[ComparedChange]:
        return list(_listed(self._diff))


def _diff(
    store: Store, before: schema_history.SchemaVersion | None, after: schema_history.SchemaVersion | None
) -> VersionDiff:
    if before is not None and after is not None:
        return schema_history.compare(store, before, after)
    old, new = (schema_history.catalog_of(store, one) if one else Catalog() for one in (before, after))
    return between(old, new)


def _listed(diff: VersionDiff) -> Iterator[ComparedChange]:
    changes = sorted(diff.changes, key=lambda one: (table_of(one) or ("", ""), column_of(one) or ""))
    for number, one in enumerate(changes, 1):
        table = ".".join(filter(None, table_of(one) or ()))
        breaking = one.kind in BREAKING
        yield ComparedChange(
            number, one.kind, table, column_of(one) or "", describe(one), breaking, change_to_dict(one)
        )
    for number, dropped in enumerate(diff.retained_drops, len(changes) + 1):
        table = ".".join(filter(None, dropped.table))
        yield ComparedChange(number, "dropped", table, dropped.column, str(dropped), True, {})
