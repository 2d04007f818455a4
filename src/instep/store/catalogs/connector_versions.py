"""The upgrades of a source's connector: each with the state that a connection had before it, to go back to.

States are sealed as those of `connector_states` are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select

from instep.errors import ProjectError
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.engine.keyring import Keyring, Sealed, SecretPlace, rewrap, seal, unseal
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


class ConnectorVersions:
    """States are sealed with `keys`, unless there are none or everybody knows them; any of them opens one."""

    def __init__(self, database: Database, keys: Callable[[], Keyring | None] = lambda: None) -> None:
        self._db, self._keys = database, keys

    def add(
        self, connection: str, source: str, versions: tuple[str, str], state: Mapping[str, Any], *, who: str
    ) -> None:
        """Remember the state from before an upgrade from one of the `versions` to the other; the oldest ones go."""
        now, text = self._db.now(), json.dumps(state)
        sealed = Sealed("", "", text)
        if (keys := self._keys()) is not None and not keys.insecure:
            sealed = seal(keys, _place(connection), text)
        values = {"state": sealed.value, "key": sealed.key, "wrapped": sealed.wrapped, "who": who, "at": now}
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
        text = row.state
        if row.key:
            if (keys := self._keys()) is None:
                raise ProjectError(
                    f"connection {connection}: its connector's state is sealed, and there are no master keys here",
                    hint="set INSTEP_KEYS, or use the key file of the server",
                )
            text = unseal(keys, _place(connection), Sealed(row.key, row.wrapped, row.state))
        state = json.loads(text or "{}")
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

    def by_key(self) -> Mapping[str, int]:
        """Return how many states each master key has sealed."""
        c = connector_versions.c
        query = select(c.key, func.count()).where(c.key != "").group_by(c.key).order_by(c.key)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}

    def rotate(self) -> int:
        """Wrap the data keys of all states with the current master key; answers how many were not yet."""
        if (keys := self._keys()) is None:
            return 0
        c, done = connector_versions.c, 0
        query = select(c.number, c.connection, c.state, c.key, c.wrapped).where(c.key.not_in(["", keys.current]))
        with self._db.read() as transaction:
            found = transaction.execute(query).all()
        for row in found:
            made = rewrap(keys, _place(row.connection), Sealed(row.key, row.wrapped, row.state))
            same = (c.number == row.number, c.wrapped == row.wrapped)
            with self._db.write() as transaction:
                update = connector_versions.update().where(*same).values(key=made.key, wrapped=made.wrapped)
                done += transaction.execute(update).rowcount
        return done


def _place(connection: str) -> SecretPlace:
    return SecretPlace("connector", connection, "/version", 1)
