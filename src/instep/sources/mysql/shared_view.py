"""Snapshots of several connections that show one state.

A consistent snapshot belongs to one connection. Several show the same state if nothing was committed while they began:

- by position: the snapshots are begun at once, and the server tells afterwards that nothing came in between. MariaDB
  and Percona Server tell the place of each snapshot in the log. MySQL tells which transactions are done, and which are
  on their way to it: none may be on its way before and after, and the same ones done. Nobody waits for this.
- by lock: writers of the table wait, for at most a second or two, until all snapshots have begun.

If neither is to be had, one connection reads the table. The position tells nothing of what the server leaves out of its
log: then the lock alone counts. A session that leaves its own changes out (sql_log_bin = 0) is not seen by position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from instep.project.sections.databases import MySqlSourceSection
from instep.sources.mysql.binlog.stream import unlogged
from instep.sources.mysql.connect import BEGIN, driver, first, is_mariadb, run
from instep.sources.mysql.wire import translated_errors
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    import pymysql

    Connections = Sequence[pymysql.Connection[Any]]

TRIES = 8
"""The most beginnings of snapshots before a lock is taken: on a server with many writers no moment is quiet."""
_PAUSE = 0.02
_LOCK_SECONDS = 1
"""Seconds for which a lock may be waited for: whoever writes to the table meanwhile waits behind it."""
_SILENT_SECONDS = 2
"""The server ends a session that is silent for so long, and its lock with it, whatever became of this process."""
_LOCKED, _ALTERED, _QUERY = 1205, 1412, 3


class NotShared(Exception):
    """The snapshots may show different states; the text says why."""


def begin_shared(
    config: MySqlSourceSection, guard: pymysql.Connection[Any], connections: Connections, chunk: Chunk
) -> str:
    """Begin a snapshot on each connection, all of one state, and return how that is guaranteed. Raises NotShared.
    `chunk` is of the table that will be read: its definition is locked, as by a read. `guard` is a connection beside
    them."""
    reasons = []
    for begin in (_by_position, _by_lock):
        try:
            return begin(config, guard, connections, chunk)
        except NotShared as error:
            reasons.append(str(error))
    raise NotShared("; ".join(reasons))


def _begin(connections: Connections) -> None:
    """Begin all transactions at once: the statement is sent to each connection before the first answer is read."""
    wires = cast(Any, connections)
    with translated_errors():
        for wire in wires:
            wire._execute_command(_QUERY, BEGIN.encode())
        for wire in wires:
            wire._read_query_result()


def _by_position(
    config: MySqlSourceSection, guard: pymysql.Connection[Any], connections: Connections, chunk: Chunk
) -> str:
    leader = connections[0]
    if why := unlogged(leader):
        raise NotShared(why)
    shows_one = _log_places if _tells_places(leader) else _transactions
    for _ in range(TRIES):
        if shows_one(connections):
            _lock_definition(connections, chunk)
            return "their snapshots have one position in the server's log"
        time.sleep(_PAUSE)
    raise NotShared("others committed whenever the snapshots began")


def _tells_places(leader: pymysql.Connection[Any]) -> bool:
    """Return whether the server tells where in its log a snapshot is, of all that changes its rows. One that does not
    tell whether it replicates may do so."""
    if not any(run(leader, "SHOW STATUS LIKE 'binlog_snapshot_file'")):
        return False
    names = "'log_slave_updates', 'log_replica_updates', 'wsrep_on'"
    settings = {
        str(n).lower(): str(v) for n, v in run(leader, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
    }
    replicas = run(leader, "SHOW GLOBAL STATUS WHERE variable_name IN ('slaves_running', 'slave_running')")
    applies = not replicas or any(str(value).upper() not in ("0", "OFF") for _, value in replicas)
    logs = "ON" in (settings.get("log_slave_updates"), settings.get("log_replica_updates"))
    if not logs and (applies or settings.get("wsrep_on") == "ON"):
        raise NotShared("the server does not log what it replicates: log_slave_updates (log_replica_updates) is OFF")
    return True


def _log_places(connections: Connections) -> bool:
    _begin(connections)
    return len({tuple(run(c, "SHOW STATUS LIKE 'binlog_snapshot_%'")) for c in connections}) == 1


def _transactions(connections: Connections) -> bool:
    """Begin the transactions; return whether all see the same state. A transaction is owned from before its rows are
    visible until it is listed as executed, so nothing was committed in between if the same ones are executed before
    and after, and none was owned in between."""
    leader = connections[0]
    mode = run(leader, "SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
    if is_mariadb(leader) or not mode or str(mode[0][1]).upper() != "ON":
        raise NotShared("the server does not tell what a snapshot shows: gtid_mode is not ON")
    done = first(leader, "SELECT @@global.gtid_executed")[0]
    if first(leader, "SELECT @@global.gtid_owned")[0]:
        return False
    _begin(connections)
    owned = first(leader, "SELECT @@global.gtid_owned")[0]
    return not owned and first(leader, "SELECT @@global.gtid_executed")[0] == done


def _by_lock(config: MySqlSourceSection, guard: pymysql.Connection[Any], connections: Connections, chunk: Chunk) -> str:
    """Lock the table against writers for that time, on its own connection: a transaction would end the lock."""
    begun = time.monotonic()
    try:
        with _guarded(config):
            run(guard, f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}, wait_timeout = {_SILENT_SECONDS}")
            begun = time.monotonic()
            run(guard, chunk.lock)
            if is_mariadb(guard) and run(guard, "XA RECOVER"):
                raise NotShared("prepared transactions (XA RECOVER) may be committed in spite of a lock")
        _begin(connections)
        _lock_definition(connections, chunk)
        with _guarded(config):
            run(guard, "UNLOCK TABLES")  # fails if the server has ended the lock already
    except BaseException:
        cast(Any, guard)._force_close()  # and its lock with it
        raise
    took = time.monotonic() - begun
    with suppress(driver().MySQLError):  # it watches from now on, and is opened again if it is lost
        run(guard, "SET SESSION wait_timeout = 86400")
    return f"writers of the table waited for {took:.3f} s while they began"


@contextmanager
def _guarded(config: MySqlSourceSection) -> Iterator[None]:
    try:
        yield
    except driver().MySQLError as error:
        if error.args[:1] == (_LOCKED,):
            raise NotShared(f"its writers could not be stopped within {_LOCK_SECONDS} s") from None
        why = config.redacted(str(error.args[-1]))
        raise NotShared(f"no lock was to be had, which GRANT LOCK TABLES allows ({why})") from None


def _lock_definition(connections: Connections, chunk: Chunk) -> None:
    """Lock the table's definition as reading does, so that nobody alters it before the last connection has read.

    Whoever alters it waits for the first connection, and the others behind him: so they wait a second at most. Raises
    NotShared.
    """
    try:
        for connection in connections:
            run(connection, f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
            run(connection, chunk.probe)
        for connection in connections:
            run(connection, "SET SESSION lock_wait_timeout = DEFAULT")
    except driver().MySQLError as error:
        if error.args[:1] not in ((_LOCKED,), (_ALTERED,)):
            raise
        for connection in connections:
            run(connection, "ROLLBACK")  # he goes first
        raise NotShared("somebody alters the table") from None
