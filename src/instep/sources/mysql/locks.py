"""Locks on definitions of tables: a session that reads one gives way to whoever waits to change it.

A lock on a definition lasts as long as the transaction, and who waits for it is shown to privileged users alone. But a
request for the table that comes behind theirs is refused while they wait: that is asked for beside the reading.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from instep.errors import InstepError
from instep.sources.mysql.connect import MySqlConfig, connect, driver, is_mariadb, run

if TYPE_CHECKING:
    import pymysql

EVERY = 0.4
"""Seconds between two looks."""
END = 2
"""Looks in a row that find somebody waiting: then the session is ended."""
_PATIENT = 5.0
"""Seconds to wait for the last look: a server that hangs must not keep the end of a sync."""
LOCKED = 1205
"""The error of a lock that was waited for in vain."""


class Watch:
    """Watches over one session. `probe` is a query that needs what the session has locked, "" while that is nothing;
    `ended` tells that the session had to go."""

    def __init__(self, config: MySqlConfig, session: pymysql.Connection[Any]) -> None:
        self.probe, self.ended = "", False
        self._config, self._id = config, int(cast(Any, session).thread_id())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="locks", daemon=True)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Watch in here; not where there may be two connections, for it takes a third one."""
        if self._config.max_connections == 2:
            yield
            return
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(_PATIENT)

    def _run(self) -> None:
        if self._over.wait(2 * EVERY):
            return
        with suppress(InstepError, driver().MySQLError, OSError), connect(self._config) as connection:
            run(connection, f"SET SESSION lock_wait_timeout = {0 if is_mariadb(connection) else 1}")
            seen, before = 0, ""
            while not self._over.wait(EVERY):
                probe = self.probe
                seen = seen + 1 if probe and probe == before and self._is_waited_for(connection, probe) else 0
                before = probe
                if seen == END and probe == self.probe:
                    self.ended = True
                    run(connection, f"KILL {self._id}")
                    return

    def _is_waited_for(self, connection: pymysql.Connection[Any], probe: str) -> bool:
        try:
            run(connection, probe)
        except driver().MySQLError as error:
            return bool(error.args) and cast(int, error.args[0]) == LOCKED
        return False
