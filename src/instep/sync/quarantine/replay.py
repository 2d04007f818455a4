"""Puts held values where they belong, once their column takes them: never over a newer value, and once.

A value goes into the row with its key if the row still has NULL there and its `meta` column still says that it was
nulled; a whole row goes in if no row has its key. The row's other values, and those of other rows, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from instep.crash import crashpoint
from instep.destinations.base import Commit, RowLookup, RowUpdate
from instep.errors import DestinationError, InstepError
from instep.events import TableFailed, TableLoaded
from instep.model import Run, TableRun
from instep.operations.repair.replay_quarantine import ReplayQuarantineRequest
from instep.operations.spec import DirectWork
from instep.schema.catalog.catalog import Table
from instep.stage.quarantine import QuarantineEntry
from instep.stage.quarantine_store import StoredQuarantine
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.quarantine.quarantine import QuarantinePlace, quarantine_places
from instep.sync.quarantine.rejoin import REPLACED, Rejoined, places_of_rows, recast, rejoin
from instep.sync.table_mode import mode_name

_WORDS = ("replayed", "superseded", "held")


BATCH = 50_000
"""About the most entries that are looked at together, and whose rows one commit changes."""


@dataclass(frozen=True)
class Replayed:
    """Result of one replay for one table: how many entries by what becomes of them, those that are left by column
    and reason, too."""

    table: str
    replayed: int = 0
    superseded: int = 0
    held: int = 0
    reasons: Mapping[tuple[str, str], int] = field(default_factory=dict)
    updated: int = 0
    inserted: int = 0
    error: str = ""
    """Reason why no more was done."""
    replaced: int = 0
    """Number of the superseded entries that are of the table before it was replaced."""

    def document(self) -> dict[str, Any]:
        """Return counts, and what is left by column and reason, as JSON has it; no value and no key."""
        counts = {word: getattr(self, word) for word in _WORDS}
        reasons = [{"column": c, "reason": r, "count": n} for (c, r), n in sorted(self.reasons.items())]
        written = {"updated": self.updated, "inserted": self.inserted, "replaced": self.replaced}
        return {"table": self.table, **counts, **written, "reasons": reasons, "error": self.error}

    def with_batch(self, batch: Rejoined) -> Replayed:
        """Return the result with a further batch."""
        left = Counter((e.column, e.reason) for e in batch.stays)
        return replace(
            self,
            replayed=self.replayed + len(batch.replayed),
            superseded=self.superseded + len(batch.superseded),
            replaced=self.replaced + sum(e.reason == REPLACED for e in batch.superseded),
            held=self.held + len(batch.stays),
            reasons=Counter(self.reasons) + left,
            updated=self.updated + len(batch.rows),
            inserted=self.inserted + len(batch.inserted),
        )


def replay(
    context: SyncContext, tables: Collection[str] = (), column: str = "", *, dry_run: bool = False
) -> list[Replayed]:
    """Replay quarantined values of these tables (paths; none: all), of one column if it is named. One run of the
    connection, a commit for each batch; one table's failure leaves the others alone. `dry_run` only looks. Raises
    Blocked while the connection is paused, RunInProgress while another run of it is alive."""
    if dry_run:
        return list(_all(context, tables, column, None))
    with claimed(context, "replay") as run:
        return list(_all(replace(context, run=run), tables, column, run))


def _all(context: SyncContext, tables: Collection[str], column: str, run: Run | None) -> Iterator[Replayed]:
    for place in quarantine_places(context, tables, run):
        with place.stored(context) as stored:
            if not (stored.files or stored.broken):
                continue
            work = _TableReplay(context, place, stored, column, run)
            if run is None:
                yield work.preview()
            else:
                done = work.carry_out(run)
                _record(context, place.table, done, run)
                yield done


@dataclass(frozen=True)
class ReplayReport:
    """Result or preview of a replay per table: documents of `Replayed`."""

    tables: tuple[Mapping[str, Any], ...]


class ReplayQuarantine(DirectWork):
    """The work of the operation `replay_quarantine`."""

    makes_run = True

    def run(self, context: SyncContext, request: ReplayQuarantineRequest) -> ReplayReport:
        """Replay quarantined values, or report what would be done."""
        done = replay(context, request.tables, request.column, dry_run=request.preview)
        return ReplayReport(tuple(table.document() for table in done))


@dataclass
class _TableReplay:
    """The replay of one table, batch by batch: all entries of a row are in one. A batch is committed, then what became
    of its entries is recorded: whoever repeats it after a crash finds the values in their rows."""

    context: SyncContext
    place: QuarantinePlace
    stored: StoredQuarantine
    column: str
    run: Run | None

    def preview(self) -> Replayed:
        """Return what would become of the entries."""
        done = Replayed(self.place.table.path)
        for entries in self._batches():
            done = done.with_batch(self._rejoin(entries)[1])
        return done

    def carry_out(self, run: Run) -> Replayed:
        """Write the values into their rows."""
        done, number, table = Replayed(self.place.table.path), 0, self.place.table
        try:
            if paused := self.context.store.pauses.tables(self.context.name).get(table.ref):
                raise DestinationError(f"{table.path} is paused: {paused.reason}", hint="resume it first")
            for number, entries in enumerate(self._batches(), 1):
                batch = self._carry_out(entries, run, number)
                done = done.with_batch(batch)
            if len(self.stored.files) > self.read:
                self.stored.put_together(run.id, number + 1)
        except InstepError as error:
            reasons = self.stored.reasons()
            return replace(done, held=sum(reasons.values()), reasons=reasons, error=str(error))
        return done

    def __post_init__(self) -> None:
        self.read = len(self.stored.files)

    def _batches(self) -> Iterator[list[QuarantineEntry]]:
        """Yield the entries, those of neighbouring keys together, so that most files have none of a batch's. Those that
        a person has let go still tell that older ones are not the last word."""
        target = self.place.target
        self.stored.divide(BATCH, places_of_rows(self.context, self.place.table, target.schema))
        for number in range(self.stored.buckets):
            yield [e for e in self.stored.bucket(number) if not self.column or e.column == self.column]

    def _carry_out(self, entries: Sequence[QuarantineEntry], run: Run, number: int) -> Rejoined:
        met, joined = self._rejoin(entries)
        ref, context = self.place.ref, self.context
        if met is not None and joined.changes:
            if len(joined.inserted):
                self._check_later()
            crashpoint("replay.commit.before")
            state = context.destination.schema.state(ref)
            assert state is not None
            change = RowUpdate(joined.rows, joined.updated, joined.inserted)
            commit = Commit(run.id, run.fence, state.cursor, state.accepted)
            context.destination.write.update_rows(ref, met, change, commit)
            crashpoint("replay.commit.after")
        before = {e.id: e for e in entries}
        settled = {e.id: e for e in (*joined.replayed, *joined.superseded, *joined.stays)}
        self.stored.record_status([e for e in settled.values() if before[e.id] != e], run.id, number)
        crashpoint("replay.batch")
        return joined

    def _check_later(self) -> None:
        """Ask for the whole table where a log says which rows are gone: it may have said so of a row that was in
        quarantine only."""
        context, table = self.context, self.place.table
        if mode_name(table, context.settings(table)) == "cdc":
            why = "rows came out of the quarantine, which the source may have deleted since"
            context.store.backfills.request(context.name, table.ref, why=why)

    def _rejoin(self, entries: Sequence[QuarantineEntry]) -> tuple[RowLookup | None, Rejoined]:
        schema, now = self.place.target.schema, self.run.started if self.run else None
        recasted = recast(self.context, self.place.table, schema, entries)
        stays = tuple(e for e in recasted.stays if e.status == "held")
        if not (any(c.entry.status == "held" for c in recasted.cells) or recasted.rows):
            return None, replace(Rejoined.nothing(schema), superseded=recasted.replaced, stays=stays)
        met = self.context.destination.write.lookup_rows(self.place.ref, recasted.keys)
        joined = rejoin(recasted, met, schema, self.context.naming.prefix, now)
        superseded = (*recasted.replaced, *joined.superseded)
        return met, replace(joined, superseded=superseded, stays=(*stays, *joined.stays))


def _record(context: SyncContext, table: Table, done: Replayed, run: Run) -> None:
    """Record the result as a sync does: the table's run, and an event."""
    status, remaining = "failed" if done.error else "done", done.held
    result = TableRun(
        run.id,
        table.ref,
        status,
        "",
        done.replayed + done.superseded + remaining,
        done.inserted,
        done.updated,
        invalid_values=remaining,
        error=done.error,
    )
    with context.transaction():
        context.store.runs.record_tables(result)
        if done.error:
            context.store.events.add(TableFailed(context.name, run.id, table.path, done.error))
        else:
            context.store.events.add(
                TableLoaded(
                    context.name, run.id, table.path, "replay", result.read, done.inserted, done.updated, 0, remaining
                )
            )


def total(done: Sequence[Replayed]) -> dict[str, int]:
    """Return how many entries were replayed, superseded and are still held."""
    return {word: sum(getattr(d, word) for d in done) for word in _WORDS}
