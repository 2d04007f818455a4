"""The binary log over a connection as a replica has it: events from a position on, to the end or to another one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from struct import pack
from typing import TYPE_CHECKING, Any, cast

from instep.errors import ReadError
from instep.sources.mysql.binlog.collect import BEYOND, Spot
from instep.sources.mysql.binlog.wire import (
    FORMAT,
    HEADER,
    ROTATE,
    TABLE_MAP,
    Event,
    Format,
    Rotate,
    checked,
    decode,
    header,
)
from instep.sources.mysql.connect import MySqlConfig, dial, driver, run, translated

if TYPE_CHECKING:
    import pymysql

_DUMP = 0x12
_END_OF_FILE = 1
"""The server says when there is nothing more, and does not wait for it."""
MAGIC = 4
"""The bytes before the first event of a file."""
_UNREADABLE_LOG = 1236
"""The server's error for a place where it finds no event."""
_SETTINGS = (
    "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum,"
    " @mariadb_slave_capability = 4"
)


@dataclass
class BinlogStream:
    """`birth` is when the server began the file at hand, in seconds since 1970; `when` the time of the last event."""

    connection: pymysql.Connection[Any]
    start: Spot
    birth: int = 0
    when: int = 0
    maps: dict[bytes, Event | None] = field(default_factory=dict, repr=False)

    def events(self, upto: Spot | None = None) -> Iterator[tuple[Event | None, int]]:
        """Yield events with the position behind each, 0 for those that are not in the file."""
        file, last, summed = self.start[0], 0, False
        for data in self._packets():
            about = header(data)
            known = about.kind in (ROTATE, FORMAT)
            event = self._event(data if known else checked(data, summed))
            at = about.end if about.when or not known else 0
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

    def _event(self, data: bytes) -> Event | None:
        """A table that is mapped for each of its transactions is the same object."""
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
        wire._execute_command(_DUMP, pack("<IHI", at, _END_OF_FILE, server_id) + file.encode())
        while True:
            packet = wire._read_packet()
            if packet.is_eof_packet():
                return
            data = packet.get_all_data()[1:]
            if len(data) < HEADER:
                raise ReadError("the server's answer is no binary log", hint="check for a proxy in between")
            yield data


@contextmanager
def dump(config: MySqlConfig, start: Spot) -> Iterator[BinlogStream]:
    """A connection of its own: it can be used for nothing else, and ends with the block."""
    with translated(config, f"the binary log of {config.place}"):
        connection = dial(config)
    try:
        with translated(config, f"the binary log of {config.place}"):
            run(connection, _SETTINGS)
            yield BinlogStream(connection, start)
    finally:
        if connection.open:
            connection._force_close()
