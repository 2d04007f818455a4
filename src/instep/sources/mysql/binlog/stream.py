"""The binary log over a connection as a replica has it: events from a position on, to the end or to another one.

What a server says about its binary log, and what it or the user lacks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from struct import pack
from typing import TYPE_CHECKING, Any, cast

from instep.errors import ReadError
from instep.project.sections.databases import MySqlSourceSection
from instep.sources.mysql.binlog.collect import BEYOND, Spot
from instep.sources.mysql.binlog.gtids import GtidSet
from instep.sources.mysql.binlog.payload import PAYLOAD, NotUnpacked, payload_events
from instep.sources.mysql.binlog.wire import (
    FORMAT,
    HEADER,
    ROTATE,
    TABLE_MAP,
    End,
    Event,
    Format,
    Rotate,
    UnreadableEvent,
    checked,
    decode,
    header,
)
from instep.sources.mysql.connect import dial, driver, first, is_mariadb, run, translated
from instep.sources.mysql.types import literal

if TYPE_CHECKING:
    import pymysql


_DUMP, _DUMP_GTID = 0x12, 0x1E
_TRANSACTIONS = frozenset({33, 42, 162})
"""Kinds of events that begin a transaction and name it."""
NOTHING: Spot = ("", 0)
"""There is no transaction behind those that were named."""
_END_OF_FILE = 1
"""The server says when there is nothing more, and does not wait for it."""
MAGIC = 4
"""The bytes before the first event of a file."""
_UNREADABLE_LOG = 1236
"""The server's error for a place where it finds no event."""
_NO_SUCH_GTIDS = (_UNREADABLE_LOG, 1941, 1943)
"""Errors for names of transactions that the server cannot go on from, or that are none of its kind."""
_SETTINGS = (
    "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum,"
    " @mariadb_slave_capability = 4"
)


@dataclass
class BinlogStream:
    """A stream of the binary log's events."""

    connection: pymysql.Connection[Any]
    start: Spot
    gtids: str = ""
    """Transactions behind which the server begins, wherever that is; it leaves all of them out."""
    birth: int = 0
    """Time when the server began the file at hand, in seconds since 1970."""
    when: int = 0
    """The time of the last event."""
    maps: dict[bytes, Event | None] = field(default_factory=dict, repr=False)

    def events(self, upto: Spot | None = None) -> Iterator[tuple[Event | None, int]]:
        """Yield events with the position behind each, 0 for those that are not in the file."""
        file, last, summed = self.start[0], 0, False
        for data in self._packets():
            about = header(data)
            is_unchecked = about.kind in (ROTATE, FORMAT)
            body = data if is_unchecked else checked(data, summed)
            packed = about.kind == PAYLOAD
            event = None if packed else self._event(body)
            at = about.end if about.when or not is_unchecked else 0
            if isinstance(event, Format):
                summed, self.birth = event.summed, about.when
                self.maps = {}
            elif isinstance(event, Rotate):
                if event.file != file:
                    last = 0
                file, at = event.file, event.at
            elif at:
                last = at = BEYOND if at < last else at
                self.when = about.when
            for inner in self._unpacked(body) if packed else ():
                yield inner, at
            yield event, at
            if upto is not None and file == upto[0] and at >= upto[1]:
                return
        if upto is not None:
            raise ReadError(f"the binary log ended before {upto[0]}:{upto[1]}", hint="sync again")

    def begins_event(self) -> bool:
        """Return whether an event begins where this starts, or its file ends there: in a file of another history, most
        likely neither is so."""
        file, at = self.start
        summed = False
        try:
            for data in self._packets():
                about = header(data)
                if about.kind == FORMAT:
                    summed = cast(Format, decode(data)).summed
                elif about.end:  # 0: the server tells it, it is not in the file
                    checked(data, summed)
                    return at <= MAGIC or about.end == (at + about.size) & 0xFFFF_FFFF
                elif about.kind == ROTATE and cast(Rotate, decode(data)).file != file:
                    return True
        except ReadError:
            return False
        except driver().MySQLError as error:
            if error.args[:1] != (_UNREADABLE_LOG,):
                raise
            return False
        return True

    def first_transaction(self) -> Spot | None:
        """Return where the first one begins that is not among `gtids`, None if the server cannot go on from these."""
        file = ""
        try:
            for data in self._packets():
                about = header(data)
                if about.kind == ROTATE:
                    file = cast(Rotate, decode(data)).file
                elif about.kind in _TRANSACTIONS:
                    return (file, about.end - about.size) if about.end >= about.size else None
        except driver().MySQLError as error:
            if not error.args or error.args[0] not in _NO_SUCH_GTIDS:
                raise
            return None
        return NOTHING

    def _unpacked(self, body: bytes) -> Iterator[Event | None]:
        try:
            for inner in payload_events(body):
                yield self._event(inner)
        except NotUnpacked as error:
            yield UnreadableEvent(str(error))
            yield End()

    def _event(self, data: bytes) -> Event | None:
        """Decode an event; a table that is mapped again for each of its transactions is the same object."""
        if data[4] != TABLE_MAP:
            return decode(data)
        body = data[HEADER:]
        event = self.maps.get(body)
        if event is None:
            self.maps[body] = event = decode(data)
        return event

    def _packets(self) -> Iterator[bytes]:
        wire = cast(Any, self.connection)
        file, at = self.start
        server_id = random.randrange(1 << 31, 1 << 32)
        if self.gtids and not is_mariadb(wire):
            gtids = GtidSet.of(self.gtids).encoded
            wire._execute_command(_DUMP_GTID, pack("<HIIQI", _END_OF_FILE, server_id, 0, at, len(gtids)) + gtids)
        else:
            if self.gtids:
                state = f"@slave_connect_state = {literal(self.gtids)}"
                run(wire, f"SET {state}, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
            wire._execute_command(_DUMP, pack("<IHI", at, _END_OF_FILE, server_id) + file.encode())
        while True:
            packet = wire._read_packet()
            if packet.is_eof_packet():
                return
            data = packet.get_all_data()[1:]
            if len(data) < HEADER:
                raise ReadError("the server's answer is not a binary log", hint="check for a proxy in between")
            yield data


@contextmanager
def dump(config: MySqlSourceSection, start: Spot, gtids: str = "") -> Iterator[BinlogStream]:
    """Open a connection for the log alone, which ends with the block."""
    with translated(config, f"the binary log of {config.place}"):
        connection = dial(config)
    try:
        with translated(config, f"the binary log of {config.place}"):
            run(connection, _SETTINGS)
            yield BinlogStream(connection, start, gtids)
    finally:
        if connection.open:
            connection._force_close()


DENIED = (1227, 1045, 1142)
_PARSE = 1064
_VARIABLES = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "gtid_mode",
    "gtid_strict_mode",
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
    """The server whose binary log is read."""

    name: str = ""
    """Identity of the server, within which positions are valid."""
    mariadb: bool = False
    account: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    """Files of the log with their bytes, in order, unless the user may not see them (`seen`)."""
    end: Spot = ("", 0)
    """End of the log, behind the transactions that MySQL says are `executed`."""
    left_out: str = ""
    """Databases that the log leaves out."""
    seen: bool = True
    now: float = 0.0
    """Time of its clock in seconds since 1970."""
    executed: str = ""

    @property
    def full(self) -> bool:
        """True if the log has whole rows."""
        return self.settings.get("binlog_row_image", "").upper() == "FULL"

    @property
    def retention(self) -> str:
        seconds = self.settings.get("binlog_expire_logs_seconds") or ""
        days = self.settings.get("expire_logs_days") or "0"
        return f"binlog_expire_logs_seconds is {seconds}" if seconds else f"expire_logs_days is {days}"


def server_of(connection: pymysql.Connection[Any]) -> BinlogServer:
    mariadb = is_mariadb(connection)
    names = ", ".join(map(literal, _VARIABLES))
    settings = {
        str(name).lower(): str(value)
        for name, value in run(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
    }
    user, _, host = str(first(connection, "SELECT CURRENT_USER()")[0]).rpartition("@")
    account = f"{literal(user)}@{literal(host)}"
    own = settings.get("server_uid") or settings.get("server_uuid") or ""
    name = own or f"{settings.get('hostname')}:{settings.get('port')}/{settings.get('server_id')}"
    if settings.get("log_bin", "").upper() not in ("ON", "1"):
        return BinlogServer(name, mariadb, account, settings)
    try:
        status = _status(connection)
        files = {str(row[0]): int(row[1]) for row in run(connection, "SHOW BINARY LOGS")}
    except _errors() as error:
        if not error.args or error.args[0] not in DENIED:
            raise
        return BinlogServer(name, mariadb, account, settings, seen=False)
    now = float(first(connection, "SELECT UNIX_TIMESTAMP()")[0])
    return BinlogServer(
        name,
        mariadb,
        account,
        settings,
        files,
        (str(status[0]), int(status[1])),
        _left_out(status),
        now=now,
        executed="".join(str(status[4]).split()) if len(status) > 4 else "",
    )


def _errors() -> type[Exception]:
    from pymysql.err import MySQLError

    return MySQLError


def _status(connection: pymysql.Connection[Any]) -> tuple[Any, ...]:
    """Return (file, position, databases that are logged, databases that are not, for MySQL the executed
    transactions); MySQL 8.4 has a new name for the statement."""
    try:
        return first(connection, "SHOW MASTER STATUS")
    except _errors() as error:
        if error.args[:1] != (_PARSE,):
            raise
    return first(connection, "SHOW BINARY LOG STATUS")


def unlogged(connection: pymysql.Connection[Any]) -> str:
    """Return why the log may not have all that is committed; "" if it has, as far as the server decides it."""
    if not int(first(connection, "SELECT @@global.log_bin")[0]):
        return "the server writes no binary log"
    try:
        return _left_out(_status(connection))
    except _errors() as error:
        if not error.args or error.args[0] not in DENIED:
            raise
        return "the user may not see what the log leaves out, which GRANT REPLICATION CLIENT allows"


def _left_out(status: tuple[Any, ...]) -> str:
    """Return why the log is incomplete: statements are left out by the database in which they were run, so that
    those of any table may be missing."""
    for name, value in (("binlog_do_db", status[2]), ("binlog_ignore_db", status[3])):
        if value:
            return f"the server leaves statements out of its log ({name} is {value}): a truncate would not be seen"
    return ""


def missing(connection: pymysql.Connection[Any], server: BinlogServer, config: MySqlSourceSection) -> tuple[str, str]:
    """Return what the server or the user lacks, and what to run or set."""
    facts = server.settings
    if facts.get("log_bin", "").upper() not in ("ON", "1"):
        return "the server writes no binary log", "set log_bin and a unique server_id in its file, then restart it"
    if facts.get("server_id") == "0":
        return "the server's server_id is 0: nothing may read its log", "SET GLOBAL server_id = 1;"
    if not server.seen:
        return (
            f"user {config.user} is not allowed to see the binary log",
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
            f"gtid_mode is {facts.get('gtid_mode') or 'OFF'}: it is unknown which changes of the log a snapshot shows",
            "SET GLOBAL enforce_gtid_consistency = ON; then gtid_mode step by step: OFF_PERMISSIVE, ON_PERMISSIVE, ON",
        )
    return "", ""
