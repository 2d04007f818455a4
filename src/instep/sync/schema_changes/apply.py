"""Apply decided changes: first to the destination's schema, then to the accepted catalog.

Steps are the difference between what the destination records and what the accepted catalog wants, so a crash
between the two is repaired by the next run: the steps that were done are no longer there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.errors import DestinationError, IllegalChange, InstepError, SparkNeeded, StageError, StalePlan
from instep.events import ChangeApplied, ChangeDetected
from instep.model import Review, Run
from instep.schema.catalog.catalog import Catalog, Table, by_names, fingerprint
from instep.schema.changes.describe import (
    ColumnRemoved,
    DestinationDrifted,
    change_to_dict,
    column_of,
    describe,
    key,
    table_of,
)
from instep.schema.planning.accept import accept
from instep.schema.planning.guard import Guards, layout_violations, retain_guarded
from instep.schema.planning.naming import assign, destination_ref, with_custom_names
from instep.schema.planning.overflow import was_extra
from instep.schema.planning.plan import Plan, StepGroup, check_base, desired, plan
from instep.schema.policy.policy import Decision, Modifiers, is_reordered_key
from instep.schema.selection.selection import column_is_on
from instep.sources.stream import Streams
from instep.spans import span, tell
from instep.store.catalogs.backfills import Backfill, Scope
from instep.store.catalogs.reviews import DetectedChange
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.backfill_since import was_pending
from instep.sync.detection.detect import DetectionResult, remember
from instep.sync.detection.drift import as_left, inspected, repaired, request_drift_reload
from instep.sync.detection.new_objects import is_for_tables
from instep.sync.detection.pause import releases, resume
from instep.sync.detection.refused import block_tables, record_refused
from instep.sync.detection.swapped import WHY, keeps_old_values, may_be_swapped, reuses_old_values
from instep.sync.detection.table_renames import TableRenames
from instep.sync.journal import Journal, confirm, journal
from instep.sync.schema_changes.backfill_plan import follow_columns
from instep.sync.schema_changes.overflow_columns import record_extra, request_overflow
from instep.sync.schema_changes.owned_tables import (
    check_unmoved,
    owned_by_others,
    record_owned,
    shared_offences,
    unable,
    with_shards,
)
from instep.sync.schema_changes.selected import chosen
from instep.sync.schema_changes.table_layout import history_notes, lost_versions, with_history, with_layouts
from instep.sync.schema_changes.uncastable_types import block_columns, read_whole, unfit_columns
from instep.sync.two_people import drop_retained_act, dropping, stale_tables, two_people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NONE: Mapping[Ref, str] = {}
REBUILDS = ("table.replaced", "key.changed", "key.removed", "cursor.changed", "cursor.removed")
"""Kinds after which the whole table is read into a new generation, so that no two keys are ever mixed."""


def make_plan(
    context: SyncContext, detection: DetectionResult, stuck: Mapping[Ref, str] = NONE, failing: Mapping[Ref, str] = NONE
) -> Plan:
    """Return the plan of the decisions; touches nothing. Changes that the destination cannot take wait in it for a
    review. `stuck`: destination tables that are left as they are, and why; those that are `failing` are tried again
    by the next sync."""
    stuck = {**stuck, **failing}
    check_unmoved(context)
    # what the destination's own layout of its tables stands on
    refs = sorted(destination_ref(t, context.naming) for t in detection.accepted.tables)
    before, guards = detection.accepted, context.destination.schema.guards(refs)
    decisions, spared_decisions = retain_guarded(detection.decisions, before, context.naming, guards)
    detection = replace(detection, decisions=decisions)
    plan = _draw_plan(context, detection, guards, stuck)
    read_again: frozenset[Ref] = frozenset()
    if (unfit := unfit_columns(context, plan, guards)) and (read_again := read_whole(context, plan, unfit)):
        plan = _draw_plan(context, detection, guards, stuck, read_again)
        unfit = unfit_columns(context, plan, guards)
    if unfit:
        detection, others = block_columns(context, detection, plan, unfit)
        plan = _draw_plan(context, detection, guards, {**others, **stuck}, read_again)
    plan = replace(
        plan, notes=(*plan.notes, *(DestinationDrifted(ref, text) for (ref, _), text in spared_decisions.items()))
    )
    plan = with_shards(context, plan)
    plan = repaired(context, with_layouts(context, plan), detection.drift, detection.decisions)
    waiting = {*detection.drift.stopped(plan.decisions), *_accepted(context, failing, detection.accepted, plan.after)}
    return replace(plan, decisions=block_tables(plan.decisions, plan.refused, waiting))


def _draw_plan(
    context: SyncContext,
    detection: DetectionResult,
    guards: Mapping[Ref, Guards],
    others: Mapping[Ref, str] = NONE,
    read_again: Collection[Ref] = (),
) -> Plan:
    """Draw the plan of these decisions, without the tables that their layout, others of a shared table, or `others`
    (destination table to why) hold. Accepted tables in `read_again` get a new generation."""
    before, decisions = detection.accepted, detection.decisions
    origins = {new: old for old, new in TableRenames.of(decisions).moves.items()}
    named = with_custom_names(accept(decisions, before, detection.source), before, origins, context.naming)
    after = assign(named.catalog, context.naming)
    after = with_history(context, decisions, before, record_extra(context, after, detection))
    after = Catalog.of(replace(t, generation=t.generation + (t.ref in read_again)) for t in after.tables)
    target = _desired(context, after)
    refs = sorted(_refs(context, before, after))
    existing, foreign = inspected(context, refs)
    by_name = by_names(existing) if detection.rebound else existing
    capabilities = context.destination.capabilities
    prefix = context.naming.prefix
    foreign = {
        **foreign,
        **owned_by_others(context, refs),
        **unable(context, refs),
        **_left_alone(context, detection, after),
        **others,
    }
    foreign |= lost_versions(context, decisions, before, after)
    drawn = plan(decisions, before, after, by_name, target, capabilities, prefix=prefix, foreign=foreign)
    if stuck := layout_violations(drawn, guards) | shared_offences(context, drawn):
        drawn = plan(decisions, before, after, by_name, target, capabilities, prefix=prefix, foreign=foreign | stuck)
    remarks = tuple(f"{'.'.join(filter(None, ref))}: {text}" for ref, text in named.unchanged)
    drawn = replace(drawn, remarks=(*remarks, *history_notes(context, after)))
    if detection.rebound:
        stored = context.store.accepted.catalog(context.name)
        drawn = replace(drawn, base_accepted=fingerprint(stored), base_destination=fingerprint(existing))
    return drawn


def _left_alone(context: SyncContext, detection: DetectionResult, after: Catalog) -> dict[Ref, str]:
    """Return destination tables, by their name before and after, that somebody has changed without an approval."""
    moves = TableRenames.of(detection.decisions).moves
    paused = detection.drift.stopped(detection.decisions)
    tables = [
        (t, why)
        for ref, (_, why) in paused.items()
        for t in (detection.accepted.get(ref), after.get(moves.get(ref, ref)))
        if t
    ]
    return {destination_ref(table, context.naming): why for table, why in tables}


def _desired(context: SyncContext, accepted: Catalog) -> Catalog:
    return desired(accepted, context.naming)


def _refs(context: SyncContext, *catalogs: Catalog) -> set[Ref]:
    """Return the destination tables of accepted catalogs."""
    return {destination_ref(t, context.naming) for c in catalogs for t in c.tables}


def _accepted(context: SyncContext, by_place: Mapping[Ref, str], *catalogs: Catalog) -> dict[Ref, str]:
    """Return the reasons by the accepted names of the destination's tables."""
    places = {t.ref: destination_ref(t, context.naming) for c in catalogs for t in c.tables}
    return {ref: by_place[place] for ref, place in places.items() if place in by_place}


def apply_plan(
    context: SyncContext,
    run: Run,
    plan: Plan,
    reviews: Mapping[str, Review],
    detection: DetectionResult | None = None,
    *,
    id: str = "",
) -> int:
    """Execute a plan, with a record of each step, and accept its catalog; returns the accepted version. `detection`
    is the one that the plan was made from, if this run made it; `id` the plan's, if people know it already."""
    with span("apply.ddl", steps=len(plan.steps)), journal(context, run, plan, id) as record:
        for group in plan.groups():
            crashpoint("apply.table.before")
            with span("apply.table", table=".".join(group.ref), steps=len(group.steps)), record.taking(group.steps):
                changes = tuple(s.id for s in group.steps)
                commit = Commit(run.id, run.fence, changes=changes)
                with _named(group):
                    context.destination.write.claim(group.ref, run.fence)
                    execute_steps(context, group, commit)
                crashpoint("apply.table.after")
        confirm(context, plan)
        return _accept(context, plan, reviews, detection, record)


def execute_steps(context: SyncContext, group: StepGroup, commit: Commit) -> None:
    """Execute the steps of one table at the destination, and record which engine has rewritten a large one."""
    workers, large = context.workers(".".join(group.ref), "rewrite"), list[bool]()

    def session() -> SparkSession | None:
        large.append(True)
        return workers.session()

    own = replace(workers, session=session)
    context.destination.schema.execute(group.ref, group.steps, group.after, commit, own)
    if large and context.run is not None and (engine := context.engine()) is not None:
        context.store.runs.describe(context.run, engine=asdict(engine.use))


class TableStuck(IllegalChange):
    """A destination table that could not be changed as its plan says; it is as it was."""

    def __init__(self, group: StepGroup, why: IllegalChange) -> None:
        super().__init__(why.message, hint=why.hint)
        self.ref = group.after.ref if group.after else group.ref


class TableFailing(DestinationError):
    """A destination table that could not be written while its schema was changed. The change may be there by now.
    `refs`: what it is called, and what it was to be called."""

    def __init__(self, group: StepGroup, why: InstepError) -> None:
        super().__init__(why.message, hint=why.hint)
        self.refs = {group.ref, group.after.ref if group.after else group.ref}


@contextmanager
def _named(group: StepGroup) -> Iterator[None]:
    try:
        yield
    except IllegalChange as why:
        raise TableStuck(group, why) from why
    except SparkNeeded:
        raise
    except (DestinationError, StageError) as why:
        raise TableFailing(group, why) from why


_MOST = 10
"""Tables that fail before the destination itself is taken for the trouble."""


def plan_and_apply(
    context: SyncContext, run: Run, detection: DetectionResult, reviews: Mapping[str, Review]
) -> tuple[Plan, Mapping[Ref, str]]:
    """Apply what was decided; return the plan that was carried out, and the accepted tables that failed, with why. A
    table whose values turn out not to fit while they are rewritten keeps its columns, and the others continue; so they
    do where one cannot be written."""
    stuck, failing = dict[Ref, str](), dict[Ref, str]()
    while True:
        plan = make_plan(context, detection, stuck, failing)
        try:
            apply_plan(context, run, plan, reviews, detection)
        except TableStuck as error:
            if error.ref in stuck:
                raise
            stuck[error.ref] = f"{error.message} ({error.hint})"
        except TableFailing as error:
            if error.refs <= failing.keys() or len(failing) >= _MOST:
                raise
            failing |= dict.fromkeys(error.refs, str(error))
        else:
            return plan, _accepted(context, failing, detection.accepted, plan.after)


def has_pending_changes(context: SyncContext, plan: Plan) -> bool:
    """Return whether a change or a suspected rename waits in a table of which the plan has applied another change: its
    approval is about the table as that one has left it, so it has to be recorded again."""
    changed = {table_of(d.change) for d in plan.decisions if d.applied}
    return any(review.table in changed for review in context.store.reviews.find(context.name, ("open",)))


def check(context: SyncContext, plan: Plan, reviews: Mapping[str, Review]) -> None:
    """Raise StalePlan unless accepted catalog and destination are still those that the plan was made from, and what
    it applies still stands (`reviews` by content key) and was not rejected meanwhile. A rejected schema comes in for
    the tables that are switched on."""
    accepted = context.store.accepted.catalog(context.name)
    check_base(plan, accepted, inspected(context, sorted(_refs(context, accepted, plan.after)))[0])
    for decision in plan.decisions:
        review = reviews.get(key(decision.change))
        if not decision.applied or (review is not None and review.status != "rejected"):
            continue
        if review is None or not is_for_tables(context, decision.change, plan.decisions, reviews):
            why = "was rejected" if review else "is no longer at the source"
            raise StalePlan(f"{describe(decision.change)}: this {why}", hint="plan again and review the new plan")


def _accept(
    context: SyncContext, plan: Plan, reviews: Mapping[str, Review], detection: DetectionResult | None, record: Journal
) -> int:
    """Record in one transaction the new catalog, the reviews that it answers, the backfills that it requests and the
    events; return the accepted version."""
    places = TableRenames.of(plan.decisions)
    applied = [
        d
        for d in plan.decisions
        if d.applied and key(d.change) in reviews and places.before(d.change) not in plan.refused
    ]
    why = "; ".join(describe(d.change) for d in applied[:5]) + (
        f"; and {len(applied) - 5} more" if len(applied) > 5 else ""
    )
    before = context.store.accepted.catalog(context.name)
    with context.transaction():
        if detection is not None and detection.rebound:
            remember(context, detection)
        answered = {reviews[key(d.change)].id for d in applied}
        tell(changes=tuple(sorted(answered)))
        version = _record_accepted(context, plan, why or "refreshed", answered)
        follow(context, {old: new for old, new in places.moves.items() if old not in plan.refused})
        follow_columns(context, applied, places)
        context.store.reviews.applied(reviews[key(d.change)].id for d in applied)
        answers = [reviews[key(d.change)] for d in applied]
        context.store.events.add(*(ChangeApplied(context.name, r.id, r.summary, version) for r in answers))
        pausing = {pause.change for pause in context.store.pauses.active(context.name)}
        for decision in applied:
            review = reviews[key(decision.change)]
            was = before.get(places.before(decision.change))
            _request_backfill(context, decision, review, was, plan, places)
            if keeps_old_values(context, was, decision, plan.decisions):
                context.store.loaded.mark_returned(
                    context.name, places.after(decision.change), column_of(decision.change)
                )
            request_overflow(context, was, decision.change, review, places.after(decision.change))
            request_drift_reload(context, plan, review, places.after(decision.change))
            if may_be_swapped(context, decision.change, plan.after.get(places.after(decision.change))):
                context.store.backfills.request(context.name, places.after(decision.change), why=WHY, change=review.id)
            if review.id in pausing and releases(context, review):
                resume(context, review.id, "applied")
        record_refused(context, plan.decisions, reviews)
        record.close(version, (reviews[key(d.change)].id for d in applied))
    crashpoint("apply.accepted")
    return version


def _record_accepted(context: SyncContext, plan: Plan, why: str, answered: Set[str]) -> int:
    """Record the accepted catalog and the destination's tables as they are now; return the accepted version."""
    store, run = context.store, context.run.id if context.run else ""
    record_owned(context, plan)
    version = store.accepted.add(context.name, plan.after, who=context.who, why=why, run=run).version
    target = as_left(context, plan.target, answered)
    store.schemas.add(context.name, "destination", target, run=run, accepted=version)
    return version


def _request_backfill(
    context: SyncContext, decision: Decision, review: Review, was: Table | None, plan: Plan, places: TableRenames
) -> None:
    scope_and_column = backfill_of(context, decision, was, plan, places)
    if scope_and_column is None:
        return
    scope, column = scope_and_column
    why = f"{review.summary}, with what changed since it was first seen" if scope == "since" else review.summary
    ref = places.after(decision.change)
    instead = review.kind in REBUILDS  # a backfill of another kind would let the old rows stay
    context.store.backfills.request(
        context.name, ref, column=column, why=why, change=review.id, scope=scope, instead=instead
    )


def backfill_of(
    context: SyncContext, decision: Decision, was: Table | None, plan: Plan, places: TableRenames
) -> tuple[Scope, str] | None:
    """Return scope and column of the backfill that a plan's decision leads to; `was` is the accepted table before,
    `places` are the renames of the plan. A rebuild where old rows would mix with new ones; a backfill where the
    policy demands it, or where the column was stored as JSON so far (not of a stream, which has sent no more than
    that). What returns has old values, which may be those of another table or column: the whole table is read,
    whatever the policy says (of a stream as it says)."""
    change, again = decision.change, not isinstance(context.source, Streams)
    late, back = again and was_extra(was, change), reuses_old_values(context, was, change, plan.decisions)
    if (change.kind in REBUILDS and not is_reordered_key(change)) or (back and (again or change.kind == "table.added")):
        return "table", ""
    if (late or decision.modifiers.backfill != "none") and change.kind in ("column.added", "column.retyped"):
        whole = back or decision.modifiers.backfill == "table" or change.kind == "column.retyped"
        return ("table", "") if whole else ("column", column_of(change))
    if again and was_pending(context, plan.after.get(places.after(change)), change):
        return "since", column_of(change)
    return None


def follow(context: SyncContext, moves: Mapping[Ref, Ref]) -> None:
    """Move pauses and backfills of renamed tables to the new names; all at once, because names may be swapped."""
    store, name = context.store, context.name
    store.choices.move(name, moves)
    store.copies.move(name, moves)
    store.loaded.move(name, moves)
    store.backfills.move(name, moves)
    paused = [p for p in store.pauses.active(name) if p.table in moves]
    waiting = [b for b in store.backfills.waiting(name) if b.table in moves]
    for pause in paused:
        store.pauses.resume(name, who="renamed", table=pause.table, change=pause.change)
    for backfill in waiting:
        store.backfills.cancel(backfill.number)
    for pause in paused:
        if pause.table is not None:
            store.pauses.pause(name, pause.reason, change=pause.change, table=moves[pause.table])
    for b in waiting:
        store.backfills.request(name, moves[b.table], column=b.column, why=b.why, change=b.change, scope=b.scope)


def rebuilds(context: SyncContext) -> frozenset[Ref]:
    """Return the tables whose old rows must go before new ones come."""
    return frozenset(b.table for b in context.store.backfills.waiting(context.name) if _rebuilds(context, b))


def _rebuilds(context: SyncContext, backfill: Backfill) -> bool:
    return bool(backfill.change) and context.store.reviews.get(backfill.change).kind in REBUILDS


def drop_retained(context: SyncContext, run: Run, only: Set[str]) -> None:
    """Drop the retained columns of tables without a key (`only` these paths, if any): a full refresh cannot carry
    them, and a person has consented; under four_eyes two people. The destination keeps them for undoing."""
    before = context.store.accepted.catalog(context.name)
    stale, act = stale_tables(before, only), drop_retained_act(context.name, before, only)
    if act is None:
        return
    after = Catalog.of([*(t for t in before.tables if t not in stale), *(replace(t, columns=t.live) for t in stale)])
    gone = [ColumnRemoved(t.ref, c, i) for t in stale for i, c in enumerate(t.columns) if c.retained]
    with two_people(context, act.name, act.what):
        _lose(context, run, before, after, gone, "drop-retained")


def drop_named(context: SyncContext, run: Run, paths: Set[str]) -> list[str]:
    """Drop accepted columns that are no longer read and that a person has named: `paths` are schema.table.column.
    Return those that are left alone, because they are read (again), in a key, or gone. Under four_eyes it takes two
    people who have named the same columns. The destination keeps them for undoing."""
    before, on = (
        context.store.accepted.catalog(context.name),
        chosen(context.project_selection, context.store, context.name),
    )
    gone = [
        ColumnRemoved(t.ref, c, i)
        for t in before.tables
        for i, c in enumerate(t.columns)
        if f"{t.path}.{c.name}" in paths and not c.key and (t.retained or c.retained or not column_is_on(on, t, c)[0])
    ]
    dropped = {f"{t.path}.{c.before.name}" for c in gone for t in [before.by_ref[c.table]]}
    if not gone:
        return sorted(paths)
    lost = {(c.table, c.before.name) for c in gone}
    left = (replace(t, columns=tuple(c for c in t.columns if (t.ref, c.name) not in lost)) for t in before.tables)
    act = dropping(context.name, paths)
    with two_people(context, act.name, act.what):
        _lose(context, run, before, Catalog.of(left), gone, "drop-columns")
    return sorted(paths - dropped)


def _lose(
    context: SyncContext, run: Run, before: Catalog, after: Catalog, gone: Sequence[ColumnRemoved], rule: str
) -> None:
    """Record each removed column as a change, approved by whoever has named it and told when it is applied."""
    target = _desired(context, after)
    existing = context.destination.schema.inspect(sorted(t.ref for t in target.tables))
    why = f"dropped by {context.who}"
    consent = [Decision(c, "apply", rule, why, Modifiers(removed="drop")) for c in gone]
    drops = plan(
        consent, before, after, existing, target, context.destination.capabilities, prefix=context.naming.prefix
    )
    with context.transaction():
        existing_reviews = context.store.reviews.existing(context.name)
        reviews = {
            key(d.change): context.store.reviews.open_approved(context.name, _named_by(d), context.who) for d in consent
        }
        new = [review for name, review in reviews.items() if name not in existing_reviews]
        context.store.events.add(*(ChangeDetected(context.name, r.id, r.kind, r.summary) for r in new))
    apply_plan(context, run, drops, reviews)


def _named_by(decision: Decision) -> DetectedChange:
    change = decision.change
    return DetectedChange(
        key(change),
        change.kind,
        table_of(change) or ("", ""),
        column_of(change),
        describe(change),
        change_to_dict(change),
        decision.action,
        decision.rule,
        decision.why,
        asdict(decision.modifiers),
    )
