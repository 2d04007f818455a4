"""Pauses of whole connections or single tables, each with its own reason.

Why connections do not go on as they should: what their last sync failed with, and what has paused them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, func, insert, select, tuple_, update

from instep.model import Pause
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import pauses, runs, table_runs
from instep.store.tables.queue import LOST, MOVES, jobs
from instep.store.work.runs import FAILED, SYNCS

Ref = tuple[str, str]


class Pauses:
    def __init__(self, database: Database) -> None:
        self._db = database

    def pause(self, connection: str, reason: str, *, change: str = "", table: Ref | None = None) -> bool:
        """Pause a connection or one table; False if the same change has paused it already. A table may be
        paused by several changes and runs when all of them have ended."""
        schema, name = table or ("", "")
        where = _active(connection, pauses.c.table_schema == schema, pauses.c.table_name == name)
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            if transaction.execute(select(pauses.c.number).where(*where, pauses.c.change == change)).first():
                return False
            values = {"connection": connection, "table_schema": schema, "table_name": name, "reason": reason}
            transaction.execute(insert(pauses).values(**values, change=change, since=self._db.now()))
            return True

    def resume(self, connection: str, *, who: str, table: Ref | None = None, change: str | None = None) -> list[Pause]:
        """End the pauses of the connection itself or of one table, or only that of `change`; answers the ended
        ones. Pauses of tables outlive the resuming of their connection."""
        schema, name = table or ("", "")
        where = _active(connection, pauses.c.table_schema == schema, pauses.c.table_name == name)
        return self._end(where, change, who)

    def resume_change(self, connection: str, change: str, *, who: str) -> list[Pause]:
        """End every pause that `change` has caused."""
        return self._end(_active(connection), change, who)

    def _end(self, where: list[ColumnElement[bool]], change: str | None, who: str) -> list[Pause]:
        if change is not None:
            where = [*where, pauses.c.change == change]
        with self._db.write() as transaction:
            ended = [_pause(row) for row in transaction.execute(select(pauses).where(*where))]
            transaction.execute(update(pauses).where(*where).values(ended=self._db.now(), ended_by=who))
            return ended

    def active(self, connection: str) -> list[Pause]:
        """Return all pauses in force, the connection's own first, then by table."""
        return self.active_of([connection])[connection]

    def active_of(self, names: Sequence[str]) -> dict[str, list[Pause]]:
        """Return `active` of several connections."""
        c = pauses.c
        query = select(pauses).where(c.connection.in_(names), c.ended.is_(None))
        query = query.order_by(c.table_schema, c.table_name, c.number)
        with self._db.read() as transaction:
            rows = [(row.connection, _pause(row)) for row in transaction.execute(query)]
        return by_connection(names, sorted(rows, key=lambda row: row[1].table is not None))

    def tables(self, connection: str) -> dict[Ref, Pause]:
        """Return the paused tables with the oldest reason of each."""
        paused: dict[Ref, Pause] = {}
        for pause in self.active(connection):
            if pause.table is not None:
                paused.setdefault(pause.table, pause)
        return paused

    def paused_connections(self, names: Sequence[str]) -> frozenset[str]:
        """Return those of these connections that are paused as a whole."""
        c = pauses.c
        query = select(c.connection).where(c.connection.in_(names), c.table_name == "", c.ended.is_(None))
        with self._db.read() as transaction:
            return frozenset(transaction.execute(query).scalars())

    def connection(self, connection: str) -> Pause | None:
        """Return the oldest pause of the whole connection."""
        whole = [pause for pause in self.active(connection) if pause.table is None]
        return whole[0] if whole else None


def _active(connection: str, *more: ColumnElement[bool]) -> list[ColumnElement[bool]]:
    return [pauses.c.connection == connection, pauses.c.ended.is_(None), *more]


def _pause(row: Row[Any]) -> Pause:
    table = (row.table_schema, row.table_name) if row.table_name else None
    return Pause(row.reason, row.since, row.change, table)


MOST = 20
"""Troubles of one connection that are told."""
_ENDED = ("done", *FAILED)


@dataclass(frozen=True)
class Trouble:
    """Something that keeps a connection or table from its data."""

    what: Literal["sync", "failed", "missing", "paused"]
    """A sync, or a table (`table` is its path) that it did not load, or a change that pauses."""
    text: str
    table: str = ""


class Troubles:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, connections: Collection[str]) -> dict[str, list[Trouble]]:
        """Return the troubles of these connections, by name; a constant number of queries."""
        troubles: dict[str, list[Trouble]] = {}
        for name, trouble in (*self._paused(connections), *self._runs(connections)):
            listed = troubles.setdefault(name, [])
            if len(listed) < MOST and trouble not in listed:
                listed.append(trouble)
        return troubles

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
        troubles = [
            (
                of[r.run],
                Trouble("failed" if r.status == "failed" else "missing", r.error, _path(r.table_schema, r.table_name)),
            )
            for r in tables
        ]
        failed_names = {name for name, trouble in troubles if trouble.what == "failed"}
        troubles += [
            (r.connection, Trouble("sync", r.error))
            for r in last
            if r.connection not in failed_names and r.status in FAILED and r.error
        ]
        begun = {r.connection: r for r in last}
        troubles += [  # what ended before a run of it began
            (r.connection, Trouble("sync", r.error))
            for r in failed
            if (run := begun.get(r.connection)) is None or (run.status not in FAILED and run.started < r.ended)
        ]
        return troubles


def _path(schema: str, name: str) -> str:
    return ".".join(filter(None, (schema, name)))
