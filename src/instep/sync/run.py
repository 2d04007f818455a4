"""One sync of a connection: claim, detect, apply, read, commit, record.

The order is that of docs/explanation/architecture.md: nothing is committed before it was staged and counted, the cursor
is part of the data's own commit, and what the store says afterwards can be derived from the destination.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from instep.crash import crashpoint
from instep.errors import Blocked, ConnectError, Fenced, InstepError, ReadError
from instep.events import TableFailed, TableLoaded
from instep.model import PATTERN, Run, TableRun
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import describe
from instep.schema.planning.projection import TableRead
from instep.schema.selection.selection import Pattern
from instep.sources.base import Snapshot
from instep.sources.stream import Streams
from instep.spans import span, tell
from instep.store.catalogs.backfills import Backfill
from instep.sync.aliases import unshown_names
from instep.sync.claim import claimed, status_of
from instep.sync.context import Ref, SyncContext, check_named
from instep.sync.detection.backfill_since import finish_backfills
from instep.sync.detection.detect import DetectionResult, current_discovery, detect, record
from instep.sync.detection.pause import pause_and_resume, reconsider
from instep.sync.detection.refused import refusals
from instep.sync.detection.table_renames import TableRenames
from instep.sync.detection.version_deadline import check_version
from instep.sync.housekeeping import PASSES, discard, forget_dropped, forget_old_names, free_full_disk
from instep.sync.loading.backfill import BackfillWork
from instep.sync.loading.cdc import CdcSession
from instep.sync.loading.connector_stream import Streaming, scope_of_stream, tables_still_waiting
from instep.sync.loading.engine import Engine, OnSpark
from instep.sync.loading.load_table import TableResult
from instep.sync.loading.load_tables import Loading
from instep.sync.loading.plan_loads import LoadPass, rows_of
from instep.sync.loading.promote_overflow import promote_first, promote_rest
from instep.sync.loading.results import RunOutcome, RunScope
from instep.sync.loading.table_load import Load
from instep.sync.loading.unchanged import proofs
from instep.sync.operations.maintain import maintain_loaded
from instep.sync.progress import Progress, Silent, SyncReport
from instep.sync.quarantine.quarantine import expire
from instep.sync.schema_changes.apply import drop_named, drop_retained, has_pending_changes, plan_and_apply
from instep.sync.schema_changes.declare_column_rename import resume_mappings
from instep.sync.schema_changes.declare_table_rename import request_approved_renames
from instep.sync.schema_changes.overflow_columns import EXTRA
from instep.sync.schema_changes.owned_tables import check_unmoved
from instep.sync.schema_changes.selection_change import (
    incomplete_columns,
    partial_columns,
    remember_added,
    remember_loaded,
)
from instep.sync.schema_changes.undo import resume_undos
from instep.temporary import remove_abandoned

__all__ = ["RunScope", "sync"]
ALL = RunScope()
_MOST_NAMED = 5
"""Tables that an error names."""


def sync(
    context: SyncContext,
    scope: RunScope = ALL,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> SyncReport:
    """Bring the destination in step with the source. `engine` reads the rows; without one, Spark does.

    Raise Blocked while the connection is paused or was moved, and RunInProgress while another run of it is alive; one
    table's failure is in the report and leaves the others alone.
    """
    begun = time.monotonic()
    check_unmoved(context)
    _check_log(context)
    notes = check_version(context)
    reconsider(context)
    engine, progress = engine or on_spark(context), progress or Silent()
    with claimed(context, scope.kind) as run, context.deferred_creation():
        remove_abandoned()
        free_full_disk(context, run)
        if not context.store.cursors.proven(context.name):  # else there may be nothing to read
            engine.begin()
        context, outcome = replace(context, run=run, engine=lambda: engine, progress=progress), RunOutcome()
        for text in notes:
            outcome.note(text)
        streams = isinstance(context.source, Streams)
        full = scope.full or scope.kind == "backfill"
        follow: CdcSession | Streaming = CdcSession(context, run, full, outcome.note)
        if streams:
            scope = scope_of_stream(context, scope, outcome, from_start=full)
            follow = Streaming(context, run, scope, outcome, progress, full and not scope.again)
        work = _Sync(context, run, scope, progress, engine, outcome, follow)
        try:
            if not scope.columns or streams:
                work.run_passes()
            if not streams:
                BackfillWork(work.context, run, engine, work.progress, work.outcome, scope).all()
                if isinstance(follow, CdcSession):
                    follow.cover()
            promote_rest(work.context, run, work.outcome)
        finally:
            if isinstance(follow, CdcSession):
                follow.close()
            tables = work.record()
        expire(context, run)
        forget_dropped(context, run)
        forget_old_names(work.context, run)
        maintain_loaded(work.context, run, work.outcome, engine, work.progress)
    done = work.outcome
    for _, _, text in incomplete_columns(context):
        done.note(text)
    for text in tables_still_waiting(context) if streams else ():
        done.note(text)
    if not tables:
        done.note("no tables selected: the source shows this user no table that is selected")
    return SyncReport(
        run.id,
        status_of(tables),
        tables,
        tuple(done.notes),
        done.applied,
        context.store.reviews.waiting(context.name),
        time.monotonic() - begun,
        engine=engine.use,
        retryable=tuple(sorted(".".join(filter(None, ref)) for ref in done.retryable)),
        unread=tuple(sorted(".".join(filter(None, ref)) for ref in done.unread)),
    )


def _check_log(context: SyncContext) -> None:
    """Raise Blocked if the slot is another connection's: each would move it on, and take changes from the other."""
    if context.log is not None and (other := context.log_taken()):
        slot = context.log.slot
        raise Blocked(
            f"connection {context.name}: the slot {slot} is that of connection {other}, which reads its log",
            hint="give it its own slot and publication in `log:`, or leave both out",
        )


def on_spark(context: SyncContext) -> OnSpark:
    """Return an engine with a session as the project file sets it up."""
    from instep.spark.session import start

    return OnSpark(lambda: start(context.spark), context.spark.where)


@dataclass(frozen=True)
class _Sync:
    context: SyncContext
    run: Run
    scope: RunScope
    progress: Progress
    engine: Engine
    outcome: RunOutcome
    follow: CdcSession | Streaming

    def run_passes(self) -> None:
        """Pass over the tables: first over all, then over those whose schema moved while they were read and those whose
        log has more; over a stream once for each of its groups."""
        if isinstance(self.follow, Streaming):
            with self.follow.running():
                attempt = 0
                while self.follow.next():
                    with self.context.destination_open():  # once a group: its rows are on this disk already
                        self.run_pass(None, attempt)
                    attempt += 1
            return
        only: frozenset[Ref] | None = None
        attempt = tries = 0
        while tries < PASSES:
            try:
                only = self.run_pass(only, attempt)
            except (ReadError, ConnectError) as error:
                raise _named(error, only) from None
            if not only:
                return
            attempt, tries = attempt + 1, tries + (not self.follow.goes_on)

    def run_pass(self, only: frozenset[Ref] | None, attempt: int) -> frozenset[Ref]:
        """Detect, apply, read and commit once; return the tables to read again."""
        if isinstance(self.follow, CdcSession):
            self.progress.step("reading the source's schema")
            self.follow.begin()
        read_at = time.time_ns() // 1000
        with self.context.source.snapshot() as snapshot:
            crashpoint("sync.snapshot")
            if note := getattr(snapshot, "note", ""):
                self.outcome.note(note)
            with self.context.destination_open():
                accepted = self.accepted_tables() if only is not None else {}
                detection = self.detect_and_apply(snapshot, attempt)
                crashpoint("sync.accepted.after")
                only = self.tables_of_pass(only, detection, accepted)
                pass_ = LoadPass(
                    self.context,
                    self.run,
                    self.scope,
                    snapshot,
                    detection,
                    self.outcome,
                    self.engine,
                    only,
                    attempt,
                    self.follow,
                    read_at,
                )
                loads = pass_.loads()  # which may ask for backfills
                waits = self.context.store.backfills.waiting(self.context.name)
                now = frozenset((b.number, b.requested_at) for b in waits)
                loads = [replace(load, backfills=now) for load in loads]
                crashpoint("sync.planned")
                self.progress.tables(rows_of(detection, loads))
                loading = Loading(self.context, self.engine, loads, self.run, self.progress, self.outcome.loaded.append)
                if loads:
                    self.engine.begin()
                    loading.plan(snapshot)
            if not loads:
                return self.advance_positions((), detection)
            loading.read(snapshot)
        self.check_not_fenced(loading.open)
        self.progress.step("committing")
        loading.commit()
        for text in (text for result in loading.done for text in result.notes):
            self.outcome.note(text)
        return (
            self.discard_moved(loading.set_aside)
            | self.request_full_reads(loading.done)
            | self.advance_positions(loading.done, detection)
        )

    def request_full_reads(self, done: Sequence[TableResult]) -> frozenset[Ref]:
        """Ask for a read of each whole table that has rows below its cursor which the destination has not.

        Return those tables.
        """
        unread = {loaded.load.table.ref: loaded for loaded in done if loaded.error is None and loaded.unread}
        for ref, result in unread.items():
            why = f"{result.unread:,} rows are at the source again, or new there, below its cursor"
            self.context.store.backfills.request(self.context.name, ref, why=why)
            self.outcome.note(f"{result.load.table.path}: {why}, so the whole table is read again")
            late = f"{why}, and the whole table could not be read in this run: sync again"
            self.outcome.late[ref] = TableRun(self.run.id, ref, "failed", result.load.choice.mode, error=late)
        return frozenset(unread)

    def advance_positions(self, done: Sequence[TableResult], detection: DetectionResult) -> frozenset[Ref]:
        """Move on in the log or the stream; return the tables that it has more of."""
        if isinstance(self.follow, CdcSession):
            return self.follow.advance_positions(done)
        self.follow.advance_positions(done, detection)
        return frozenset()

    def check_not_fenced(self, loads: list[Load]) -> None:
        """Raise Fenced once a later run has taken over; no run after that one would look for these files."""
        try:
            self.context.store.runs.check(self.run)
        except Fenced:
            discard(self.context, loads)
            raise

    def accepted_tables(self) -> Mapping[Ref, Table]:
        return self.context.store.accepted.catalog(self.context.name).by_ref

    def tables_of_pass(
        self, only: frozenset[Ref] | None, detection: DetectionResult, before: Mapping[Ref, Table]
    ) -> frozenset[Ref] | None:
        """Return the tables of a later pass by their present names, with those changed since they were loaded.

        `before` are the accepted ones from before it. None: all tables.
        """
        if only is None:
            return None
        for ref in only:
            self.outcome.others.pop(ref, None)
            self.outcome.late.pop(ref, None)
        moves = TableRenames.of(detection.decisions).moves
        loaded = {moves.get(ref := result.load.table.ref, ref): ref for result in self.outcome.loaded}
        now = self.accepted_tables()
        changed = {place for place, ref in loaded.items() if now.get(place) != before.get(ref)}
        return frozenset(moves.get(ref, ref) for ref in only) | changed

    def discard_moved(self, loads: list[Load]) -> frozenset[Ref]:
        """Delete what was staged of tables whose schema moved while they were read, or that others had locked.

        Return those tables: they are read again.
        """
        discard(self.context, loads)
        why = (
            "its schema changed, or other sessions locked it, during each attempt to read it: sync again when "
            "the migration is over"
        )
        for load in loads:
            ref = load.table.ref
            places = self.outcome.others if isinstance(self.follow, Streaming) else self.outcome.late
            places[ref] = TableRun(self.run.id, ref, "failed", load.choice.mode, error=why)
        return frozenset(load.table.ref for load in loads)

    def detect_and_apply(self, snapshot: Snapshot, attempt: int) -> DetectionResult:
        """Detect in the snapshot, or rely on the last detection, apply what policy accepts, and hold what it does not.

        A later pass of the same run confirms no removal.
        """
        context, outcome = self.context, self.outcome
        resume_undos(context, self.run)
        request_approved_renames(context)
        for text in resume_mappings(context, self.run):
            outcome.note(text)
        with span("discover"):
            discovery, relied = current_discovery(
                context, snapshot, rely=attempt == 0 and isinstance(self.follow, CdcSession)
            )
        if attempt == 0:
            check_named(context, self.scope.tables | self.scope.again, discovery)
            if self.scope.drop_retained:
                drop_retained(context, self.run, self.scope.tables)
            if self.scope.drop_columns:
                for path in drop_named(context, self.run, self.scope.drop_columns):
                    outcome.note(f"{path} is not dropped: it is read, in a key, or not in the destination")
        count = attempt == 0 and not relied
        with span("detect"):
            detection = detect(context, discovery, count=count, stored=relied, snapshot=snapshot)
            crashpoint("sync.detected")
            reviews = record(context, detection, count=count)
            tell(changes=tuple(sorted(r.id for r in reviews.values())))
        crashpoint("sync.recorded")
        pause_and_resume(context, detection, reviews)
        crashpoint("sync.held")
        plan, failed = plan_and_apply(context, self.run, detection, reviews)
        if has_pending_changes(context, plan):
            seen = detect(context, discovery, count=False, stored=relied, snapshot=snapshot)
            record(context, seen, count=False)
        denied = {**detection.denied, **failed}
        detection = replace(detection, decisions=plan.decisions, reviews=reviews, denied=denied)
        promote_first(context, self.run, detection, outcome)
        outcome.applied += tuple(s.text for s in plan.steps)
        for note in detection.notes:
            outcome.note(note)
        self.note_refused({ref: why for ref, why in plan.refused.items() if ref not in failed}, detection)
        self.note_missing(detection)
        texts = (
            *refusals(plan.decisions, plan.refused),
            *map(describe, plan.notes),
            *plan.remarks,
            *partial_columns(context, detection, plan.after, self.is_sent_whole),
            *unshown_names(context),
        )
        for text in texts:
            outcome.note(text)
        if paused := context.store.pauses.connection(context.name):
            raise Blocked(f"connection {context.name} is paused: {paused.reason}", hint="see `instep changes list`")
        return detection

    def is_sent_whole(self, ref: Ref) -> bool:
        """Return whether a connector sends every row of the table in this run."""
        return isinstance(self.follow, Streaming) and self.follow.stream.starts(ref)

    def note_refused(self, refused: Mapping[Ref, str], detection: DetectionResult) -> None:
        """Record the tables whose changes the destination cannot take.

        They go on as they are; new ones have failed, and so have those that are at the source again.
        """
        for ref, why in refused.items():
            if (table := detection.accepted.get(ref)) and not table.retained:
                self.outcome.note(f"{'.'.join(filter(None, ref))}: {why}")
            else:
                self.outcome.others[ref] = TableRun(self.run.id, ref, "failed", error=why)

    def note_missing(self, detection: DetectionResult) -> None:
        """Record the patterns of the project file that fit nothing, and the new tables that cannot be read as they are,
        each as a failed table; the last pass counts."""
        if self.scope.tables:
            return
        self.outcome.missing = {
            ref: TableRun(self.run.id, ref, "failed", PATTERN, error=why)
            for text, why in detection.missing.items()
            for ref in (_ref(text),)
        }
        broken = (TableRun(self.run.id, ref, "failed", error=why) for ref, why in detection.broken.items())
        self.outcome.missing |= {result.table: result for result in broken}

    def record(self) -> tuple[TableRun, ...]:
        """Record what became of each table, also when the run as a whole fails, in one transaction."""
        crashpoint("sync.done.before")
        context, run, tables = self.context, self.run, self.outcome.tables
        loaded = [d.load for d in self.outcome.loaded if d.error is None]
        with context.transaction():
            basis = {d.load.table.path: list(d.basis) for d in self.outcome.loaded if d.basis}
            described = {"engine": asdict(self.engine.use), **({"basis": basis} if basis else {})}
            described |= self.follow.described if isinstance(self.follow, Streaming) else {}
            context.store.runs.describe(run, **described)
            cursors = {d.table.ref: d.cursor for d in loaded} | dict(self.follow.saved)
            proven = proofs(run, self.outcome.loaded)
            context.store.cursors.save(context.name, cursors, run=run.id, fence=run.fence, proofs=proven)
            context.store.cursors.disprove(context.name, [t.table for t in tables if t.status != "done"])
            waiting = [b for b in context.store.backfills.waiting(context.name) if b.scope != EXTRA]
            silent, whole = self.unsent_tables(waiting), {load.table.ref for load in loaded if load.complete}
            if isinstance(self.follow, Streaming):
                whole |= self.follow.completed_tables - {read.table.ref for read in silent}
                remember_added(context, self.follow.idle_reads)
            remember_loaded(context, [*(load.read for load in loaded), *silent, *self.idle_reads(loaded)], whole)
            served = self.backfills_done(waiting, loaded)
            for backfill in waiting:
                if backfill.number in served:
                    finish_backfills(context, backfill)
                    context.store.backfills.done(backfill.number)
                    if isinstance(self.follow, Streaming) and backfill.table not in cursors:
                        context.store.cursors.forget(context.name, backfill.table)
            fresh = [t.table for t in tables if t.status == "done"]
            context.store.fresh_tables.loaded(context.name, fresh, run.started)
            context.store.runs.record_tables(*tables)  # last, for rows common to connections are written one by one
            context.store.events.add(*(_event(context, run, result) for result in tables if result.status != "paused"))
        crashpoint("sync.noted")
        return tables

    def unsent_tables(self, waiting: Sequence[Backfill]) -> Sequence[TableRead]:
        """Return the tables that a connector was to send again and has not: it would be asked for them every time."""
        silent = self.follow.unsent_tables if isinstance(self.follow, Streaming) else ()
        for read in silent:
            if any(b.table == read.table.ref for b in waiting):
                self.outcome.note(f"{read.table.path}: the connector sent nothing of it, so its rows stay as they were")
        return silent

    def idle_reads(self, loaded: Sequence[Load]) -> list[TableRead]:
        """Return the reads of tables without a change in the log. Their rows lack the values of columns that have come
        since, as those of loaded tables do."""
        if isinstance(self.follow, Streaming):
            return []
        own = {load.table.ref for load in loaded}
        return [read for ref, read in self.follow.idle_reads.items() if ref not in own]

    def backfills_done(self, waiting: Sequence[Backfill], loaded: Sequence[Load]) -> set[int]:
        """Return the numbers of the backfills that this run has done."""
        if isinstance(self.follow, Streaming):
            return self.follow.served(waiting)
        whole = {b.number for b in waiting if any(load.answers(b) for load in loaded)}
        return whole | {n for load in loaded for n in load.serves}


def _named(error: InstepError, tables: frozenset[Ref] | None) -> InstepError:
    """Return the error of a source that has gone before these tables were read again, with their names."""
    if not tables:
        return error
    names = sorted(".".join(filter(None, ref)) for ref in tables)
    shown = f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}"
    return type(error)(f"{error.message}; not loaded: {shown}", hint=f"{error.hint}; then run `instep sync` again")


def _ref(pattern: str) -> Ref:
    """Return the table that an exact name is meant to be; of any other pattern the text."""
    schema, _, name = pattern.partition(".")
    return (schema, name) if name and Pattern(pattern).is_exact else ("", pattern)


def _event(context: SyncContext, run: Run, result: TableRun) -> TableFailed | TableLoaded:
    """Return the event of a table that ran, or should have: one that is paused has had its event when it was."""
    path = ".".join(filter(None, result.table))
    if result.status != "done":
        return TableFailed(context.name, run.id, path, result.error)
    return TableLoaded(
        context.name,
        run.id,
        path,
        result.mode,
        result.read,
        result.inserted,
        result.updated,
        result.deleted,
        result.invalid_values,
    )
