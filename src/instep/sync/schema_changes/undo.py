"""Undo applied changes: preview the effect, then carry it out as one run.

The destination comes first, each table in one commit, then the accepted catalog with the explicit choice that keeps
the next detection from applying the same change again. Interrupted in between, the next run finishes it: what is done
already is not a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.errors import Blocked, Conflict, IllegalChange, InstepError, StalePlan
from instep.events import ChangeUndone
from instep.model import Review, Run
from instep.operations.repair.undo import UndoRequest
from instep.operations.spec import Preview, Work
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.globs import fits_glob
from instep.schema.catalog.types import String
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRenamed,
    TableAdded,
    TableRenamed,
    change_from_dict,
    describe,
    key,
    reverse,
    table_of,
)
from instep.schema.changes.diff import LOADABLE
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan, desired, plan
from instep.schema.planning.step import RewriteColumn, Step, UndropColumn, step
from instep.schema.planning.undo import Applied, UndoPreview, undo
from instep.schema.policy.policy import Decision, Modifiers, Removed, decide
from instep.store.catalogs.renames import Undo
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import record, redetect_from_store
from instep.sync.detection.drift import changed_at_destination, compare
from instep.sync.detection.table_renames import TableRenames
from instep.sync.journal import Journal, applied_by, journal
from instep.sync.schema_changes.apply import execute_steps, follow
from instep.sync.schema_changes.backfill_plan import follow_columns
from instep.sync.schema_changes.column_treatments import ColumnTreatments
from instep.sync.two_people import listed, two_people


@dataclass(frozen=True)
class UndoPlan:
    """Plan of an undo."""

    reviews: tuple[Review, ...]
    undoing: UndoPreview
    plan: Plan
    undropped: tuple[Table, ...] = ()
    """Accepted tables that come back whole."""
    limits: tuple[str, ...] = ()
    """Limits: what cannot be restored."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Changes that stay applied and why, by id."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The ids of the changes."""
        return tuple(r.id for r in self.reviews)

    @property
    def drops(self) -> tuple[Step, ...]:
        """A policy's consent to drop what the source dropped is none to this."""
        return tuple(s for s in self.plan.steps if s.destructive)

    @property
    def does(self) -> tuple[str, ...]:
        """One line for each thing that is done at the destination and in the accepted schema."""
        back = (f"bring back table {t.path} with its rows" for t in self.undropped)
        steps = (f"{'.'.join(s.table)}: {s.text}" for s in self.plan.steps)
        return (*(describe(d.change) for d in self.undoing.decisions), *back, *steps)

    def document(self) -> dict[str, Any]:
        """Return the record as JSON has it; `summaries` are those of `changes`, `left` says by id why a change stays
        applied."""
        return {
            "changes": list(self.changes),
            "summaries": [r.summary for r in self.reviews],
            "does": list(self.does),
            "drops": [s.object for s in self.drops],
            "limits": list(self.limits),
            "left": dict(self.left),
        }


def find(context: SyncContext, what: str) -> list[Review]:
    """Return the applied changes that `what` names: one by its id, those of a run (`r-...`) or of a stored plan
    (`p-...`).

    Raises InstepError if there is none, Conflict for a change that was not applied.
    """
    if what.startswith("r-"):
        reviews = list(_of_run(context, context.store.runs.get(what).id))
        if not reviews:
            raise InstepError(f"{what} has applied no change", hint="see `instep history`")
        return reviews
    if what.startswith("p-"):
        return [context.store.reviews.get(id) for id in applied_by(context, context.store.plans.get(what))]
    review = context.store.reviews.get(what)
    if review.connection != context.name:
        raise InstepError(f"change {review.id} is one of connection {review.connection}", hint="name that connection")
    if review.status != "applied":
        raise Conflict(
            f"change {review.id} is {review.status}, not applied: {review.summary}",
            hint="only what was applied can be undone: see `instep changes list --all`",
        )
    if (version := undone(context, review.id)) is not None:
        raise Conflict(
            f"change {review.id} was undone before, with schema version {version}: {review.summary}",
            hint="to have it again approve what the undo has rejected (`instep changes list --all`); a column that is "
            "kept goes with `instep sync --full --drop-retained`",
        )
    return [review]


def undone(context: SyncContext, id: str) -> int | None:
    """Return the accepted version that took this change back, unless it was applied again."""
    types = ("change.applied", "change.undone")
    events = context.store.events.latest(connection=context.name, types=types, limit=1_000_000)
    last = next((e for e in events if e.data["change"] == id), None)
    return int(last.data["version"]) if last is not None and last.type == "change.undone" else None


def _of_run(context: SyncContext, run: str) -> Iterator[Review]:
    """Yield the changes that were applied between the run's start and its end, by the events. A connection has one
    run at a time, but for maintenance, which changes nothing of a schema."""
    inside = False
    for event in context.store.events.after(
        0, connection=context.name, types=("run.started", "run.ended", "change.applied"), limit=1_000_000
    ):
        if event.type == "change.applied":
            if inside:
                yield context.store.reviews.get(event.data["change"])
        elif event.data["run"] == run:
            inside = event.type == "run.started" and event.data["kind"] != "maintain"


class _UndoRefused(IllegalChange):
    """The destination cannot take this one change back."""

    def __init__(self, change: str, message: str, *, hint: str) -> None:
        self.change = change
        super().__init__(f"{change} cannot be undone: {message}", hint=hint)


def prepare(context: SyncContext, reviews: Sequence[Review]) -> UndoPlan:
    """Return the plan of undoing these changes; touches nothing. Reads the values of columns that get narrower.
    Raises IllegalChange or Conflict, with the reason, if none of them can be undone."""
    going, left = list(reviews), dict[str, str]()
    while True:
        try:
            undo_plan = _prepare(context, going)
        except _UndoRefused as error:
            going = [r for r in going if r.id != error.change]
            if not going:
                raise
            left[error.change] = error.message
        else:
            return replace(undo_plan, left={**left, **undo_plan.left})


def _prepare(context: SyncContext, reviews: Sequence[Review]) -> UndoPlan:
    now = context.store.accepted.catalog(context.name)
    undoing = undo(_applied(context, reviews), now, context.naming)
    target = desired(undoing.after, context.naming)
    refs = {destination_ref(t, context.naming) for c in (now, undoing.after) for t in c.tables}
    existing = context.destination.schema.inspect(sorted(refs))
    capabilities, prefix = context.destination.capabilities, context.naming.prefix
    plan_back = plan(undoing.decisions, now, undoing.after, existing, target, capabilities, prefix=prefix)
    plan_back = _without_drifted(context, plan_back, undoing, now)
    if plan_back.refused:
        ref, why = next(iter(plan_back.refused.items()))
        raise IllegalChange(f"{'.'.join(ref)} cannot be taken back: {why}", hint="the destination has not been touched")
    undropped = tuple(_tables(context, undoing))
    columns, limits = _columns(context, undoing, plan_back, existing)
    return UndoPlan(
        tuple(r for r in reviews if r.id in undoing.done),
        undoing,
        _with(plan_back, columns),
        undropped,
        (*limits, *_limits(undoing), *_shown(context, undoing)),
        undoing.left,
    )


def _without_drifted(context: SyncContext, plan_back: Plan, undoing: UndoPreview, now: Catalog) -> Plan:
    """Return the plan without steps in tables that somebody has changed at the destination: what becomes of them is
    decided, and their rows are read again, where a detection finds it. Raises Blocked if the undo is about one."""
    drift = compare(context, now)
    changed = {ref for ref, table in now.by_ref.items() if undoing.after.by_ref.get(ref) != table}
    changed |= {ref for ref, _ in (*undoing.undropped.values(), *undoing.narrowed.values())}
    for ref, differences in drift.differences.items():
        if any(d.what not in LOADABLE for d in differences) and ref in changed:
            raise changed_at_destination(ref, differences)
    drifted = drift.differences.keys() - changed
    others = {destination_ref(now.by_ref[ref], context.naming): drift.left[ref] for ref in drifted}
    target = plan_back.target
    for table in others.values():
        target = target.put(table)
    return replace(plan_back, steps=tuple(s for s in plan_back.steps if s.table not in others), target=target)


def _tables(context: SyncContext, undoing: UndoPreview) -> Iterator[Table]:
    for change, (ref, name) in undoing.undropped.items():
        table = undoing.after.by_ref[ref]
        if name:
            continue
        if not context.destination.lifecycle.dropped(destination_ref(table, context.naming), table.id):
            raise _UndoRefused(
                change,
                f"the destination no longer keeps table {table.path}",
                hint="its time for undoing is over: restore a backup",
            )
        yield table


def _applied(context: SyncContext, reviews: Sequence[Review]) -> list[Applied]:
    """Return the changes with the accepted catalogs around the version that brought each."""
    events = context.store.events.latest(connection=context.name, types=("change.applied",), limit=1_000_000)
    versions = {e.data["change"]: int(e.data["version"]) for e in reversed(events)}
    catalogs: dict[int, Catalog] = {0: Catalog()}

    def at(version: int) -> Catalog:
        if version not in catalogs:
            catalogs[version] = context.store.accepted.catalog(context.name, version)
        return catalogs[version]

    applied = []
    for review in reviews:
        if (version := versions.get(review.id)) is None:
            raise InstepError(f"change {review.id}: nothing says when it was applied", hint="see `instep history`")
        change = change_from_dict(review.change)
        applied.append(Applied(review.id, change, at(version - 1), at(version), _removed(context, review, change)))
    return applied


def _removed(context: SyncContext, review: Review, change: Change) -> Removed:
    """Return what a removal did at the destination, or for an addition would do by policy."""
    if change.kind.endswith(".added"):
        return decide(reverse(change), context.policy, tags=context.tags).modifiers.removed
    return Modifiers().with_changes(review.modifiers).removed


Extra = dict[Ref, list[tuple[Step, Column]]]


def _columns(context: SyncContext, undoing: UndoPreview, plan: Plan, existing: Catalog) -> tuple[Extra, list[str]]:
    """Return the steps that no plan makes by itself, by destination table: dropped columns come back, wider ones
    narrow."""
    extra: Extra = {}
    limits: list[str] = []
    for change, (ref, name) in undoing.undropped.items():
        table = undoing.after.by_ref[ref]
        if not name:
            continue
        at, column = _desired_column(context, table, name)
        stored = _table_before(existing, plan, at)
        if stored is not None and column.name in stored.by_name:
            continue
        limits += _back(context, change, stored.ref if stored else at, table, column)
        extra.setdefault(at, []).append((step(at, UndropColumn(at, column, column)), column))
    for change, (ref, name) in undoing.narrowed.items():
        table = undoing.after.by_ref[ref]
        at, column = _desired_column(context, table, name)
        stored = _table_before(existing, plan, at)
        old = _stored_column(stored, column, plan, at) if stored else None
        if stored is None or old is None or old.type == column.type:
            continue
        _check_fits(context, change, stored.ref, old, column)
        if isinstance(old.type, String) and isinstance(column.type, String):
            continue
        before = replace(column, type=old.type)
        extra.setdefault(at, []).append((step(at, RewriteColumn(at, before, column)), column))
        limits.append(f"{table.path}.{name}: every file of the table is rewritten")
    return extra, limits


def _desired_column(context: SyncContext, table: Table, name: str) -> tuple[Ref, Column]:
    target = desired(Catalog((table,)), context.naming).tables[0]
    return target.ref, next(c for c in target.columns if c.alias == name)


def _table_before(existing: Catalog, plan: Plan, ref: Ref) -> Table | None:
    """Return the destination's table that will be called so, as it is."""
    moved = {c.after.ref: c.before.ref for s in plan.steps if isinstance(c := s.change, TableRenamed)}
    return existing.get(moved.get(ref, ref))


def _stored_column(table: Table, column: Column, plan: Plan, ref: Ref) -> Column | None:
    """Return the column as the destination holds it today, whatever it will be called."""
    moved = {
        c.after.name: c.before.name for s in plan.steps if s.table == ref and isinstance(c := s.change, ColumnRenamed)
    }
    return table.by_name.get(moved.get(column.name, column.name))


def _back(context: SyncContext, change: str, ref: Ref, table: Table, column: Column) -> Iterator[str]:
    back = context.destination.lifecycle.undrop_report(ref, column.name)
    path = f"{table.path}.{column.alias}"
    if back.why_not:
        raise _UndoRefused(change, f"column {path} is gone: {back.why_not}", hint="restore a backup")
    rows = back.written + back.rewritten
    if rows and table.key and back.snapshot:
        yield f"{path}: values of rows written since the drop come back by key; rows that are new have NULL in it"
    elif back.written:
        yield f"{path}: rows written since the drop ({back.written:,}) have NULL in it"
    if back.rewritten and not (table.key and back.snapshot):
        yield f"{path}: files that were rewritten since ({back.rewritten:,} rows) have lost its values"


def _check_fits(context: SyncContext, change: str, ref: Ref, old: Column, column: Column) -> None:
    wide = context.destination.write.count_invalid_values(ref, old.name, column.type)
    if wide.count:
        raise _UndoRefused(
            change,
            f"column {'.'.join(ref)}.{old.name} is {old.type}, and of its values "
            f"{wide.count:,} do{'' if wide.count > 1 else 'es'} not fit {column.type}, such as {wide.example}",
            hint="correct these values at the source and sync first, or keep the wider type",
        )


def _with(plan: Plan, extra: Extra) -> Plan:
    """Return the plan with these steps after those of the same table."""
    steps, target = list(plan.steps), plan.target
    for ref, more in extra.items():
        last = max((i for i, s in enumerate(steps) if s.table == ref), default=len(steps) - 1)
        steps[last + 1 : last + 1] = [s for s, _ in more]
        if (table := target.get(ref)) is not None:
            names = {c.name: c for _, c in more}
            columns = [replace(c, type=names.pop(c.name).type) if c.name in names else c for c in table.columns]
            target = target.put(replace(table, columns=(*columns, *names.values())))
    return replace(plan, steps=tuple(steps), target=target)


def _limits(undoing: UndoPreview) -> Iterator[str]:
    for decision in undoing.decisions:
        change = decision.change
        match change:
            case ColumnRenamed() if not _stays_fed(change):
                was = change.before.name
                yield (
                    f"{describe(change)}: rows loaded since keep what {was} had at the source, new rows have NULL in "
                    f"it; {was} itself is not read until it is approved (`instep changes list --all`)"
                )
            case ColumnAdded() | TableAdded():
                yield f"{describe(change)}: it comes back as kept, nothing at the source feeds it"


def _shown(context: SyncContext, undoing: UndoPreview) -> Iterator[str]:
    """Yield hashed columns that come back with the values that they had."""
    for ref, name in undoing.undropped.values():
        table = undoing.after.by_ref[ref]
        treatments = ColumnTreatments(context, table)
        for column in [name] if name else [c.name for c in table.columns]:
            if treatments.of(column).is_hashed:
                yield (
                    f"{table.path}.{column} is hashed: its values come back as they were when they were dropped, in "
                    "clear if it was not hashed then"
                )


def apply_undo(context: SyncContext, undo_plan: UndoPlan, allowed: Sequence[str] = ()) -> int:
    """Execute the undo as one run; return the accepted version. Raises Blocked if something would be dropped that
    `allowed` (patterns) does not name, or where four_eyes demand a second person for it, StalePlan if accepted
    schema or destination have moved since `prepare`."""
    unnamed = [s for s in undo_plan.drops if not any(fits_glob(s.object, pattern) for pattern in allowed)]
    if unnamed:
        names = ", ".join(s.object for s in unnamed)
        raise Blocked(f"this undo drops {names}", hint=f"name it: --allow-destructive '{unnamed[0].object}'")
    with _two_person_check(context, undo_plan), claimed(context, "undo") as run:
        context = replace(context, run=run)
        crashpoint("undo.before")
        resume_undos(context, run, but=undo_plan.changes)
        again = prepare(context, undo_plan.reviews)
        if (again.plan, again.undoing) != (undo_plan.plan, undo_plan.undoing):
            raise StalePlan("the schemas have changed since this undo was shown", hint="look at it again")
        requested = context.store.undos.request(
            context.name, undo_plan.changes, (s.object for s in undo_plan.drops), context.who
        )
        return _carry_out(context, run, undo_plan, requested)


def _two_person_check(context: SyncContext, undo_plan: UndoPlan) -> AbstractContextManager[None]:
    """Require a second person for an undo that drops something."""
    if not undo_plan.drops:
        return nullcontext()
    what = f"{listed(undo_plan.changes)}, which drops {listed(s.object for s in undo_plan.drops)}"
    return two_people(context, "undo", what)


def resume_undos(context: SyncContext, run: Run, but: tuple[str, ...] = ()) -> None:
    """Finish interrupted undos, all `but` that of these changes. One that can no longer be undone, or drops by now
    what nobody has named, is given up."""
    for requested in context.store.undos.waiting(context.name):
        if requested.changes == but:
            continue
        try:
            undo_plan = prepare(context, [context.store.reviews.get(id) for id in requested.changes])
        except InstepError:
            undo_plan = None
        if undo_plan is None or any(s.object not in requested.drops for s in undo_plan.drops):
            context.store.undos.end(requested.number)
        else:
            _carry_out(context, run, undo_plan, requested)


def _carry_out(context: SyncContext, run: Run, undo_plan: UndoPlan, requested: Undo) -> int:
    for table in undo_plan.undropped:
        ref = destination_ref(table, context.naming)
        context.destination.write.claim(ref, run.fence)
        context.destination.schema.undrop_table(ref, table, Commit(run.id, run.fence))
        crashpoint("undo.table")
    with journal(context, run, undo_plan.plan) as record:
        for group in undo_plan.plan.groups():
            with record.taking(group.steps):
                context.destination.write.claim(group.ref, run.fence)
                commit = Commit(run.id, run.fence, changes=tuple(s.id for s in group.steps))
                execute_steps(context, group, commit)
                crashpoint("undo.table")
        for at, column in _undropped_columns(context, undo_plan.undoing):
            workers = context.workers(".".join(at), "restore")
            context.destination.write.restore_dropped_values(at, column.name, Commit(run.id, run.fence), workers)
        crashpoint("undo.committed")
        version = _accept(replace(context, who=requested.who), undo_plan, record, requested)
    crashpoint("undo.accepted")
    return version


def _undropped_columns(context: SyncContext, undoing: UndoPreview) -> Iterator[tuple[Ref, Column]]:
    for ref, name in undoing.undropped.values():
        if name:
            yield _desired_column(context, undoing.after.by_ref[ref], name)


def _accept(context: SyncContext, undo_plan: UndoPlan, record: Journal, requested: Undo) -> int:
    """Record in one transaction the catalog, the events, and a rejection of what the next detection would find because
    of the undo; return the accepted version."""
    why = f"undo of {', '.join(r.id for r in undo_plan.reviews)}"
    base, run = undo_plan.plan.base_accepted, context.run.id if context.run else ""
    with context.transaction():
        accepted, after = context.store.accepted, undo_plan.undoing.after
        version = accepted.add(context.name, after, who=context.who, why=why, base=base, run=run).version
        context.store.schemas.add(context.name, "destination", undo_plan.plan.target, run=run, accepted=version)
        places = TableRenames.of(undo_plan.undoing.decisions)
        follow(context, places.moves)
        follow_columns(context, _still_fed(undo_plan.undoing.decisions), places)
        context.store.events.add(
            *(ChangeUndone(context.name, r.id, r.summary, version, context.who) for r in undo_plan.reviews)
        )
        _choose(context, undo_plan.undoing)
        record.close(version, ())
        context.store.undos.end(requested.number)
    return version


def _still_fed(decisions: Sequence[Decision]) -> Iterator[Decision]:
    """Yield the decisions without the renames that were declared: the old column is not read once they are undone."""
    for decision in decisions:
        change = decision.change
        if not isinstance(change, ColumnRenamed) or _stays_fed(change):
            yield decision


def _stays_fed(rename: ColumnRenamed) -> bool:
    """Return whether the source's column feeds the accepted one, whatever that is called: it has the same id."""
    return bool(rename.before.id) and rename.before.id == rename.after.id


def _choose(context: SyncContext, undoing: UndoPreview) -> None:
    """Record the undo as a person's choice: the source is as it was, so what differs in these tables from now on is
    chosen, and the rename of two of them is answered."""
    seen = redetect_from_store(context, {})
    if seen is None:
        return
    touched, renames = undoing.tables, (ColumnRenamed, TableRenamed)
    undone = {_names(reverse(d.change)) for d in undoing.decisions if isinstance(d.change, renames)}
    mine = [d for d in seen.decisions if table_of(d.change) in touched and key(d.change) not in seen.reviews]
    keys = {key(d.change) for d in mine}
    message = (
        decide(d.change, context.policy, explicit="rejected", tags=context.tags) if d in mine else d
        for d in seen.decisions
    )
    reviews = record(context, replace(seen, decisions=tuple(message)), count=False)
    keys |= {
        k for s in seen.inferred_renames.proposals if _names(s.rename) in undone and (k := key(s.rename)) in reviews
    }
    for changed_key in keys:
        context.store.reviews.decide(reviews[changed_key].id, "rejected", context.who)


def _names(rename: Change) -> tuple[object, ...]:
    """Return a rename by the names before and after it."""
    if isinstance(rename, TableRenamed):
        return rename.before.ref, rename.after.ref
    assert isinstance(rename, ColumnRenamed), "asked before"
    return rename.table, rename.before.name, rename.after.name


__all__ = ["UndoPlan", "apply_undo", "find", "prepare", "resume_undos"]


class UndoChanges(Work):
    """The work of the operation `undo`."""

    rewrites = True

    def prepare(self, context: SyncContext, request: UndoRequest) -> Preview:
        """Find out what the undo does, with the errors of `prepare`."""
        undo_plan = prepare(context, find(context, request.what))
        return Preview(context.name, request, undo_plan.document(), undo_plan.does, prepared=undo_plan)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Take the changes back; return the accepted version."""
        context = replace(context, progress=self.progress or context.progress)
        return {"version": apply_undo(context, preview.prepared, allow)}

    def already(self, context: SyncContext, request: UndoRequest) -> Mapping[str, Any] | None:
        """Return the version that has taken the change back already: an attempt that died, or somebody else, did so."""
        if (version := undone(context, request.what)) is None:
            return None
        nothing: dict[str, Any] = {name: [] for name in ("changes", "summaries", "does", "drops", "limits")}
        return {**nothing, "left": {}, "version": version}
