"""States of connectors in a table with `connection`, `state`, `key` and `wrapped`.

A state is sealed like a secret where there are master keys: `key` is the id of the one that has wrapped its data key,
"" for a state in clear.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlalchemy import Table, func, select

from instep.errors import ProjectError
from instep.store.engine.database import Database
from instep.store.engine.keyring import Keyring, Sealed, SecretPlace, rewrap, seal, unseal


class SealedStates:
    """States are sealed with `keys`, unless there are none or everybody knows them; any of them opens one."""

    table: ClassVar[Table]
    field: ClassVar[str]
    """A seal is for this field."""

    def __init__(self, database: Database, keys: Callable[[], Keyring | None] = lambda: None) -> None:
        self._db, self._keys = database, keys

    def _place(self, connection: str) -> SecretPlace:
        return SecretPlace("connector", connection, self.field, 1)

    def _seal(self, connection: str, text: str) -> dict[str, Any]:
        """Return the columns of a state."""
        sealed = Sealed("", "", text)
        if (keys := self._keys()) is not None and not keys.insecure:
            sealed = seal(keys, self._place(connection), text)
        return {"state": sealed.value, "key": sealed.key, "wrapped": sealed.wrapped}

    def _open(self, connection: str, row: Any) -> Mapping[str, Any]:
        """Return the state of a row. Raises ProjectError if it is sealed and the key to it is missing."""
        text = row.state
        if row.key:
            if (keys := self._keys()) is None:
                raise ProjectError(
                    f"connection {connection}: its connector's state is sealed, and there are no master keys here",
                    hint="set INSTEP_KEYS, or use the key file of the server",
                )
            text = unseal(keys, self._place(connection), Sealed(row.key, row.wrapped, row.state))
        return json.loads(text or "{}")  # type: ignore[no-any-return]

    def by_key(self) -> Mapping[str, int]:
        """Return how many states each master key has sealed."""
        c = self.table.c
        query = select(c.key, func.count()).where(c.key != "").group_by(c.key).order_by(c.key)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}

    def rotate(self) -> int:
        """Wrap the data keys of all states with the current master key; answers how many were not yet. A state that
        a run saves meanwhile is left as it is: the run has the key that it was started with."""
        if (keys := self._keys()) is None:
            return 0
        c, done = self.table.c, 0
        query = select(c.connection, c.state, c.key, c.wrapped).where(c.key.not_in(["", keys.current]))
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        for row in rows:
            sealed = rewrap(keys, self._place(row.connection), Sealed(row.key, row.wrapped, row.state))
            same = (c.connection == row.connection, c.wrapped == row.wrapped)
            with self._db.write() as transaction:
                update = self.table.update().where(*same).values(key=sealed.key, wrapped=sealed.wrapped)
                done += transaction.execute(update).rowcount
        return done
