"""Reading chunks of MySQL tables into Arrow batches, inside a task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import ConnectError, InstepError, LockYielded
from instep.project.sections.databases import MySqlSourceSection
from instep.schema.catalog.types import Binary, Boolean, DataType, Decimal, Float, Int, TimestampTz, parse
from instep.sources.mysql.connect import (
    BEGIN,
    connect,
    driver,
    hang_up,
    is_mariadb,
    run,
    transaction,
    translated,
)
from instep.sources.mysql.shared_view import NotShared, begin_shared
from instep.sources.mysql.wire import RowStream
from instep.sources.server import in_time
from instep.stage.spec import Chunk, SharedView, SourceLimits

if TYPE_CHECKING:
    import pymysql


EVERY = 0.4
"""Seconds between two looks."""
END = 2
"""Looks in a row that find somebody waiting: then the session is ended."""
_JOIN_TIMEOUT = 5.0
"""Seconds to wait for the last look: a server that hangs must not keep the end of a sync."""
LOCKED = 1205
"""The error of a lock that was waited for in vain."""


class LockWatch:
    """Watches over sessions that read one table. `probe` is a query that needs what they have locked, "" while that is
    nothing; `ended` tells that they had to go. `own` is the connection to watch by, if there is one already."""

    def __init__(
        self, config: MySqlSourceSection, *sessions: pymysql.Connection[Any], own: pymysql.Connection[Any] | None = None
    ) -> None:
        self.probe, self.ended = "", False
        self._own = own
        self._config, self._ids = config, [int(cast(Any, session).thread_id()) for session in sessions]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="locks", daemon=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch in here; not where there may be two connections, for it takes a third one."""
        if self._config.max_connections == 2:
            yield
            return
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(_JOIN_TIMEOUT)

    def _run(self) -> None:
        """Try again what the server refuses now and may give a moment later."""
        self._over.wait(EVERY)
        while not self._over.wait(EVERY) and not self.ended:
            with suppress(InstepError, driver().MySQLError, OSError):
                if own := self._own:
                    self._own = None
                    self._watch(own)
                else:
                    with connect(self._config) as connection:
                        self._watch(connection)

    def _watch(self, connection: pymysql.Connection[Any]) -> None:
        run(connection, f"SET SESSION lock_wait_timeout = {0 if is_mariadb(connection) else 1}")
        seen, before = 0, ""
        while not self._over.wait(EVERY):
            probe = self.probe
            seen = seen + 1 if probe and probe == before and self._is_waited_for(connection, probe) else 0
            before = probe
            if seen == END and probe == self.probe:
                self.ended = True
                for session in self._ids:
                    with suppress(driver().MySQLError):  # it has ended
                        run(connection, f"KILL {session}")
                return

    def _is_waited_for(self, connection: pymysql.Connection[Any], probe: str) -> bool:
        try:
            run(connection, probe)
        except driver().MySQLError as error:
            if not cast(Any, connection).open:
                raise
            return bool(error.args) and cast(int, error.args[0]) == LOCKED
        return False


BATCH_ROWS = 65_536


@dataclass(frozen=True)
class MySqlReader:
    """Opens a connection with its own consistent snapshot, not older than the driver's, or `together` such
    connections that show one state."""

    config: MySqlSourceSection
    together: int = 1

    @property
    def limits(self) -> SourceLimits:
        """The sessions that read a table have another one beside them that watches for who waits, if three are
        allowed."""
        most = self.config.max_connections
        return SourceLimits(1 + (most - 1) // (1 + self.together) if most > 2 else most, self.config.rows_per_second)

    @contextmanager
    def open(self) -> Iterator[MySqlSession]:
        with transaction(self.config) as connection:
            watch = LockWatch(self.config, connection)
            with watch.watching():
                yield MySqlSession(self.config, connection, watch)

    @contextmanager
    def open_shared(self, chunk: Chunk, count: int) -> Iterator[SharedView]:
        """Open as many connections as the server allows that show one state; one if they cannot.

        The connection that lets others through comes first, and of what the server has one is left to others.
        """
        with ExitStack() as stack:
            connections, guard, why = [stack.enter_context(connect(self.config))], None, ""
            try:
                guard = stack.enter_context(connect(self.config))
                while len(connections) < count:
                    connections.append(stack.enter_context(connect(self.config)))
            except ConnectError as error:
                why = error.message
                if len(connections) > 2:
                    cast(Any, connections.pop())._force_close()
            with translated(self.config, f"{self.config.place}, reading {chunk.table}"):
                try:
                    if guard is None or len(connections) == 1:
                        raise NotShared(why)
                    basis = begin_shared(self.config, guard, connections, chunk)
                except NotShared as error:
                    for spare in connections[1:]:
                        cast(Any, spare)._force_close()
                    del connections[1:]
                    run(connections[0], BEGIN)
                    run(connections[0], "SET SESSION lock_wait_timeout = DEFAULT")
                    basis = f"read by one connection, because several may show different states: {error}"
                else:
                    basis = f"read by {len(connections)} connections that show one state: {basis}"
            watch = LockWatch(self.config, *connections, own=guard)
            watch.probe = chunk.probe if len(connections) > 1 else ""  # they have locked it already
            with watch.watching():
                sessions = [MySqlSession(self.config, connection, watch, chunk.lane) for connection in connections]
                yield SharedView(tuple(sessions), basis)


@dataclass
class MySqlSession:
    """One connection; all that it reads of one lane is of one point of time. A transaction keeps a lock on the
    definition of what it has read, so the next lane is read in another one."""

    config: MySqlSourceSection
    connection: pymysql.Connection[Any]
    watch: LockWatch
    lane: str | None = None

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield batches of 65,536 rows or 32 MB. Each column of the query is named by its data type."""
        try:
            yield from self._read(chunk)
        except InstepError as error:
            if not self.watch.ended:
                raise
            hint = "sync again when they are done"
            yielded = LockYielded(f"{error.message}: given up, because others wait for the table", hint=hint)
            yielded.broken = True
            raise yielded from None

    def stop(self) -> None:
        hang_up(self.connection)

    def _read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        with translated(self.config, f"{self.config.place}, reading {chunk.table}"):
            if self.lane not in (None, chunk.lane):
                run(self.connection, BEGIN)
            self.lane, self.watch.probe = chunk.lane, chunk.probe
            stream = RowStream(self.connection, chunk.query)
            kinds = [parse(name) for name in stream.names]
            names = [str(position) for position in range(len(kinds))]
            try:
                for block in in_time(self.config, stream.blocks(BATCH_ROWS), chunk.table):
                    columns = [convert(kind, values) for kind, values in zip(kinds, block, strict=True)]
                    yield pa.RecordBatch.from_arrays(columns, names)
            finally:
                stream.close()


def convert(kind: DataType, values: pa.Array) -> pa.Array:
    """Return the server's texts as the type that the query yields for a column of type `kind`.

    Text is passed on as it is, for `stage` to find what is not UTF-8.
    """
    if isinstance(kind, Binary):
        return values
    texts = values.view(pa.string())
    if isinstance(kind, Int):
        return texts.cast(pa.int64()).cast(_INTEGERS[kind.bits])
    if isinstance(kind, Decimal):
        return texts.cast(pa.decimal128(kind.precision, kind.scale))
    if isinstance(kind, Float):
        numbers = texts.cast(pa.float64())
        return numbers if kind.bits == 64 else numbers.cast(pa.float32())
    if isinstance(kind, Boolean):
        return texts.cast(pa.bool_())
    return _with_zone(texts) if isinstance(kind, TimestampTz) else texts


_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def _with_zone(texts: pa.Array) -> pa.Array:
    """Append a Z to the session's times, which are UTC; not to dates that do not exist (year 0000)."""
    return pc.if_else(pc.starts_with(texts, "0000"), texts, pc.binary_join_element_wise(texts, "Z", ""))
