"""Applied plans on record, step by step: for people and for undo. What is to do is computed anew by every run.

A step is `running` from before its commit until after it. If the run dies in between, the next one asks the
destination which of the two it was, and closes the record as interrupted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from instep.crash import crashpoint
from instep.errors import DestinationError, Fenced, InstepError
from instep.model import Run
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import TableAdded, key
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan, plan_from_dict, plan_to_dict
from instep.schema.planning.step import RewriteColumn, Step
from instep.store.catalogs.plans import PlannedStep, StoredPlan
from instep.sync.aliases import make_room, refresh, remember
from instep.sync.confirm import carried_out, refs_of
from instep.sync.context import Ref, SyncContext


def plan_id(connection: str, version: int, made: Plan) -> str:
    """Return the id of a plan that starts from this accepted version: the same plan of the same schemas has the same
    id."""
    text = json.dumps([connection, version, plan_to_dict(made)], sort_keys=True, separators=(",", ":"))
    return f"p-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass
class Journal:
    """The record of one plan that is being applied; `id` is empty where nothing is to be recorded. `done` are steps
    that are through and not yet written down as such: that goes with the next write."""

    context: SyncContext
    id: str = ""
    done: list[str] = field(default_factory=list)

    @contextmanager
    def taking(self, steps: Iterable[Step]) -> Iterator[None]:
        """Around the commit of these steps."""
        ids = [s.id for s in steps]
        with self.context.transaction():
            self._write_done()
            self.context.store.steps.start(self.id, ids)
        crashpoint("journal.started")
        try:
            yield
        except InstepError as error:
            with suppress(Fenced), self.context.transaction():
                self._write_done()
                self.context.store.steps.end(self.id, ids, "failed", error.message)
            raise
        self.done += ids

    def _write_done(self) -> None:
        if self.done:
            self.context.store.steps.end(self.id, self.done, "done")
            self.done.clear()

    def close(self, version: int, changes: Iterable[str]) -> None:
        """Close the record, in the transaction that accepts the plan's result."""
        if self.id:
            self._write_done()
            self.context.store.plans.close(self.id, "done", version=version, changes=changes)


@contextmanager
def journal(context: SyncContext, run: Run, made: Plan, id: str = "") -> Iterator[Journal]:
    """Settles what dead runs left behind and opens the record of `made`, under `id` if it has one already. A plan that
    does nothing leaves no record."""
    context = replace(context, run=run)
    settle(context)
    record = Journal(context)
    if made.steps or any(d.applied for d in made.decisions):
        record.id = _open(context, run, made, id)
    crashpoint("journal.opened")
    make_room(context, made)
    try:
        yield record
    except InstepError as error:
        if record.id:
            with suppress(Fenced), context.transaction():
                context.store.plans.close(record.id, "failed", error=error.message)
        raise
    refresh(context, run)


def _open(context: SyncContext, run: Run, made: Plan, id: str) -> str:
    latest = context.store.accepted.latest(context.name)
    found = id or plan_id(context.name, latest.version if latest else 0, made)
    planned = [_planned(context, step) for step in made.steps]
    bases = {"base_accepted": made.base_accepted, "base_destination": made.base_destination}
    with context.transaction():
        opened = context.store.plans.open(
            context.name, found, plan_to_dict(made), planned, **bases, run=run.id, who=context.who
        )
        remember(context, made, f"{opened.id} {run.id}")
    return opened.id


def _planned(context: SyncContext, step: Step) -> PlannedStep:
    state = context.destination.schema.state(step.table) if isinstance(step.change, RewriteColumn) else None
    rows = state.rows if state else 0
    return PlannedStep(step.id, ".".join(filter(None, step.table)), step.change.kind, step.text, rows)


def settle(context: SyncContext) -> None:
    """Close the records of runs that are over: each step that was under way was done, or it was not."""
    for plan in context.store.plans.unfinished(context.name):
        if plan.status != "running" or (context.run and plan.run == context.run.id):
            continue
        done = _done(context, plan)
        left = [s for s in context.store.steps.of(plan.id) if s.status in ("planned", "running")]
        with context.transaction():
            for one in left:
                context.store.steps.end(plan.id, [one.step], "done" if one.step in done else "skipped")
            why = "its run ended before the plan did; the rest is planned again"
            context.store.plans.close(plan.id, "interrupted", error=why)
    crashpoint("journal.settled")


def _done(context: SyncContext, plan: StoredPlan) -> set[str]:
    """Return the steps whose table is as they leave it."""
    groups = plan_from_dict(plan.plan).groups()
    done = (g for g in groups if carried_out(g, _at_destination(context, refs_of(g))))
    return {s.id for g in done for s in g.steps}


def _at_destination(context: SyncContext, refs: Iterable[Ref]) -> Catalog:
    try:
        return context.destination.schema.inspect(sorted(refs))
    except DestinationError:
        return Catalog()


def touched(context: SyncContext) -> frozenset[Ref]:
    """Return the destination tables that plans have been at since one ended well: they may be half way between two
    states."""
    plans = (plan_from_dict(stored.plan) for stored in context.store.plans.unfinished(context.name))
    return frozenset(ref for plan in plans for group in plan.groups() for ref in refs_of(group))


def unborn(context: SyncContext, tables: frozenset[Ref]) -> frozenset[Ref]:
    """Return those of these destination tables that were added last by a run that has not ended well, and never
    loaded."""
    known = context.store.loaded.of(context.name) if tables else {}
    loaded = {
        destination_ref(t, context.naming)
        for t in context.store.accepted.catalog(context.name).tables
        if t.ref in known
    }
    found: dict[Ref, str] = {}
    for stored in reversed(context.store.plans.history(context.name) if tables - loaded else []):
        added = {s.table for s in plan_from_dict(stored.plan).steps if isinstance(s.change, TableAdded)}
        found |= dict.fromkeys(added & (tables - loaded), stored.run)
    ended = {run: bool(run) and context.store.runs.get(run).status == "done" for run in set(found.values())}
    return frozenset(ref for ref, run in found.items() if not ended[run])


def applied_by(context: SyncContext, plan: StoredPlan) -> tuple[str, ...]:
    """Return the ids of the changes that a plan has applied; InstepError with the reason if it has applied none."""
    if plan.changes:
        return plan.changes
    keys = {key(d.change) for d in plan_from_dict(plan.plan).decisions if d.applied}
    later = next(
        (p.id for p in reversed(context.store.plans.history(context.name)) if p.at > plan.at and p.changes), ""
    )
    hint = f"what it left was done by {later}" if later and keys else "see `instep history --plans`"
    raise InstepError(f"plan {plan.id} has applied no change ({plan.status})", hint=hint)
