"""Applies what was decided: the destination's schema first, then the accepted catalog.

Steps are the difference between what the destination records and what the accepted catalog wants, so a crash
between the two is repaired by the next run: the steps that were done are not there any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.events import ChangeApplied
from instep.model import Review, Run
from instep.schema.accept import accept
from instep.schema.change import describe, key
from instep.schema.names import assign
from instep.schema.plan import Plan, Step, check_base, desired, plan
from instep.schema.table import Catalog
from instep.sync.detect import Detection
from instep.sync.pipe import Pipe


def make_plan(pipe: Pipe, detection: Detection) -> Plan:
    """What applying the decisions does; touches nothing."""
    after = assign(accept(detection.applied, detection.accepted, detection.source), pipe.naming)
    wanted = desired(after, pipe.naming)
    before = desired(detection.accepted, pipe.naming)
    refs = {t.ref for t in before.tables} | {t.ref for t in wanted.tables}
    there = pipe.destination.inspect(sorted(refs))
    return plan(detection.decisions, detection.accepted, after, there, wanted, pipe.destination.capabilities)


def apply_plan(pipe: Pipe, run: Run, made: Plan, reviews: Mapping[str, Review]) -> int:
    """Executes a plan and accepts its catalog; returns the accepted version. StalePlan if the base has moved."""
    accepted = pipe.store.accepted.catalog(pipe.name)
    refs = sorted({t.ref for t in made.wanted.tables} | {s.table for s in made.steps})
    check_base(made, accepted, pipe.destination.inspect(refs))
    for ref, steps in groupby(made.steps, key=lambda s: s.table):
        crashpoint("apply.table.before")
        _execute(pipe, run, ref, tuple(steps), made)
        crashpoint("apply.table.after")
    return _accept(pipe, made, accepted, reviews)


def _execute(pipe: Pipe, run: Run, ref: tuple[str, str], steps: Sequence[Step], made: Plan) -> None:
    after = made.wanted.get(ref)
    pipe.destination.claim(ref, run.fence)
    pipe.destination.execute(ref, steps, after, Commit(run.id, run.fence, changes=tuple(s.id for s in steps)))


def _accept(pipe: Pipe, made: Plan, before: Catalog, reviews: Mapping[str, Review]) -> int:
    """One transaction: the new catalog, the reviews that it answers, the events."""
    applied = [d for d in made.decisions if d.applied and key(d.change) in reviews]
    why = "; ".join(describe(d.change) for d in applied[:5]) + (f"; and {len(applied) - 5} more" if len(applied) > 5 else "")
    with pipe.store.transaction():
        version = pipe.store.accepted.add(pipe.name, made.after, who=pipe.who, why=why or "first detection").version
        pipe.store.reviews.applied(reviews[key(d.change)].id for d in applied)
        for decision in applied:
            review = reviews[key(decision.change)]
            pipe.store.events.add(ChangeApplied(pipe.name, review.id, review.summary, version))
    crashpoint("apply.accepted")
    return version
