"""A table as its record and the database together tell: what the database says wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from instep.destinations.sql.records import Record
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType


@dataclass(frozen=True)
class Physical:
    """A column as the database has it."""

    name: str
    type: str
    nullable: bool
    comment: str | None


@dataclass(frozen=True)
class Relation:
    """A table or view as the database has it."""

    columns: tuple[Physical, ...]
    comment: str | None


def as_it_is(
    record: Record, physical: Sequence[Physical], comment: str | None, data_type: Callable[[str], DataType]
) -> Table:
    """Return the table, its parked columns left out; `data_type` reads a type of the database."""
    if record.pending is not None:
        return record.pending
    hidden = {p.place for p in record.parked}
    by_name = {p.name: p for p in physical if p.name not in hidden}
    own = [_column(c, by_name.pop(c.name), record, data_type) for c in record.table.columns if c.name in by_name]
    foreign = [Column(p.name, data_type(p.type), nullable=p.nullable, comment=p.comment) for p in by_name.values()]
    return replace(record.table, columns=(*own, *foreign), comment=comment or None)


def _column(column: Column, physical: Physical, record: Record, data_type: Callable[[str], DataType]) -> Column:
    """Return the column with its recorded type, or with its stored type if that is another one now."""
    kind, note = column.type, column.note
    if physical.type != record.stored.get(column.name):
        kind, note = data_type(physical.type), ""
    return replace(column, type=kind, note=note, nullable=physical.nullable, comment=physical.comment or None)
