"""The journal of applied plans, step by step, for people and for undo. Every run computes its work afresh.

A step is `running` from before its commit until after it. If the run dies in between, the next one asks the
destination which of the two it was, and closes the record as interrupted.

After a plan was carried out the destination is read back: what it says has to be what the plan leads to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from instep.crash import crashpoint
from instep.errors import DestinationError, Fenced, InstepError
from instep.model import Run
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import TableAdded, TableRenamed, TableReplaced, key
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan, StepGroup, plan_from_dict, plan_to_dict
from instep.schema.planning.step import RewriteColumn, Step
from instep.store.catalogs.plans import PlannedStep, StoredPlan
from instep.sync.aliases import make_room, refresh, remember
from instep.sync.context import Ref, SyncContext


def plan_id(connection: str, version: int, plan: Plan) -> str:
    """Return the id of a plan that starts from this accepted version: the same plan of the same schemas has the same
    id."""
    text = json.dumps([connection, version, plan_to_dict(plan)], sort_keys=True, separators=(",", ":"))
    return f"p-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


NEW_TABLES_AT_ONCE = 25
"""New tables that are noted as begun in one transaction, which looks at the fence as well."""


@dataclass
class Journal:
    """The record of one plan that is being applied; `id` is empty where nothing is to be recorded."""

    context: SyncContext
    id: str = ""
    new_tables: Sequence[Sequence[str]] = ()
    """The steps that make tables, a table each."""
    done: list[str] = field(default_factory=list)
    """Steps that are through and not yet written down as such: that goes with the next write."""
    begun: set[str] = field(default_factory=set)
    """Steps recorded as running that were not committed yet."""

    @contextmanager
    def taking(self, steps: Iterable[Step]) -> Iterator[None]:
        """Record these steps as begun, then as done once the block has committed them."""
        ids = [s.id for s in steps]
        if not self.begun.issuperset(ids):
            self._begin(ids)
        crashpoint("journal.started")
        self.begun -= set(ids)
        try:
            yield
        except InstepError as error:
            with suppress(Fenced), self.context.transaction():
                self._write_done()
                self.context.store.steps.end(self.id, ids, "failed", error.message)
                self.context.store.steps.end(self.id, self.begun, "skipped")
            raise
        self.done += ids

    def _begin(self, ids: list[str]) -> None:
        """Note steps as running; with those of a new table those of the next ones, as many new tables are quick."""
        place = next((n for n, table in enumerate(self.new_tables) if table == ids), None)
        tables = [ids] if place is None else self.new_tables[place : place + NEW_TABLES_AT_ONCE]
        begun = {id for table in tables for id in table}
        with self.context.transaction():
            self._write_done()
            self.context.store.steps.start(self.id, begun)
        self.begun |= begun

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
def journal(context: SyncContext, run: Run, plan: Plan, id: str = "") -> Iterator[Journal]:
    """Settle what dead runs left behind and open the record of `plan`, under `id` if it has one already. A plan that
    does nothing leaves no record."""
    context = replace(context, run=run)
    close_dead_runs(context)
    record = Journal(context)
    if plan.steps or any(d.applied for d in plan.decisions):
        latest = context.store.accepted.latest(context.name)
        stored_id = id or plan_id(context.name, latest.version if latest else 0, plan)
        planned = [_planned(context, step) for step in plan.steps]
        bases = {"base_accepted": plan.base_accepted, "base_destination": plan.base_destination}
        with context.transaction():
            opened = context.store.plans.open(
                context.name, stored_id, plan_to_dict(plan), planned, **bases, run=run.id, who=context.who
            )
            remember(context, plan, f"{opened.id} {run.id}")
        record.id = opened.id
        record.new_tables = [
            [s.id for s in g.steps] for g in plan.groups() if isinstance(g.steps[0].change, TableAdded)
        ]
    crashpoint("journal.opened")
    make_room(context, plan)
    try:
        yield record
    except InstepError as error:
        if record.id:
            with suppress(Fenced), context.transaction():
                context.store.plans.close(record.id, "failed", error=error.message)
        raise
    refresh(context, run)


def _planned(context: SyncContext, step: Step) -> PlannedStep:
    state = context.destination.schema.state(step.table) if isinstance(step.change, RewriteColumn) else None
    rows = state.rows if state else 0
    return PlannedStep(step.id, ".".join(filter(None, step.table)), step.change.kind, step.text, rows)


def close_dead_runs(context: SyncContext) -> None:
    """Close the records of runs that are over: each step that was under way was done, or it was not."""
    for plan in context.store.plans.unfinished(context.name):
        if plan.status != "running" or (context.run and plan.run == context.run.id):
            continue
        done = _done(context, plan)
        left = [s for s in context.store.steps.of(plan.id) if s.status in ("planned", "running")]
        with context.transaction():
            for step in left:
                context.store.steps.end(plan.id, [step.step], "done" if step.step in done else "skipped")
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


def touched_tables(context: SyncContext) -> frozenset[Ref]:
    """Return the destination tables that plans have been at since one ended well: they may be half way between two
    states."""
    plans = (plan_from_dict(stored.plan) for stored in context.store.plans.unfinished(context.name))
    return frozenset(ref for plan in plans for group in plan.groups() for ref in refs_of(group))


def never_loaded(context: SyncContext, tables: frozenset[Ref]) -> frozenset[Ref]:
    """Return those of these destination tables that were added last by a run that has not ended well, and never
    loaded."""
    loads = context.store.loaded.of(context.name) if tables else {}
    loaded = {
        destination_ref(t, context.naming)
        for t in context.store.accepted.catalog(context.name).tables
        if t.ref in loads
    }
    blockers: dict[Ref, str] = {}
    for stored in reversed(context.store.plans.history(context.name) if tables - loaded else []):
        added = {s.table for s in plan_from_dict(stored.plan).steps if isinstance(s.change, TableAdded)}
        blockers |= dict.fromkeys(added & (tables - loaded), stored.run)
    ended = {run: bool(run) and context.store.runs.get(run).status == "done" for run in set(blockers.values())}
    return frozenset(ref for ref, run in blockers.items() if not ended[run])


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


def confirm(context: SyncContext, plan: Plan) -> None:
    """Raise DestinationError if a table is not as the plan leaves it. Names that tables only pass through are not
    looked at; of a table that is replaced the old generation is seen until the next load."""
    led: dict[Ref, StepGroup] = {ref: group for group in plan.groups() for ref in refs_of(group)}
    existing = context.destination.schema.inspect(sorted(led)) if led else Catalog()
    for ref, group in led.items():
        if any(isinstance(s.change, TableReplaced) for s in group.steps):
            continue
        if why := _difference(ref, group, existing):
            raise DestinationError(
                f"table {'.'.join(ref)} does not match the result of its schema change: {why}",
                hint="another program may have changed it meanwhile: run `instep plan`, then try again",
            )


def carried_out(group: StepGroup, existing: Catalog) -> bool:
    """Return whether what is there is what the steps of a table lead to."""
    return not any(_difference(ref, group, existing) for ref in refs_of(group))


def refs_of(group: StepGroup) -> set[Ref]:
    """Return the names of a table before and after its steps."""
    return {group.ref, group.after.ref} if group.after else {group.ref}


def _difference(ref: Ref, group: StepGroup, existing: Catalog) -> str:
    """Return how a table of this name differs from what the steps of a group leave there; "" if it does not."""
    table = existing.get(ref)
    if group.after is None or group.after.ref != ref:
        return "it is still there" if table else ""
    if table is None:
        return "it is not there"
    return "" if isinstance(group.steps[-1].change, TableRenamed) else _column_difference(table, group.after)


def _column_difference(table: Table, after: Table) -> str:
    is_, expected = _shape(table), _shape(after)
    odd = [name for name in (*expected, *is_) if is_.get(name) != expected.get(name)]
    return "; ".join(
        f"{name}: {_column_text(is_, name)} instead of {_column_text(expected, name)}" for name in dict.fromkeys(odd)
    )


def _shape(table: Table) -> Mapping[str, tuple[str, str | None, str | None]]:
    return {c.name: (str(c.type), c.alias, c.id) for c in table.columns}


def _column_text(shape: Mapping[str, tuple[str, str | None, str | None]], name: str) -> str:
    if name not in shape:
        return "no column"
    kind, alias, _ = shape[name]
    return f"{kind} from {alias}" if alias and alias != name else kind
