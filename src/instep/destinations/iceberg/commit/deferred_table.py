"""A table that is made by the commit of its first files: see iceberg/commit/deferred_create.py."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate

Updates = tuple[TableUpdate, ...]
Hook = Callable[[], None]


class Unborn(Table):
    """A table that no catalog has yet. `created_by` is what its first commit begins with; `leave` is to be called
    before that commit, `born` after it."""

    def __init__(self, made: Table, metadata: TableMetadata, updates: Updates, leave: Hook, born: Hook) -> None:
        """`made` by `updates`, which lead to this metadata."""
        super().__init__(made.name(), metadata, made.metadata_location, made.io, made.catalog)
        self.created_by, self.leave, self.born = updates, leave, born
