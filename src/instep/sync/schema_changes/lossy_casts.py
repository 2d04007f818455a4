"""Loss by a type change: existing values cast there and back, counted on a sample of the destination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from instep.destinations.base import CastSample
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import ColumnNarrowed, ColumnRetyped, key
from instep.schema.planning.naming import destination_ref
from instep.sync.context import SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.table_renames import TableRenames
from instep.sync.schema_changes.column_treatments import ColumnTreatments

SAMPLE = 1000


@dataclass(frozen=True)
class Lossy:
    """Test of a cast: of `sampled` values (not counting NULL) `invalid_values` do not fit `type`, `changed` would be
    another value."""

    table: str
    column: str
    type: str
    sampled: int
    invalid_values: int
    changed: int
    key: str = ""
    """Key of one of the rows; empty if there is none, or if the key is hashed."""

    def __str__(self) -> str:
        where = f"{self.table}.{self.column}"
        if not self.invalid_values and not self.changed:
            return f"{where}: all of {self.sampled:,} sampled values fit {self.type}"
        parts = (
            f"{self.invalid_values:,} of {self.sampled:,} sampled values do not fit {self.type}"
            if self.invalid_values
            else "",
            f"{self.changed:,} of {self.sampled:,} sampled values are others as {self.type}" if self.changed else "",
        )
        row = f", e.g. in the row with key {self.key}" if self.key else ""
        return f"{where}: {'; '.join(filter(None, parts))}{row}"


def lossy_casts(
    context: SyncContext, detection: DetectionResult, rows: int = SAMPLE, only: str = ""
) -> tuple[Lossy, ...]:
    """Return one entry for each retyped or narrowed column whose table holds rows, or for the change with the content
    key `only`; reads the first `rows` of these columns and the key only, and nothing for 0. Values are never part of
    what it answers."""
    return tuple(_entries(context, detection, rows, only)) if rows else ()


def _entries(context: SyncContext, detection: DetectionResult, rows: int, only: str) -> Iterator[Lossy]:
    places = TableRenames.of(detection.decisions)
    for decision in detection.decisions:
        change = decision.change
        if not isinstance(change, ColumnRetyped | ColumnNarrowed) or (only and key(change) != only):
            continue
        table = detection.accepted.get(places.before(change))
        column = accepted_column(table, change.before) if table else None
        if table is None or column is None:
            continue
        sampled = _tried(context, table, column, change.after.type, rows)
        if sampled.sampled:
            yield _entry(context, table, column, change.after.type, sampled)


def accepted_column(table: Table, before: Column) -> Column | None:
    """Return the accepted column, which a rename in the same list may call otherwise."""
    same = [c for c in table.columns if (before.id and c.id == before.id) or c.name == before.name]
    return same[0] if same else None


def _tried(context: SyncContext, table: Table, column: Column, kind: DataType, rows: int) -> CastSample:
    ref, keys = destination_ref(table, context.naming), [k.alias or k.name for k in _key(table)]
    if context.destination.schema.state(ref) is None:
        return CastSample()
    return context.destination.write.sample_cast(ref, column.alias or column.name, kind, keys, rows)


def _key(table: Table) -> list[Column]:
    return sorted((c for c in table.columns if c.key), key=lambda c: c.key)


def _entry(context: SyncContext, table: Table, column: Column, kind: DataType, sample: CastSample) -> Lossy:
    treatments = ColumnTreatments(context, table)
    hidden = any(treatments.of(c.name).is_hashed for c in _key(table))
    row = "" if hidden else ", ".join(f"{name} {value}" for name, value in sample.row.items())
    return Lossy(table.path, column.name, str(kind), sample.sampled, sample.invalid_values, sample.changed, row)
