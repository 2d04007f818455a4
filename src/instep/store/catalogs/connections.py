"""Connections as the store knows them: which project configuration was last used, and the destination names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, insert, select, update

from instep.errors import Blocked, Conflict
from instep.store.engine.database import Database
from instep.store.tables.all import metadata
from instep.store.tables.catalogs import connections, destination_names, plans, runs, steps, table_runs
from instep.store.tables.queue import jobs

Ref = tuple[str, str]
OUTLIVING = frozenset({"events", "jobs", "outbox", "rollout_members"})
"""Tables whose rows of a connection stay when it is deleted: what happened, what is still to be told, and what a
rollout is to account for. A job that deletes the connection ends after it."""


@dataclass(frozen=True)
class ConnectionRecord:
    """The record of a connection."""

    name: str
    destination: str
    namespace: str
    fence: int
    """The number of the latest run's claim, 0 before the first."""
    created: datetime
    updated: datetime
    configured: bool = False
    """True if its schema config was made before its source was seen, so that what the config does not name is left
    to the policy."""


def ensure(transaction: Connection, name: str, now: datetime) -> None:
    """Insert the row that everything else of a connection refers to, if it is missing."""
    if transaction.execute(select(connections.c.name).where(connections.c.name == name)).first() is None:
        transaction.execute(insert(connections).values(name=name, created=now, updated=now))


class Connections:
    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, name: str, *, destination: str, namespace: str = "") -> ConnectionRecord:
        """Record the place in use. Raises Blocked if the destination or namespace would move away from
        tables that are already loaded."""
        with self._db.write() as transaction:
            now = self._db.now()
            ensure(transaction, name, now)
            _check_unmoved(transaction, name, destination, namespace)
            condition = (connections.c.destination != destination) | (connections.c.namespace != namespace)
            values = {"destination": destination, "namespace": namespace}
            transaction.execute(
                update(connections).where(connections.c.name == name, condition).values(updated=now, **values)
            )
            return ConnectionRecord(
                **transaction.execute(select(connections).where(connections.c.name == name)).mappings().one()
            )

    def check(self, name: str, *, destination: str, namespace: str) -> None:
        """Raise Blocked as `put` does; writes nothing."""
        with self._db.read() as transaction:
            _check_unmoved(transaction, name, destination, namespace)

    def configure(self, name: str) -> None:
        """Record that the connection has a schema config before its source was seen."""
        with self._db.write() as transaction:
            ensure(transaction, name, self._db.now())
            transaction.execute(update(connections).where(connections.c.name == name).values(configured=True))

    def get(self, name: str) -> ConnectionRecord | None:
        with self._db.read() as transaction:
            row = transaction.execute(select(connections).where(connections.c.name == name)).mappings().first()
            return ConnectionRecord(**row) if row else None

    def forget(self, name: str) -> Mapping[str, int]:
        """Delete all that is recorded of a connection but what is OUTLIVING; answers the rows by table. What waits in
        the queue is cancelled. Its fence goes on, should a connection of this name come again: what an earlier run
        may still do stays refused."""
        gone: dict[str, int] = {}
        with self._db.write() as transaction:
            for table in (table_runs, steps, *reversed(metadata.sorted_tables)):
                where = _recorded_of(table, name)
                if where is not None and (count := transaction.execute(table.delete().where(where)).rowcount):
                    gone[table.name] = count
            waiting = (jobs.c.connection == name, jobs.c.status == "queued")
            cancelled = {"status": "cancelled", "ended": self._db.now(), "error": f"connection {name} was deleted"}
            transaction.execute(update(jobs).where(*waiting).values(**cancelled))
            blank = {"destination": "", "namespace": "", "updated": self._db.now(), "configured": False}
            transaction.execute(update(connections).where(connections.c.name == name).values(**blank))
        return gone


def _recorded_of(table: Table, name: str) -> ColumnElement[bool] | None:
    """Return the condition for a connection's rows of a table, found by its plans and runs as long as these exist;
    None if none of them ever is."""
    if table is table_runs:
        return table.c.run.in_(select(runs.c.id).where(runs.c.connection == name))
    if table is steps:
        return table.c.plan.in_(select(plans.c.id).where(plans.c.connection == name))
    if table.name in OUTLIVING or "connection" not in table.c:
        return None
    return table.c.connection == name


def _check_unmoved(transaction: Connection, name: str, destination: str, namespace: str) -> None:
    c = destination_names.c
    loaded = transaction.execute(select(c.destination).where(c.connection == name).limit(1)).first()
    if loaded and loaded.destination != destination:
        raise Blocked(
            f"connection {name}: its tables are already loaded into destination {loaded.destination!r}",
            hint=f"give it that destination again in instep.yml, and add a new connection for {destination!r}",
        )
    stored = transaction.execute(select(connections.c.namespace).where(connections.c.name == name)).scalar()
    if loaded and stored and stored != namespace:
        raise Blocked(
            f"connection {name}: its tables are already loaded into namespace {stored!r}, which stays",
            hint=f"write `namespace: {stored}` under it in instep.yml, and add a new connection for {namespace!r}",
        )


class DestinationNames:
    """Owners of the table names at a destination; two connections never write one table."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def set_owned(self, connection: str, destination: str, owned: Mapping[Ref, Ref]) -> None:
        """Make `owned` (table to namespace and name) all that a connection owns: what it had beside is free again.
        Raises Conflict, having changed nothing, if another connection owns one of them."""
        if self.of(connection) == owned:
            return
        c = destination_names.c
        with self._db.write() as transaction:
            now = self._db.now()
            ensure(transaction, connection, now)
            for target, owner in self.owners(destination, owned.values()).items():
                if owner != connection:
                    raise Conflict(
                        f"table {'.'.join(target)} of destination {destination} belongs to another connection",
                        hint=f"give connection {connection} its own namespace",
                    )
            transaction.execute(destination_names.delete().where(c.connection == connection))
            common = {"destination": destination, "connection": connection, "at": now}
            rows = [
                common | {"table_schema": t[0], "table_name": t[1], "namespace": to[0], "name": to[1]}
                for t, to in owned.items()
            ]
            if rows:
                transaction.execute(insert(destination_names), rows)

    def owners(self, destination: str, targets: Iterable[Ref]) -> dict[Ref, str]:
        """Return the connections by (namespace, name) of those `targets` that one owns."""
        requested, c = set(targets), destination_names.c
        query = select(c.namespace, c.name, c.connection).where(
            c.destination == destination, c.namespace.in_({namespace for namespace, _ in requested})
        )
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        return {(r.namespace, r.name): r.connection for r in rows if (r.namespace, r.name) in requested}

    def of(self, connection: str) -> dict[Ref, Ref]:
        """Return Table -> (namespace, name) for all tables of a connection."""
        c = destination_names.c
        with self._db.read() as transaction:
            rows = transaction.execute(select(destination_names).where(c.connection == connection))
            return {(row.table_schema, row.table_name): (row.namespace, row.name) for row in rows}
