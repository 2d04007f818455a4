"""When a removal is believed, and when a removal and an addition look like one rename.

Missing is not removed: applying a removal waits for N detections, and never follows a mass disappearance.
Pauses, reviews and notices act on the first detection.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from instep.schema.change import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    CursorRemoved,
    KeyRemoved,
    SchemaRemoved,
    TableAdded,
    TableRemoved,
    TableRenamed,
    key,
)
from instep.schema.policy import Decision, Explicit, Modifiers, Policy, decide, override_of
from instep.schema.preset import SUSPECTED, choice
from instep.schema.table import Catalog, Table

MASS = 0.30
MASS_TABLES = 3
MASS_COLUMNS = 2
"""The breaker trips above 30 % of the tables and more than three of them, or above 30 % of one table's columns and
more than two of them: one or two columns are everyday work even in a table of five."""


def confirm_removals(
    decisions: Sequence[Decision], accepted: Catalog, *, seen: Mapping[str, int], proven: bool
) -> tuple[Decision, ...]:
    """The decisions with removals that are not believed yet held back (`effect` waiting).

    `seen` counts the detections of a change by its key, this one included. `proven`: the source's catalog proves
    absence (one snapshot, immutable ids, unchanged grants), so the first detection counts; otherwise the second.
    After a mass disappearance nothing is applied and the removals pause the connection; what a person has approved
    or rejected does not count towards it and is applied.
    """
    if why := _mass(decisions, accepted):
        return tuple(_broken(d, why) for d in decisions)
    needed = 1 if proven else 2
    return tuple(_confirmed(d, seen.get(key(d.change), 1), needed) for d in decisions)


def _confirmed(decision: Decision, seen: int, needed: int) -> Decision:
    if not (decision.applied and _open_removal(decision)) or seen >= needed:
        return decision
    why = f"seen as removed {seen} of {needed} times: applied when the next detection agrees"
    return replace(decision, action="ignore", effect="waiting", why=why)


def _broken(decision: Decision, why: str) -> Decision:
    if decision.by_person:
        return decision
    if _open_removal(decision):
        return replace(decision, action="pause_connection", effect="", rule="mass removal limit", why=why)
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


@dataclass(frozen=True)
class Suspicion:
    """A removal and an addition without ids that look like one rename; a question, never an answer. `score` is 0 to
    1, `evidence` says what speaks for it (never values)."""

    removed: ColumnRemoved | TableRemoved
    added: ColumnAdded | TableAdded
    rename: ColumnRenamed | TableRenamed
    score: float
    evidence: tuple[str, ...]


def suspicions(changes: Iterable[Change], threshold: float) -> tuple[Suspicion, ...]:
    """The likeliest pairs at or above `threshold`, each change in at most one."""
    changes = tuple(changes)
    found = sorted([*_columns(changes), *_tables(changes)], key=lambda s: -s.score)
    used: set[str] = set()
    out = []
    for suspicion in found:
        sides = {key(suspicion.removed), key(suspicion.added)}
        if suspicion.score >= threshold and not sides & used:
            used |= sides
            out.append(suspicion)
    return tuple(out)


def _columns(changes: Sequence[Change]) -> Iterable[Suspicion]:
    added: dict[tuple[str, str], list[ColumnAdded]] = defaultdict(list)
    for change in changes:
        if isinstance(change, ColumnAdded) and change.after.id is None:
            added[change.table].append(change)
    for gone in changes:
        if isinstance(gone, ColumnRemoved) and gone.before.id is None:
            for new in added[gone.table]:
                score, evidence = _alike(gone, new)
                yield Suspicion(gone, new, ColumnRenamed(gone.table, gone.before, new.after), score, evidence)


def _alike(gone: ColumnRemoved, new: ColumnAdded) -> tuple[float, tuple[str, ...]]:
    a, b = gone.before, new.after
    signs = (
        (0.35, gone.position == new.position, "same position"),
        (0.30, a.type == b.type, f"same type {a.type}"),
        (0.15, (a.nullable, a.default, a.key) == (b.nullable, b.default, b.key), "same default and nullability"),
    )
    name = SequenceMatcher(None, a.name.casefold(), b.name.casefold()).ratio()
    evidence = [text for _, holds, text in signs if holds] + ([f"similar name {b.name}"] if name >= 0.5 else [])
    return round(sum(weight for weight, holds, _ in signs if holds) + 0.2 * name, 3), tuple(evidence)


def _tables(changes: Sequence[Change]) -> Iterable[Suspicion]:
    """Only tables of one schema with equal columns are compared, so that this stays linear."""
    added: dict[object, list[TableAdded]] = defaultdict(list)
    for change in changes:
        if isinstance(change, TableAdded) and change.after.id is None:
            added[_shape(change.after)].append(change)
    for gone in changes:
        if isinstance(gone, TableRemoved) and gone.before.id is None:
            for new in added[_shape(gone.before)]:
                name = SequenceMatcher(None, gone.before.name, new.after.name).ratio()
                rename = TableRenamed(gone.before, new.after)
                yield Suspicion(gone, new, rename, round(0.8 + 0.2 * name, 3), ("same columns and types",))


def _shape(table: Table) -> object:
    return table.schema, table.key, frozenset((c.name, c.type) for c in table.live)


def decide_all(
    changes: Sequence[Change],
    policy: Policy,
    *,
    explicit: Callable[[Change], Explicit | None] = lambda change: None,
    tags: Collection[str] = (),
) -> tuple[tuple[Decision, ...], tuple[Suspicion, ...]]:
    """One decision for each change, and the suspected renames as open proposals.

    Both sides of a suspected rename are decided at once like any removal and addition, with the old side retained
    whatever the policy says about drops; where the preset asks for it, both wait for a review instead.
    """
    decisions = {key(c): decide(c, policy, explicit=explicit(c), tags=tags) for c in changes}
    threshold = Modifiers().over(policy.modifiers).rename_threshold
    open_ = [c for c in changes if not decisions[key(c)].by_person]
    proposals = suspicions(open_, threshold)
    for proposal in proposals:
        for side in (proposal.removed, proposal.added):
            decisions[key(side)] = _suspected(decisions[key(side)], proposal, policy)
    return _with_key([decisions[key(c)] for c in changes]), proposals


def _with_key(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The removal of a key's or cursor's column waits for what is decided about the key or cursor."""
    held = {
        (d.change.table, name): d
        for d in decisions
        if isinstance(d.change, KeyRemoved | CursorRemoved) and not d.applied
        for name in ([d.change.before] if isinstance(d.change, CursorRemoved) else d.change.before)
    }

    def one(decision: Decision) -> Decision:
        change = decision.change
        over = held.get((change.table, change.before.name)) if isinstance(change, ColumnRemoved) else None
        if over is None or not decision.applied:
            return decision
        return replace(decision, action="ignore", rule=over.rule, effect="waiting", why=f"waits for {over.change.kind}")

    return tuple(one(d) for d in decisions)


def _suspected(decision: Decision, proposal: Suspicion, policy: Policy) -> Decision:
    override = override_of(decision.change, policy)
    preset = (override and override.preset) or policy.preset
    doubt = f"may be one rename ({', '.join(proposal.evidence)})"
    if choice(SUSPECTED, preset).action == "review" and not decision.pauses:
        return replace(decision, action="review", effect="", why=f"{doubt}: waits for a review")
    modifiers = decision.modifiers.over({"removed": "retain"})
    return replace(decision, modifiers=modifiers, why=f"{decision.why}; {doubt}: a proposal stays open")
