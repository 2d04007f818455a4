"""Why connections do not go on as they should: what their last sync failed with, and what has paused them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select, tuple_

from instep.store.engine.database import Database
from instep.store.tables.catalogs import pauses, runs, table_runs
from instep.store.tables.queue import LOST, MOVES, jobs
from instep.store.work.runs import FAILED, SYNCS

MOST = 20
"""Troubles of one connection that are told."""
_ENDED = ("done", *FAILED)


@dataclass(frozen=True)
class Trouble:
    """`what`: a sync, or a table (`table` is its path) that it did not load, or a change that pauses."""

    what: Literal["sync", "failed", "missing", "paused"]
    text: str
    table: str = ""


class Troubles:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, connections: Collection[str]) -> dict[str, list[Trouble]]:
        """Return the troubles of these connections, by name; a constant number of queries."""
        found: dict[str, list[Trouble]] = {}
        for name, trouble in (*self._paused(connections), *self._runs(connections)):
            known = found.setdefault(name, [])
            if len(known) < MOST and trouble not in known:
                known.append(trouble)
        return found

    def _paused(self, connections: Collection[str]) -> list[tuple[str, Trouble]]:
        c = pauses.c
        query = select(c.connection, c.reason, c.table_schema, c.table_name).where(
            c.connection.in_(connections), c.ended.is_(None), c.change != ""
        )
        with self._db.read() as transaction:
            rows = transaction.execute(query.order_by(c.connection, c.number)).all()
        return [(r.connection, Trouble("paused", r.reason, _path(r.table_schema, r.table_name))) for r in rows]

    def _runs(self, connections: Collection[str]) -> list[tuple[str, Trouble]]:
        c, t, j = runs.c, table_runs.c, jobs.c
        ended = (c.connection.in_(connections), c.kind.in_(SYNCS), c.status.in_(_ENDED))
        newest = select(c.connection, func.max(c.fence)).where(*ended).group_by(c.connection)
        moves = (j.connection.in_(connections), j.kind.in_(MOVES), j.status.in_(("done", *LOST)))
        latest = select(j.connection, func.max(j.ended)).where(*moves).group_by(j.connection)
        with self._db.read() as transaction:
            last = transaction.execute(
                select(c.id, c.connection, c.status, c.error, c.started).where(
                    tuple_(c.connection, c.fence).in_(newest)
                )
            ).all()
            tables = transaction.execute(
                select(table_runs)
                .where(t.run.in_([r.id for r in last]), t.error != "", t.status.in_(("failed", "missing")))
                .order_by(t.table_schema, t.table_name)
            ).all()
            failed = transaction.execute(
                select(j.connection, j.error, j.ended).where(
                    tuple_(j.connection, j.ended).in_(latest), j.status.in_(LOST), j.kind.in_(MOVES), j.error != ""
                )
            ).all()
        of = {r.id: r.connection for r in last}
        found = [
            (
                of[r.run],
                Trouble("failed" if r.status == "failed" else "missing", r.error, _path(r.table_schema, r.table_name)),
            )
            for r in tables
        ]
        failed_names = {name for name, trouble in found if trouble.what == "failed"}
        found += [
            (r.connection, Trouble("sync", r.error))
            for r in last
            if r.connection not in failed_names and r.status in FAILED and r.error
        ]
        begun = {r.connection: r for r in last}
        found += [  # what ended before a run of it began
            (r.connection, Trouble("sync", r.error))
            for r in failed
            if (run := begun.get(r.connection)) is None or (run.status not in FAILED and run.started < r.ended)
        ]
        return found


def _path(schema: str, name: str) -> str:
    return ".".join(filter(None, (schema, name)))
