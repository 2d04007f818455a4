"""Applies what was decided: the destination's schema first, then the accepted catalog.

Steps are the difference between what the destination records and what the accepted catalog wants, so a crash
between the two is repaired by the next run: the steps that were done are not there any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.events import ChangeApplied
from instep.model import Review, Run
from instep.schema.accept import accept
from instep.schema.change import describe, key, table_of
from instep.schema.names import assign
from instep.schema.plan import Plan, check_base, desired, plan
from instep.schema.policy import Decision
from instep.schema.table import Catalog
from instep.sync.detect import Detection
from instep.sync.pipe import Pipe

REBUILDS = ("table.replaced", "key.changed", "key.removed", "cursor.changed", "cursor.removed")
"""Kinds after which the whole table is read into a new generation, so that no two keys are ever mixed."""


def make_plan(pipe: Pipe, detection: Detection) -> Plan:
    """What applying the decisions does; touches nothing."""
    after = assign(accept(detection.applied, detection.accepted, detection.source), pipe.naming)
    wanted, before = _desired(pipe, after), _desired(pipe, detection.accepted)
    refs = sorted({t.ref for t in before.tables} | {t.ref for t in wanted.tables})
    there = pipe.destination.inspect(refs)
    able = pipe.destination.capabilities
    return plan(detection.decisions, detection.accepted, after, there, wanted, able, prefix=pipe.naming.prefix)


def _desired(pipe: Pipe, accepted: Catalog) -> Catalog:
    return desired(accepted, pipe.naming)


def apply_plan(pipe: Pipe, run: Run, made: Plan, reviews: Mapping[str, Review]) -> int:
    """Executes a plan and accepts its catalog; returns the accepted version. StalePlan if the base has moved."""
    for group in made.groups():
        crashpoint("apply.table.before")
        pipe.destination.claim(group.ref, run.fence)
        changes = tuple(s.id for s in group.steps)
        pipe.destination.execute(group.ref, group.steps, group.after, Commit(run.id, run.fence, changes=changes))
        crashpoint("apply.table.after")
    return _accept(pipe, made, reviews)


def check(pipe: Pipe, made: Plan) -> None:
    """Raises StalePlan unless accepted catalog and destination are still those that the plan was made from."""
    accepted = pipe.store.accepted.catalog(pipe.name)
    refs = {t.ref for t in _desired(pipe, accepted).tables} | {t.ref for t in _desired(pipe, made.after).tables}
    check_base(made, accepted, pipe.destination.inspect(sorted(refs)))


def _accept(pipe: Pipe, made: Plan, reviews: Mapping[str, Review]) -> int:
    """One transaction: the new catalog, the reviews that it answers, the backfills that it asks for, the events."""
    refused = set(made.refused)
    applied = [
        d for d in made.decisions if d.applied and key(d.change) in reviews and table_of(d.change) not in refused
    ]
    why = "; ".join(describe(d.change) for d in applied[:5]) + (
        f"; and {len(applied) - 5} more" if len(applied) > 5 else ""
    )
    with pipe.store.transaction():
        version = pipe.store.accepted.add(pipe.name, made.after, who=pipe.who, why=why or "refreshed").version
        pipe.store.reviews.applied(reviews[key(d.change)].id for d in applied)
        for decision in applied:
            review = reviews[key(decision.change)]
            pipe.store.events.add(ChangeApplied(pipe.name, review.id, review.summary, version))
            _want_backfill(pipe, decision, review)
    crashpoint("apply.accepted")
    return version


def _want_backfill(pipe: Pipe, decision: Decision, review: Review) -> None:
    """A rebuild where old rows would mix with new ones, a backfill where policy asks for it."""
    change, ref = decision.change, table_of(decision.change)
    rebuild = change.kind in REBUILDS
    asked = decision.modifiers.backfill != "none" and change.kind in ("column.added", "column.retyped")
    if ref is not None and (rebuild or asked):
        pipe.store.backfills.want(pipe.name, ref, why=review.summary, change=review.id)
