"""Current counts over indexes, for metrics and the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, func, select

from instep.store.catalogs.freshness import FreshTables
from instep.store.engine.database import Database
from instep.store.history.outbox import Outbox, ended
from instep.store.tables.catalogs import pauses, reviews
from instep.store.tables.queue import jobs
from instep.store.work.workers import Workers


@dataclass(frozen=True)
class Gauges:
    """`queued`: jobs that wait and are due, `running`: those that a worker does, both by kind; `stuck`: running, and
    their lease has ended. `late`: late tables by connection. `notifications`: deliveries on record that have ended, by
    (channel, result)."""

    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    waiting: int = 0
    oldest_waiting: datetime | None = None
    paused: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    queued: Mapping[str, int] = field(default_factory=dict)
    """Jobs that wait and are due."""
    oldest_due: datetime | None = None
    running: Mapping[str, int] = field(default_factory=dict)
    """Jobs that a worker runs, by kind, as in `queued`."""
    stuck: int = 0
    """Running jobs whose lease has ended."""
    workers: int = 0
    notices: Mapping[str, int] = field(default_factory=dict)
    notifications: Mapping[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    """Deliveries on record that have ended, by (channel, result)."""


class StoreGauges:
    def __init__(self, database: Database, workers: Workers, outbox: Outbox, fresh_tables: FreshTables) -> None:
        self._db, self._workers, self._outbox, self._fresh_tables = database, workers, outbox, fresh_tables

    def now(self) -> Gauges:
        j, now = jobs.c, self._db.now()
        with self._db.read() as transaction:
            waiting = select(func.count(), func.min(reviews.c.first_seen)).where(reviews.c.status == "open")
            count, oldest = transaction.execute(waiting).one()
            whole = (pauses.c.ended.is_(None), pauses.c.table_name == "", pauses.c.table_schema == "")
            due = (j.status == "queued", j.due <= now)
            return Gauges(
                now,
                count,
                oldest,
                transaction.execute(select(func.count(pauses.c.connection.distinct())).where(*whole)).scalar_one(),
                self._fresh_tables.count_late(),
                _by_kind(transaction, *due),
                transaction.execute(select(func.min(j.due)).where(*due)).scalar(),
                _by_kind(transaction, j.status == "running"),
                transaction.execute(
                    select(func.count()).where(j.status == "running", j.lease_until < now)
                ).scalar_one(),
                len(self._workers.live()),
                self._outbox.waiting(),
                ended(transaction),
            )


def _by_kind(transaction: Connection, *where: ColumnElement[bool]) -> dict[str, int]:
    rows = transaction.execute(select(jobs.c.kind, func.count()).where(*where).group_by(jobs.c.kind))
    return {row[0]: row[1] for row in rows}
