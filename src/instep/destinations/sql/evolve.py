"""Resolution of a table's steps for databases: where each column comes from, and what is parked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from instep.destinations.base import PartChange
from instep.destinations.evolving import EvolvingColumn, evolving
from instep.destinations.sql.merge import q, shard_condition
from instep.destinations.sql.records import Parked, Record
from instep.errors import DestinationError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.planning.step import RewriteColumn, Step


@dataclass(frozen=True)
class ColumnOrigin:
    """Origin of a column of the target table: `before` is what it is now (None: it is new), `parked`
    the dropped column that comes back, `rewrite` the step that casts its values."""

    column: Column
    before: Column | None = None
    parked: Parked | None = None
    rewrite: RewriteColumn | None = None

    @property
    def place(self) -> str:
        """The column's name in the database before the change; "" for a new one."""
        if self.parked is not None:
            return self.parked.place
        return self.before.name if self.before else ""


@dataclass(frozen=True)
class Evolution:
    """The columns that a table gets, in order, and those that it loses."""

    columns: tuple[ColumnOrigin, ...]
    dropped: tuple[Column, ...]

    @property
    def parked_columns(self) -> tuple[Column, ...]:
        """Columns that wait under other names: dropped ones, and the old values of rewritten ones."""
        return (*self.dropped, *(s.before for s in self.columns if s.before and s.rewrite))

    def numbers(self, record: Record) -> dict[str, int]:
        """Return the numbers of unchanged columns, whatever they are called now; a cast column gets a new number."""
        unchanged = [s for s in self.columns if s.before is not None and s.rewrite is None]
        numbers_now = {s.column.name: record.numbers[s.place] for s in unchanged if s.place in record.numbers}
        return numbers_now | {s.column.name: s.parked.field for s in self.columns if s.parked}

    def parking(self, record: Record, prefix: str, at: int) -> list[tuple[Column, Parked]]:
        """Return the lost columns with the names under which they wait, from `at` (milliseconds since 1970 UTC) on."""
        places = ((c, f"{prefix}{uuid.uuid4().hex[:8]}") for c in self.parked_columns)
        return [(c, Parked(c.name, place, record.numbers.get(c.name, 0), at)) for c, place in places]


def evolve(now: Table, parked: Sequence[Parked], steps: Sequence[Step], after: Table) -> Evolution:
    """Return the columns that `steps` lead to: identity from the steps, everything else from `after`.
    DestinationError if steps and `after` do not fit together."""

    def undrop(name: str, step: Step) -> Column | Parked:
        if (column := latest(parked, name)) is None:
            raise DestinationError(
                f"table {'.'.join(step.table)}: column {name!r} is no longer retained",
                hint="its time for undoing is over: load the column again, or restore a backup",
            )
        return column

    before: list[tuple[str, Column | Parked]] = [(c.name, c) for c in now.columns]
    columns, dropped = evolving(before, steps, after, undrop)
    origins = (_origin(evolved, column) for evolved, column in zip(columns, after.columns, strict=True))
    return Evolution(tuple(origins), tuple(c for c, _ in dropped if isinstance(c, Column)))


def _origin(evolved: EvolvingColumn[Column | Parked], column: Column) -> ColumnOrigin:
    """Return the column's origin. NOT NULL is only ever relaxed: a column that is added to existing rows is
    optional."""
    before = evolved.stored if isinstance(evolved.stored, Column) else None
    strict = before is not None and not before.nullable and evolved.rewrite is None
    column = replace(column, nullable=column.nullable or not strict, comment=column.comment or None)
    return ColumnOrigin(column, before, evolved.stored if isinstance(evolved.stored, Parked) else None, evolved.rewrite)


def latest(parked: Sequence[Parked], name: str) -> Parked | None:
    """Return the most recently dropped column of those parked under one name."""
    return max((p for p in parked if p.name == name), key=lambda p: (p.at, p.field), default=None)


def moved_values(table: str, record: Record, part: PartChange) -> str:
    """Return the statement by which values of a shard's rows go to other columns, out of those that are parked too;
    `record` is the table's as it is now, `table` what SQL calls it."""
    columns, sets = record.table.by_name, dict[str, str]()
    for old, new in part.moves:
        waits = None if old in columns else latest(record.parked, old)
        sets[new] = q(waits.place) if waits else q(old)
    left = {old: "NULL" for old, _ in part.moves if old in columns and old not in sets}
    pairs = ", ".join(f"{q(name)} = {value}" for name, value in (sets | left).items())
    return f"UPDATE {table} SET {pairs} WHERE {shard_condition((part.column, part.shard))}"  # noqa: S608 - names are quoted
