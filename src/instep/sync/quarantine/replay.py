"""Puts held values where they belong, once their column takes them: never over a newer value, and once.

A value goes into the row with its key if the row still has NULL there and its `meta` column still says that it was
nulled; a whole row goes in if no row has its key. The row's other values, and those of other rows, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
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
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.quarantine.quarantine import Holding, holdings, settle
from instep.sync.quarantine.rejoin import Rejoined, recast, rejoin

_WORDS = ("replayed", "superseded", "held")


@dataclass(frozen=True)
class Replayed:
    """Result of one replay for one table: entries by what becomes of them. `error` says why nothing was done."""

    table: str
    replayed: tuple[QuarantineEntry, ...] = ()
    superseded: tuple[QuarantineEntry, ...] = ()
    held: tuple[QuarantineEntry, ...] = ()
    updated: int = 0
    inserted: int = 0
    error: str = ""

    def document(self) -> dict[str, Any]:
        """JSON-ready: how many, and what is left by column and reason; no value and no key."""
        counts = {word: len(getattr(self, word)) for word in _WORDS}
        left = Counter((e.column, e.reason) for e in self.held)
        reasons = [{"column": c, "reason": r, "count": n} for (c, r), n in sorted(left.items())]
        written = {"updated": self.updated, "inserted": self.inserted}
        return {"table": self.table, **counts, **written, "reasons": reasons, "error": self.error}


def replay(
    context: SyncContext, tables: Collection[str] = (), column: str = "", *, dry_run: bool = False
) -> list[Replayed]:
    """Replays what is held of these tables (paths; none: all), of one column if it is named. One run of the
    connection, one commit a table; one table's failure leaves the others alone. `dry_run` only looks.

    Raises Blocked while the connection is paused, RunInProgress while another run of it is alive.
    """
    if dry_run:
        return [_look(context, h, column)[0] for h in holdings(context, tables)]
    with claimed(context, "replay") as run:
        context = replace(context, run=run)
        return [_one(context, h, column, run) for h in holdings(context, tables, run)]


@dataclass(frozen=True)
class ReplayReport:
    """Result or preview of a replay per table: documents of `Replayed`."""

    tables: tuple[Mapping[str, Any], ...]


class ReplayQuarantine(DirectWork):
    """The work of the operation `replay_quarantine`."""

    makes_run = True

    def run(self, context: SyncContext, request: ReplayQuarantineRequest) -> ReplayReport:
        """Replay what is held, or say what would be done."""
        done = replay(context, request.tables, request.column, dry_run=request.preview)
        return ReplayReport(tuple(one.document() for one in done))


def _one(context: SyncContext, holding: Holding, column: str, run: Run) -> Replayed:
    try:
        done, met, joined = _look(context, holding, column, run.started)
        if paused := context.store.pauses.tables(context.name).get(holding.table.ref):
            raise DestinationError(f"{holding.table.path} is paused: {paused.reason}", hint="resume it first")
        if met is not None and joined.changes:
            crashpoint("replay.commit.before")
            state = context.destination.schema.state(holding.ref)
            assert state is not None
            change = RowUpdate(joined.rows, joined.updated, joined.inserted)
            context.destination.write.update_rows(
                holding.ref, met, change, Commit(run.id, run.fence, state.cursor, state.accepted)
            )
            crashpoint("replay.commit.after")
        settled = {e.id: e for e in (*done.replayed, *done.superseded, *done.held)}
        if any(e not in holding.found.entries for e in settled.values()):
            settle(holding, settled, run)
    except InstepError as error:
        done = Replayed(holding.table.path, held=tuple(holding.pending), error=str(error))
    _record(context, holding.table, done, run)
    return done


def _record(context: SyncContext, table: Table, done: Replayed, run: Run) -> None:
    """As a sync does: the run's word about the table, and an event."""
    status, remaining = "failed" if done.error else "done", len(done.held)
    result = TableRun(
        run.id,
        table.ref,
        status,
        "",
        len(done.replayed) + len(done.superseded) + remaining,
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


def _look(
    context: SyncContext, holding: Holding, column: str, now: datetime | None = None
) -> tuple[Replayed, RowLookup | None, Rejoined]:
    """Return what would become of the entries. Those that a person has let go still tell that older ones are not the
    last word."""
    mine = [e for e in holding.found.entries if not column or e.column == column]
    made = recast(context, holding.table, holding.target.schema, mine)
    stays = [e for e in made.stays if e.status == "held"]
    open_ = any(c.entry.status == "held" for c in made.cells) or made.rows
    if not open_:
        return Replayed(holding.table.path, held=tuple(stays)), None, Rejoined.nothing(holding.target.schema)
    met = context.destination.write.lookup_rows(holding.ref, made.keys)
    joined = rejoin(made, met, holding.target.schema, context.naming.prefix, now)
    done = Replayed(
        holding.table.path,
        joined.replayed,
        joined.superseded,
        (*stays, *joined.stays),
        len(joined.rows),
        len(joined.inserted),
    )
    return done, met, joined


def total(done: Sequence[Replayed]) -> dict[str, int]:
    """Return how many entries were replayed, superseded and are still held."""
    return {word: sum(len(getattr(d, word)) for d in done) for word in _WORDS}
