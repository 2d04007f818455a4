"""Columns that a destination table's layout depends on: which steps would break it, and what is done instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instep.schema.catalog.catalog import Catalog, Column
from instep.schema.changes.describe import (
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    TableRenamed,
    TableReplaced,
    column_of,
)
from instep.schema.planning.naming import Naming, destination_ref
from instep.schema.planning.plan import Plan
from instep.schema.planning.step import Ref, RewriteColumn, StepChange
from instep.schema.policy.policy import Decision


@dataclass(frozen=True)
class LayoutGuard:
    """Use of a column by the layout (`use`: "its partition spec (day(at))") and how to let go of it (`free`)."""

    use: str
    free: str
    widens: bool = True
    """A wider type leaves it as it is."""
    required: bool = False
    """It needs a value in every row."""
    goes: bool = False
    """A new generation of the table does without it."""


Guards = Mapping[str, tuple[LayoutGuard, ...]]
"""The guarded columns of one destination table, by name."""


def retain_guarded(
    decisions: Sequence[Decision], accepted: Catalog, naming: Naming, guards: Mapping[Ref, Guards]
) -> tuple[tuple[Decision, ...], dict[tuple[Ref, str], str]]:
    """Return the decisions with guarded columns retained that policy would drop; and why, by destination table and
    column."""
    notes: dict[tuple[Ref, str], str] = {}
    return tuple(_retain_guarded(d, accepted, naming, guards, notes) for d in decisions), notes


def _retain_guarded(
    decision: Decision,
    accepted: Catalog,
    naming: Naming,
    guards: Mapping[Ref, Guards],
    notes: dict[tuple[Ref, str], str],
) -> Decision:
    change, table = decision.change, None
    if isinstance(change, ColumnRemoved) and decision.applied and decision.modifiers.removed == "drop":
        table = accepted.get(change.table)
    column = table.by_name.get(column_of(change)) if table else None
    if table is None or column is None:
        return decision
    ref, name = destination_ref(table, naming), column.alias or column.name
    column_guards = guards.get(ref, {}).get(name)
    if not column_guards:
        return decision
    notes[ref, name] = f"column {name} of {'.'.join(ref)} is kept instead of dropped: {_uses(column_guards)}"
    why = f"{decision.why}; not dropped, {_uses(column_guards)} at the destination"
    return replace(decision, modifiers=replace(decision.modifiers, removed="retain"), why=why)


_TYPED = RewriteColumn | ColumnWidened | ColumnRetyped


def column_offences(plan: Plan, guards: Mapping[Ref, Guards]) -> Iterator[tuple[Ref, Column, str]]:
    """Yield columns, as the steps of a plan would leave them, whose new type their table's layout does not allow,
    and why. A table is named as it will be; `guards` are by today's names."""
    today = _today(plan)
    for group in plan.groups():
        guarded = guards.get(today.get(group.ref, group.ref), {})
        changes = [s.change for s in group.steps]
        old = {c.after.name: c.before.name for c in changes if isinstance(c, ColumnRenamed)}
        for change in changes:
            if isinstance(change, _TYPED):
                for why in _violations(group.ref, change, old, guarded):
                    yield group.ref, change.after, why


def layout_violations(plan: Plan, guards: Mapping[Ref, Guards]) -> dict[Ref, str]:
    """Return why steps of a plan cannot be carried out, by destination table under its new name; new types of columns
    aside (see `column_offences`). `guards` are by today's names."""
    today = _today(plan)
    blockers: dict[Ref, str] = {}
    for group in plan.groups():
        guarded = guards.get(today.get(group.ref, group.ref), {})
        changes = [s.change for s in group.steps if not isinstance(s.change, _TYPED)]
        if guarded and (why := first_violation(group.ref, changes, guarded)):
            blockers.setdefault(group.ref, why)
    return blockers


def _today(plan: Plan) -> dict[Ref, Ref]:
    at: dict[Ref, Ref] = {}
    for change in (s.change for s in plan.steps):
        if isinstance(change, TableRenamed):
            at[change.after.ref] = at.pop(change.before.ref, change.before.ref)
    return at


def first_violation(ref: Ref, changes: Sequence[StepChange], guards: Guards) -> str:
    """Return the first of one table's edits that its layout does not allow, with the next step; "" if there is none."""
    old = {c.after.name: c.before.name for c in changes if isinstance(c, ColumnRenamed)}
    return next((why for c in changes for why in _violations(ref, c, old, guards)), "")


def _violations(ref: Ref, change: StepChange, old: Mapping[str, str], guards: Guards) -> Iterator[str]:
    if not guards:
        return
    path = ".".join(ref)
    match change:
        case TableReplaced() if stay := {c: staying for c, g in guards.items() if (staying := _staying(g))}:
            yield f"table {path} cannot get a new generation: {uses(stay)}; {free(stay)}"
        case ColumnRemoved(before=column):
            if column_guards := guards.get(column.name):
                yield f"column {column.name} cannot be dropped: {_uses(column_guards)}; {_free(column_guards)}"
        case RewriteColumn(before=column, after=after):
            if column_guards := guards.get(old.get(column.name, column.name)):
                yield (
                    f"column {column.name} cannot be rewritten from {column.type} to {after.type}: "
                    f"{_uses(column_guards)}; {_free(column_guards)}"
                )
        case ColumnWidened(before=column, after=after) | ColumnRetyped(before=column, after=after):
            narrow = [g for g in guards.get(old.get(column.name, column.name), ()) if not g.widens]
            if narrow:
                yield f"column {column.name} cannot become {after.type}: {_uses(narrow)}; {_free(narrow)}"
        case ColumnNullability(after=column):
            mine = [g for g in guards.get(old.get(column.name, column.name), ()) if g.required]
            if mine and column.nullable:
                yield f"column {column.name} cannot become nullable: {_uses(mine)}; {_free(mine)}"


def _staying(layout_guards: tuple[LayoutGuard, ...]) -> tuple[LayoutGuard, ...]:
    return tuple(g for g in layout_guards if not g.goes)


def uses(guards: Guards) -> str:
    """Return the uses that guard a table's columns."""
    return _uses({g.use: g for guard in guards.values() for g in guard}.values())


def free(guards: Guards) -> str:
    """Return how to let go of all of it."""
    return _free(g for guard in guards.values() for g in guard)


def _uses(layout_guards: Iterable[LayoutGuard]) -> str:
    return f"{' and '.join(g.use for g in layout_guards)} uses it"


def _free(layout_guards: Iterable[LayoutGuard]) -> str:
    return f"to free it: {' and '.join(dict.fromkeys(g.free for g in layout_guards))}"
