"""Treatment of an accepted column by every name that it has: while a rename waits, the accepted one and the source's.

Loads read a column as hashed if either name says so, and leave it out if either is off. Whatever else writes or shows
its values has to go by the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Unknown
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.projection import pair_tables
from instep.schema.selection.selection import column_is_on, hashed
from instep.store.catalog_documents import source_document
from instep.sync.context import SyncContext


@dataclass(frozen=True)
class Treatment:
    """Treatment of the values of a column: whether they are read, and whether they are hashed."""

    is_on: bool
    is_hashed: bool

    @property
    def is_clear(self) -> bool:
        """True if the values may be shown, and written as they are."""
        return self.is_on and not self.is_hashed


class ColumnTreatments:
    """The treatments of the columns of one accepted table, as the last detection saw its source."""

    def __init__(self, context: SyncContext, table: Table) -> None:
        self._context, self._table = context, table
        self._treatments: dict[str, Treatment] = {}

    def of(self, name: str) -> Treatment:
        """Return the treatment of the accepted column with this name, or of what was once called so."""
        if name not in self._treatments:
            sides = list(self._sides(name))
            selections = {self._context.selection, self._context.selected_before}
            self._treatments[name] = Treatment(
                all(column_is_on(s, table, column)[0] for s in selections for table, column in sides),
                any(hashed(s, table.ref, column.name) for s in selections for table, column in sides),
            )
        return self._treatments[name]

    def _sides(self, name: str) -> Iterator[tuple[Table, Column]]:
        accepted = self._table.by_name.get(name) or Column(name, Unknown())
        yield self._table, accepted
        if self._source is not None:
            yield self._source, replace(self._columns.get(name, accepted), key=accepted.key)

    @cached_property
    def _source(self) -> Table | None:
        """The table at the source; None without one, and if no column of any table is off or hashed."""
        store, name = self._context.store, self._context.name
        seen = store.discoveries.without_catalog(name)
        if seen is None or not self._context.selection.covers_columns:
            return None
        document = source_document(store, name, seen.at)
        outline = pair_tables([self._table], Catalog.of(document.outlines.values())).get(self._table.ref)
        return document.table(outline.ref) if outline is not None else None

    @cached_property
    def _columns(self) -> dict[str, Column]:
        """The columns of the source by accepted name."""
        assert self._source is not None, "asked before"
        return {before.name: now for before, now in pair_columns(self._table, self._source).same}
