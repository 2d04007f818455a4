"""Backfill new columns in rows that were loaded before, after the loads of a run.

After, because then no value in the table is newer than what is read here: a NULL that a later upsert has written is
older than the value that takes its place, and a value that is there stays. The key and these columns are read in
a snapshot of their own, staged like every other read, and joined into the destination's files. Cursors do not move.
A fill that was interrupted reads again, for the same reason, and goes on with the files that it has not been through.

What the backfills take that decisions lead to, before they are applied: from statistics and metadata, no scan.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import BackfillResult, Commit, Fill, Ref
from instep.errors import Blocked, Conflict, InstepError, argument
from instep.model import Run, TableRun
from instep.operations.queries.work import FillEstimate
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import key, table_of
from instep.schema.maintenance import waits
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import TableRead
from instep.schema.policy.policy import Decision
from instep.sources.base import CursorRange, Snapshot
from instep.spans import span
from instep.stage.field_metadata import value_of
from instep.stage.files.place import disk_error, remove
from instep.stage.spec import Chunk, ChunkResult, StageSpec, SystemColumns
from instep.sync.context import SyncContext
from instep.sync.detection.detect import DetectionResult, detect
from instep.sync.detection.drift import reloads
from instep.sync.detection.swapped import may_be_swapped
from instep.sync.detection.table_renames import TableRenames
from instep.sync.housekeeping import dead_runs, remove_uncommitted_files
from instep.sync.loading.declared_keys import check_unique
from instep.sync.loading.engine import Engine, at_the_end
from instep.sync.loading.load_table import Staged, verify
from instep.sync.loading.plan_loads import blocked_types, on_invalid_value_of
from instep.sync.loading.results import RunOutcome, RunScope
from instep.sync.loading.table_load import Load, weak_key
from instep.sync.loading.task_specs import stage_columns
from instep.sync.progress import Progress, reading
from instep.sync.schema_changes.apply import backfill_of
from instep.sync.schema_changes.backfill_plan import (
    PendingBackfill,
    estimate_new,
    fill_size,
    pending_backfills,
    unneeded_backfills,
    whole_tables,
    why_whole,
)
from instep.sync.schema_changes.evolve import PlanPreview
from instep.sync.schema_changes.selected import selected_reads
from instep.sync.table_mode import choose, mode_name

MODE = "column"


@dataclass(frozen=True)
class _RunningBackfill:
    """A pending backfill that runs: `load` is how its columns are read, `spec` how they are staged."""

    pending: PendingBackfill
    load: Load
    spec: StageSpec
    ref: Ref


@dataclass
class BackfillWork:
    """The fills of one run. `by_person`: asked for by a command, so that no window and no budget holds them up."""

    context: SyncContext
    run: Run
    engine: Engine
    progress: Progress
    outcome: RunOutcome
    scope: RunScope
    started: float = field(default_factory=time.monotonic)

    @property
    def by_person(self) -> bool:
        return bool(self.scope.columns)

    def all(self) -> None:
        """Run all pending backfills of the run's tables that may run now."""
        accepted = self.context.store.accepted.catalog(self.context.name)
        for backfill in unneeded_backfills(self.context, accepted):
            self.context.store.backfills.cancel(backfill.number)
        backfills = [w for w in pending_backfills(self.context, accepted) if self._may(w)]
        if backfills:
            changes = tuple(sorted({b.change for w in backfills for b in w.backfills if b.change}))
            with span("backfill", tables=tuple(w.table.path for w in backfills), changes=changes):
                self._carry_out_all(backfills)
        if self.by_person and not self.outcome.filled:
            raise Blocked("nothing was filled: the whole table has to be read first", hint="run `instep sync`")

    def _carry_out_all(self, backfills: Sequence[PendingBackfill]) -> None:
        crashpoint("fill.before")
        self.progress.step("reading new columns")
        works, staged, moved = self._read(backfills)
        crashpoint("fill.read")
        self.progress.step("rewriting files")
        for number, work in works.items():
            files = staged[number]
            if work.load.read.source.ref in moved:
                files = Conflict(f"table {work.pending.table.path}: its schema changed during the read: sync again")
            if self._is_pending(work.pending):
                self._carry_out(work, files)
            else:
                self._leave(work.pending, "that was cancelled")
                self._clear(work)

    def _may(self, pending: PendingBackfill) -> bool:
        ref, path = pending.table.ref, pending.table.path
        if self.scope.tables and path not in self.scope.tables:
            return False
        if self.scope.columns and not {c.name for c in pending.columns} & set(self.scope.columns):
            return False
        loaded = [d for d in self.outcome.loaded if d.load.table.ref == ref]
        beside = self.outcome.others.get(ref)  # done: its log had no change to read
        if (beside and beside.status != "done") or any(d.error for d in loaded):
            return False
        if all(any(d.load.answers(b) for d in loaded) for b in pending.backfills):
            return False
        size = fill_size(self.context, pending.table, pending.numbers)
        if size.why_not:
            self._leave(pending, size.why_not)
            return False
        if not self.by_person and (why := waits(self.context.backfill_limits, datetime.now(UTC), size.bytes)):
            command = "".join(f" --column {argument(c.name)}" for c in pending.columns)
            self._note(
                pending, f"is not filled yet: {why}; `instep backfill {argument(path)}{command} --now` does it now"
            )
            return False
        return True

    def _leave(self, pending: PendingBackfill, why: str) -> None:
        """Leave a backfill pending; a command that requested it reports a failure."""
        if self.by_person:
            self.outcome.filled[pending.table.ref] = self._result(
                pending, "failed", error=f"{pending.names} is not filled: {why}"
            )
        else:
            self._note(pending, f"is not filled: {why}")

    def _note(self, pending: PendingBackfill, text: str) -> None:
        self.outcome.note(f"{pending.table.path}: {pending.names} {text}")

    def _read(
        self, backfills: Sequence[PendingBackfill]
    ) -> tuple[dict[int, _RunningBackfill], dict[int, Staged | InstepError], frozenset[Ref]]:
        """Return works by number with their verified files, and the source tables whose schema has moved meanwhile."""
        context = self.context
        with context.source.snapshot() as snapshot:
            detection = detect(context, snapshot.discover(), count=False)
            works = self._works(backfills, detection, snapshot)
            self.progress.tables({w.pending.table.path: _rows(detection, w) for w in works.values()})
            staged = self._stage(works, snapshot)
            moved = snapshot.changed_tables(
                Catalog.of({w.load.read.source.ref: w.load.read.source for w in works.values()}.values())
            )
        context.store.runs.check(self.run)
        return works, staged, moved

    def _works(
        self, backfills: Sequence[PendingBackfill], detection: DetectionResult, snapshot: Snapshot
    ) -> dict[int, _RunningBackfill]:
        reads = {r.table.ref: r for r in selected_reads(self.context, detection)[0]}
        drifted = detection.drift.stopped(detection.decisions)
        paused = self.context.store.pauses.tables(self.context.name)
        stopped = {*paused, *detection.unkeyed(moved=True), *detection.denied, *drifted}
        dead, works = dead_runs(self.context, self.run), {}
        for number, pending in enumerate(backfills):
            read = reads.get(pending.table.ref)
            sourced = {c.column.name for c in read.columns if c.source is not None} if read else set()
            if read is None or pending.table.ref in stopped:
                self._leave(pending, "the table is not being synced, see `instep status`")
            elif unread := {*pending.table.key, *(c.name for c in pending.columns)} - sourced:
                self._leave(pending, f"{', '.join(sorted(unread))} is not read now")
            else:
                works[number] = self._work(number, pending, read, detection, snapshot)
                ref = works[number].ref
                self.context.destination.write.claim(ref, self.run.fence)
                remove_uncommitted_files(self.context, dead, ref, self.context.destination.schema.state(ref))
        return works

    def _work(
        self, number: int, pending: PendingBackfill, read: TableRead, detection: DetectionResult, snapshot: Snapshot
    ) -> _RunningBackfill:
        context, table = self.context, pending.table
        ref, settings = destination_ref(table, context.naming), context.settings(table)
        target, meta = context.destination.write.target(ref), f"{context.naming.prefix}meta"
        needed = (*table.key, *(c.name for c in pending.columns))
        columns = stage_columns(read, snapshot.query_types(read), needed, target.types)
        names = {*(c.name for c in columns), meta}
        schema = pa.schema([f for f in target.schema if f.name in names or value_of(f) is not None])
        decided = on_invalid_value_of(detection).get(table.ref, "quarantine")
        folder = f"{self.run.id}-values-{number}"
        spec = StageSpec(
            table=str(number),
            columns=columns,
            system=SystemColumns(meta=meta),
            schema=schema,
            location=f"{target.location}/{folder}",
            quarantine=target.quarantine,
            run=self.run.id,
            synced=int(self.run.started.timestamp() * 1_000_000),
            on_invalid_value=settings.handling_of_invalid_values(decided),
            io=target.io,
            salt=context.salt,
            path=table.path,
            holds=blocked_types(context, detection).get(table.ref, {}),
        )
        weak = weak_key(read, snapshot)
        load = Load(number, read, ref, choose(table, settings), "merge", folder=folder, weak_key=weak)
        return _RunningBackfill(pending, load, spec, ref)

    def _stage(self, works: Mapping[int, _RunningBackfill], snapshot: Snapshot) -> dict[int, Staged | InstepError]:
        chunks: list[Chunk] = []
        for work in works.values():
            names = (*work.pending.table.key, *(c.name for c in work.pending.columns))
            chunks += snapshot.chunks(work.load.read, work.load.spec, CursorRange(), columns=names)
        on_progress = reading(self.progress, {w.load.spec: w.pending.table.path for w in works.values()})
        specs = [w.spec for w in works.values()]
        results: dict[str, list[ChunkResult]] = defaultdict(list)
        self.engine.ready(chunks, self.progress.step)
        for result in self.engine.extract(snapshot.reader, specs, chunks, on_progress, at_the_end):
            results[result.table].append(result)
        planned: dict[str, set[int]] = defaultdict(set)
        for chunk in chunks:
            planned[chunk.table].add(chunk.number)
        return {number: verify(work.load, planned, results) for number, work in works.items()}

    def _carry_out(self, work: _RunningBackfill, staged: Staged | InstepError) -> None:
        """Backfill one table; its failure leaves the others alone, and its backfill pending."""
        pending, path = work.pending, work.pending.table.path
        started = time.monotonic()
        try:
            if isinstance(staged, InstepError):
                raise staged
            done = self._fill(work, staged)
        except (InstepError, OSError) as failure:
            error = disk_error(f"table {path} at the destination", failure) if isinstance(failure, OSError) else failure
            self.outcome.filled[pending.table.ref] = self._result(
                pending, "failed", error=f"filling {pending.names}: {error}"
            )
            self.progress.table(path, step="failed")
            return
        finally:
            self._clear(work)
        if done.whole:
            with self.context.transaction():
                for backfill in pending.backfills:
                    self.context.store.backfills.done(backfill.number)
                    if backfill.scope == "column":
                        self.context.store.loaded.fill(self.context.name, backfill.table, backfill.column)
            crashpoint("fill.done")
        self._report(work, staged, done, time.monotonic() - started)

    def _clear(self, work: _RunningBackfill) -> None:
        with suppress(InstepError):
            remove(work.spec.location, work.spec.io)

    def _fill(self, work: _RunningBackfill, staged: Staged) -> BackfillResult:
        context, pending = self.context, work.pending
        if work.load.unsure_key:
            check_unique(self.engine, work.load, work.spec, staged.files)
        for backfill in pending.backfills:
            context.store.backfills.start(backfill.number, self.run.id)
        keys = tuple(pending.table.by_name[k].alias or k for k in pending.table.key)
        fill = Fill(
            keys, pending.numbers, staged.files, work.spec.system.meta, work.load.folder, bool(staged.invalid_values)
        )

        def on_progress(rows: int, size: int) -> None:
            self.progress.table(pending.table.path, rows=rows, bytes=size, step="writing")

        commit = Commit(self.run.id, self.run.fence)
        return context.destination.write.fill(
            self.engine.session, work.ref, fill, commit, on_progress, lambda: self._go_on(pending)
        )

    def _go_on(self, pending: PendingBackfill) -> bool:
        minutes = 0.0 if self.by_person else self.context.backfill_limits.max_minutes
        return (not minutes or time.monotonic() - self.started < minutes * 60) and self._is_pending(pending)

    def _is_pending(self, pending: PendingBackfill) -> bool:
        """Return whether the backfill is still pending: somebody may cancel it at any time."""
        waiting = {b.number for b in self.context.store.backfills.waiting(self.context.name)}
        return any(b.number in waiting for b in pending.backfills)

    def _report(self, work: _RunningBackfill, staged: Staged, done: BackfillResult, seconds: float) -> None:
        pending = work.pending
        text = f"filled in {counted(done.rows, 'row')} loaded before, {counted(done.files, 'file')} rewritten"
        then = "the next sync continues" if self._is_pending(pending) else "then it was cancelled"
        self._note(pending, text if done.whole else f"{text} so far: {then}")
        self.progress.table(pending.table.path, step="done")
        size = sum(f.bytes for f in staged.files)
        result = self._result(
            pending, "done", read=staged.read, updated=done.rows, invalid_values=staged.invalid_values, bytes=size
        )
        self.outcome.filled.setdefault(pending.table.ref, replace(result, seconds=seconds))

    def _result(self, pending: PendingBackfill, status: str, **more: object) -> TableRun:
        return TableRun(self.run.id, pending.table.ref, status, MODE, **more)  # type: ignore[arg-type]


def _rows(detection: DetectionResult, work: _RunningBackfill) -> int:
    stats = detection.discovery.stats.get(work.load.read.source.ref)
    return stats.rows if stats else 0


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class RequestedBackfill:
    """A backfill of the accepted table `ref`, of some columns or of all of it."""

    ref: Ref
    mode: str
    """Mode that runs record for such a backfill."""
    size: FillEstimate
    changes: tuple[str, ...]
    """The ids of what asks for it."""


@dataclass
class _Table:
    """Backfills that the decisions cause for one table."""

    table: Table
    before: Table | None
    source: Ref
    whole: bool = False
    columns: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def requested_backfills(context: SyncContext, preview: PlanPreview) -> tuple[RequestedBackfill, ...]:
    """Return requested backfills by table. Rows that only a cursor has left behind (detection/backfill_since.py) are
    part of the next sync."""
    tables: dict[Ref, _Table] = {}
    places = TableRenames.of(preview.plan.decisions)
    for decision in preview.plan.decisions:
        place, was = places.after(decision.change), places.before(decision.change)
        table, source = preview.plan.after.get(place), table_of(decision.change)
        if not decision.applied or table is None or was in preview.plan.refused or source is None:
            continue
        requested = tables.get(place) or _Table(table, preview.detection.accepted.get(was), source)
        if _add(context, preview, decision, requested, places):
            requested.changes.append(preview.reviews[key(decision.change)].id)
            tables[place] = requested
    return tuple(a for requested in tables.values() for a in _sized(context, preview, requested))


def _add(context: SyncContext, preview: PlanPreview, decision: Decision, table: _Table, places: TableRenames) -> bool:
    """Return whether the decision asks for anything."""
    review = preview.reviews.get(key(decision.change))
    if review is None:
        return False
    chosen = backfill_of(context, decision, table.before, preview.plan, places)
    if reloads(context, preview.plan, review, table.table.ref) or may_be_swapped(context, decision.change, table.table):
        chosen = ("table", "")
    if chosen is None or chosen[0] == "since":
        return False
    scope, column = chosen
    if scope == "table" or why_whole(context, table.table, column):
        table.whole = True
    else:
        table.columns.append(column)
    return True


def _sized(context: SyncContext, preview: PlanPreview, table: _Table) -> Iterator[RequestedBackfill]:
    state = context.destination.schema.state(destination_ref(table.before, context.naming)) if table.before else None
    if state is None or not state.rows:
        return
    stats = preview.detection.discovery.stats.get(table.source)
    rows, size = (stats.rows, stats.bytes) if stats and stats.rows else (state.rows, 0)
    columns = () if table.whole else tuple(table.columns)
    estimate = estimate_new(table.table, columns, rows, size)
    estimate = replace(estimate, files=state.files, of=state.files, rewritten=state.bytes)
    yield RequestedBackfill(
        table.table.ref,
        MODE if columns else mode_name(table.table, context.settings(table.table)),
        estimate,
        tuple(table.changes),
    )


__all__ = ["BackfillWork", "whole_tables"]
