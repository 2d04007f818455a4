"""One sync of a connection: claim, detect, apply, read, commit, record.

The order is that of docs/architecture.md: nothing is committed before it was staged and counted, the cursor is
part of the data's own commit, and what the store says afterwards can be derived from the destination.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from instep.crash import crashpoint
from instep.errors import Blocked, Fenced
from instep.events import TableFailed, TableLoaded
from instep.model import Run, TableRun
from instep.schema.change import describe
from instep.sources.base import Snapshot
from instep.sources.stream import Streams
from instep.spans import span, tell
from instep.store.backfills import Backfill
from instep.sync.changes.apply import apply_plan, drop_named, let_go, make_plan
from instep.sync.changes.extras import EXTRA
from instep.sync.changes.map import resume_mappings
from instep.sync.changes.owned import check_unmoved
from instep.sync.changes.partial import partial_columns
from instep.sync.changes.reselected import remember_loaded
from instep.sync.changes.undo import resume_undos
from instep.sync.claim import claimed, status_of
from instep.sync.detection.detect import Detection, asked, detect, record
from instep.sync.detection.fill_since import settle
from instep.sync.detection.fresh import seen_now
from instep.sync.detection.pause import hold, reconsider
from instep.sync.detection.places import Places
from instep.sync.held.quarantine import expire
from instep.sync.maintain import maintain_loaded
from instep.sync.named import check_named
from instep.sync.old_names import troubles
from instep.sync.pipe import Pipe, Ref
from instep.sync.progress import Progress, Report, Silent
from instep.sync.rows.clean import PASSES, discard
from instep.sync.rows.engine import Engine, OnSpark
from instep.sync.rows.fill import Filling
from instep.sync.rows.follow import Following
from instep.sync.rows.load import Loaded
from instep.sync.rows.loading import Loading
from instep.sync.rows.loads import Load
from instep.sync.rows.outcome import Outcome, Wanted
from instep.sync.rows.planning import Pass, rows_of
from instep.sync.rows.promote import promote_first, promote_rest
from instep.sync.rows.streaming import Streaming, sent_again
from instep.sync.tidy import forget_dropped, forget_old_names

__all__ = ["Wanted", "sync"]
ALL = Wanted()


def sync(
    pipe: Pipe,
    wanted: Wanted = ALL,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Report:
    """Brings the destination in step with the source. `engine` reads the rows; without one, Spark does.

    Raises Blocked while the connection is paused or was moved, and RunInProgress while another run of it is alive; one
    table's failure is in the report and leaves the others alone.
    """
    begun = time.monotonic()
    check_unmoved(pipe)
    reconsider(pipe)
    rows_by = engine or on_spark(pipe)
    with claimed(pipe, wanted.kind) as run, pipe.tables_born():
        rows_by.begin()
        pipe, outcome = replace(pipe, run=run), Outcome()
        told = progress or Silent()
        streams = isinstance(pipe.source, Streams)
        anew = wanted.full or wanted.kind == "backfill"
        follow: Following | Streaming = Following(pipe, run, anew, outcome.note)
        if streams:
            follow = Streaming(pipe, run, wanted, outcome, told, anew or sent_again(pipe, wanted, outcome))
        work = _Sync(pipe, run, wanted, told, rows_by, outcome, follow)
        try:
            if not wanted.columns or streams:
                work.all()
            if not streams:
                Filling(work.pipe, run, rows_by, work.told, work.outcome, wanted).all()
            promote_rest(work.pipe, run, work.outcome)
        finally:
            tables = work.record()
        expire(pipe, run)
        forget_dropped(pipe, run)
        forget_old_names(work.pipe, run)
        maintain_loaded(work.pipe, run, work.outcome, rows_by, work.told)
    done = work.outcome
    if not tables:
        done.note("there is no table to sync: the source shows this user none that is switched on")
    return Report(
        run.id, status_of(tables), tables, tuple(done.notes), done.applied, done.waiting, time.monotonic() - begun
    )


def on_spark(pipe: Pipe) -> OnSpark:
    """A session as the project file sets it up."""
    from instep.spark.session import start

    return OnSpark(lambda: start(pipe.spark))


@dataclass(frozen=True)
class _Sync:
    pipe: Pipe
    run: Run
    wanted: Wanted
    told: Progress
    engine: Engine
    outcome: Outcome
    follow: Following | Streaming

    def all(self) -> None:
        """Passes over the tables: the first over all, later ones over those whose schema moved while they were read,
        and over those whose log has more; of a stream one for each of its groups."""
        if isinstance(self.follow, Streaming):
            with self.follow.begun():
                attempt = 0
                while self.follow.next():
                    self.once(None, attempt)
                    attempt += 1
            return
        only: frozenset[Ref] | None = None
        attempt = tries = 0
        while tries < PASSES:
            only = self.once(only, attempt)
            if not only:
                return
            attempt, tries = attempt + 1, tries + (not self.follow.goes_on)

    def once(self, only: frozenset[Ref] | None, attempt: int) -> frozenset[Ref]:
        """One pass; answers the tables to read again."""
        if isinstance(self.follow, Following):
            self.told.step("reading the source's schema")
            self.follow.begin()
        read_at = time.time_ns() // 1000
        with self.pipe.source.snapshot() as snapshot:
            crashpoint("sync.snapshot")
            if note := getattr(snapshot, "note", ""):
                self.outcome.note(note)
            with self.pipe.destination_open():
                detection = self.changed(snapshot, attempt)
                crashpoint("sync.accepted.after")
                only = self.again(only, detection)
                pass_ = Pass(
                    self.pipe, self.run, self.wanted, snapshot, detection, self.outcome, only, attempt, self.follow,
                    read_at,
                )  # fmt: skip
                loads = pass_.loads()
            crashpoint("sync.planned")
            self.told.tables(rows_of(detection, loads))
            if not loads:
                return self.settled((), detection)
            loading = Loading(self.pipe, self.engine, loads, self.run, self.told, self.outcome.loaded.append)
            loading.read(snapshot)
        self.still_ours(loading.open)
        self.told.step("committing")
        loading.commit()
        for text in (text for one in loading.done for text in one.changed):
            self.outcome.note(text)
        return self.unfinished(loading.moved) | self.settled(loading.done, detection)

    def settled(self, done: Sequence[Loaded], detection: Detection) -> frozenset[Ref]:
        """The tables that the source has more of."""
        if isinstance(self.follow, Following):
            return self.follow.settle(done)
        self.follow.settle(done, detection)
        return frozenset()

    def still_ours(self, loads: list[Load]) -> None:
        """Raises Fenced once a later run has taken over; no run after that one would look for these files."""
        try:
            self.pipe.store.runs.check(self.run)
        except Fenced:
            discard(self.pipe, loads)
            raise

    def again(self, only: frozenset[Ref] | None, detection: Detection) -> frozenset[Ref] | None:
        """The tables of a later pass, as they are called by now."""
        if only is None:
            return None
        for ref in only:
            self.outcome.others.pop(ref, None)
        moves = Places.of(detection.decisions).moves
        return frozenset(moves.get(ref, ref) for ref in only)

    def unfinished(self, loads: list[Load]) -> frozenset[Ref]:
        """Tables whose schema moved while they were read: nothing of them is kept, and they are read again."""
        discard(self.pipe, loads)
        why = "its schema moved while it was read, again and again: sync again when the migration is over"
        for load in loads:
            ref = load.table.ref
            self.outcome.others[ref] = TableRun(self.run.id, ref, "failed", load.choice.mode, error=why)
        return frozenset(load.table.ref for load in loads)

    def changed(self, snapshot: Snapshot, attempt: int) -> Detection:
        """Detects in the snapshot, or relies on the last detection, applies what policy lets in, and holds what it does
        not. A later pass of the same run confirms no removal."""
        pipe, outcome = self.pipe, self.outcome
        resume_undos(pipe, self.run)
        resume_mappings(pipe, self.run)
        with span("discover"):
            discovery, relied = seen_now(pipe, snapshot, rely=attempt == 0 and isinstance(self.follow, Following))
        if attempt == 0:
            check_named(pipe, self.wanted.tables, discovery)
            if self.wanted.drop_retained:
                let_go(pipe, self.run, self.wanted.tables)
            if self.wanted.drop_columns:
                drop_named(pipe, self.run, self.wanted.drop_columns)
        count = attempt == 0 and not relied
        with span("detect"):
            detection = detect(pipe, discovery, count=count, stored=relied, snapshot=snapshot)
            crashpoint("sync.detected")
            reviews = record(pipe, detection, count=count)
            tell(changes=tuple(sorted(r.id for r in reviews.values())))
        crashpoint("sync.recorded")
        hold(pipe, detection, reviews)
        crashpoint("sync.held")
        plan = make_plan(pipe, detection)
        apply_plan(pipe, self.run, plan, reviews, detection)
        promote_first(pipe, self.run, detection, outcome)
        outcome.applied += tuple(s.text for s in plan.steps)
        for note in detection.notes:
            outcome.note(note)
        self.refused(plan.refused, detection)
        for text in (*map(describe, plan.notes), *plan.remarks):
            outcome.note(text)
        for text in partial_columns(pipe, detection, plan.after):
            outcome.note(text)
        for text in troubles(pipe):
            outcome.note(text)
        outcome.waiting = asked(pipe, detection, reviews)
        if paused := pipe.store.pauses.connection(pipe.name):
            raise Blocked(f"connection {pipe.name} is paused: {paused.reason}", hint="see `instep changes list`")
        return detection

    def refused(self, refused: Mapping[Ref, str], detection: Detection) -> None:
        """Tables whose changes the destination cannot take: they go on as they are; new ones have failed."""
        for ref, why in refused.items():
            if detection.accepted.get(ref):
                self.outcome.note(f"{'.'.join(filter(None, ref))}: {why}")
            else:
                self.outcome.others[ref] = TableRun(self.run.id, ref, "failed", error=why)

    def record(self) -> tuple[TableRun, ...]:
        """What became of each table, also when the run as a whole fails; in one transaction."""
        crashpoint("sync.done.before")
        pipe, run, tables = self.pipe, self.run, self.outcome.tables
        loaded = [d.load for d in self.outcome.loaded if d.error is None]
        with pipe.transaction():
            pipe.store.runs.record_tables(*tables)
            pipe.store.events.add(*(_event(pipe, run, result) for result in tables if result.status != "paused"))
            cursors = {d.table.ref: d.cursor for d in loaded} | dict(self.follow.saved)
            pipe.store.cursors.save(pipe.name, cursors, run=run.id, fence=run.fence)
            remember_loaded(pipe, [load.read for load in loaded])
            waiting = [b for b in pipe.store.backfills.waiting(pipe.name) if b.scope != EXTRA]
            served = self.served(waiting, loaded)
            for backfill in waiting:
                if backfill.number in served:
                    settle(pipe, backfill)
                    pipe.store.backfills.done(backfill.number)
                    if isinstance(self.follow, Streaming) and backfill.table not in cursors:
                        pipe.store.cursors.forget(pipe.name, backfill.table)
        crashpoint("sync.noted")
        return tables

    def served(self, waiting: Sequence[Backfill], loaded: Sequence[Load]) -> set[int]:
        """The numbers of the backfills that this run has done."""
        if isinstance(self.follow, Streaming):
            return self.follow.served(waiting)
        whole = {load.table.ref for load in loaded if load.complete}
        return {b.number for b in waiting if b.table in whole} | {n for load in loaded for n in load.serves}


def _event(pipe: Pipe, run: Run, result: TableRun) -> TableFailed | TableLoaded:
    """Of a table that ran, or should have: one that is paused has told so when it was."""
    path = ".".join(filter(None, result.table))
    if result.status != "done":
        return TableFailed(pipe.name, run.id, path, result.error)
    return TableLoaded(
        pipe.name,
        run.id,
        path,
        result.mode,
        result.read,
        result.inserted,
        result.updated,
        result.deleted,
        result.misfits,
    )
