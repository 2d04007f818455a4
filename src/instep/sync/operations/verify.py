"""Proves that a destination table equals its source: counts, checksums of every column, and which keys differ.

Both sides are read now: the source in one snapshot through the same conform step that loads use, so that equal
means equal under the accepted schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from instep.errors import Blocked
from instep.operations.everyday.verify import VerifyRequest
from instep.operations.spec import DirectWork
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import describe, key
from instep.schema.planning.naming import destination_ref, quote
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange, Snapshot
from instep.sources.stream import Streams
from instep.stage.conform import Conformer, QuarantinedValue
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.inline import giving_way
from instep.stage.quarantine import QuarantineEntry, entry_id, field_id
from instep.sync.context import Ref, SyncContext, unknown_table
from instep.sync.detection.detect import KEYS, DetectionResult, detect
from instep.sync.detection.filters import faulty_filters
from instep.sync.detection.table_renames import TableRenames
from instep.sync.loading.row_comparison import EXTRA, row_comparison
from instep.sync.loading.table_load import Load
from instep.sync.loading.task_specs import stage_spec
from instep.sync.progress import Progress, Silent
from instep.sync.quarantine.quarantine import holdings
from instep.sync.schema_changes.selected import selected_reads
from instep.sync.table_mode import choose
from instep.temporary import temporary

_SCHEMA = pa.schema([("id", pa.string()), ("place", pa.string()), ("whole", pa.bool_())])
_ENTRIES = pa.schema([("id", pa.string()), ("place", pa.string()), ("status", pa.string())])
_GROUP = 10_000


@dataclass(frozen=True)
class QuarantineCount:
    """Count of source values that the table does not accept."""

    values: int = 0
    """Values held in quarantine, of rows that are there without them."""
    rows: int = 0
    """Whole rows held in quarantine."""
    discarded: int = 0
    """Values and rows that a person has let go."""
    absent: int = 0
    """Values and rows that are in no quarantine."""
    stale: int = 0
    """Entries of the quarantine whose value the source does not have any more."""


@dataclass
class QuarantinedColumns:
    """Values of one table that do not fit, as its source has them now. They are kept as hashes in a file: there may be
    as many as rows."""

    table: str
    names: Mapping[str, str]
    folder: Path = field(repr=False)
    rejected: int = 0
    count: int = 0
    _rows: list[tuple[str, str, bool]] = field(default_factory=list, repr=False)
    _writer: Any = field(default=None, repr=False)

    def add(self, values: Sequence[QuarantinedValue]) -> None:
        self.count += len(values)
        for one in values:
            self.rejected += not one.column
            place = _place(self._named(one.key), self.names.get(one.column, one.column), self._original(one))
            self._rows.append((entry_id(self.table, one.key, one.column, one.original), place, not one.column))
            if len(self._rows) >= _GROUP:
                self._flush()

    def batches(self) -> pa.RecordBatchReader:
        """Return what was added, once."""
        self._flush()
        self._writer.close()
        return pa.ipc.open_stream(pa.memory_map(str(self.folder / "held")))

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(str(self.folder / "held"), _SCHEMA)
        columns = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        self._writer.write_batch(
            pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
        )
        self._rows = []

    def _named(self, text: str) -> Mapping[str, Any]:
        return {self.names.get(path, path): value for path, value in json.loads(text).items()}

    def _original(self, one: QuarantinedValue) -> Any:
        return one.original if one.column else self._named(one.original or "{}")


@contextmanager
def quarantined_columns(table: str, names: Mapping[str, str]) -> Iterator[QuarantinedColumns]:
    """Collect what does not fit of the accepted table with this path; `names` are its columns' names at the
    destination."""
    with temporary("verify") as folder:
        yield QuarantinedColumns(table, names, Path(folder))


def count_quarantined(context: SyncContext, table: Table, found: QuarantinedColumns) -> QuarantineCount:
    """Compare what does not fit with what the table's quarantine holds, by key, column and original."""
    if not found.count and not context.store.runs.has_quarantined(context.name):
        return QuarantineCount()
    entries = pa.Table.from_batches(list(_entries(context, table, found.names)), _ENTRIES)
    with in_duckdb() as db:
        db.register("found_now", found.batches())
        db.execute("CREATE TEMP TABLE here AS SELECT DISTINCT id, place, whole FROM found_now")
        db.register("quarantined", entries)
        known = (
            "SELECT h.id, h.whole, coalesce(a.status, b.status, '') AS status FROM here AS h "
            "LEFT JOIN (SELECT id, min(status) AS status FROM quarantined GROUP BY id) AS a USING (id) LEFT JOIN "
            "(SELECT DISTINCT place, status FROM quarantined WHERE status = 'held') AS b USING (place)"
        )
        counted = {
            (whole, status): n
            for whole, status, n in db.execute(
                f"SELECT whole, status, count(*) FROM ({known}) GROUP BY ALL"  # noqa: S608 - of this module
            ).fetchall()
        }
        [(stale,)] = db.execute(
            "SELECT count(*) FROM quarantined WHERE status = 'held' AND id NOT IN (SELECT id FROM here) "
            "AND place NOT IN (SELECT place FROM here)"
        ).fetchall()
    discarded = sum(n for (_, status), n in counted.items() if status == "discarded")
    values, rows = counted.get((False, "held"), 0), counted.get((True, "held"), 0)
    return QuarantineCount(values, rows, discarded, sum(counted.values()) - values - rows - discarded, stale)


def _entries(context: SyncContext, table: Table, names: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for holding in holdings(context, [table.path]):
        by_id = {field_id(f): f.name for f in holding.target.schema if field_id(f)}
        mine = [e for e in holding.found.entries if e.status in ("held", "discarded")]
        rows = [{"id": e.id, "place": _place_of(e, by_id, names), "status": e.status} for e in mine]
        yield from pa.Table.from_pylist(rows, schema=_ENTRIES).to_batches()


def _place_of(entry: QuarantineEntry, by_id: Mapping[int, str], names: Mapping[str, str]) -> str:
    """Return the entry under the names that its columns have at the destination now."""
    fields = json.loads(entry.fields)

    def now(path: str) -> str:
        return by_id.get(fields.get(path, 0)) or names.get(path, path)

    def named(text: str) -> Mapping[str, Any]:
        return {now(path): value for path, value in json.loads(text).items()}

    original = entry.original if entry.column else named(entry.original or "{}")
    return _place(named(entry.key), now(entry.column) if entry.column else "", original)


def _place(key: Mapping[str, Any], column: str, original: Any) -> str:
    """Key, column and original as one hash: nothing of a row is written down in clear."""
    return sha256(json.dumps([key, column, original], sort_keys=True).encode()).hexdigest()


OnQuarantined = Callable[[Sequence[QuarantinedValue]], None]
"""Is given what does not fit, batch by batch."""


__all__ = ["OnQuarantined", "QuarantineCount", "QuarantinedColumns", "count_quarantined", "quarantined_columns"]


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
    kept: int = 0
    """Rows only in the destination, as `deletes: ignore` asks: they differ from nothing."""
    held: int = 0
    """Values of the source that are NULL at the destination and held in quarantine."""
    held_rows: int = 0
    """Rows of the source that are held in quarantine as a whole."""
    discarded: int = 0
    """Values and rows of the source that a person has let go from quarantine."""
    stale: int = 0
    """Held values and rows that the source does not have any more."""
    skipped: str = ""
    """Pending change, with its id, for which the table waits and was not compared."""

    @property
    def waits(self) -> bool:
        """True if nothing differs, and yet the source has what the destination does not."""
        return bool(self.skipped or (self.equal and (self.held or self.held_rows or self.discarded)))


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
        return VerifyReport(tuple(verify(context, frozenset(request.tables), progress, keys=self.at_project)))


@dataclass(frozen=True)
class _Side:
    rows: int
    sums: Mapping[str, int]


def verify(
    context: SyncContext, only: frozenset[str] = frozenset(), progress: Progress | None = None, *, keys: bool = True
) -> list[VerifyResult]:
    """Return one verdict a table, of those that are accepted, switched on and not missing. Without `keys` the rows that
    differ are counted and not named. InstepError for a path in `only` that no such table has."""
    if isinstance(context.source, Streams):
        raise Blocked(
            f"connection {context.name} has nothing to compare with: a connector sends what has changed, once",
            hint="`instep sync --full` lets it send everything again",
        )
    on_progress = progress or Silent()
    verdicts = []
    with context.source.snapshot() as snapshot:
        detection = detect(context, snapshot.discover())
        found, missing = selected_reads(context, detection)
        closed = {**faulty_filters(context, snapshot, found), **detection.denied}
        waiting = waiting_tables(context, detection)
        for number, read in enumerate(r for r in found if not only or r.table.path in only):
            if skipped := waiting.get(read.table.ref):
                verdicts.append(_skipped(read.table.path, skipped))
                continue
            if why := closed.get(read.table.ref):
                verdicts.append(VerifyResult(read.table.path, False, 0, 0, (why,), compared=False))
                continue
            on_progress.table(read.table.path, step="verifying")
            verdicts.append(_verify(context, snapshot, read, number, keys=keys))
            on_progress.table(read.table.path, rows=verdicts[-1].source_rows, step="done")
    for gone in missing:
        if not only or gone.table.path in only:
            lost = gone.table.ref in detection.denied
            one = VerifyResult(gone.table.path, False, 0, 0, (gone.why,), compared=False)
            verdicts.append(one if lost else _skipped(gone.table.path, waiting.get(gone.table.ref, gone.why)))
    for name in sorted(only - {v.table for v in verdicts}):
        known = [t.path for t in context.store.accepted.catalog(context.name).tables]
        raise unknown_table(f"connection {context.name} has no table", name, known)
    return verdicts


def waiting_tables(context: SyncContext, detection: DetectionResult) -> dict[Ref, str]:
    """Accepted tables that are not loaded because a change of theirs is held, and which."""
    places = TableRenames.of(detection.decisions)
    paused = {p.table: p for p in context.store.pauses.active(context.name) if p.table and p.change}
    found = {ref: f"pending change {p.change}: {p.reason}" for ref, p in paused.items() if ref is not None}
    stopped = {*detection.unkeyed(moved=False), *detection.replaced, *detection.drift.stopped(detection.decisions)}
    kinds = ("table.removed", "table.replaced", "destination.drifted", *KEYS)
    for one in detection.decisions:
        ref = places.before(one.change)
        stops = one.action == "pause_table" or one.change.kind == "table.removed" or ref in stopped
        if one.applied or one.change.kind not in kinds or not stops:
            continue
        review = detection.reviews.get(key(one.change))
        found.setdefault(
            ref, f"pending change {review.id if review else ''}: {describe(one.change)}".replace(" :", ":")
        )
    return found


def _skipped(path: str, why: str) -> VerifyResult:
    return VerifyResult(path, False, 0, 0, compared=False, skipped=why)


def _verify(context: SyncContext, snapshot: Snapshot, read: TableRead, number: int, *, keys: bool) -> VerifyResult:
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
        source = _checksum(source_rows(context, snapshot, read, number, unfit.add), columns)
        quarantined = count_quarantined(context, read.table, unfit)
    destination = _checksum(destination_rows(context, read, columns), columns)
    found = _compared(context, snapshot, read, number, columns, source, destination, keys=keys)
    return with_quarantined(found, unfit.rejected, quarantined)


def with_quarantined(found: VerifyResult, rejected: int, quarantined: QuarantineCount) -> VerifyResult:
    """Count what does not fit: a row that is refused is one of the source."""
    lines = found.differences
    if quarantined.absent:
        way = f"`instep sync --full --table {found.table}` holds them again"
        lines = (*lines, f"values that do not fit are neither loaded nor in quarantine ({quarantined.absent:,}): {way}")
    return replace(
        found,
        equal=found.equal and not quarantined.absent,
        source_rows=found.source_rows + rejected,
        differences=lines,
        held=quarantined.values,
        held_rows=quarantined.rows,
        discarded=quarantined.discarded,
        stale=quarantined.stale,
    )


def _compared(
    context: SyncContext,
    snapshot: Snapshot,
    read: TableRead,
    number: int,
    columns: Sequence[str],
    source: _Side,
    destination: _Side,
    *,
    keys: bool,
) -> VerifyResult:
    """Say how the rows differ that fit."""
    if source == destination:
        return VerifyResult(read.table.path, True, source.rows, destination.rows)
    found = _differing(context, snapshot, read, number, columns) if read.table.key else {}
    extras = found.pop(EXTRA, (0, []))[0] if keeps_rows(context, read) else 0
    if extras and not found:
        return VerifyResult(read.table.path, True, source.rows, destination.rows, kept=extras)
    differing = [c for c in columns if source.sums.get(c) != destination.sums.get(c)]
    lines = [f"columns that differ: {', '.join(differing)}"] if differing else ["the same values are in other rows"]
    lines = [] if extras else lines  # every column differs by the rows that are kept
    for what, (count, some) in found.items():
        difference = f"{what} ({count:,} rows)"
        lines += [f"{difference}: key {key}" for key in some] if keys else [difference]
    return VerifyResult(read.table.path, False, source.rows, destination.rows, tuple(lines), kept=extras)


def keeps_rows(context: SyncContext, read: TableRead) -> bool:
    """Return whether rows that the source has no more, or that its filter leaves out by now, stay as they are."""
    choice = choose(read.table, context.settings(read.table))
    return bool(read.table.key) and choice.mode in ("upsert", "cdc") and choice.deletes == "ignore"


def source_rows(
    context: SyncContext,
    snapshot: Snapshot,
    read: TableRead,
    number: int,
    on_quarantined: OnQuarantined = lambda values: None,
) -> pa.RecordBatchReader:
    """Return the table as a load would stage it, without its system columns. `on_quarantined` is given what does not
    fit."""
    ref = destination_ref(read.table, context.naming)
    load = Load(number, read, ref, choose(read.table, context.settings(read.table)), "overwrite")
    target = context.destination.write.target(ref)
    spec = stage_spec(context, load, target, snapshot.yields(read), "verify", 0)
    names = [c.name for c in spec.columns if c.source is not None]
    spec = replace(spec, on_invalid_value="null")

    def batches() -> Iterator[pa.RecordBatch]:
        with giving_way(snapshot.reader) as session:
            for chunk in snapshot.chunks(read, load.spec, CursorRange()):
                conformer = Conformer(spec)
                for batch in session.read(chunk):
                    made = conformer.conform(batch)
                    on_quarantined(made.quarantined)
                    yield made.batch.select(names)

    schema = pa.schema([target.schema.field(n).remove_metadata() for n in names])
    return pa.RecordBatchReader.from_batches(schema, (_plain(b, schema) for b in batches()))


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def destination_rows(context: SyncContext, read: TableRead, columns: Sequence[str]) -> pa.RecordBatchReader:
    """Return the rows that stand: those marked as deleted are left out, and versions that have ended."""
    mark = f"{context.naming.prefix}{'current' if read.table.history else 'deleted'}"
    ref = destination_ref(read.table, context.naming)
    if not read.table.key:
        return context.destination.write.read(ref, columns)
    rows = context.destination.write.read(ref, [*columns, mark])
    with_mark: Iterable[pa.RecordBatch] = rows
    schema = pa.schema([rows.schema.field(c) for c in columns])

    def current() -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in with_mark:
            marked = pc.fill_null(batch.column(batch.schema.get_field_index(mark)), False)
            yield batch.filter(marked if read.table.history else pc.invert(marked)).select(list(columns))

    return pa.RecordBatchReader.from_batches(schema, current())


def _checksum(rows: pa.RecordBatchReader, columns: Sequence[str]) -> _Side:
    """Independent of the order of rows: the sum of the hashes of each column, and of whole rows."""
    names = [quote(c, "ansi") for c in columns]
    sums = [f"sum(hash({n})::hugeint)" for n in names] + [f"sum(hash({', '.join(names)})::hugeint)"]
    with in_duckdb() as connection:
        connection.register("side", rows)
        [(count, *values)] = connection.execute(f"select count(*), {', '.join(sums)} from side").fetchall()  # noqa: S608
    return _Side(count, dict(zip([*columns, ""], values, strict=True)))


def _differing(
    context: SyncContext, snapshot: Snapshot, read: TableRead, number: int, columns: Sequence[str]
) -> dict[str, tuple[int, list[str]]]:
    """Return how many rows are on one side only, differ, or are not as many on both sides, and the first keys of them.
    Without any of these, but for rows that are only in the destination, both sides hold the same rows of the same
    keys."""
    with row_comparison(read, columns) as found:
        found.load("source", source_rows(context, snapshot, read, number))
        found.load("destination", destination_rows(context, read, columns))
        found.compare()
        return {what: (count, found.examples(what)) for what, count in found.counts().items()}
