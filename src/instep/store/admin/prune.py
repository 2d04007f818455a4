"""Delete expired records in small slices, so that nobody waits long for the store.

What undo, history, quarantine and the chain of schemas look at stays however old it is: accepted catalogs, schemas,
changes, plans, the audit log, events that tell what was decided or done to a schema, and the runs that these name.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select

from instep.store.engine.database import Database
from instep.store.history.totals import folded
from instep.store.tables.catalogs import (
    accepted,
    backfills,
    connections,
    cursors,
    events,
    plans,
    runs,
    schemas,
    table_runs,
)
from instep.store.tables.queue import jobs, outbox, rollout_members
from instep.store.tables.server import idempotency

LOGGED = (
    "run.started",
    "run.ended",
    "table.loaded",
    "table.failed",
    "table.maintained",
    "detection.finished",
    "job.dead",
    "change.waiting",
)
"""Events that tell what was done every day; all others are history."""
RECURRING = ("sync", "detect", "backfill", "maintain")
"""Kinds of runs that come again and again; what a person asked for stays on record."""
NEWEST = 200
"""The last runs of a connection stay, whatever their age: leftovers of dead ones are still to be removed."""


class Prune:
    """Deletion of expired records; each method deletes up to `limit` and returns how many."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def runs(self, before: datetime, limit: int) -> int:
        """Delete runs that ended before, with what they did to tables, unless something refers to them; return how
        many."""
        c = runs.c
        query = select(c.id).where(c.ended < before, c.status != "running", c.kind.in_(RECURRING), ~_needed())
        with self._db.write() as transaction:
            ids = transaction.execute(query.order_by(c.started).limit(limit)).scalars().all()
            if ids:
                transaction.execute(delete(table_runs).where(table_runs.c.run.in_(ids)))
                transaction.execute(delete(runs).where(c.id.in_(ids)))
            return len(ids)

    def events(self, before: datetime, limit: int) -> int:
        """Return events of every day that are counted, told, and of no run that is still on record."""
        c = events.c
        of_run = exists().where(runs.c.id == c.data["run"].as_string())
        begun = and_(c.type.in_(("run.started", "run.ended")), of_run)
        with self._db.write() as transaction:
            where = (c.at < before, c.type.in_(LOGGED), c.number <= folded(transaction), ~begun)
            query = select(c.number).where(*where, c.number.not_in(select(outbox.c.event)))
            numbers = transaction.execute(query.order_by(c.number).limit(limit)).scalars().all()
            if numbers:
                transaction.execute(delete(events).where(c.number.in_(numbers)))
            return len(numbers)

    def jobs(self, before: datetime, limit: int) -> int:
        """Return jobs that ended before."""
        old = select(jobs.c.id).where(jobs.c.ended < before).order_by(jobs.c.created).limit(limit)
        with self._db.write() as transaction:
            return transaction.execute(delete(jobs).where(jobs.c.id.in_(old))).rowcount

    def answers(self, before: datetime) -> int:
        """Delete stored answers to repeated requests; return how many."""
        with self._db.write() as transaction:
            return transaction.execute(delete(idempotency).where(idempotency.c.at <= before)).rowcount


def _needed() -> ColumnElement[bool]:
    """Return the condition under which a run stays on record."""
    c, later = runs.c, runs.alias("later")
    last = ~exists().where(
        later.c.connection == c.connection, later.c.kind == c.kind, later.c.status == c.status, later.c.fence > c.fence
    )
    newest = exists().where(connections.c.name == c.connection, connections.c.fence < c.fence + NEWEST)
    named = [exists().where(table.c.run == c.id) for table in (accepted, schemas, plans, cursors, backfills)]
    rolled = exists().where(rollout_members.c.connection == c.connection, rollout_members.c.run == c.id)
    altered = exists().where(accepted.c.connection == c.connection, accepted.c.at.between(c.started, c.ended))
    has_quarantined = exists().where(table_runs.c.run == c.id, table_runs.c.invalid_values > 0)
    return or_(last, newest, *named, rolled, altered, has_quarantined, _last_of_a_table())


def _last_of_a_table() -> ColumnElement[bool]:
    """Return the condition that a run is the latest of one of its tables."""
    c, of, later, again = runs.c, table_runs.alias("of"), runs.alias("later_run"), table_runs.alias("again")
    superseded = exists().where(
        later.c.connection == c.connection,
        later.c.fence > c.fence,
        again.c.run == later.c.id,
        again.c.table_schema == of.c.table_schema,
        again.c.table_name == of.c.table_name,
    )
    return exists().where(of.c.run == c.id, ~superseded)
