"""Locks on tables: none outlives the statement that needs it, and no session waits long for one of ours.

A lock that is taken behind a savepoint goes when the savepoint is taken back, and a transaction that has read a table
keeps no ALTER TABLE waiting. While a statement runs it has its lock: a watch over the sessions of one read point finds
out who waits for it, and cancels the statement, to be tried again behind them. Our own requests wait for a second at a
time, while they hold nothing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from instep.errors import InstepError
from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import connect
from instep.sources.server import is_over

if TYPE_CHECKING:
    import psycopg

Found = TypeVar("Found")
EVERY = 0.25
"""Seconds between two looks at who waits."""
CANCEL, END = 2, 4
"""Looks in a row that find somebody waiting for a session: then its statement is cancelled, and a task's connection is
ended, which may be busy with sending and deaf to that."""
PAUSE = 0.2
"""Seconds until a statement that was cancelled is tried again."""
TRIES = 40
"""Number of times that a statement of the planner is tried while others want its table."""
_JOIN_TIMEOUT = 5.0
"""Seconds to wait for the last look: a server that hangs must not keep the end of a sync."""
LONGEST = 3600.0
"""Seconds to wait for a table that others have locked, where the source's `read_timeout` is 0: another session may have
forgotten its transaction."""
MAIN, TASK, LANE = 1, 2, 3
"""Roles of a read point's sessions: the one that has opened it, a task's, one that reads at a read point of its own."""

# A read holds ACCESS SHARE, which nothing but ACCESS EXCLUSIVE waits for. Advisory locks tell which sessions are ours.
_WAITED = """
WITH found AS MATERIALIZED (SELECT * FROM pg_locks),
ours AS (SELECT l.pid, l.objid FROM found l WHERE l.locktype = 'advisory' AND l.classid = {key}
            AND l.objsubid = 2 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT DISTINCT o.pid, o.objid::int8 FROM ours o
JOIN found h ON h.pid = o.pid AND h.locktype = 'relation' AND h.granted
JOIN found w ON w.locktype = 'relation' AND NOT w.granted AND w.mode = 'AccessExclusiveLock'
  AND w.database = h.database AND w.relation = h.relation AND w.pid NOT IN (SELECT pid FROM ours)
"""

_HOLDERS = """
SELECT a.pid, coalesce(nullif(a.application_name, ''), 'no application name'), a.state, l.relation::regclass::text
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY a.xact_start LIMIT 3
"""


def new_key() -> int:
    """Return a number for the sessions of one read point."""
    return 1 + secrets.randbelow((1 << 31) - 1)


def marking(key: int, role: int) -> str:
    """Return an expression that makes the transaction known as one of the read point's."""
    return f"pg_try_advisory_xact_lock_shared({key}, {role})"


def unlocked(
    config: PostgresSourceSection, connection: psycopg.Connection[Any], act: Callable[[], Found], turn: Any = None
) -> Found:
    """Answer what `act` reads in the connection's open transaction, and keep none of its locks. Tries again while
    others have the table, for as long as the server may be silent; then LockNotAvailable says who has it."""
    import psycopg

    begun, limit = time.monotonic(), config.read_timeout or LONGEST
    for tried in range(1, 1 << 30):
        at = time.monotonic()
        try:
            with _in_turn(turn), connection.transaction(force_rollback=True):
                return act()
        except psycopg.errors.LockNotAvailable as error:
            if at - begun > limit:
                with _in_turn(turn):
                    raise psycopg.errors.LockNotAvailable(f"{error}{_holders(connection)}") from None
        except psycopg.errors.QueryCanceled:
            if is_over(config, at) or tried >= TRIES:
                raise
        except psycopg.OperationalError as error:
            if error.sqlstate or not connection.closed:
                raise
            raise psycopg.OperationalError(_last_words(connection) or str(error)) from None
        time.sleep(PAUSE)
    raise AssertionError


def _holders(connection: psycopg.Connection[Any]) -> str:
    """Return which sessions have locked which tables of the database, as the end of a sentence; "" if that cannot be
    seen."""
    import psycopg

    try:
        with connection.transaction(force_rollback=True):
            found = connection.execute(_HOLDERS.encode()).fetchall()
    except psycopg.Error:
        return ""
    who = (f"{table} is locked by process {pid} ({name}, {state})" for pid, name, state, table in found)
    return "".join(f"; {text}" for text in who)


def _last_words(connection: psycopg.Connection[Any]) -> str:
    """Return the server's message when it ended the session: the first statement after it fails with that, or the
    watch's does, and each later one only says that the connection is lost. "" for a session that this side has
    closed: the error that closed it says why."""
    handle: Any = connection.pgconn
    if handle.pgconn_ptr is None:
        return ""
    return str(handle.error_message.decode(errors="replace")).removeprefix("FATAL:").strip()


@contextmanager
def _in_turn(turn: Any) -> Iterator[None]:
    if turn is None:
        yield
        return
    with turn:
        yield


class SessionWatch:
    """Watches over the sessions of one read point. It looks through the read point's own connection while that has
    nothing to do (`turn`), else through another one."""

    def __init__(self, config: PostgresSourceSection, connection: psycopg.Connection[Any], key: int) -> None:
        self.turn = threading.Lock()
        self.key, self._config, self._connection = key, config, connection
        self._seen: Counter[int] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="locks", daemon=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join(_JOIN_TIMEOUT)

    def _run(self) -> None:
        import psycopg

        while not self._ended.wait(EVERY):
            with suppress(psycopg.Error, InstepError, OSError):
                self._check_locks()

    def _check_locks(self) -> None:
        if self.turn.acquire(blocking=False):
            try:
                with self._connection.transaction(force_rollback=True):
                    self._free(self._connection)
            finally:
                self.turn.release()
            return
        with connect(self._config) as connection:
            while self.turn.locked() and not self._ended.wait(EVERY):
                self._free(connection)

    def _free(self, connection: psycopg.Connection[Any]) -> None:
        waited = dict(connection.execute(_WAITED.replace("{key}", str(self.key)).encode()).fetchall())
        self._seen = Counter({pid: self._seen[pid] + 1 for pid in waited})
        for pid, times in self._seen.items():
            if times >= CANCEL:
                end = times >= END and waited[pid] == TASK
                connection.execute(f"SELECT pg_{'terminate' if end else 'cancel'}_backend({pid})".encode())
