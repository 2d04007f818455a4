"""Confirmation of removals, and the decision where a removal and an addition look like one rename.

Missing is not removed: applying a removal waits for N detections, and never follows a mass disappearance.
Pauses, reviews and notices act on the first detection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from instep.schema.catalog.catalog import ROW_ID, Catalog, is_row_id
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    KeyChanged,
    KeyRemoved,
    Ref,
    SchemaRemoved,
    TableRemoved,
    key,
    table_of,
)
from instep.schema.policy.policy import Decision, Explicit, Policy, decide, is_reordered_key, override_of
from instep.schema.policy.presets import SUSPECTED, choice
from instep.schema.policy.similarity import RenameInference, candidates, select_inferences, threshold_of

MASS_REMOVAL = "mass removal limit"
MASS = 0.30
MASS_TABLES = 3
MASS_COLUMNS = 2
"""The breaker trips above 30 % of the tables and more than three of them, or above 30 % of one table's columns and
more than two of them: one or two columns are everyday work even in a table of five."""


def confirm_removals(
    decisions: Sequence[Decision],
    accepted: Catalog,
    *,
    seen: Mapping[str, int],
    proven: bool,
    pending: Collection[str] = (),
) -> tuple[Decision, ...]:
    """Return the decisions with removals that are not believed yet held back (`effect` waiting).

    `seen` counts the detections of a change by its key, this one included. `proven`: the source's catalog proves
    absence (one snapshot, immutable ids, unchanged grants), so the first detection counts; otherwise the second.
    After a mass disappearance nothing is applied and the removals pause the connection; what a person has approved
    or rejected does not count towards it and is applied. `pending`: content keys of removals that were found that way
    and are not answered; they stay held however few are left.
    """
    if why := _mass(decisions, accepted):
        return tuple(_broken(d, why) for d in decisions)
    needed = confirmations(proven=proven)

    def confirm(decision: Decision) -> Decision:
        if key(decision.change) in pending and _open_removal(decision):
            return _broken(decision, "it vanished at once with many others, and waits for a decision")
        return _confirmed(decision, seen.get(key(decision.change), 1), needed)

    return tuple(map(confirm, decisions))


def confirmations(*, proven: bool) -> int:
    """Return how many detections must agree on a removal before it is applied."""
    return 1 if proven else 2


def awaited(decision: Decision, seen: int, *, proven: bool) -> int:
    """Return how many detections a removal that is held back waits for, `seen` among them; 0 if it waits for something
    else or does not wait."""
    needed = confirmations(proven=proven)
    return needed if decision.effect == "waiting" and seen < needed and _open_removal(decision) else 0


def _confirmed(decision: Decision, seen: int, needed: int) -> Decision:
    if not (decision.applied and _open_removal(decision)) or seen >= needed:
        return decision
    why = f"seen as removed {seen} of {needed} times: applied when the next detection agrees"
    return replace(decision, action="ignore", effect="waiting", why=why)


def _broken(decision: Decision, why: str) -> Decision:
    if decision.by_person:
        return decision
    if _open_removal(decision):
        return replace(decision, action="pause_connection", effect="", rule=MASS_REMOVAL, why=why)
    if decision.applied:
        return replace(decision, action="ignore", effect="waiting", why=f"nothing is applied: {why}")
    return decision


def _open_removal(decision: Decision) -> bool:
    removal = isinstance(decision.change, SchemaRemoved | TableRemoved | ColumnRemoved)
    return removal and not decision.by_person


def _mass(decisions: Sequence[Decision], accepted: Catalog) -> str:
    gone = [d.change for d in decisions if _open_removal(d)]
    tables = [c for c in gone if isinstance(c, TableRemoved)]
    live = [t for t in accepted.tables if not t.retained]
    if len(tables) > max(MASS_TABLES, MASS * len(live)):
        return f"{len(tables)} of {len(live)} tables vanished at once"
    columns = Counter(c.table for c in gone if isinstance(c, ColumnRemoved))
    for ref, count in columns.items():
        table = accepted.get(ref)
        if table and count > max(MASS_COLUMNS, MASS * len(table.live)):
            return f"{count} of the {len(table.live)} columns of {table.path} vanished at once"
    return ""


def decide_all(
    changes: Sequence[Change],
    policy: Policy,
    *,
    explicit: Callable[[Change], Explicit | None] = lambda change: None,
    tags: Collection[str] = (),
    suspected: Sequence[RenameInference] | None = None,
) -> tuple[tuple[Decision, ...], tuple[RenameInference, ...]]:
    """Return one decision per change, and the suspected renames as open proposals (`suspected`; None: inferred from
    the schema alone). Both sides of a suspected rename are decided like any removal and addition, with the old side
    retained whatever the policy says about drops; where the preset demands it, both wait for a review instead."""
    decisions = {key(c): decide(c, policy, explicit=explicit(c), tags=tags) for c in changes}
    if suspected is None:
        open_ = [c for c in changes if not decisions[key(c)].by_person]
        suspected = select_inferences(candidates(open_), threshold_of(policy))
    proposals = tuple(suspected)
    for proposal in proposals:
        for side in proposal.sides:
            if side in decisions and not decisions[side].by_person:
                decisions[side] = _suspected(decisions[side], proposal, policy)
    return _with_key([decisions[key(c)] for c in changes]), proposals


def _with_key(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Let the removal of a key's or cursor's column wait for the decision about the key or cursor, and so a type of the
    cursor's column that orders its values otherwise. Another type of a key's column goes with the key."""
    decisions = follow_keys(decisions)
    pending = {(table_of(d.change), name): d for d in decisions if not d.applied for name in _columns_in_use(d.change)}

    def wait(decision: Decision) -> Decision:
        change = decision.change
        over = pending.get((change.table, change.before.name)) if isinstance(change, _TAKING) else None
        if isinstance(change, _TYPED) and over is not None and not isinstance(over.change, CursorChanged):
            over = None
        if over is None or not decision.applied:
            return decision
        return replace(decision, action="ignore", rule=over.rule, effect="waiting", why=f"waits for {over.change.kind}")

    return tuple(wait(d) for d in decisions)


def follow_keys(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Let another type of a key's column go with the decision about the key, and so the row id of a table that loses or
    gets its key, with what else that does to columns of either key."""
    keys = _keys(decisions)
    row_ids = {d.change.table: d for d in keys.values() if isinstance(d.change, KeyChanged) and _with_row_id(d.change)}

    def follow(decision: Decision) -> Decision:
        change = decision.change
        over = keys.get((change.table, change.before.name)) if isinstance(change, ColumnRetyped) else None
        if isinstance(change, ColumnAdded | ColumnRemoved | ColumnNullability):
            over = row_ids.get(change.table)
            over = over if over is not None and _goes_with(change, over) else None
        return decision if over is None else _with_its_key(decision, over)

    return tuple(map(follow, decisions)) if keys else tuple(decisions)


def _with_row_id(change: KeyChanged) -> bool:
    return ROW_ID in (*change.before, *change.after)


def _goes_with(change: ColumnAdded | ColumnRemoved | ColumnNullability, key_: Decision) -> bool:
    """Return whether a change of a column is part of a row id's coming or going."""
    if isinstance(change, ColumnNullability):
        moved = key_.change
        return isinstance(moved, KeyChanged) and change.after.name in (*moved.before, *moved.after)
    return is_row_id(change.after if isinstance(change, ColumnAdded) else change.before)


def _keys(decisions: Sequence[Decision]) -> dict[tuple[Ref, str], Decision]:
    """Return the decision about the key by (table, column of it): one that holds it outranks one that accepts it."""
    decisions_by_column: dict[tuple[Ref, str], Decision] = {}
    for decision in sorted(decisions, key=lambda d: not d.applied):
        change = decision.change
        if isinstance(change, KeyChanged) and not is_reordered_key(change):
            decisions_by_column |= {(change.table, name): decision for name in change.after}
    return decisions_by_column


def _with_its_key(decision: Decision, key_: Decision) -> Decision:
    """Return the decision with its answer about the key: two answers about one key would read its rows by a type
    that they do not fit."""
    if key_.applied:
        return decision if decision.applied else replace(key_, change=decision.change, effect="")
    return replace(decision, action="ignore", rule=key_.rule, effect="waiting", why=f"waits for {key_.change.kind}")


_TYPED = (ColumnWidened, ColumnNarrowed, ColumnRetyped)
_TAKING = (ColumnRemoved, *_TYPED)


def _columns_in_use(change: Change) -> tuple[str, ...]:
    """Return the columns of a key or cursor that is removed, or the cursor's if its type changes."""
    match change:
        case KeyRemoved():
            return change.before
        case CursorRemoved():
            return (change.before,)
        case CursorChanged() if change.after is not None and change.before == change.after:
            return (change.after,)
    return ()


def _suspected(decision: Decision, proposal: RenameInference, policy: Policy) -> Decision:
    override = override_of(decision.change, policy)
    preset = (override and override.preset) or policy.preset
    note = f"possible rename ({proposal.pair})"
    if choice(SUSPECTED, preset).action == "review" and not decision.pauses:
        return replace(decision, action="review", effect="", why=f"{note}: waits for a review")
    modifiers = decision.modifiers.with_changes({"removed": "retain"})
    return replace(decision, modifiers=modifiers, why=f"{decision.why}; {note}: confirm or reject it")
