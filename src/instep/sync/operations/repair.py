# ruff: noqa: S608 - names are ours
"""Corrects the rows in which a table differs from its source: the keys that `verify` finds, and no others.

Both sides meet by key in DuckDB, in one snapshot of the source that begins once the connection is claimed: no sync has
read a later one. The rows of the keys that differ are read again in that snapshot, staged and merged as a sync does it;
the cursor or position of the table stays, so that the next sync reads on from where the last one came to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import LoadState
from instep.errors import Blocked, Conflict, InstepError, argument
from instep.events import TableLoaded
from instep.model import Run, TableRun
from instep.operations.repair.repair import RepairRequest
from instep.operations.spec import Preview, Work
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.globs import fits_glob
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange, Snapshot
from instep.sources.log import ChangedKeys, Logs
from instep.sources.stream import Streams
from instep.stage.files.writer import ChunkWriter
from instep.stage.local import extract_locally
from instep.stage.spec import Chunk, ChunkResult, StageSpec
from instep.sync.claim import claimed, resume_hint
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult, detect
from instep.sync.detection.filters import faulty_filters
from instep.sync.detection.table_renames import TableRenames
from instep.sync.housekeeping import dead_runs, discard, folder, remove_uncommitted_files
from instep.sync.loading.engine import Engine, LocalEngine
from instep.sync.loading.load_table import Staged, commit, placed, specs_of
from instep.sync.loading.load_table import verify as verify_staged
from instep.sync.loading.plan_loads import blocked_types, on_invalid_value_of
from instep.sync.loading.row_comparison import (
    DIFFERS,
    EXTRA,
    MISSING,
    TWINS,
    KeyReader,
    RowComparison,
    row_comparison,
)
from instep.sync.loading.row_matching import BATCH, as_plain, as_stored, plain_type
from instep.sync.loading.table_load import Load, cursor_went_back, recorded
from instep.sync.loading.table_sides import TableSides, table_sides
from instep.sync.operations.verify import (
    VerifyResult,
    retains_rows,
    waiting_tables,
    with_quarantined,
)
from instep.sync.progress import Progress, Silent, telling
from instep.sync.quarantine.unfit_values import QuarantinedColumns, count_quarantined, quarantined_columns
from instep.sync.schema_changes.backfill_plan import whole_tables
from instep.sync.schema_changes.overflow_columns import extra_reads, only_copies, overflow_columns
from instep.sync.schema_changes.owned_tables import check_unmoved
from instep.sync.schema_changes.selected import selected_reads, sides_now
from instep.sync.table_mode import TableMode, choose


@dataclass(frozen=True)
class RepairTarget:
    """The table that is to be repaired, as source and destination have it now."""

    detection: DetectionResult
    read: TableRead
    ref: Ref
    state: LoadState
    choice: TableMode
    """Load mode; `deletes` decides about rows that the source does not have."""

    @property
    def path(self) -> str:
        """The accepted table's path."""
        return self.read.table.path

    @property
    def columns(self) -> list[str]:
        """The columns to compare, by their names at the destination."""
        return [c.column.alias or c.column.name for c in self.read.columns if c.source is not None]


def repair_target(context: SyncContext, snapshot: Snapshot, path: str) -> RepairTarget:
    """Return the table with this path; Blocked with the reason if it cannot be repaired exactly."""
    table = context.table(path)
    _check_kind(context, table)
    detection = detect(context, snapshot.discover())
    reads, missing = selected_reads(context, detection)
    read = next((r for r in reads if r.table.ref == table.ref), None)
    if gone := next((m for m in missing if m.table.ref == table.ref), None):
        raise _refused(path, gone.why, "see `instep changes list`")
    if read is None:
        raise _refused(path, "it is switched off", f"see `instep selection show --table {argument(path)}`")
    _check_open(context, snapshot, detection, read)
    ref = destination_ref(read.table, context.naming)
    state = context.destination.schema.state(ref)
    if state is None:
        raise _refused(path, "it was never loaded", "run `instep sync`")
    choice = choose(read.table, context.settings(read.table))
    if choice.mode == "full_refresh":
        choice = replace(choice, deletes="hard")
    target = RepairTarget(detection, read, ref, state, choice)
    _check_positions(context, snapshot, target)
    return target


def _refused(path: str, why: str, hint: str) -> Blocked:
    return Blocked(f"{path} cannot be repaired: {why}", hint=hint)


def _check_kind(context: SyncContext, table: Table) -> None:
    """Raise Blocked for a paused connection, and for a table whose rows are not told apart or not the source's."""
    path, anew = table.path, f"`instep backfill {argument(table.path)}` reads the whole table again"
    if paused := context.store.pauses.connection(context.name):
        why = f"connection {context.name} is paused: {paused.reason}"
        raise _refused(path, why, resume_hint(context.name, paused))
    if isinstance(context.source, Streams):
        why = "a connector sends what has changed, once, and is not read by key"
        raise _refused(path, why, "`instep sync --full` lets it send everything again")
    if context.destination.shard is not None:
        raise _refused(path, "connections share it, and their rows are in one table", anew)
    if not table.key:
        raise _refused(path, "it has no key, so its rows cannot be identified", anew)
    if table.history or context.settings(table).history:
        raise _refused(path, "it keeps its history, and a repair would make versions that never were", anew)
    if choose(table, context.settings(table)).mode == "append":
        raise _refused(path, "it is only appended to, and keeps what its source has changed since", anew)


def _check_open(context: SyncContext, snapshot: Snapshot, detection: DetectionResult, read: TableRead) -> None:
    """Raise Blocked for a table that does not run now, or whose schema the next sync changes."""
    path, ref = read.table.path, read.table.ref
    if paused := context.store.pauses.tables(context.name).get(ref):
        raise _refused(path, f"it is paused: {paused.reason}", resume_hint(context.name, paused))
    if why := waiting_tables(context, detection).get(ref):
        raise _refused(path, why, "see `instep changes list`")
    if why := {**faulty_filters(context, snapshot, [read]), **detection.denied}.get(ref):
        raise _refused(path, why, "see `instep status`")
    renames = TableRenames.of(detection.decisions)
    if any(d.applied and renames.before(d.change) == ref for d in detection.decisions):
        raise _refused(path, "its schema has changed, and the next sync follows", "run `instep sync`, then repair")
    if ref in whole_tables(context):
        raise _refused(path, "the next sync reads the whole table again", "run `instep sync`")
    unread = [c.column.name for c in read.columns if c.column.key and c.source is None]
    if unread:
        raise _refused(path, f"the source has no {', '.join(unread)}, which is in its key", "see `instep changes list`")


def _check_positions(context: SyncContext, snapshot: Snapshot, target: RepairTarget) -> None:
    """Raise Blocked if the snapshot may be older than what was loaded and the next sync would not read it again."""
    path, again = target.path, f"`instep sync --full --table {argument(target.path)}` reads the whole table again"
    if target.choice.mode == "cdc":
        last = json.loads(target.state.cursor or "{}").get("log")
        if last is None or context.log is None or not isinstance(context.source, Logs):
            return
        if getattr(getattr(context.source, "config", None), "read_replica", ()):
            raise _refused(path, "rows are read from a replica, which may be behind the log that was followed", again)
        log = context.source.log(context.log).state()
        if not log.exists or log.trouble or log.server != last["server"]:
            why = log.trouble or "the log that it follows is gone, and the changes since the last sync are lost"
            raise _refused(path, why, log.hint or again)
    elif target.choice.cursor is not None:
        after = recorded(target.state, target.choice.cursor)
        _, now = snapshot.cursor_bounds(target.read, target.choice.cursor, None, 0)
        if after is not None and (now.upper is None or cursor_went_back(now.upper, after)):
            why = (
                f"the source is behind what was loaded: its {target.choice.cursor} has reached {now.upper}, not {after}"
            )
            raise _refused(path, why, "run `instep sync`, then repair")


@dataclass(frozen=True)
class RepairFindings:
    """Source and destination of one table, compared by key; `unfit` are values of the source that do not fit."""

    context: SyncContext
    target: RepairTarget
    rows: RowComparison
    unfit: QuarantinedColumns
    progress: Progress
    sides: TableSides
    engine: Engine

    def compare(self) -> None:
        """Compare the source's rows, as they were read, with the destination's, as they are now."""
        self.progress.step("comparing")
        self.rows.load("destination", self.sides.destination.rows(self.engine))
        self.rows.compare()

    def check_keys(self) -> None:
        """Raise Blocked if rows share a key on one side: none of them is the one that a merge would write."""
        if doubled := self.counts().get(TWINS, 0):
            path, why = self.target.path, f"{doubled:,} rows share their key with another row"
            raise _refused(
                path, why, f"`instep backfill {argument(path)}` reads the whole table again, if its key is one"
            )

    @property
    def keeps(self) -> bool:
        """True if rows that only the destination has are no difference."""
        return retains_rows(self.context, self.target.read)

    def counts(self) -> dict[str, int]:
        """Return how many rows differ, by how they do; rows that are kept differ from nothing."""
        counts = self.rows.counts()
        return {what: count for what, count in counts.items() if what != EXTRA or not self.keeps}

    def verdict(self) -> VerifyResult:
        """Return what `verify` says of the rows, but for what is held in quarantine."""
        counts, (source, destination) = self.counts(), self.rows.rows
        extras = self.rows.counts().get(EXTRA, 0) if self.keeps else 0
        lines = tuple(f"{what} ({count:,} rows)" for what, count in counts.items())
        result = VerifyResult(self.target.path, not counts, source, destination, lines, retained=extras)
        return replace(result, engine=str(self.engine.use))


@contextmanager
def compared(
    context: SyncContext, snapshot: Snapshot, target: RepairTarget, progress: Progress, engine: Engine
) -> Iterator[RepairFindings]:
    """Read both sides and compare them; the findings are there until the block is left."""
    names = {c.name: c.alias or c.name for c in target.read.table.columns}
    with quarantined_columns(target.path, names) as unfit, row_comparison(target.read) as rows:
        progress.step("reading the source")
        sides = table_sides(context, snapshot, target.read, 0, unfit.hashes)
        on_rows = telling(progress, target.path, "comparing")
        rows.load("source", sides.source.rows(engine, on_unfit=unfit.add, progress=on_rows))
        findings = RepairFindings(context, target, rows, unfit, progress, sides, engine)
        findings.compare()
        yield findings


@dataclass(frozen=True)
class RepairPreview:
    """Findings of a repair before it is carried out; `verdict` is the current result of `verify`."""

    verdict: VerifyResult
    counts: Mapping[str, int]
    reads: int
    """Rows of the source that are read again."""
    removes: str
    """Treatment of rows that the source does not have: `deleted`, or `marked as deleted`."""
    savepoint: str = ""
    """The snapshot that the table is at, which it can be put back to; "" where there is none."""
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The first keys of the rows that differ, by how they do: for the person who asked, and for no record."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences for people, without a value of a row."""
        table, counts = self.verdict.table, self.counts
        if not counts:
            return (f"{table} equals its source: there is nothing to repair", *self.verdict.differences)
        texts = (
            (MISSING, "missing at the destination: inserted"),
            (DIFFERS, "with other values than the source: rewritten"),
            (EXTRA, f"only at the destination: {self.removes}; name {table} with --allow-destructive"),
        )
        back = (
            f"`instep restore {argument(table)} --snapshot {self.savepoint}` takes it back"
            if self.savepoint
            else "the destination keeps no snapshots: a repair cannot be undone"
        )
        return (
            f"{table}: {self.verdict.source_rows:,} rows in the source, {self.verdict.destination_rows:,} in the "
            "destination",
            *(f"{counts[what]:,} {_rows(counts[what])} {text}" for what, text in texts if what in counts),
            f"{self.reads:,} {_rows(self.reads)} of the source are read again",
            back,
        )

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it; keys of rows are not in it."""
        counts = self.counts
        return {
            "table": self.verdict.table,
            "source_rows": self.verdict.source_rows,
            "destination_rows": self.verdict.destination_rows,
            "missing": counts.get(MISSING, 0),
            "differing": counts.get(DIFFERS, 0),
            "extra": counts.get(EXTRA, 0),
            "read_again": self.reads,
            "savepoint": self.savepoint or None,
            "verdict": asdict(self.verdict),
            "does": list(self.lines),
        }


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def prepare(
    context: SyncContext, path: str, progress: Progress | None = None, engine: Engine | None = None
) -> RepairPreview:
    """Compare a table with its source, and say what a repair would do; nothing is written.

    Raises InstepError for an unknown table, Blocked for one that cannot be repaired exactly.
    """
    _check_kind(context, context.table(path))
    with context.source.snapshot() as snapshot:
        target = repair_target(context, snapshot, path)
        with compared(context, snapshot, target, progress or Silent(), engine or LocalEngine()) as findings:
            verdict = with_quarantined(
                findings.verdict(),
                findings.unfit.rejected,
                count_quarantined(context, target.read.table, findings.unfit),
            )
            findings.check_keys()
            counts = findings.counts()
            examples = {what: findings.rows.examples(what) for what in counts}
            reads = findings.rows.count_within(findings.rows.ranges(target.read))
    removes = "deleted" if target.choice.deletes == "hard" else "marked as deleted"
    return RepairPreview(verdict, counts, reads, removes, _savepoint(context, target.ref), examples)


def _savepoint(context: SyncContext, ref: Ref) -> str:
    keeper = context.destination.lifecycle.savepoints
    return next((str(p.id) for p in keeper.savepoints(ref) if p.current), "") if keeper else ""


@dataclass(frozen=True)
class RepairResult:
    """Result of a repair, with the result of `verify` afterwards."""

    run: str
    verdict: VerifyResult
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    savepoint: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**asdict(self), "savepoint": self.savepoint or None}


def repair(
    context: SyncContext,
    path: str,
    allowed: Sequence[str] = (),
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> RepairResult:
    """Correct the rows in which a table differs from its source, as one run.

    `allowed`: patterns of tables whose rows may be removed. Raises Blocked if none of them names the table and rows
    would go, or if the table cannot be repaired exactly; Conflict if its schema moves meanwhile. Interrupted, it leaves
    rows that are as before or as the source has them, and the next repair finds the others.
    """
    check_unmoved(context)
    _check_kind(context, context.table(path))
    on_progress, rows_by = progress or Silent(), engine or LocalEngine()
    with ExitStack() as stack:
        with claimed(context, "repair") as run:
            context = replace(context, run=run)
            with context.source.snapshot() as snapshot:
                target = repair_target(context, snapshot, path)
                context.destination.write.claim(target.ref, run.fence)
                remove_uncommitted_files(context, dead_runs(context, run), target.ref, target.state)
                findings = stack.enter_context(compared(context, snapshot, target, on_progress, rows_by))
                savepoint = _savepoint(context, target.ref)
                staged = _stage(context, snapshot, findings, run, allowed)
            done = TableRun(run.id, target.read.table.ref, "done", "repair")
            if staged is not None:
                done = replace(commit(context, rows_by, *staged, run, on_progress).result, mode="repair")
                findings.compare()
            _record(context, path, done)
            verdict = findings.verdict()
            on_progress.table(path, step="done")
        # not before the run has ended: what a run that is under way holds does not count yet
        verdict = with_quarantined(
            verdict, findings.unfit.rejected, count_quarantined(context, target.read.table, findings.unfit)
        )
    return RepairResult(run.id, verdict, done.inserted, done.updated, done.deleted, savepoint)


def _record(context: SyncContext, path: str, done: TableRun) -> None:
    counts = (done.read, done.inserted, done.updated, done.deleted, done.invalid_values)
    with context.transaction():
        context.store.runs.record_tables(done)
        context.store.events.add(TableLoaded(context.name, done.run, path, "repair", *counts))


def _stage(
    context: SyncContext, snapshot: Snapshot, findings: RepairFindings, run: Run, allowed: Sequence[str]
) -> tuple[Load, Staged] | None:
    """Read the rows of the keys that differ again and stage them; None if none differ."""
    counts, path = findings.counts(), findings.target.path
    if not counts:
        return None
    findings.check_keys()
    if (extra := counts.get(EXTRA, 0)) and not any(fits_glob(path, pattern) for pattern in allowed):
        what = (
            f"{extra:,} {_rows(extra)} of {path} {'is' if extra == 1 else 'are'} not in the source, and would be "
            "deleted"
        )
        raise Blocked(what, hint=f"name it: --allow-destructive '{path}'")
    load = _load(context, findings.target, run, removes=bool(extra))
    try:
        staged = _staged(context, snapshot, findings, load, run)
        crashpoint("repair.staged")
        if snapshot.changed_tables(Catalog.of([findings.target.read.source])):
            raise Conflict(
                f"the schema of {path} changed while its rows were read", hint="run `instep sync`, then repair"
            )
        context.store.runs.check(run)
    except BaseException:
        discard(context, [load])
        raise
    return load, staged


def _load(context: SyncContext, target: RepairTarget, run: Run, *, removes: bool) -> Load:
    """Return the merge of some rows: as a sync does it that was told their keys by a log, but for the position."""
    read, detection, ref = target.read, target.detection, target.read.table.ref
    setting, extras = context.settings(read.table).handling_of_invalid_values(), overflow_columns(context, detection)
    asks = removes and context.destination.capabilities.merges_requested
    choice = replace(target.choice, cursor=None, deletes=target.choice.deletes if removes else "ignore")
    return Load(
        number=0,
        read=read,
        ref=target.ref,
        choice=choice,
        action="merge",
        cursor=target.state.cursor,
        complete=False,
        keys=removes and not asks,
        folder=folder(run.id, 0),
        on_invalid_value=setting if setting != "quarantine" else on_invalid_value_of(detection).get(ref, "quarantine"),
        holds=blocked_types(context, detection).get(ref, {}),
        extra=extra_reads(sides_now(context).now, read, extras.get(ref, ())),
        only_copies=only_copies(read, context.store.backfills.waiting(context.name)),
        changed=ChangedKeys(()) if asks else None,
        read_at=int(run.started.timestamp() * 1_000_000),
    )


def _staged(context: SyncContext, snapshot: Snapshot, findings: RepairFindings, load: Load, run: Run) -> Staged:
    rows, *keys = specs_of(context, load, snapshot, run.id, int(run.started.timestamp() * 1_000_000))
    findings.progress.step("reading rows again")
    chunks = _chunks(snapshot, load, findings.rows.ranges(load.read))
    reader = KeyReader(snapshot.reader, rows, findings.rows)
    results = {load.spec: extract_locally(reader, [rows], chunks), load.key_spec: list[ChunkResult]()}
    for spec in keys:
        gone = f"SELECT {{}} FROM different WHERE what = '{EXTRA}'" if load.asks else "SELECT {} FROM source_rows"
        results[load.key_spec].append(_stage_keys(spec, findings.rows, gone))
    planned = {name: {extracted.chunk for extracted in own} for name, own in results.items()} | {
        load.spec: {chunk.number for chunk in chunks}
    }
    staged = placed(verify_staged(load, planned, results), rows)
    if isinstance(staged, InstepError):
        raise staged
    return staged


def _chunks(snapshot: Snapshot, load: Load, ranges: Sequence[CursorRange]) -> list[Chunk]:
    chunks = [chunk for key_range in ranges for chunk in snapshot.chunks(load.wide, load.spec, key_range)]
    return [replace(chunk, number=number) for number, chunk in enumerate(chunks)]


def _stage_keys(spec: StageSpec, rows: RowComparison, query: str) -> ChunkResult:
    """Write keys as a read of the key columns would; `query` has a place for their names."""
    names = dict(zip(rows.key, rows.names, strict=True))
    writer = ChunkWriter(spec, 0, 0)
    try:
        for batch in rows.db.sql(query.format(", ".join(names[f.name] for f in spec.schema))).to_arrow_reader(BATCH):
            columns = zip(batch.columns, spec.schema, strict=True)
            values = [as_stored(as_plain(column, plain_type(f.type)), f.type) for column, f in columns]
            writer.write(pa.RecordBatch.from_arrays(values, schema=spec.schema))
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    return ChunkResult(spec.table, 0, sum(file.rows for file in files), files)


class Repair(Work):
    """The work of the operation `repair`."""

    moves_rows = True

    def prepare(self, context: SyncContext, request: RepairRequest) -> Preview:
        """Compare both sides, unless the preview was shown: then the rows are compared when they are repaired."""
        bound = RepairRequest(table=request.table, shown=True)
        if request.shown:
            return Preview(context.name, bound, {"table": request.table}, ())
        preview = prepare(context, request.table, self.progress, self.engine)
        return Preview(context.name, bound, preview.document(), preview.lines, prepared=preview)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Correct the rows; return the counts and the verdict."""
        assert isinstance(preview.request, RepairRequest)
        return repair(context, preview.request.table, allow, self.progress, self.engine).document()
