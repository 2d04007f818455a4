"""From the steps of one table to what becomes of its columns: where each comes from, and what is parked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from instep.destinations.base import PartChange
from instep.destinations.sql.merge import q, within
from instep.destinations.sql.records import Parked, Record
from instep.errors import DestinationError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed
from instep.schema.planning.step import RewriteColumn, Step, UndropColumn


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
        """Its name in the database before anything is done; "" for a new one."""
        if self.parked is not None:
            return self.parked.place
        return self.before.name if self.before else ""


@dataclass(frozen=True)
class Evolution:
    """The columns that a table gets, in order, and those that it loses."""

    columns: tuple[ColumnOrigin, ...]
    dropped: tuple[Column, ...]

    @property
    def lost(self) -> tuple[Column, ...]:
        """Columns that wait under other names: dropped ones, and the old values of rewritten ones."""
        return (*self.dropped, *(s.before for s in self.columns if s.before and s.rewrite))

    def numbers(self, record: Record) -> dict[str, int]:
        """What stays, whatever it is called, keeps its number; cast values are those of another column."""
        unchanged = [s for s in self.columns if s.before is not None and s.rewrite is None]
        found = {s.column.name: record.numbers[s.place] for s in unchanged if s.place in record.numbers}
        return found | {s.column.name: s.parked.field for s in self.columns if s.parked}

    def parking(self, record: Record, prefix: str, at: int) -> list[tuple[Column, Parked]]:
        """Return the lost columns with the names under which they wait, from `at` (milliseconds since 1970 UTC) on."""
        places = ((c, f"{prefix}{uuid.uuid4().hex[:8]}") for c in self.lost)
        return [(c, Parked(c.name, place, record.numbers.get(c.name, 0), at)) for c, place in places]


@dataclass
class _EvolvingSqlColumn:
    """A column on its way; one that was renamed gives way to another of its old name."""

    name: str
    before: Column | None
    parked: Parked | None = None
    moved: bool = False
    rewrite: RewriteColumn | None = None


def evolve(now: Table, parked: Sequence[Parked], steps: Sequence[Step], after: Table) -> Evolution:
    """Return the columns that `steps` lead to: identity from the steps, everything else from `after`. Renames are
    simultaneous (a swap is two of them) or in sequence. DestinationError if steps and `after` do not fit together."""
    entries = [_EvolvingSqlColumn(c.name, c) for c in now.columns]
    dropped = [found for step in steps if (found := _run(entries, parked, step)) is not None]
    wanted = {c.name for c in after.columns}
    if len(entries) != len(wanted) or {e.name for e in entries} != wanted:
        odd = sorted(wanted ^ {e.name for e in entries}) or sorted(e.name for e in entries)
        raise DestinationError(
            f"the steps for table {after.path} do not lead to the table that is wanted: {', '.join(odd)}",
            hint="plan again: the destination may have been changed manually",
        )
    by_name = {e.name: e for e in entries}
    pairs = ((c, by_name[c.name]) for c in after.columns)
    return Evolution(
        tuple(ColumnOrigin(_relaxed(c, e), e.before, e.parked, e.rewrite) for c, e in pairs), tuple(dropped)
    )


def _relaxed(column: Column, entry: _EvolvingSqlColumn) -> Column:
    """NOT NULL is only ever relaxed: a column that is added to rows that exist is optional."""
    strict = entry.before is not None and not entry.before.nullable and entry.rewrite is None
    return replace(column, nullable=column.nullable or not strict, comment=column.comment or None)


def _run(entries: list[_EvolvingSqlColumn], parked: Sequence[Parked], step: Step) -> Column | None:
    """Apply one step to the entries; returns what it dropped."""
    match step.change:
        case ColumnAdded(after=column):
            entries.append(_EvolvingSqlColumn(column.name, None))
        case UndropColumn(before=before, after=column):
            entries.append(_EvolvingSqlColumn(column.name, None, _parked(parked, before.name, step)))
        case ColumnRenamed(before=before, after=column):
            entry = _find(entries, before.name, step)
            entry.name, entry.moved = column.name, True
        case RewriteColumn(before=before) as rewrite:
            _find(entries, before.name, step, at_end=True).rewrite = rewrite
        case ColumnRemoved(before=before):
            entry = _find(entries, before.name, step)
            entries.remove(entry)
            return entry.before
    return None


def latest(parked: Sequence[Parked], name: str) -> Parked | None:
    """Return the most recently dropped column of those parked under one name."""
    return max((p for p in parked if p.name == name), key=lambda p: (p.at, p.field), default=None)


def _parked(parked: Sequence[Parked], name: str, step: Step) -> Parked:
    if (found := latest(parked, name)) is None:
        raise DestinationError(
            f"table {'.'.join(step.table)}: no column {name!r} is kept",
            hint="its time for undoing is over: load the column again, or restore a backup",
        )
    return found


def _find(entries: list[_EvolvingSqlColumn], name: str, step: Step, *, at_end: bool = False) -> _EvolvingSqlColumn:
    """Return the column of that name, by the old names first; `at_end`: by the names after all renames."""
    found = sorted((e for e in entries if e.name == name), key=lambda e: e.moved, reverse=at_end)
    if not found:
        raise DestinationError(
            f"table {'.'.join(step.table)} has no column {name!r} for the step: {step.text}",
            hint="plan again: the destination may have been changed manually",
        )
    return found[0]


def moved_values(table: str, record: Record, part: PartChange) -> str:
    """Return the statement by which values of a shard's rows go to other columns, out of those that are parked too;
    `record` is the table's as it is by now, `table` what SQL calls it."""
    there, sets = record.table.by_name, dict[str, str]()
    for old, new in part.moves:
        waits = None if old in there else latest(record.parked, old)
        sets[new] = q(waits.place) if waits else q(old)
    left = {old: "NULL" for old, _ in part.moves if old in there and old not in sets}
    pairs = ", ".join(f"{q(name)} = {value}" for name, value in (sets | left).items())
    return f"UPDATE {table} SET {pairs} WHERE {within((part.column, part.shard))}"  # noqa: S608 - names are quoted
