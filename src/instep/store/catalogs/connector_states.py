"""States of connectors: the last checkpoint whose rows are at the destination.

A state may hold tokens of the connector's own: it is shown only where it is asked for, never in a log or an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select

from instep.errors import Fenced, ProjectError
from instep.store.catalogs.connections import ensure
from instep.store.catalogs.sealed_states import SealedStates
from instep.store.tables.catalogs import connector_pending, connector_states

Ref = tuple[str, str]


@dataclass(frozen=True)
class ConnectorState:
    """The saved state of a connector."""

    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The connector's own JSON object, {} before the first checkpoint."""
    run: str = ""
    """Saved it last, "" for a person."""
    fence: int = 0
    at: datetime | None = None


@dataclass(frozen=True)
class PendingOperations:
    """Operations on a table that cannot be carried out yet: they are in the folder `place`."""

    number: int
    table: Ref
    place: str
    operations: int
    at: datetime
    key: str = field(default="", repr=False)
    """Half of the key to its files."""


class ConnectorStates(SealedStates):
    """The states of connectors, with what they have declared and their pending operations."""

    table, field = connector_states, "/state"

    def of(self, connection: str) -> OneConnector:
        return OneConnector(self, connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._db.write():
            yield

    def get(self, connection: str) -> ConnectorState:
        """Raise ProjectError if its state is sealed and the key to it is missing."""
        c = connector_states.c
        query = select(c.state, c.key, c.wrapped, c.run, c.fence, c.at).where(c.connection == connection)
        with self._db.read() as transaction:
            row = transaction.execute(query).first()
        if row is None:
            return ConnectorState()
        return ConnectorState(self._open(connection, row), row.run, row.fence, row.at)

    def save(self, connection: str, state: Mapping[str, Any], *, run: str = "", fence: int = 0) -> None:
        """Raise Fenced if a later run has saved one. Without a run it is a person's, which any run may replace."""
        query = select(connector_states.c.fence).where(connector_states.c.connection == connection)
        with self._db.read() as transaction:
            last: int = transaction.execute(query).scalar() or 0
        if run and last > fence:
            raise Fenced(f"connection {connection}: a later run has saved the connector's state")
        values = self._seal(connection, _text(connection, state))
        self._put(connection, {**values, "run": run, "fence": max(fence, last)})

    def shape(self, connection: str) -> Mapping[str, Any]:
        """Return the connector's declarations and columns so far: see sources/connector/seen.py; {} at first."""
        query = select(connector_states.c.shape).where(connector_states.c.connection == connection)
        with self._db.read() as transaction:
            shape: Mapping[str, Any] | None = transaction.execute(query).scalar()
        return shape or {}

    def keep_shape(self, connection: str, shape: Mapping[str, Any]) -> None:
        self._put(connection, {"shape": dict(shape)})

    def _put(self, connection: str, values: Mapping[str, Any]) -> None:
        c, now = connector_states.c, self._db.now()
        with self._db.write() as transaction:
            ensure(transaction, connection, now)
            done = transaction.execute(
                connector_states.update().where(c.connection == connection).values(**values, at=now)
            )
            if not done.rowcount:
                fresh = {"shape": {}, **values}
                transaction.execute(insert(connector_states).values(connection=connection, **fresh, at=now))

    def add_pending(self, connection: str, entries: Iterable[tuple[Ref, str, int, str]]) -> None:
        """Record pending operations, each as (table, folder, number of operations, half of the key)."""
        now = self._db.now()
        rows = [
            {
                "connection": connection,
                "table_schema": ref[0],
                "table_name": ref[1],
                "place": place,
                "operations": operations,
                "at": now,
                "key": key,
            }
            for ref, place, operations, key in entries
        ]
        if rows:
            with self._db.write() as transaction:
                ensure(transaction, connection, now)
                transaction.execute(insert(connector_pending), rows)

    def pending(self, connection: str) -> list[PendingOperations]:
        """Return pending operations in the order in which they arrived."""
        c = connector_pending.c
        query = select(connector_pending).where(c.connection == connection).order_by(c.number)
        with self._db.read() as transaction:
            return [
                PendingOperations(
                    row.number, (row.table_schema, row.table_name), row.place, row.operations, row.at, row.key
                )
                for row in transaction.execute(query)
            ]

    def release(self, numbers: Sequence[int]) -> None:
        if numbers:
            with self._db.write() as transaction:
                transaction.execute(connector_pending.delete().where(connector_pending.c.number.in_(numbers)))

    def forget(self, connection: str) -> None:
        """Delete the state, the shape and the pending operations."""
        with self._db.write() as transaction:
            for table in (connector_pending, connector_states):
                transaction.execute(table.delete().where(table.c.connection == connection))


@dataclass(frozen=True)
class OneConnector:
    """State of the runs of one connector connection; "" is none, and remembers nothing."""

    states: ConnectorStates
    connection: str

    def state(self) -> ConnectorState:
        return self.states.get(self.connection)

    def shape(self) -> Mapping[str, Any]:
        return self.states.shape(self.connection)

    def keep_shape(self, shape: Mapping[str, Any]) -> None:
        self.states.keep_shape(self.connection, shape)

    def pending(self) -> list[PendingOperations]:
        return self.states.pending(self.connection)

    def done(
        self,
        state: Mapping[str, Any] | None,
        entries: Sequence[tuple[Ref, str, int, str]],
        released: Sequence[int],
        run: str,
        fence: int,
    ) -> None:
        """Save the state (None: keep the one before) and which operations are pending or released, in one
        transaction."""
        with self.states.transaction():
            if state is not None:
                self.states.save(self.connection, state, run=run, fence=fence)
            self.states.add_pending(self.connection, entries)
            self.states.release(released)


def _text(connection: str, state: Mapping[str, Any]) -> str:
    """Return the state as JSON. Raises ProjectError for numbers that JSON has not."""
    try:
        return json.dumps(state, allow_nan=False)
    except ValueError as error:
        raise ProjectError(
            f"connection {connection}: the connector's state cannot be kept: {error}",
            hint="write null or a text instead",
        ) from None
