"""Planning of one pass: the loads of accepted tables, and the results of tables that are not loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from instep.destinations.base import LoadState
from instep.errors import InstepError
from instep.model import Run, TableRun
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import ColumnNarrowed, ColumnRetyped, ColumnWidened, DestinationDrifted, key
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import LoadedColumn, TableRead
from instep.schema.policy.policy import Decision
from instep.sources.base import CursorRange, Definitions, Snapshot
from instep.stage.key_hashes import KeyCounter
from instep.stage.spec import InvalidValue
from instep.store.catalogs.backfills import Backfill
from instep.suggest import unknown_table
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.backfill_since import noted_cursors
from instep.sync.detection.chosen_keys import starts
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.filters import faulty_filters
from instep.sync.detection.table_renames import TableRenames
from instep.sync.housekeeping import dead_runs, folder, remove_uncommitted_files
from instep.sync.loading.cdc import CdcSession
from instep.sync.loading.connector_stream import Streaming
from instep.sync.loading.results import RunOutcome, RunScope
from instep.sync.loading.table_load import Load, merge_instead_of_overwrite, plan_load
from instep.sync.loading.unchanged import LoadRules, UnchangedTables
from instep.sync.schema_changes.apply import rebuilds
from instep.sync.schema_changes.backfill_plan import whole_tables
from instep.sync.schema_changes.key_counts import appended_twice
from instep.sync.schema_changes.overflow_columns import extra_reads, only_copies, overflow_columns
from instep.sync.schema_changes.selected import selected_reads, sides_now
from instep.sync.schema_changes.selection_change import REDEFINED, redefined, request_reload, tables_without_versions
from instep.sync.schema_changes.table_layout import rekeyed
from instep.sync.table_mode import choose, mode_of

_SENT_AGAIN = "the next sync lets the connector send everything again"


@dataclass(frozen=True)
class LoadPass:
    """One pass of a run over the tables; `only` these (None: all) in a later one, whose number is `attempt`."""

    context: SyncContext
    run: Run
    scope: RunScope
    snapshot: Snapshot
    detection: DetectionResult
    outcome: RunOutcome
    engine: KeyCounter
    only: frozenset[Ref] | None = None
    attempt: int = 0
    follow: CdcSession | Streaming | None = None
    read_at: int = 0

    def loads(self) -> list[Load]:
        """Return the loads; tables that are missing, paused, denied or wrongly set up are put into the outcome."""
        selected, missing = selected_reads(self.context, self.detection)
        reads = self._with_definitions(selected)
        if self.only is None:
            self._check_names({r.table.path for r in reads} | {m.table.path for m in missing})
        for gone in missing:
            if self._in_scope(gone.table.path, gone.table.ref):
                denied = gone.table.ref in self.detection.denied
                self._leave(gone.table.ref, "failed" if denied else "missing", gone.why)
        stopped, rebuilt = self._stopped(), rebuilds(self.context)
        faulty = faulty_filters(self.context, self.snapshot, reads)
        sound = [r for r in reads if r.table.ref not in faulty and r.table.ref not in stopped]
        requested = [r for r in sound if self.only is None or r.table.ref in self.only]
        refused = faulty | self._refused(requested, rebuilt)
        self._note_redefined(requested)
        owing = tables_without_versions(self.context, sound)
        if self.follow is not None:
            self.follow.prepare_pass(self.snapshot, reads, stopped)
        waiting = whole_tables(self.context)
        dead, actions = dead_runs(self.context, self.run), on_invalid_value_of(self.detection)
        holds, extras = blocked_types(self.context, self.detection), overflow_columns(self.context, self.detection)
        on = sides_now(self.context).now if extras else self.context.selection
        unchanged, provable = UnchangedTables(self.context, self.snapshot, sound), self._is_plain()
        loads = []
        for number, read in enumerate(reads):
            ref = read.table.ref
            if not self._in_scope(read.table.path, ref):
                continue
            if ref in stopped:
                self._leave(ref, *stopped[ref])
                continue
            if ref in refused:
                self._leave(ref, "failed", refused[ref])
                continue
            if self.follow is not None and ref in self.follow.pending:
                continue
            rules = LoadRules(
                destination_ref(read.table, self.context.naming),
                self._on_invalid_value(read.table, actions.get(ref, "quarantine")),
                holds.get(ref, {}),
                extra_reads(on, read, extras.get(ref, ())),
                only_copies(read, self.backfills),
            )
            again = ref in owing or ref in waiting or ref in rebuilt
            try:
                if provable and not again and self._is_unchanged(read, rules, unchanged):
                    continue
            except InstepError as error:
                self._leave(ref, "failed", str(error))
                continue
            if isinstance(self.follow, Streaming) and self.follow.is_quiet(read) and ref not in owing:
                self.outcome.others.setdefault(ref, TableRun(self.run.id, ref, "done", "stream"))
                continue
            if isinstance(self.follow, Streaming) and self.follow.is_late(read, rebuilt):
                self._leave(ref, "paused", f"it is rebuilt: {_SENT_AGAIN}")
                continue
            if (why := waiting.get(ref)) and not (isinstance(self.follow, Streaming) and not self.follow.starts(read)):
                self.outcome.note(f"{read.table.path}: {why}, so the whole table is read again")
            try:
                load, state = self._load(number, read, full=ref in waiting, rebuild=ref in rebuilt)
                remove_uncommitted_files(self.context, dead, load.ref, state)
            except InstepError as error:
                self._leave(ref, "failed", str(error))
                continue
            if isinstance(self.follow, Streaming) and self.follow.is_lost(read, state):
                self._leave(ref, "paused", f"its rows are gone from the destination: {_SENT_AGAIN}")
                continue
            if self.follow is not None and self.follow.is_idle(load) and ref not in owing:
                self.outcome.others[ref] = TableRun(self.run.id, ref, "done", load.choice.mode)
                continue
            load = replace(
                load,
                on_invalid_value=rules.on_invalid_value,
                holds=rules.holds,
                extra=rules.extra,
                only_copies=rules.only_copies,
            )
            loads.append(replace(load, proof=unchanged.proof(load)))
        return loads

    def _refused(self, reads: Sequence[TableRead], rebuilt: Collection[Ref]) -> dict[Ref, str]:
        """Return the tables that must not be loaded, and why; what other rules ask for is requested."""
        merged = [r for r in reads if r.table.ref not in rebuilt]
        overwrites = self.scope.kind == "backfill"
        twice = appended_twice(self.context, merged, self.engine, overwrites=overwrites)
        return request_reload(self.context, self.detection, reads) | twice

    def _with_definitions(self, reads: Sequence[TableRead]) -> Sequence[TableRead]:
        """Return the reads, of those that follow a cursor with the definitions of their tables: what changes these
        moves no cursor. Rows that are only appended stay as they came."""
        modes = {r.table.ref: mode_of(r.table, self.context.settings(r.table)) for r in reads}
        following = [r for r in reads if (m := modes[r.table.ref]) and m.mode == "upsert" and m.cursor]
        if not following or not isinstance(self.snapshot, Definitions):
            return reads
        refs, loaded = {r.table.ref for r in following}, self.context.store.loaded.filters(self.context.name)
        before = {r.source.ref: loaded[r.table.ref].definition for r in following if r.table.ref in loaded}
        definitions = {**before, **self.snapshot.definitions(following, before)}
        return [replace(r, definition=definitions.get(r.source.ref, {})) if r.table.ref in refs else r for r in reads]

    def _note_redefined(self, reads: Sequence[TableRead]) -> None:
        for ref in sorted(redefined(self.context, reads)):
            self.outcome.note(f"{'.'.join(ref)}: {REDEFINED}, so the whole table is read")

    def _is_unchanged(self, read: TableRead, rules: LoadRules, unchanged: UnchangedTables) -> bool:
        """Return whether a table can be skipped: nothing is requested of it and its rows are proven to be at the
        destination."""
        ref = read.table.ref
        if ref not in self.recorded or any(b.table == ref for b in self.backfills):
            return False
        if not unchanged.holds(read, rules):
            return False
        mode = choose(read.table, self.context.settings(read.table)).mode
        self.outcome.others[ref] = TableRun(self.run.id, ref, "done", mode)
        return True

    def _is_plain(self) -> bool:
        """Return whether this is the first pass of a sync that asks for nothing but what has changed."""
        return self.only is None and self.scope in (RunScope(), RunScope(tables=self.scope.tables))

    def _in_scope(self, path: str, ref: Ref) -> bool:
        """Return whether the table is in scope. A later pass reads what the first one chose, whatever its name is by
        then."""
        if self.only is not None:
            return ref in self.only
        return not self.scope.tables or path in self.scope.tables

    def _check_names(self, paths: set[str]) -> None:
        for name in sorted(self.scope.tables - paths):
            raise unknown_table(f"connection {self.context.name} syncs no table {name}", name, paths)

    def _leave(self, ref: Ref, status: str, why: str) -> None:
        places = self.outcome.others if self.only is None else self.outcome.late
        places[ref] = TableRun(self.run.id, ref, status, error=why)

    def _stopped(self) -> dict[Ref, tuple[str, str]]:
        """Return tables that do not run now: (status, why)."""
        stopped = {ref: ("paused", why) for ref, why in self.detection.unkeyed(moved=True).items()}
        paused = self.context.store.pauses.tables(self.context.name)
        stopped |= {ref: ("paused", pause.reason) for ref, pause in paused.items()}
        stopped |= self._drifted()
        stopped |= {ref: ("paused", why) for ref, why in rekeyed(self.context, self.detection.decisions).items()}
        return stopped | {ref: ("failed", why) for ref, why in self.detection.denied.items()}

    def _drifted(self) -> dict[Ref, tuple[str, str]]:
        """Return tables that somebody has changed at the destination, each with the state of the question about it."""
        drifted = {d.change.table: d for d in self.detection.decisions if isinstance(d.change, DestinationDrifted)}
        stopped = self.detection.drift.stopped(self.detection.decisions)
        state = self.detection.state_of
        return {ref: (status, f"{why}: {state(drifted[ref])}") for ref, (status, why) in stopped.items()}

    def _load(self, number: int, read: TableRead, *, full: bool, rebuild: bool) -> tuple[Load, LoadState | None]:
        context, ref = self.context, destination_ref(read.table, self.context.naming)
        context.destination.write.claim(ref, self.run.fence)
        state = context.destination.schema.state(ref)
        full, (cursors, serves) = full or self.scope.full, noted_cursors(context, read.table, self.backfills)
        if state is not None and read.table.ref not in self.recorded and not isinstance(self.follow, Streaming):
            full = True  # nothing tells by which rules its rows came: hashes, filters and deletes may be others now
            self.outcome.note(f"{read.table.path}: its first load is not on record, so the whole table is read")
        settings, start = context.settings(read.table), self.start(read.table)
        load = plan_load(number, read, ref, settings, state, self.snapshot, start=start, full=full, noted=cursors)
        if isinstance(self.follow, Streaming):
            load = self.follow.planned(load, state, self.snapshot, rebuild=rebuild)
            return replace(load, folder=folder(self.run.id, self.attempt), read_at=self.read_at), state
        whole = rebuild or self.scope.kind == "backfill"
        if load.choice.mode == "cdc" and self.follow is not None:
            load = self.follow.planned(load, state, whole=whole or full or bool(cursors))
        if whole:
            load = replace(load, action="overwrite", complete=True, keys=False, rows=CursorRange(), since=None)
        if load.table.history and state is not None:
            load = replace(load, action="merge")
        elif not rebuild:
            loaded = self.recorded.get(read.table.ref, ())
            load = merge_instead_of_overwrite(load, state, drop_retained=self.scope.drop_retained, loaded=loaded)
        for note in load.notes:
            self.outcome.note(f"{read.table.path}: {note}")
        return replace(load, folder=folder(self.run.id, self.attempt), serves=serves, read_at=self.read_at), state

    @cached_property
    def start(self) -> Callable[[Table], str]:
        """Return a function of where the first read by a chosen cursor begins."""
        return starts(self.context)

    @cached_property
    def backfills(self) -> Sequence[Backfill]:
        """The backfills that wait."""
        return self.context.store.backfills.waiting(self.context.name)

    @cached_property
    def recorded(self) -> Mapping[Ref, Sequence[LoadedColumn]]:
        """The columns of the tables whose last load is on record."""
        return self.context.store.loaded.of(self.context.name)

    def _on_invalid_value(self, table: Table, decided: InvalidValue) -> InvalidValue:
        """Return the handling of invalid values: the table's setting, or that of the decisions if it is the default."""
        return self.context.settings(table).handling_of_invalid_values(decided)


def on_invalid_value_of(detection: DetectionResult) -> Mapping[Ref, InvalidValue]:
    """Return the handling of values that do not fit a column whose new type was not accepted."""
    places = TableRenames.of(detection.decisions)
    return {places.after(d.change): d.modifiers.on_invalid_value for d in _pending_types(detection)}


def _pending_types(detection: DetectionResult) -> list[Decision]:
    kinds = ("column.retyped", "column.narrowed", "column.widened")
    return [d for d in detection.decisions if d.change.kind in kinds and not d.applied]


def blocked_types(context: SyncContext, detection: DetectionResult) -> Mapping[Ref, Mapping[str, tuple[str, str]]]:
    """Return (change id, rule) of the decisions that block a new type, by accepted column, by table."""
    decisions = _pending_types(detection)
    if not decisions:
        return {}
    places, reviews = TableRenames.of(detection.decisions), context.store.reviews.existing(context.name)
    blocked: dict[Ref, dict[str, tuple[str, str]]] = {}
    for decision in decisions:
        review = reviews.get(key(decision.change))
        assert isinstance(decision.change, ColumnRetyped | ColumnNarrowed | ColumnWidened)
        for column in (decision.change.after, decision.change.before):
            of = blocked.setdefault(places.after(decision.change), {})
            of[column.name] = (review.id if review else "", decision.rule)
    return blocked


def rows_of(detection: DetectionResult, loads: Sequence[Load]) -> dict[str, int]:
    """Return estimated rows by path, for progress."""
    stats = detection.discovery.stats
    return {load.table.path: s.rows if (s := stats.get(load.read.source.ref)) else 0 for load in loads}
