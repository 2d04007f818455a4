"""The upgrades of a source's connector: each with the state that a connection had before it, to go back to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select

from instep.store.catalogs.connections import ensure
from instep.store.catalogs.sealed_states import SealedStates
from instep.store.tables.catalogs import connector_versions

MOST = 5
"""The most upgrades of a connection that are remembered."""


@dataclass(frozen=True)
class ConnectorUpgrade:
    """One upgrade of a source, as a connection had it."""

    connection: str
    source: str
    before: str
    """The version before it, as instep.yml had it."""
    after: str
    """The version that it led to."""
    who: str
    at: datetime
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The connector's state at that moment."""


class ConnectorVersions(SealedStates):
    """The upgrades of connectors."""

    table, field = connector_versions, "/version"

    def add(
        self, connection: str, source: str, versions: tuple[str, str], state: Mapping[str, Any], *, who: str
    ) -> None:
        """Remember the state from before an upgrade from one of the `versions` to the other; the oldest ones go."""
        now = self._db.now()
        values = {**self._seal(connection, json.dumps(state)), "who": who, "at": now}
        c, (before, after) = connector_versions.c, versions
        with self._db.write() as transaction:
            ensure(transaction, connection, now)
            row = {"connection": connection, "source": source, "before": before, "after": after, **values}
            transaction.execute(insert(connector_versions).values(row))
            of = select(c.number).where(c.connection == connection).order_by(c.number.desc())
            old = [number for (number,) in transaction.execute(of.offset(MOST))]
            transaction.execute(connector_versions.delete().where(c.number.in_(old)))

    def latest(self, connection: str, source: str) -> ConnectorUpgrade | None:
        """Return the last upgrade of a connection's source. Raises ProjectError if its state is sealed and the key to
        it is missing."""
        c = connector_versions.c
        query = select(connector_versions).where(c.connection == connection, c.source == source)
        with self._db.read() as transaction:
            row = transaction.execute(query.order_by(c.number.desc()).limit(1)).first()
        if row is None:
            return None
        state = self._open(connection, row)
        return ConnectorUpgrade(connection, row.source, row.before, row.after, row.who, row.at, state)

    def drop_latest(self, connection: str, source: str) -> None:
        """Delete the last upgrade, which was rolled back."""
        c = connector_versions.c
        with self._db.write() as transaction:
            last = select(func.max(c.number)).where(c.connection == connection, c.source == source).scalar_subquery()
            transaction.execute(connector_versions.delete().where(c.number == last))

    def forget(self, connection: str) -> None:
        """Delete all upgrades of a connection."""
        with self._db.write() as transaction:
            c = connector_versions.c
            transaction.execute(connector_versions.delete().where(c.connection == connection))
