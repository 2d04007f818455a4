"""Connections as the store knows them: which project configuration was last used, and the destination names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from instep.errors import Conflict
from instep.store.database import Database
from instep.store.tables import connections, destination_names

Ref = tuple[str, str]


@dataclass(frozen=True)
class ConnectionRecord:
    """`fence` is the number of the latest run's claim, 0 before the first."""

    name: str
    source: str
    destination: str
    namespace: str
    config_hash: str
    fence: int
    created: datetime
    updated: datetime


def ensure(transaction: Connection, name: str, now: datetime) -> None:
    """The row that everything else of a connection refers to."""
    if transaction.execute(select(connections.c.name).where(connections.c.name == name)).first() is None:
        transaction.execute(insert(connections).values(name=name, created=now, updated=now))


class Connections:
    def __init__(self, database: Database) -> None:
        self._db = database

    def put(
        self, name: str, *, source: str, destination: str, namespace: str = "", config_hash: str = ""
    ) -> ConnectionRecord:
        """Records the configuration in use. Raises Conflict if the destination or namespace would move away from
        tables that are already loaded."""
        with self._db.write() as transaction:
            now = self._db.now()
            ensure(transaction, name, now)
            _check_unmoved(transaction, name, destination, namespace)
            values = {
                "source": source,
                "destination": destination,
                "namespace": namespace,
                "config_hash": config_hash,
            }
            changed = [connections.c[field] != value for field, value in values.items()]
            condition = changed[0] | changed[1] | changed[2] | changed[3]
            transaction.execute(
                update(connections).where(connections.c.name == name, condition).values(updated=now, **values)
            )
            return _one(transaction, name)

    def get(self, name: str) -> ConnectionRecord | None:
        with self._db.read() as transaction:
            row = transaction.execute(select(connections).where(connections.c.name == name)).mappings().first()
            return ConnectionRecord(**row) if row else None

    def all(self) -> list[ConnectionRecord]:
        with self._db.read() as transaction:
            rows = transaction.execute(select(connections).order_by(connections.c.name)).mappings()
            return [ConnectionRecord(**row) for row in rows]


def _one(transaction: Connection, name: str) -> ConnectionRecord:
    return ConnectionRecord(
        **transaction.execute(select(connections).where(connections.c.name == name)).mappings().one()
    )


def _check_unmoved(transaction: Connection, name: str, destination: str, namespace: str) -> None:
    c = destination_names.c
    taken = transaction.execute(select(c.destination, c.namespace).where(c.connection == name).limit(1)).first()
    if taken and taken.destination != destination:
        raise Conflict(
            f"connection {name}: its tables are already loaded into destination {taken.destination!r}",
            hint=f"a connection keeps its destination: add a new connection for {destination!r}",
        )
    stored = transaction.execute(select(connections.c.namespace).where(connections.c.name == name)).scalar()
    if taken and stored and stored != namespace:
        raise Conflict(
            f"connection {name}: its tables are already loaded into namespace {stored!r}",
            hint=f"a connection keeps its namespace: add a new connection for {namespace!r}",
        )


class DestinationNames:
    """Which table owns which name at a destination; two connections never write one table."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def claim(self, destination: str, target: Ref, connection: str, table: Ref) -> None:
        """Gives the destination's `target` (namespace, name) to a table of a connection, for good. Raises
        Conflict if it belongs to another one; a table that had another name moves to this one."""
        c = destination_names.c
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            where = (c.destination == destination, c.namespace == target[0], c.name == target[1])
            owner = transaction.execute(select(destination_names).where(*where)).first()
            if owner and (owner.connection, owner.table_schema, owner.table_name) == (connection, *table):
                return
            if owner:
                raise Conflict(
                    f"table {'.'.join(target)} of destination {destination} belongs to connection "
                    f"{owner.connection} (table {owner.table_schema}.{owner.table_name})",
                    hint=f"give connection {connection} a namespace of its own",
                )
            self._release(transaction, connection, table)
            values = {"destination": destination, "namespace": target[0], "name": target[1], "connection": connection}
            transaction.execute(
                insert(destination_names).values(
                    **values, table_schema=table[0], table_name=table[1], at=self._db.now()
                )
            )

    def release(self, connection: str, table: Ref) -> None:
        """Frees the table's name after the destination table is gone."""
        with self._db.write() as transaction:
            self._release(transaction, connection, table)

    def _release(self, transaction: Connection, connection: str, table: Ref) -> None:
        c = destination_names.c
        transaction.execute(
            destination_names.delete().where(
                c.connection == connection, c.table_schema == table[0], c.table_name == table[1]
            )
        )

    def of(self, connection: str) -> dict[Ref, Ref]:
        """Table -> (namespace, name) for all tables of a connection."""
        c = destination_names.c
        with self._db.read() as transaction:
            rows = transaction.execute(select(destination_names).where(c.connection == connection))
            return {(row.table_schema, row.table_name): (row.namespace, row.name) for row in rows}
