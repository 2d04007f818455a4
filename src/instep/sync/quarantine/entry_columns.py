"""The columns of quarantined values as they are now: they may have been renamed, hashed or switched off since."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property

import pyarrow as pa

from instep.schema.catalog.catalog import Column, Table
from instep.stage.quarantine import QuarantineEntry, field_id
from instep.sync.context import SyncContext
from instep.sync.schema_changes.column_treatments import ColumnTreatments, Treatment


def with_hashed(entry: QuarantineEntry, columns: Iterable[str]) -> str:
    """Return the record of the columns whose texts in the entry are hashes, with these."""
    return json.dumps(sorted({*json.loads(entry.hashed or "[]"), *columns}))


class EntryColumns:
    """The columns of one table, found by the destination's field ids where entries have recorded those, else by name.
    `schema` is the destination table's, with field ids."""

    def __init__(self, context: SyncContext, table: Table, schema: pa.Schema) -> None:
        self._table, self._schema = table, schema
        self._by_alias = {c.alias or c.name: c for c in table.columns}
        self._by_name = ColumnTreatments(context, table)
        self._columns: dict[tuple[str, str], Column | None] = {}
        self._treatments: dict[tuple[str, str], Treatment] = {}

    def column(self, path: str, entry: QuarantineEntry) -> Column | None:
        """Return what was the accepted column `path` when the entry was quarantined; None if it no longer exists."""
        place = path, entry.fields
        if place not in self._columns:
            recorded = json.loads(entry.fields).get(path, 0)
            accepted = self._table.by_name.get(path)
            name = self._by_id.get(recorded) or ((accepted.alias or accepted.name) if accepted else "")
            self._columns[place] = self._by_alias.get(name)
        return self._columns[place]

    def is_replaced(self, entry: QuarantineEntry) -> bool:
        """Return whether the entry is of the table that was there before this one: the destination has none of the
        columns any more that it had then. No field id is used again, also where the names are the same."""
        recorded = {id for id in json.loads(entry.fields).values() if id}
        return bool(recorded and self._by_id) and recorded.isdisjoint(self._by_id)

    def treatment(self, path: str, entry: QuarantineEntry) -> Treatment:
        """Return how the values of that column are treated, by all of its names: that of the entry, too, unless another
        column is called so by now."""
        place = path, entry.fields
        if place not in self._treatments:
            column = self.column(path, entry)
            names = {path} - self._table.by_name.keys() if column else {path}
            treatments = [self._by_name.of(name) for name in (names | {column.name} if column else names)]
            self._treatments[place] = Treatment(all(t.is_on for t in treatments), any(t.is_hashed for t in treatments))
        return self._treatments[place]

    @cached_property
    def _by_id(self) -> dict[int, str]:
        return {field_id(f): f.name for f in self._schema if field_id(f)}
