"""One sync of a connection: claim, detect, apply, read, commit, record.

The order is that of docs/architecture.md: nothing is committed before it was staged and counted, the cursor is
part of the data's own commit, and what the store says afterwards can be derived from the destination.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from instep.crash import crashpoint
from instep.errors import Blocked, InstepError
from instep.events import TableFailed, TableLoaded
from instep.model import Run, RunKind, TableRun
from instep.schema.change import describe, key
from instep.schema.names import destination_ref
from instep.schema.read import Missing, TableRead, reads
from instep.schema.selection import hashed, is_on, select_columns
from instep.schema.table import Catalog
from instep.sources.base import CursorRange, Snapshot
from instep.sync.apply import apply_plan, make_plan
from instep.sync.claim import claimed, status_of
from instep.sync.detect import Detection, detect, record
from instep.sync.load import Loaded, commit_all, stage
from instep.sync.loads import Load, keep_retained, plan_load
from instep.sync.partial import partial_columns
from instep.sync.pause import hold
from instep.sync.pipe import Pipe, Ref
from instep.sync.progress import Progress, Report, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOVES = 3
"""How often tables whose schema moved while they were read are read again in one run."""


@dataclass(frozen=True)
class Wanted:
    """What a run is asked for: `tables` (paths; empty: all), everything anew (`full`), consent to lose what the
    source dropped. `rebuild`: old rows must go, whatever they keep."""

    tables: frozenset[str] = frozenset()
    full: bool = False
    drop_retained: bool = False
    rebuild: bool = False
    kind: RunKind = "sync"


@dataclass
class Outcome:
    """Filled while a run goes on."""

    loaded: list[Loaded] = field(default_factory=list)
    missing: list[TableRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    applied: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


def sync(
    pipe: Pipe,
    wanted: Wanted = Wanted(),
    progress: Progress | None = None,
    start: Callable[[], SparkSession] | None = None,
) -> Report:
    """Brings the destination in step with the source; `start` gives a session that is already there.

    Raises Blocked while the connection is paused and RunInProgress while another run of it is alive; one table's
    failure is in the report and leaves the others alone.
    """
    told = progress or Silent()
    begun = time.monotonic()
    with claimed(pipe, wanted.kind) as run, warm(pipe, start) as spark:
        outcome = Outcome()
        again: frozenset[Ref] | None = None
        for _ in range(MOVES):
            again = _once(pipe, run, wanted, told, spark, outcome, again)
            if not again:
                break
        crashpoint("sync.done.before")
        tables = _record(pipe, run, outcome)
        crashpoint("sync.noted")
        status = status_of(tables)
    return Report(
        run.id, status, tables, tuple(outcome.notes), outcome.applied, outcome.waiting, time.monotonic() - begun
    )


@contextmanager
def warm(pipe: Pipe, start: Callable[[], SparkSession] | None) -> Iterator[Future[SparkSession]]:
    """A session that starts while the source's catalog is read."""
    from instep.spark.session import start as start_session

    with ThreadPoolExecutor(1, thread_name_prefix="session") as pool:
        yield pool.submit(start or (lambda: start_session(pipe.spark)))


def _once(
    pipe: Pipe,
    run: Run,
    wanted: Wanted,
    told: Progress,
    spark: Future[SparkSession],
    outcome: Outcome,
    only: frozenset[Ref] | None,
) -> frozenset[Ref]:
    """One pass over the tables (`only` these, in a second pass); answers those whose schema moved meanwhile."""
    told.step("reading the source's schema")
    with pipe.source.snapshot() as snapshot:
        crashpoint("sync.snapshot")
        detection = changed(pipe, run, snapshot, outcome)
        crashpoint("sync.accepted.after")
        loads = _plan_loads(pipe, run, wanted, snapshot, detection, outcome, only)
        crashpoint("sync.planned")
        told.tables({load.table.path: _rows(detection, load) for load in loads})
        if not loads:
            return frozenset()
        told.step("starting Spark")
        session = spark.result()
        told.step("reading rows")
        staged = stage(pipe, session, snapshot, loads, run, told)
        moved = snapshot.moved(Catalog.of(load.read.source for load in loads))
    kept = [load for load in loads if load.read.source.ref not in moved]
    told.step("committing")
    outcome.loaded += commit_all(pipe, session, kept, staged, run, told)
    return frozenset(load.table.ref for load in loads if load.read.source.ref in moved)


def changed(pipe: Pipe, run: Run, snapshot: Snapshot, outcome: Outcome) -> Detection:
    """Detects in the snapshot, applies what policy lets in, and holds what it does not."""
    detection = detect(pipe, snapshot.discover())
    crashpoint("sync.detected")
    reviews = record(pipe, detection)
    crashpoint("sync.recorded")
    hold(pipe, detection, reviews)
    crashpoint("sync.held")
    plan = make_plan(pipe, detection)
    outcome.notes += [f"{'.'.join(ref)}: {why}" for ref, why in plan.refused.items()]
    outcome.notes += [describe(note) for note in plan.notes]
    apply_plan(pipe, run, plan, reviews)
    outcome.applied += tuple(s.text for s in plan.steps)
    outcome.notes += partial_columns(pipe, detection, plan.after)
    outcome.waiting = tuple(reviews[key(d.change)].id for d in detection.waiting)
    if paused := pipe.store.pauses.connection(pipe.name):
        raise Blocked(f"connection {pipe.name} is paused: {paused.reason}", hint="see `instep changes list`")
    return detection


def selected_reads(pipe: Pipe, detection: Detection) -> tuple[tuple[TableRead, ...], tuple[Missing, ...]]:
    """What is read now: accepted and switched on."""
    accepted = pipe.store.accepted.catalog(pipe.name)
    on = Catalog.of(t for t in accepted.tables if is_on(pipe.selection, t)[0])
    return reads(
        Catalog.of(select_columns(pipe.selection, t) for t in on.tables),
        detection.discovery.catalog,
        hashed=lambda ref, column: hashed(pipe.selection, ref, column),
        held=detection.replaced,
    )


def _plan_loads(
    pipe: Pipe,
    run: Run,
    wanted: Wanted,
    snapshot: Snapshot,
    detection: Detection,
    outcome: Outcome,
    only: frozenset[Ref] | None,
) -> list[Load]:
    found, missing = selected_reads(pipe, detection)
    paused = pipe.store.pauses.tables(pipe.name)
    rebuild = {b.table for b in pipe.store.backfills.waiting(pipe.name)}
    outcome.missing = [TableRun(run.id, m.table.ref, "missing", error=m.why) for m in missing]
    loads: list[Load] = []
    for number, read in enumerate(found):
        table = read.table
        if (wanted.tables and table.path not in wanted.tables) or (only is not None and table.ref not in only):
            continue
        if table.ref in paused:
            outcome.missing.append(TableRun(run.id, table.ref, "paused", error=paused[table.ref].reason))
        elif table.ref in detection.denied:
            outcome.missing.append(TableRun(run.id, table.ref, "failed", error=detection.denied[table.ref]))
        else:
            anew = replace(wanted, full=wanted.full or table.ref in rebuild, rebuild=table.ref in rebuild)
            _plan_one(pipe, run, anew, snapshot, number, read, loads, outcome)
    return loads


def _plan_one(
    pipe: Pipe,
    run: Run,
    wanted: Wanted,
    snapshot: Snapshot,
    number: int,
    read: TableRead,
    loads: list[Load],
    outcome: Outcome,
) -> None:
    ref = destination_ref(read.table, pipe.naming)
    try:
        pipe.destination.claim(ref, run.fence)
        state = pipe.destination.state(ref)
        load = plan_load(number, read, ref, pipe.settings(read.table), state, snapshot, full=wanted.full)
        if wanted.rebuild or wanted.kind == "backfill":
            load = replace(load, action="overwrite", complete=True, keys=False, rows=CursorRange())
        if not wanted.rebuild:
            load = keep_retained(load, pipe.destination, drop_retained=wanted.drop_retained)
    except InstepError as error:
        outcome.missing.append(TableRun(run.id, read.table.ref, "failed", error=str(error)))
        return
    outcome.notes += [f"{read.table.path}: {note}" for note in load.notes]
    loads.append(load)


def _rows(detection: Detection, load: Load) -> int:
    stats = detection.discovery.stats.get(load.read.source.ref)
    return stats.rows if stats else 0


def _record(pipe: Pipe, run: Run, outcome: Outcome) -> tuple[TableRun, ...]:
    tables = (*(done.result for done in outcome.loaded), *outcome.missing)
    cursors: Mapping[Ref, str] = {d.load.table.ref: d.load.cursor for d in outcome.loaded if d.error is None}
    with pipe.store.transaction():
        for result in tables:
            pipe.store.runs.record_table(result)
            pipe.store.events.add(_event(pipe, run, result))
        for ref, cursor in cursors.items():
            pipe.store.cursors.save(pipe.name, ref, cursor, run=run.id, fence=run.fence)
        for backfill in pipe.store.backfills.waiting(pipe.name):
            if any(d.load.table.ref == backfill.table and d.load.complete and d.error is None for d in outcome.loaded):
                pipe.store.backfills.done(backfill.number)
    return tables


def _event(pipe: Pipe, run: Run, result: TableRun) -> TableFailed | TableLoaded:
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
