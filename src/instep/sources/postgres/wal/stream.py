"""A logical slot's changes as the server streams them: PostgreSQL's replication protocol.

psycopg does not speak it. libpq carries it, as a COPY in both directions, and psycopg's `pq` passes that on
(docs/adr/0043-streamed-slots.md).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any

from instep.model import LogNames
from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import dial, settings
from instep.sources.postgres.types import literal, quote
from instep.sources.postgres.wal.wire import Message, WalBegin, WalCommit, WalRelation, decode
from instep.stage.timeouts import Silence, timed_connection

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn, PGresult


MARKS = 140_000
"""The first version whose `pgoutput` tells logical messages."""
_HEAD, _PROGRESS, _STATUS = 25, Struct(">q"), Struct(">cqqqqB")
_EPOCH = 946_684_800_000_000
"""The year 2000 in microseconds since 1970."""
_PING = 0.2
"""Seconds without a word after which the server is asked how far it is."""
_FAREWELL = 10.0
"""Seconds that the server has to end the stream in order; then it is cut."""
_ABSENCE = "1d"
"""Time after which the server gives up a reader that reads nothing: it loads what it has read."""


class WalStream:
    """Messages of a slot's transactions, in the order of their commits. What is read stays in the slot until `confirm`,
    and the server is not told of it before: it never takes this connection for a standby that commits wait for."""

    def __init__(self, session: psycopg.Connection[Any], position: int, silence: float) -> None:
        self.position = position
        """All transactions that were committed before this were read."""
        self.relations: dict[int, WalRelation] = {}
        """The relations as they were described last."""
        self.server_process = session.info.backend_pid
        self._session, self._silence = session, silence
        self._ahead = b""
        self._reached, self._since, self._pinged = 0, time.monotonic(), 0.0

    def messages(self, upto: int, most: int) -> Iterator[Message | None]:
        """Yield the messages of the transactions that were committed before `upto`; after `most` messages only those of
        the transaction at hand. An iterator that is not used up leaves the stream unusable."""
        count, within = 0, False
        while data := self._next_message(upto, within):
            message = decode(data)
            match message:
                case WalBegin(commit=commit) if commit >= upto:
                    self._ahead = data
                    break
                case WalBegin():
                    within = True
                case WalRelation(oid):
                    self.relations[oid] = message
            count += 1
            yield message
            if isinstance(message, WalCommit):
                self.position, within = message.end, False
                if count >= most:
                    return
        self.position = max(self.position, upto)

    def _next_message(self, upto: int, within: bool) -> bytes:
        """Return the next message of the plug-in; b"" once the server has passed `upto`, not within a transaction."""
        data, self._ahead = self._ahead, b""
        while not data:
            received = self._received()
            if received[:1] == b"w":
                data, self._since = received[_HEAD:], time.monotonic()
                continue
            (reached,) = _PROGRESS.unpack_from(received, 1)
            if reached > self._reached:
                self._reached, self._since = reached, time.monotonic()
            if reached >= upto and not within:
                return b""
        return data

    def _received(self) -> bytes:
        import psycopg

        while True:
            size, data = self._session.pgconn.get_copy_data(1)
            if size > 0:
                return bytes(data)
            if size < 0:
                raise _error(_result(self._session))
            if not self._session.wait(_input(self._session.pgconn)):
                now = time.monotonic()
                if self._silence and now - self._since >= self._silence:
                    self._session.close()
                    raise psycopg.OperationalError(str(Silence(self._silence)))
                if now - self._pinged >= _PING:
                    self._pinged = now
                    self._report(0, answer=True)

    def _report(self, position: int, *, answer: bool = False) -> None:
        """Report to the server the position up to which it may release the log; 0 for none."""
        now = time.time_ns() // 1000 - _EPOCH
        self._session.pgconn.put_copy_data(_STATUS.pack(b"r", position, position, position, now, answer))
        self._session.wait(_output(self._session.pgconn))

    def confirm(self, position: int) -> None:
        """Confirm a position: the server releases the log before it in a moment."""
        self._report(position)
        self._report(0)

    def close(self) -> None:
        """End the stream, so that the slot is free."""
        import psycopg

        pgconn, ends = self._session.pgconn, time.monotonic() + _FAREWELL
        with suppress(psycopg.Error):
            pgconn.put_copy_end()
            self._session.wait(_output(pgconn))
            while time.monotonic() < ends and (size := pgconn.get_copy_data(1)[0]) >= 0:
                if not size:
                    self._session.wait(_input(pgconn))
            while time.monotonic() < ends and pgconn.is_busy():
                self._session.wait(_input(pgconn))
        self._session.close()


def open_stream(config: PostgresSourceSection, names: LogNames, position: int) -> WalStream:
    """Return the changes of a slot from the position up to which it is confirmed."""
    session = replication_session(config)
    try:
        for name, value in {**settings(config), "wal_sender_timeout": _ABSENCE}.items():
            session.execute(f"SELECT set_config({literal(name)}, {literal(value)}, false)".encode())
        marks = ", messages 'true'" if session.info.server_version >= MARKS else ""
        published = literal(quote(names.publication))
        options = f"proto_version '1', publication_names {published}{marks}"
        session.pgconn.send_query(f"START_REPLICATION SLOT {quote(names.slot)} LOGICAL 0/0 ({options})".encode())
        session.wait(_output(session.pgconn))
        _check(_result(session))
    except BaseException:
        session.close()
        raise
    return WalStream(session, position, config.read_timeout)


def timeline_end(config: PostgresSourceSection, now: int, before: int) -> str:
    """Return where the server's timeline `now` has left the one `before`; "" if it does not descend from that."""
    session = replication_session(config)
    try:
        result = session.execute(f"TIMELINE_HISTORY {now}".encode()).pgresult
        history = (result.get_value(0, 1) if result else None) or b""
    finally:
        session.close()
    lines = [line.split() for line in history.decode(errors="replace").splitlines()]
    return next((line[1] for line in lines if len(line) > 1 and line[0] == str(before)), "")


def replication_session(config: PostgresSourceSection) -> psycopg.Connection[Any]:
    """Return a connection that takes the commands of the replication protocol, beside simple queries."""
    connect = timed_connection(config.read_timeout).connect
    return dial(config, lambda info: connect(info, autocommit=True, replication="database"))


def _input(pgconn: PGconn) -> Generator[Any, Any, bool]:
    """Wait a moment for the server; return whether it has said something."""
    from psycopg.waiting import Wait

    ready = yield Wait.R
    if ready:
        pgconn.consume_input()
    return bool(ready)


def _output(pgconn: PGconn) -> Generator[Any, Any, None]:
    from psycopg.waiting import Wait

    while pgconn.flush():
        yield Wait.W


def _result(session: psycopg.Connection[Any]) -> PGresult | None:
    """Return the server's result of a command, or its message at the end of a stream."""
    while session.pgconn.is_busy():
        session.wait(_input(session.pgconn))
    return session.pgconn.get_result()


def _check(result: PGresult | None) -> None:
    from psycopg.pq import ExecStatus

    if result is None or result.status != ExecStatus.COPY_BOTH:
        raise _error(result)


def _error(result: PGresult | None) -> psycopg.Error:
    """Return the server's message at the end of a stream as psycopg's error."""
    from psycopg import OperationalError, errors
    from psycopg.pq import DiagnosticField

    state = (result and result.error_field(DiagnosticField.SQLSTATE)) or b""
    if result is None or not state:
        return OperationalError("the server has ended the stream of its log")
    try:
        kind: type[psycopg.Error] = errors.lookup(state.decode())
    except KeyError:
        kind = OperationalError
    return kind(result.error_message.decode(errors="replace"))
