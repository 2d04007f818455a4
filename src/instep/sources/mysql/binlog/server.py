"""What a server says about its binary log, and what it or the user lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instep.sources.mysql.binlog.collect import Spot
from instep.sources.mysql.connect import MySqlConfig, first, is_mariadb, run
from instep.sources.mysql.sql import literal

if TYPE_CHECKING:
    import pymysql

DENIED = (1227, 1045, 1142)
_NO_LOG = 1381
_PARSE = 1064
_VARIABLES = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "gtid_mode",
    "server_id",
    "server_uid",
    "server_uuid",
    "hostname",
    "port",
    "expire_logs_days",
    "binlog_expire_logs_seconds",
)
OLDEST = (8, 0, 19)


@dataclass(frozen=True)
class BinlogServer:
    """`name` is what positions are valid within; `files` of the log with their bytes, in order, unless the user
    may not see them (`seen`); `end` is where it ends; `left_out` says which databases it leaves out; `now` is its clock
    in seconds since 1970."""

    name: str = ""
    mariadb: bool = False
    account: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    end: Spot = ("", 0)
    left_out: str = ""
    seen: bool = True
    now: float = 0.0

    @property
    def full(self) -> bool:
        """Whether the log has whole rows."""
        return self.settings.get("binlog_row_image", "").upper() == "FULL"

    @property
    def retention(self) -> str:
        seconds = self.settings.get("binlog_expire_logs_seconds") or ""
        days = self.settings.get("expire_logs_days") or "0"
        return f"binlog_expire_logs_seconds is {seconds}" if seconds else f"expire_logs_days is {days}"


def server_of(connection: pymysql.Connection[Any]) -> BinlogServer:
    mariadb = is_mariadb(connection)
    names = ", ".join(map(literal, _VARIABLES))
    found = {
        str(name).lower(): str(value)
        for name, value in run(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
    }
    user, _, host = str(first(connection, "SELECT CURRENT_USER()")[0]).rpartition("@")
    account = f"{literal(user)}@{literal(host)}"
    own = found.get("server_uid") or found.get("server_uuid") or ""
    name = own or f"{found.get('hostname')}:{found.get('port')}/{found.get('server_id')}"
    if found.get("log_bin", "").upper() not in ("ON", "1"):
        return BinlogServer(name, mariadb, account, found)
    try:
        status = _status(connection)
        files = {str(row[0]): int(row[1]) for row in run(connection, "SHOW BINARY LOGS")}
    except _errors() as error:
        if not error.args or error.args[0] not in DENIED:
            raise
        return BinlogServer(name, mariadb, account, found, seen=False)
    now = float(first(connection, "SELECT UNIX_TIMESTAMP()")[0])
    return BinlogServer(
        name, mariadb, account, found, files, (str(status[0]), int(status[1])), _left_out(status), now=now
    )


def _errors() -> type[Exception]:
    from pymysql.err import MySQLError

    return MySQLError


def _status(connection: pymysql.Connection[Any]) -> tuple[Any, ...]:
    """(file, position, databases that are logged, databases that are not); MySQL 8.4 has a new name for it."""
    try:
        return first(connection, "SHOW MASTER STATUS")
    except _errors() as error:
        if error.args[:1] != (_PARSE,):
            raise
    return first(connection, "SHOW BINARY LOG STATUS")


def _left_out(status: tuple[Any, ...]) -> str:
    """Statements are left out by the database that they were run in, so that none of a table may be missing."""
    for name, value in (("binlog_do_db", status[2]), ("binlog_ignore_db", status[3])):
        if value:
            return f"the server leaves statements out of its log ({name} is {value}): a truncate would not be seen"
    return ""


def missing(connection: pymysql.Connection[Any], server: BinlogServer, config: MySqlConfig) -> tuple[str, str]:
    """Return what the server or the user lacks, and what to run or set."""
    facts = server.settings
    if facts.get("log_bin", "").upper() not in ("ON", "1"):
        return "the server writes no binary log", "set log_bin and a server_id of its own in its file, then restart it"
    if facts.get("server_id") == "0":
        return "the server's server_id is 0: nothing may read its log", "SET GLOBAL server_id = 1;"
    if not server.seen:
        return (
            f"user {config.user} may not see the binary log",
            f"GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO {server.account};",
        )
    if facts.get("binlog_format", "ROW").upper() != "ROW":
        return (
            f"binlog_format is {facts['binlog_format']}: the log has statements, not rows",
            "SET GLOBAL binlog_format = ROW; -- and in its file; sessions that are open keep theirs until they end",
        )
    if server.mariadb:
        return "", ""
    version = str(first(connection, "SELECT VERSION()")[0])
    numbers = tuple(int(n) for n in version.partition("-")[0].split(".") if n.isdecimal())
    if numbers < OLDEST:
        return f"the log can be read from MySQL 8.0.19 on (this is {version})", "use mode: upsert"
    if facts.get("gtid_mode", "").upper() != "ON":
        return (
            f"gtid_mode is {facts.get('gtid_mode') or 'OFF'}: which changes of the log a snapshot shows cannot be told",
            "SET GLOBAL enforce_gtid_consistency = ON; then gtid_mode step by step: OFF_PERMISSIVE, ON_PERMISSIVE, ON",
        )
    return "", ""
