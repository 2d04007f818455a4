"""Proves that a destination table equals its source: counts, checksums of every column, and which keys differ.

Both sides are read now, by tasks of the engine that syncs have: the source in one snapshot through the same conform
step that loads use, so that equal means equal under the accepted schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from instep.errors import Blocked, argument
from instep.operations.everyday.verify import VerifyRequest
from instep.operations.spec import DirectWork
from instep.schema.changes.describe import describe, key
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import TableRead
from instep.sources.base import Snapshot, object_path
from instep.sources.stream import Streams
from instep.suggest import unknown_table
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import KEYS, DetectionResult, detect
from instep.sync.detection.filters import faulty_filters
from instep.sync.detection.table_renames import TableRenames
from instep.sync.loading.engine import Engine, LocalEngine, RowsCallback
from instep.sync.loading.row_comparison import EXTRA, row_comparison
from instep.sync.loading.row_sums import RowSums
from instep.sync.loading.table_sides import TableSides, table_sides
from instep.sync.progress import Progress, Silent, telling
from instep.sync.quarantine.unfit_values import (
    QuarantineCount,
    QuarantinedColumns,
    count_quarantined,
    quarantined_columns,
)
from instep.sync.schema_changes.selected import selected_reads
from instep.sync.schema_changes.selection_change import incomplete_columns
from instep.sync.table_mode import choose


@dataclass(frozen=True)
class VerifyResult:
    """Result of the comparison of one table."""

    table: str
    equal: bool
    """No difference was found, what is held or let go aside; false if the table could not be compared."""
    source_rows: int
    destination_rows: int
    differences: tuple[str, ...] = ()
    """Sentences for people; none when the table is equal."""
    compared: bool = True
    """False: `differences` or `skipped` say why, and nothing is known of its rows."""
    retained: int = 0
    """Rows only in the destination, as `deletes: ignore` asks: they differ from nothing."""
    held: int = 0
    """Values of the source that are NULL at the destination and held in quarantine."""
    held_rows: int = 0
    """Rows of the source that are held in quarantine as a whole."""
    discarded: int = 0
    """Values and rows of the source that a person has let go from quarantine."""
    stale: int = 0
    """Held values and rows that the source no longer has."""
    skipped: str = ""
    """Pending change, with its id, for which the table waits and was not compared."""
    engine: str = ""
    """The engine that compared its rows: `spark` and where, or `local`; "" if they were not compared."""
    unread: str = ""
    """Why a part of the table at the source is not read, and was not compared."""

    @property
    def waits(self) -> bool:
        """True if nothing differs, and yet the source has what the destination does not."""
        return bool(self.skipped or (self.equal and (self.held or self.held_rows or self.discarded or self.unread)))


@dataclass(frozen=True)
class VerifyReport:
    """One verdict a table."""

    tables: tuple[VerifyResult, ...]


class Verify(DirectWork):
    """The work of the operation `verify`."""

    moves_rows = True

    def run(self, context: SyncContext, request: VerifyRequest) -> VerifyReport:
        """Compare the tables; the keys of rows that differ are named only where the answer stays at the project."""
        progress = self.progress or Silent()
        progress.step("comparing")
        return VerifyReport(
            tuple(verify(context, frozenset(request.tables), progress, self.engine, keys=self.at_project))
        )


def verify(
    context: SyncContext,
    only: frozenset[str] = frozenset(),
    progress: Progress | None = None,
    engine: Engine | None = None,
    *,
    keys: bool = True,
) -> list[VerifyResult]:
    """Return one verdict a table, of those that are accepted, switched on and not missing. Without `keys` the rows that
    differ are counted and not named. InstepError for a path in `only` that no such table has."""
    if isinstance(context.source, Streams):
        raise Blocked(
            f"connection {context.name} has nothing to compare with: a connector sends what has changed, once",
            hint="`instep sync --full` lets it send everything again",
        )
    on_progress, rows_by = progress or Silent(), engine or LocalEngine()
    verdicts = []
    with context.source.snapshot() as snapshot:
        detection = detect(context, snapshot.discover())
        reads, missing = selected_reads(context, detection)
        closed = {**faulty_filters(context, snapshot, reads), **detection.denied}
        waiting, unread = waiting_tables(context, detection), dict(detection.discovery.unread)
        for number, read in enumerate(r for r in reads if not only or r.table.path in only):
            if skipped := waiting.get(read.table.ref):
                verdicts.append(_skipped(read.table.path, skipped))
                continue
            if why := closed.get(read.table.ref):
                verdicts.append(VerifyResult(read.table.path, False, 0, 0, (why,), compared=False))
                continue
            on_progress.table(read.table.path, step="verifying")
            verdict = _verify(context, snapshot, read, number, rows_by, on_progress, keys=keys)
            verdicts.append(replace(verdict, unread=unread.pop(read.source.ref, "")))
            on_progress.table(read.table.path, rows=verdicts[-1].source_rows, step="done")
    compared = {v.table for v in verdicts}
    for ref, why in () if only else sorted(unread.items()):
        if object_path(ref) not in compared:
            verdicts.append(_skipped(object_path(ref), why))
    for gone in missing:
        if not only or gone.table.path in only:
            lost = gone.table.ref in detection.denied
            result = VerifyResult(gone.table.path, False, 0, 0, (gone.why,), compared=False)
            verdicts.append(result if lost else _skipped(gone.table.path, waiting.get(gone.table.ref, gone.why)))
    for name in sorted(only - {v.table for v in verdicts}):
        paths = [t.path for t in context.store.accepted.catalog(context.name).tables]
        raise unknown_table(f"connection {context.name} has no table {name}", name, paths)
    return verdicts


def waiting_tables(context: SyncContext, detection: DetectionResult) -> dict[Ref, str]:
    """Return accepted tables that are not loaded because a change of theirs is blocked, and which."""
    places = TableRenames.of(detection.decisions)
    paused = {p.table: p for p in context.store.pauses.active(context.name) if p.table and p.change}
    waiting = {ref: f"pending change {p.change}: {p.reason}" for ref, p in paused.items() if ref is not None}
    stopped = {*detection.unkeyed(moved=False), *detection.replaced, *detection.drift.stopped(detection.decisions)}
    kinds = ("table.removed", "table.replaced", "destination.drifted", *KEYS)
    for decision in detection.decisions:
        ref = places.before(decision.change)
        stops = decision.action == "pause_table" or decision.change.kind == "table.removed" or ref in stopped
        if decision.applied or decision.change.kind not in kinds or not stops:
            continue
        review = detection.reviews.get(key(decision.change))
        waiting.setdefault(
            ref, f"pending change {review.id if review else ''}: {describe(decision.change)}".replace(" :", ":")
        )
    return waiting


def _skipped(path: str, why: str) -> VerifyResult:
    return VerifyResult(path, False, 0, 0, compared=False, skipped=why)


def _verify(
    context: SyncContext,
    snapshot: Snapshot,
    read: TableRead,
    number: int,
    engine: Engine,
    progress: Progress,
    *,
    keys: bool,
) -> VerifyResult:
    ref = destination_ref(read.table, context.naming)
    state = context.destination.schema.state(ref)
    if not state:
        return VerifyResult(read.table.path, False, snapshot.count(read), 0, ("not loaded yet: run `instep sync`",))
    columns = [c.column.alias or c.column.name for c in read.columns if c.source is not None]
    if not columns:
        count = snapshot.count(read)
        same = (f"{count:,} rows in the source and {state.rows:,} in the destination",) if count != state.rows else ()
        return VerifyResult(read.table.path, not same, count, state.rows, same)
    with quarantined_columns(read.table.path, {c.name: c.alias or c.name for c in read.table.columns}) as unfit:
        sides = table_sides(context, snapshot, read, number, unfit.hashes)
        on_rows = telling(progress, read.table.path, "verifying")
        result = _compared(context, read, columns, sides, engine, on_rows, unfit, keys=keys)
        quarantined = count_quarantined(context, read.table, unfit)
    return replace(with_quarantined(result, unfit.rejected, quarantined), engine=str(engine.use))


def with_quarantined(result: VerifyResult, rejected: int, quarantined: QuarantineCount) -> VerifyResult:
    """Count what does not fit: a row that is refused is one of the source."""
    lines = result.differences
    if quarantined.absent:
        way = f"`instep sync --full --table {argument(result.table)}` holds them again"
        lines = (*lines, f"values that do not fit are neither loaded nor in quarantine ({quarantined.absent:,}): {way}")
    return replace(
        result,
        equal=result.equal and not quarantined.absent,
        source_rows=result.source_rows + rejected,
        differences=lines,
        held=quarantined.values,
        held_rows=quarantined.rows,
        discarded=quarantined.discarded,
        stale=quarantined.stale,
    )


def _compared(
    context: SyncContext,
    read: TableRead,
    columns: Sequence[str],
    sides: TableSides,
    engine: Engine,
    progress: RowsCallback,
    unfit: QuarantinedColumns,
    *,
    keys: bool,
) -> VerifyResult:
    """Say how the rows differ that fit: rows are looked at one by one only where sums differ."""
    source, destination = (
        sides.source.sums(engine, unfit.add, progress),
        sides.destination.sums(engine),
    )
    path, buckets = read.table.path, source.differing(destination)
    if not buckets:
        return VerifyResult(path, True, source.rows, destination.rows)
    examples, differing = _differing(read, sides, source, destination, buckets, engine)
    extras = examples.pop(EXTRA, (0, []))[0] if retains_rows(context, read) else 0
    if extras and not examples:
        return VerifyResult(path, True, source.rows, destination.rows, retained=extras)
    names = [columns[at] for at in differing]
    shown = {c.name: c.alias or c.name for c in read.table.columns}
    lacking = [text for _, name, text in incomplete_columns(context, [read.table.ref]) if shown[name] in names]
    lines = [f"columns that differ: {', '.join(names)}"] if names else ["the same values are in other rows"]
    lines = [] if extras else lines  # every column differs by the rows that are kept
    for what, (count, some) in examples.items():
        difference = f"{what} ({count:,} rows)"
        lines += [f"{difference}: key {key}" for key in some] if keys else [difference]
    return VerifyResult(path, False, source.rows, destination.rows, (*lines, *lacking), retained=extras)


def _differing(
    read: TableRead, sides: TableSides, source: RowSums, destination: RowSums, buckets: Sequence[int], engine: Engine
) -> tuple[dict[str, tuple[int, list[str]]], list[int]]:
    """Return how many rows of these buckets are on one side only, differ, or are not as many on both sides, with the
    first keys of them, and the places of columns whose values differ. Without any rows, but for those that are only in
    the destination, both sides hold the same rows of the same keys."""
    source_side, destination_side = sides.source_of(source, buckets), sides.destination
    ours = source_side.rows(engine, buckets, share=source.share(buckets), columns=True)
    theirs = destination_side.rows(engine, buckets, share=destination.share(buckets), columns=True)
    with row_comparison(read) as row_comparisons:
        sums = zip_longest(
            row_comparisons.load("source", ours), row_comparisons.load("destination", theirs), fillvalue=0
        )
        differing = [at for at, (a, b) in enumerate(sums) if a != b]
        if not read.table.key:
            return {}, differing
        row_comparisons.compare()
        return {
            what: (count, row_comparisons.examples(what)) for what, count in row_comparisons.counts().items()
        }, differing


def retains_rows(context: SyncContext, read: TableRead) -> bool:
    """Return whether rows that the source has no more, or that its filter leaves out by now, stay as they are."""
    choice = choose(read.table, context.settings(read.table))
    return bool(read.table.key) and choice.mode in ("upsert", "cdc") and choice.deletes == "ignore"
