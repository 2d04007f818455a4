"""Tables that somebody has changed at the destination: found, decided by policy like any change, put back or adopted.

How a table was left is the last recorded version of the destination's schema. Tables that an unfinished plan was at
may be half way between two states: they are not compared, the planner sees to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.errors import Blocked, DestinationError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import Change, ColumnAdded, DestinationDrifted, change_from_dict
from instep.schema.changes.diff import LOADABLE, Difference, detail, differences
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan
from instep.schema.planning.step import RecordIdentity, Step, UndropColumn, step
from instep.schema.policy.policy import Decision
from instep.sync.context import Ref, SyncContext
from instep.sync.journal import never_loaded, touched_tables

KIND = DestinationDrifted.kind


@dataclass(frozen=True)
class Drift:
    """Differences between destination tables and their record."""

    differences: Mapping[Ref, tuple[Difference, ...]] = field(default_factory=dict)
    """Differences by accepted table."""
    left: Mapping[Ref, Table] = field(default_factory=dict)
    """The tables as they were left, by accepted table."""

    @property
    def changes(self) -> list[DestinationDrifted]:
        return [DestinationDrifted(ref, detail(differences)) for ref, differences in sorted(self.differences.items())]

    def stopped(self, decisions: Iterable[Decision]) -> dict[Ref, tuple[str, str]]:
        """Return accepted tables that must be left alone, as (status, why): their drift was not approved, and they
        cannot be loaded as they are."""
        pending = {d.change.table: d for d in decisions if isinstance(d.change, DestinationDrifted) and not d.applied}
        return {
            ref: ("paused" if pending[ref].needs_review else "failed", _why(differences))
            for ref, differences in self.differences.items()
            if ref in pending and any(d.what not in LOADABLE for d in differences)
        }

    def approved(self, decisions: Iterable[Decision]) -> frozenset[Ref]:
        refs = {d.change.table for d in decisions if isinstance(d.change, DestinationDrifted) and d.applied}
        return frozenset(self.differences.keys() & refs)


def _why(differences: tuple[Difference, ...]) -> str:
    return f"somebody changed it at the destination: {'; '.join(d.text for d in differences)}"


def compare(context: SyncContext, accepted: Catalog) -> Drift:
    """Compare the destination's tables with their record; nothing before the first version of its schema."""
    before = context.store.schemas.latest(context.name, "destination")
    if before is None:
        return Drift()
    half = touched_tables(context)
    refs = {t.ref: destination_ref(t, context.naming) for t in accepted.tables if not t.retained}
    left = {ref: table for ref, at in refs.items() if at not in half and (table := before.get(at))}
    existing, _ = inspected(context, [refs[ref] for ref in left])
    left = _existed(context, {ref: (table, existing.get(refs[ref])) for ref, table in left.items()})
    pairs = {ref: differences(table, existing.get(refs[ref]), context.naming.prefix) for ref, table in left.items()}
    return Drift({ref: changed for ref, changed in pairs.items() if changed}, left)


def require_as_left(context: SyncContext, tables: Iterable[Table]) -> None:
    """Raise Blocked if somebody has changed one of these accepted tables at the destination, so that a plan for it
    would bring columns back without their values."""
    for ref, changed in compare(context, Catalog.of(tables)).differences.items():
        if any(d.what not in LOADABLE for d in changed):
            raise changed_at_destination(ref, changed)


def changed_at_destination(ref: Ref, changed: tuple[Difference, ...]) -> Blocked:
    """Return the refusal to change a table that somebody else has changed."""
    return Blocked(
        f"{'.'.join(filter(None, ref))}: {_why(changed)}",
        hint="run `instep detect`, answer that change (`instep changes list`), and sync first",
    )


def _existed(context: SyncContext, pairs: Mapping[Ref, tuple[Table, Table | None]]) -> dict[Ref, Table]:
    """Return the tables that existed, without those that wait for their first rows (deferred creation)."""
    gone = {table.ref: ref for ref, (table, existing) in pairs.items() if existing is None}
    never = {gone[at] for at in never_loaded(context, frozenset(gone))} if gone else set()
    return {ref: table for ref, (table, _) in pairs.items() if ref not in never}


def inspected(context: SyncContext, refs: Sequence[Ref]) -> tuple[Catalog, Mapping[Ref, str]]:
    """Return our tables among `refs`, and a message about those that are not ours."""
    try:
        return context.destination.schema.inspect(refs), {}
    except DestinationError:
        foreign = context.destination.schema.foreign(refs)
        if not foreign:
            raise
        return context.destination.schema.inspect([ref for ref in refs if ref not in foreign]), foreign


def recorded_drift(answers: Mapping[str, Review]) -> list[Change]:
    """Return the drift found last, for showing answers without the destination."""
    return [change_from_dict(r.change) for r in answers.values() if r.kind == KIND]


def repaired(context: SyncContext, plan: Plan, drift: Drift, decisions: Iterable[Decision]) -> Plan:
    """Return the plan with steps that restore values: a column that was dropped manually is undropped by its old id,
    and one that was recreated is recorded as ours."""
    refs = drift.approved(decisions)
    if not refs:
        return plan
    gone = {
        (at.ref, d.column)
        for ref in refs
        if (at := drift.left[ref])
        for d in drift.differences[ref]
        if d.what == "gone"
    }
    steps = [_undropped(context, s, gone) for s in plan.steps]
    for ref in refs:
        steps += _recorded(drift.left[ref], drift.differences[ref], steps)
    order = {ref: place for place, ref in enumerate(dict.fromkeys(s.table for s in steps))}
    return replace(plan, steps=tuple(sorted(steps, key=lambda s: order[s.table])))


def _undropped(context: SyncContext, add: Step, gone: set[tuple[Ref, str]]) -> Step:
    change = add.change
    if not isinstance(change, ColumnAdded) or (add.table, change.after.name) not in gone:
        return add
    if context.destination.lifecycle.undrop_report(add.table, change.after.name).why_not:
        return add
    return step(add.table, UndropColumn(add.table, change.after, change.after))


def _recorded(left: Table, differences: tuple[Difference, ...], steps: list[Step]) -> list[Step]:
    """Add steps for replaced columns: without one a table's record would go on without the column."""
    busy = {s.table for s in steps}
    new = [d.column for d in differences if d.what == "replaced"]
    if left.ref in busy:
        return []
    return [step(left.ref, RecordIdentity(left.ref, left.by_name[n], left.by_name[n])) for n in new]


def as_left(context: SyncContext, target: Catalog, done: Iterable[str]) -> Catalog:
    """Return the destination's schema to remember: tables whose difference nobody has answered (`done`: ids of the
    reviews that are answered now) stay remembered as they were left."""
    answered = set(done)
    open_ = [
        r for r in context.store.reviews.existing(context.name).values() if r.kind == KIND and r.id not in answered
    ]
    before = context.store.schemas.latest(context.name, "destination") if open_ else None
    if before is None:
        return target
    accepted = context.store.accepted.catalog(context.name)
    for review in open_:
        table = accepted.get(review.table)
        if table and (old := before.get(destination_ref(table, context.naming))):
            target = target.put(old)
    return target


def request_drift_reload(context: SyncContext, plan: Plan, review: Review, ref: Ref) -> None:
    """Request a reload of the accepted table `ref` after a repair that may have left values out."""
    if reloads(context, plan, review, ref):
        context.store.backfills.request(context.name, ref, why=review.summary, change=review.id)


def reloads(context: SyncContext, plan: Plan, review: Review, ref: Ref) -> bool:
    """Return whether such a repair asks for a reload."""
    table = plan.after.get(ref) if review.kind == KIND else None
    at = destination_ref(table, context.naming) if table else None
    kinds = ("column.undropped", "column.added", "column.rewritten", "column.recorded")
    return any(s.table == at and s.change.kind in kinds for s in plan.steps)
