"""Workers and their heartbeats."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, insert, select, update

from instep.errors import Conflict, Fenced
from instep.model import Worker
from instep.store.engine.database import Database
from instep.store.engine.owner import Owner, this_process
from instep.store.tables.queue import workers
from instep.store.work.runs import LEASE

FORGOTTEN = timedelta(days=1)


class Workers:
    def __init__(self, database: Database, lease: timedelta = LEASE) -> None:
        self._db = database
        self.lease = lease

    def register(self, lanes: int) -> Worker:
        """Register this process as a worker with so many lanes.

        Raises Conflict beside a worker of another machine, if the store is a file: its locks hold on one machine
        only.
        """
        owner = this_process()
        with self._db.write(common=True) as transaction:
            now = self._db.now()
            others = [w.host for w in self.live() if w.host.partition("/")[0] != owner.host.partition("/")[0]]
            if self._db.file and others:
                raise Conflict(
                    f"a worker on {others[0].partition('/')[0]} uses the store {self._db.place}, which is a file",
                    hint="use a PostgreSQL store for workers on several machines, or stop that one",
                )
            transaction.execute(workers.delete().where(workers.c.seen < now - FORGOTTEN))
            worker = Worker(f"w-{owner.pid}-{secrets.token_hex(3)}", owner.host, owner.pid, lanes, now, now)
            transaction.execute(insert(workers).values(**vars(worker), pid_started=owner.started))
            return worker

    def beat(self, worker: Worker, *, stopping: bool = False) -> None:
        """Record a heartbeat; raises Fenced if the others have given this worker up."""
        with self._db.write(common=True) as transaction:
            values = {"seen": self._db.now(), "stopping": stopping}
            if transaction.execute(update(workers).where(workers.c.id == worker.id).values(**values)).rowcount != 1:
                raise Fenced(f"worker {worker.id} was taken for dead", hint="start it again")

    def leave(self, worker: Worker) -> None:
        with self._db.write(common=True) as transaction:
            transaction.execute(workers.delete().where(workers.c.id == worker.id))

    def live(self) -> list[Worker]:
        """Return workers with a heartbeat within a lease that still claim jobs, oldest first."""
        with self._db.read() as transaction:
            query = select(workers).where(workers.c.seen > self._db.now() - self.lease, ~workers.c.stopping)
            rows = transaction.execute(query.order_by(workers.c.started, workers.c.id)).all()
        return [_worker(row) for row in rows if not _owner(row).is_ended]

    def ended_ids(self) -> list[str]:
        """Return ids of those whose process has certainly ended: it was on this host."""
        with self._db.read() as transaction:
            rows = transaction.execute(select(workers)).all()
        return [row.id for row in rows if _owner(row).is_ended]

    def forget(self, ids: list[str]) -> None:
        with self._db.write(common=True) as transaction:
            transaction.execute(workers.delete().where(workers.c.id.in_(ids)))


def _owner(row: Row[Any]) -> Owner:
    return Owner(row.host, row.pid, row.pid_started)


def _worker(row: Row[Any]) -> Worker:
    values = dict(row._mapping)
    del values["pid_started"]
    return Worker(**values)
