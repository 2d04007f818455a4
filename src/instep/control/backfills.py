"""Cancel pending and running backfills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from instep.errors import NotFound
from instep.events import BackfillCancelled
from instep.model import Job
from instep.schema.catalog.catalog import Table
from instep.store.catalogs.backfills import Backfill
from instep.store.store import Store
from instep.suggest import did_you_mean, unknown_table


@dataclass(frozen=True)
class Cancelled:
    """Backfills and jobs that were cancelled."""

    backfills: tuple[Backfill, ...] = ()
    """The cancelled backfills."""
    required: tuple[Backfill, ...] = ()
    """Backfills that still wait or run: without them the table would differ from its source, and no sync would tell."""
    jobs: tuple[str, ...] = ()
    """Ids of the cancelled jobs, queued or running."""

    def __bool__(self) -> bool:
        return bool(self.backfills or self.jobs)


def accepted_table(store: Store, connection: str, path: str, columns: Collection[str]) -> Table:
    """Return the accepted table that is called so; NotFound if it or one of these columns is not there."""
    tables = {table.path: table for table in store.accepted.catalog(connection).tables}
    if (table := tables.get(path)) is None:
        raise unknown_table(
            f"no table {path!r} is known", path, tables, "list the tables, or check the name", kind=NotFound
        )
    known = {column.name for column in table.columns}
    if missing := [name for name in columns if name not in known]:
        hint = did_you_mean(missing[0], known, "list the columns, or check the name")
        raise NotFound(f"no column {f'{path}.{missing[0]}'!r} is known", hint=hint)
    return table


def cancel(store: Store, connection: str, table: Table, columns: Collection[str], who: str) -> Cancelled:
    """End what waits or runs for these columns of an accepted table, or for all of it, but for what is required. A fill
    that is under way stops at its next file, a job as soon as its worker hears of it; what was filled stays."""
    with store.transaction():
        waiting = [b for b in store.backfills.waiting(connection) if b.table == table.ref]
        pending = [b for b in waiting if not columns or b.column in columns]
        gone = tuple(b for b in pending if not b.is_required)
        for backfill in gone:
            store.backfills.cancel(backfill.number)
            store.events.add(BackfillCancelled(connection, table.path, backfill.column, who))
        jobs = [j for j in store.jobs.find(connection=connection, status=("queued", "running")) if j.kind == "backfill"]
        mine = [j for j in jobs if _is_about(j, table.path, columns)]
        ended = tuple(store.jobs.cancel(j.id, who).id for j in mine)
    required = tuple(b for b in pending if b.is_required)
    return Cancelled(tuple(replace(b, status="cancelled") for b in gone), required, ended)


def _is_about(job: Job, path: str, columns: Collection[str]) -> bool:
    """Return whether the job is covered by the cancellation; a job that does more goes on."""
    named = set(job.options.get("columns", ()))
    return job.options.get("table") == path and (not columns or (bool(named) and named <= set(columns)))
