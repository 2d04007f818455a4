"""Resolution of a table's steps: where each of the next columns comes from, and which columns are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from instep.errors import DestinationError
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed
from instep.schema.planning.step import RewriteColumn, Step, UndropColumn

Stored = TypeVar("Stored")
"""A column as a destination has it."""


@dataclass
class EvolvingColumn(Generic[Stored]):
    """A column on its way: `stored` is None for an added one. A renamed one gives way to one of the same old name."""

    name: str
    stored: Stored | None
    moved: bool = False
    rewrite: RewriteColumn | None = None


def evolving(
    now: Iterable[tuple[str, Stored]], steps: Sequence[Step], after: Table, undrop: Callable[[str, Step], Stored]
) -> tuple[list[EvolvingColumn[Stored]], list[tuple[Stored, Step]]]:
    """Return the columns that `steps` lead to, in the order of `after`, and what is dropped, with its step. Renames are
    simultaneous (a swap is two of them) or in sequence. `undrop` finds a dropped column by its name.

    Raises DestinationError if steps and `after` do not fit together.
    """
    entries = [EvolvingColumn(name, stored) for name, stored in now]
    dropped = [(removed, step) for step in steps if (removed := _run(entries, step, undrop)) is not None]
    by_name, expected = {e.name: e for e in entries}, {c.name for c in after.columns}
    if len(entries) != len(expected) or by_name.keys() != expected:
        odd = sorted(expected ^ by_name.keys()) or sorted(e.name for e in entries)
        raise DestinationError(
            f"the steps for table {after.path} do not lead to the target table: {', '.join(odd)}",
            hint="plan again: the destination may have been changed manually",
        )
    return [by_name[c.name] for c in after.columns], dropped


def _run(entries: list[EvolvingColumn[Stored]], step: Step, undrop: Callable[[str, Step], Stored]) -> Stored | None:
    """Apply one step to the entries; return what it drops."""
    match step.change:
        case ColumnAdded(after=column):
            entries.append(EvolvingColumn(column.name, None))
        case UndropColumn(before=before, after=column):
            entries.append(EvolvingColumn(column.name, undrop(before.name, step)))
        case ColumnRenamed(before=before, after=column):
            entry = _find(entries, before.name, step)
            entry.name, entry.moved = column.name, True
        case RewriteColumn(before=before) as rewrite:
            _find(entries, before.name, step, at_end=True).rewrite = rewrite
        case ColumnRemoved(before=before):
            entry = _find(entries, before.name, step)
            entries.remove(entry)
            return entry.stored
    return None


def _find(
    entries: list[EvolvingColumn[Stored]], name: str, step: Step, *, at_end: bool = False
) -> EvolvingColumn[Stored]:
    """Return the column of that name, by the old names first; `at_end`: by the names after all renames."""
    named = sorted((e for e in entries if e.name == name), key=lambda e: e.moved, reverse=at_end)
    if not named:
        raise DestinationError(
            f"table {'.'.join(step.table)} has no column {name!r} for the step: {step.text}",
            hint="plan again: the destination may have been changed manually",
        )
    return named[0]
