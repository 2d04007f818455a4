"""A run of a source that sends operations: one pass a group, then the state behind it is saved.

A group's tables are committed one by one, each with the number of the group. What dies in between begins again from
the state that was saved last: operations go by key, so that carrying them out twice is carrying them out once. The
state is saved once every table has its operations, or they are kept for it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from instep.crash import crashpoint
from instep.destinations.base import LoadState
from instep.errors import Blocked, InstepError
from instep.model import Run, TableRun
from instep.schema.catalog.catalog import Table
from instep.schema.changes.kinds import TableAdded
from instep.schema.planning.projection import TableRead
from instep.schema.selection.selection import is_on
from instep.sources.base import Snapshot
from instep.sources.stream import EVERYTHING, Granularity, Operations, ReceivedRows, Stream, Streams, StreamScope
from instep.store.catalogs.backfills import Backfill
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.loading.load_table import TableResult
from instep.sync.loading.results import RunOutcome, RunScope
from instep.sync.loading.table_load import Load
from instep.sync.progress import Progress
from instep.sync.schema_changes.apply import rebuilds
from instep.sync.schema_changes.backfill_plan import whole_tables
from instep.sync.schema_changes.selection_change import remember_loaded

if TYPE_CHECKING:
    from instep.sources.connector.segment import LogLine, OperationCounts

LOG = logging.getLogger("instep.connector")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def tables_to_resend(context: SyncContext) -> frozenset[Ref]:
    """Return the tables that wait for all of their rows, which only a run from the start brings. Not while it is off,
    nor for one that is to be built anew while it is paused: nothing of these would be taken."""
    accepted = context.store.accepted.catalog(context.name)
    read = {t.ref for t in accepted.tables if not t.retained and is_on(context.selected_before, t)[0]}
    paused = rebuilds(context) & context.store.pauses.tables(context.name).keys()
    return frozenset((whole_tables(context).keys() & read) - paused)


def tables_still_waiting(context: SyncContext) -> Iterator[str]:
    """Yield one sentence a table that a run leaves waiting for all of its rows: what it has until then may differ, as
    rows without a key do that came while a key was under review."""
    reasons = {b.table: b.why for b in context.store.backfills.waiting(context.name)}
    for ref in sorted(tables_to_resend(context)):
        yield f"{_path(ref)} may differ until the next sync, which has all of its rows sent again: {reasons[ref]}"


def scope_of_stream(context: SyncContext, scope: RunScope, outcome: RunOutcome, *, from_start: bool) -> RunScope:
    """Return what a run is about that sends some tables anew. Where tables share a state but any of them can begin
    again, the others are read on beside these, so that the state that they share can be saved."""
    source = context.source
    if not (scope.tables and from_start and isinstance(source, Streams) and source.granularity() == "restart"):
        return scope
    names = ", ".join(sorted(scope.tables))
    outcome.note(f"{names}: its state is shared, so the connection's other tables are read on beside it")
    return replace(scope, tables=frozenset(), full=False, again=scope.tables)


def _path(ref: Ref) -> str:
    return ".".join(filter(None, ref))


_RECORD_EVERY = 0.5
"""Seconds between two times that what a connector has sent is written into the record of the run: less than between two
of its reports, for nothing may come behind one for long."""


def _ignore_counts(counts: object) -> None:
    pass


@runtime_checkable
class FollowsConnector(Protocol):
    """A progress that is also told what a connector does; its methods may be called from any thread."""

    def operations(self, counts: OperationCounts) -> None:
        """Report all operations of the run so far."""
        ...

    def on_log_line(self, line: LogLine) -> None:
        """Report a line that the connector has just logged or printed."""
        ...


@dataclass
class Streaming:
    """Connector stream of one run; `tables` of a group are by their source name, everything else by the accepted one.
    `_missed` (source names) are tables of which the run brought operations that were neither taken nor held: they are
    not whole. `_complete` are those that were loaded from their first row on, with a state saved behind it from which
    later runs go on; `_ended` tells that the stream did, and everything that it sent was taken. `_taken` are those that
    got rows. `received` is what the connector has sent by table, and under "" in all. `_begun`: the backfills that
    waited as the run planned a table's first rows."""

    context: SyncContext
    run: Run
    scope: RunScope
    outcome: RunOutcome
    progress: Progress
    from_start: bool
    """Everything is sent again, from the start; with tables `scope` only those are taken, and no state is saved,
    unless the source reads each table by itself, as `granularity` tells."""
    saved: Mapping[Ref, str] = field(default_factory=dict)
    pending: frozenset[Ref] = frozenset()
    broken: bool = False
    granularity: Granularity = "run"
    received: Mapping[str, ReceivedRows] = field(default_factory=dict)
    _recorded_at: float = 0.0
    _stream: Stream | None = None
    _over: bool = False
    _ended: bool = False
    """True if the stream has ended, and everything that it sent was loaded."""
    _complete: frozenset[Ref] = frozenset()
    """Tables that were loaded from their first row on, with a saved state from which later runs go on."""
    _rebuilt: set[Ref] = field(default_factory=set)
    _missed: set[Ref] = field(default_factory=set)
    """Tables (source names) with operations of the run that were neither loaded nor made pending: they are
    incomplete."""
    _taken: set[Ref] = field(default_factory=set)
    """Tables that got rows."""
    _waiting: Sequence[Backfill] = ()
    _begun: dict[Ref, frozenset[Backfill]] = field(default_factory=dict)
    """The backfills that waited as the run planned a table's first rows."""
    _stopped: Mapping[Ref, tuple[str, str]] = field(default_factory=dict)
    _reads: Mapping[Ref, TableRead] = field(default_factory=dict)

    @property
    def is_partial(self) -> bool:
        """Return whether only some tables of all that are sent are taken."""
        return bool(self.scope.tables) and self.granularity != "table"

    def starts(self, read: TableRead) -> bool:
        """Return whether this run brings the table from its first row on."""
        return self.stream.starts(read.source.ref)

    @property
    def stream(self) -> Stream:
        assert self._stream is not None, "a run is under way"
        return self._stream

    @contextmanager
    def running(self) -> Iterator[None]:
        """Open the connector's run for the block."""
        source = self.context.source
        assert isinstance(source, Streams)
        self.granularity = source.granularity()
        scope = self._scope_of_run()
        if self.is_partial and not self.from_start:
            raise Blocked(
                f"connection {self.context.name} syncs all of its tables together: one alone would lose the rows of "
                "the others",
                hint="`instep sync` without --table, or with --full to have these tables sent again from the start",
            )
        follows = self.progress if isinstance(self.progress, FollowsConnector) else None
        on_counts = follows.operations if follows else _ignore_counts
        with source.stream(
            from_start=self.from_start,
            scope=scope,
            on_counts=on_counts,
            on_received=self._on_received,
            log=lambda line: self._log(line, follows),
        ) as self._stream:
            yield

    def _scope_of_run(self) -> StreamScope:
        """Return the tables that the run is about; where they cannot be told apart, one that waits for all of its rows
        lets everything be sent again."""
        again = frozenset(map(_path, tables_to_resend(self.context))) | self.scope.again
        if self.granularity == "table" and self.scope.tables:
            again, self.from_start = self.scope.tables if self.from_start else again & self.scope.tables, False
        if again > self.scope.again and not self.scope.tables and not self.from_start:
            what = "the connector sends everything again" if self.granularity == "run" else "it is sent from the start"
            self.outcome.note(f"{', '.join(sorted(again - self.scope.again))} waits for all of its rows, so {what}")
        if self.granularity == "run":
            self.from_start = self.from_start or bool(again and not self.is_partial)
            return EVERYTHING
        only = self.scope.tables if self.granularity == "table" and self.scope.tables else None
        selection = self.context.selection
        return StreamScope(only, again, lambda ref: is_on(selection, Table(*ref, ()))[0])

    def _on_received(self, received: Mapping[str, ReceivedRows]) -> None:
        """Show what has come, under the names that the tables have here; the run's record has it now and then."""
        names = {_path(ref): read.table.path for ref, read in self._reads.items()}
        self.received = {names.get(path, path): rows for path, rows in received.items()}
        for path, rows in self.received.items():
            self.progress.received(path, rows.rows, rows.expected)
        if time.monotonic() - self._recorded_at >= _RECORD_EVERY:
            with suppress(InstepError):  # it is for people who watch, and must not end the run
                self.context.store.runs.describe(self.run, **self.described)
            self._recorded_at = time.monotonic()

    @property
    def described(self) -> Mapping[str, Any]:
        """Return the part of the run's record about it."""
        return {"received": {path: asdict(rows) for path, rows in self.received.items()}} if self.received else {}

    def _log(self, line: Any, follows: FollowsConnector | None) -> None:
        LOG.log(LEVELS.get(line.level, logging.INFO), "%s: %s", line.origin, line.message)
        if follows:
            follows.on_log_line(line)

    @property
    def completed_tables(self) -> frozenset[Ref]:
        """The tables that wait no more for all of their rows. A run of some tables saves no state, so that one which
        ends early brings them nothing that later runs would go on from."""
        if self._stream is None:
            return frozenset()
        refs = {r.table.ref: r.table.path for r in self._reads.values() if self.starts(r)}
        if not self._ended:
            return frozenset() if self.is_partial else (self._complete & refs.keys()) - self.missed_tables
        sent = frozenset(ref for ref, path in refs.items() if path in (self.scope.tables or {path}))
        return sent - (rebuilds(self.context) - self._rebuilt) - self.missed_tables

    @property
    def unsent_tables(self) -> tuple[TableRead, ...]:
        """The loaded tables that were to be sent from their first row on and of which nothing came: their rows stay."""
        whole, loaded = self.completed_tables - self._taken, self.context.store.loaded.of(self.context.name)
        return tuple(r for r in self._reads.values() if r.table.ref in whole and r.table.ref in loaded)

    @property
    def idle_reads(self) -> list[TableRead]:
        """The reads of the tables of which this run has taken nothing."""
        return [read for read in self._reads.values() if read.table.ref not in self._taken]

    def served(self, waiting: Sequence[Backfill]) -> set[int]:
        """Return the numbers of those for which all has come that they ask for: one that was asked for behind a table's
        first rows of this run is about these rows, too."""
        whole = self.completed_tables
        return {b.number for b in waiting if b.table in whole and b in self._begun.get(b.table, (b,))}

    @property
    def missed_tables(self) -> frozenset[Ref]:
        """The tables of which this run has left operations, which only another run from the start brings."""
        return frozenset(r.table.ref for r in self._reads.values() if r.source.ref in self._missed)

    def next(self) -> bool:
        """Return whether there is another group, which is at hand then."""
        self.progress.step("waiting for the connector")
        if self.broken:
            return False
        try:
            if not self.stream.next():
                self._note_failed()
                self._ended = not (more := self._has_unbuilt())
                return more
        except BaseException:
            self.broken = True
            raise
        for text in self.stream.warnings:
            self.outcome.note(f"the connector warns: {text}")
        return True

    def _note_failed(self) -> None:
        """Mark tables as failed that the source did not complete: the rows that came are loaded, the rest is
        missing."""
        failed = self.stream.failed
        self._missed |= failed.keys()
        results = {result.table: result for result in self.outcome.tables}
        for ref, failure in failed.items():
            read = self._reads.get(ref)
            table = read.table.ref if read else ref
            result = results.get(table, TableRun(self.run.id, table, "failed", "stream"))
            self.outcome.late[table] = replace(result, status="failed", error=failure.why)
            self.outcome.retryable |= {table} if failure.transient else set()

    @property
    def _unbuilt(self) -> frozenset[Ref]:
        """The tables that are to be built anew, and sent from their first row on, of which nothing came so far."""
        started = {r.table.ref for r in self._reads.values() if self.starts(r)}
        return (rebuilds(self.context) & started) - self._rebuilt - self.missed_tables

    def _has_unbuilt(self) -> bool:
        """Return whether tables that are built anew got no row from a run that has sent everything: one pass empties
        them."""
        again, self._over = not self._over, True
        paths = map(_path, self._unbuilt)
        return again and any(not self.scope.tables or path in self.scope.tables for path in paths)

    def prepare_pass(
        self, snapshot: Snapshot, reads: Sequence[TableRead], stopped: Mapping[Ref, tuple[str, str]]
    ) -> None:
        """Take the tables of a pass, and why some do not run, once everything that they need was requested."""
        self._reads, self._stopped = {r.source.ref: r for r in reads}, stopped
        self._request_late_rows()
        self._waiting = self.context.store.backfills.waiting(self.context.name)

    def _request_late_rows(self) -> None:
        """Ask for all rows of the tables that are read by now and had operations while they were not."""
        if back := self.stream.left & self._reads.keys():
            with self.context.transaction():
                for ref in back:
                    table = self._reads[ref].table.ref
                    self.context.store.backfills.request(
                        self.context.name, table, why="rows of it arrived while it was deselected"
                    )
                self.stream.leave(self.stream.left - back)

    def is_quiet(self, read: TableRead) -> bool:
        """Return whether the group has nothing for the table."""
        due = self._over and read.table.ref in self._unbuilt
        return not due and not self.stream.tables.get(read.source.ref)

    def is_late(self, read: TableRead, rebuilt: frozenset[Ref]) -> bool:
        """Return whether the table is to be built anew, for which this run does not bring all of its rows."""
        return read.table.ref in rebuilt and (not self.starts(read) or read.table.ref in self.missed_tables)

    def is_lost(self, read: TableRead, state: LoadState | None) -> bool:
        """Return whether the table's rows are gone from the destination, and this run does not bring all of them: the
        whole table is asked for then, so that its next rows are not taken for its first ones."""
        ref = read.table.ref
        if state is not None or not self._is_loaded(read):
            return False
        with self.context.transaction():
            self.context.store.backfills.request(self.context.name, ref, why="its rows are gone from the destination")
        return True

    def _is_loaded(self, read: TableRead) -> bool:
        """Return whether it was, so that the rows to come are not all."""
        ref = read.table.ref
        if self.starts(read):
            return ref in self._taken
        return ref in self.context.store.cursors.of(self.context.name)

    def is_idle(self, load: Load) -> bool:
        return False

    def planned(self, load: Load, state: LoadState | None, snapshot: Snapshot, *, rebuild: bool) -> Load:
        """Return the load of a table's operations."""
        assert isinstance(snapshot, Operations)
        ref, sent = load.table.ref, snapshot.counts(load.read.source.ref)
        cursor = json.dumps({"stream": {"run": self.run.id, "segment": self.stream.number}})
        first = state is None or (rebuild and ref not in self._rebuilt)
        self._begun.setdefault(ref, frozenset(b for b in self._waiting if b.table == ref))
        if rebuild:
            self._rebuilt.add(ref)
        if first:
            sent = replace(sent, updates=0, deletes=0)
            return replace(load, action="overwrite", complete=True, cursor=cursor, counts=sent)
        return replace(load, action="merge", complete=sent.truncated, cursor=cursor, counts=sent)

    def advance_positions(self, done: Sequence[TableResult], detection: DetectionResult) -> None:
        """Save pending operations and the state after the commits of a pass, or end the run if a table failed."""
        crashpoint("connector.segment.committed")
        loaded = {d.load.read.source.ref for d in done if d.error is None}
        left = self.stream.tables.keys() - loaded
        if self._failed(left) or any(d.error is not None for d in done):
            self.broken = True
            return
        waiting = frozenset() if self.is_partial else frozenset(ref for ref in left if self._waits(ref, detection))
        self._missed |= (self.stream.received_tables & left) - waiting
        self._remember([d.load for d in done])
        if self.is_partial:
            return
        self.stream.leave(self.stream.left | ((self.stream.received_tables & left) - waiting - self._reads.keys()))
        self.stream.make_pending(waiting)
        self.context.store.runs.check(self.run)
        self.stream.done(frozenset(loaded), run=self.run.id, fence=self.run.fence)
        self._complete |= {d.load.table.ref for d in done if d.load.complete}

    def _remember(self, loads: Sequence[Load]) -> None:
        """Record how a group was loaded before the next one comes.

        What is decided differently by then asks for it, in this run or behind a crash.
        """
        if not loads:
            return
        cursors = {load.table.ref: load.cursor for load in loads}
        self._taken |= cursors.keys()
        with self.context.transaction():
            self.context.store.cursors.save(self.context.name, cursors, run=self.run.id, fence=self.run.fence)
            whole = {load.table.ref for load in loads if load.complete}
            remember_loaded(self.context, [load.read for load in loads], whole)

    def _failed(self, left: set[Ref]) -> bool:
        """Return whether a table that should run does not have its operations: the next run begins with them."""
        others = self.outcome.others
        return any(
            (read := self._reads.get(ref)) and (run := others.get(read.table.ref)) and run.status == "failed"
            for ref in left
        )

    def _waits(self, ref: Ref, detection: DetectionResult) -> bool:
        """Return whether somebody will decide about the table: what is off is not kept."""
        if (read := self._reads.get(ref)) is not None:
            return read.table.ref in self._stopped and read.table.ref not in rebuilds(self.context)
        added = (d for d in detection.decisions if isinstance(d.change, TableAdded) and d.change.after.ref == ref)
        if (decision := next(added, None)) is None:
            return False
        if decision.needs_review:
            return True
        self.outcome.note(
            f"{_path(ref)}: its rows are not kept while it is deselected; everything is sent again once it is selected"
        )
        return False
