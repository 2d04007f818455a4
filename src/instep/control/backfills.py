"""Backfills that somebody does not want any more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from instep.events import BackfillCancelled
from instep.model import Job
from instep.schema.catalog.catalog import Table
from instep.store.catalogs.backfills import Backfill
from instep.store.store import Store


@dataclass(frozen=True)
class Cancelled:
    """`backfills` that were wanted, and `jobs` (their ids) that waited for a worker or had one."""

    backfills: tuple[Backfill, ...] = ()
    jobs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.backfills or self.jobs)


def cancel(store: Store, connection: str, table: Table, columns: Collection[str], who: str) -> Cancelled:
    """Ends what waits or runs for these columns of an accepted table, or for all of it. A fill that is under way stops
    at its next file, a job as soon as its worker hears of it; what was filled stays."""
    with store.transaction():
        waiting = [b for b in store.backfills.waiting(connection) if b.table == table.ref]
        gone = tuple(b for b in waiting if not columns or b.column in columns)
        for backfill in gone:
            store.backfills.cancel(backfill.number)
            store.events.add(BackfillCancelled(connection, table.path, backfill.column, who))
        jobs = [j for j in store.jobs.find(connection=connection, status=("queued", "running")) if j.kind == "backfill"]
        mine = [j for j in jobs if _is_about(j, table.path, columns)]
        ended = tuple(store.jobs.cancel(j.id, who).id for j in mine)
    return Cancelled(tuple(replace(b, status="cancelled") for b in gone), ended)


def _is_about(job: Job, path: str, columns: Collection[str]) -> bool:
    """A job for more than what is cancelled goes on."""
    named = set(job.options.get("columns", ()))
    return list(job.options.get("tables", ())) == [path] and (not columns or (bool(named) and named <= set(columns)))
