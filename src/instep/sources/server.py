"""What is said about a database server that is a source, whichever it is.

Reading from a replica of the server: the first that answers, else the server itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from instep.errors import ConnectError, ReadError, quoted
from instep.project.sections.reach import SshSection
from instep.stage.secret_files import carried

T = TypeVar("T")
_LATE = 2.0
"""Seconds that a server may take to end a statement."""
_EARLY = 0.95
"""Clocks differ: of this part of its time a statement is over."""


@dataclass(frozen=True)
class ServerConfig:
    """Settings of a server source: address, login and tables.

    `include` and `exclude` are patterns for tables. Timeouts are in seconds, 0 means none; `read_timeout` is the
    longest silence of the server. `max_connections` and `rows_per_second` bound one sync, 0 means no bound.
    `read_replica` are `host` or `host:port` of servers to read from before `host`.
    """

    CERTIFICATES: ClassVar[tuple[str, ...]] = ()
    """Fields that are paths of certificates."""

    host: str
    database: str
    user: str
    port: int = 0
    password: str = field(default="", repr=False)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    connect_timeout: int = 10
    read_timeout: float = 3600
    statement_timeout: float = 0
    ssh: SshSection | None = None
    max_connections: int = 0
    rows_per_second: float = 0
    application_name: str = "instep"
    read_replica: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Certificates go along: a task may run where their files are not."""
        return {**self.__dict__, **{name: carried(getattr(self, name)) for name in self.CERTIFICATES}}

    def in_time(self, batches: Iterator[T], table: str) -> Iterator[T]:
        """Yield the batches of one statement; a ReadError if the server goes on with it, although it should have ended
        it. What is done with a batch before the next one is asked for does not count."""
        waited, end = 0.0, object()
        while True:
            began = time.monotonic()
            batch: Any = next(batches, end)
            waited += time.monotonic() - began
            if batch is end:
                return
            if self.statement_timeout and waited > self.statement_timeout + _LATE:
                message = "the server goes on sending after statement_timeout"
                raise ReadError(f"{table}: {message}", hint="raise it if the query needs longer")
            yield batch

    def is_over(self, begun: float) -> bool:
        """Return whether a statement that began then (monotonic) has used up its `statement_timeout`."""
        return bool(self.statement_timeout) and time.monotonic() - begun >= self.statement_timeout * _EARLY

    @property
    def place(self) -> str:
        """`user@host:port/database`, for messages."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"

    def redacted(self, text: str) -> str:
        """Return a text of the server's or a library's as it may be passed on: without the password, which it may
        repeat, on one line, without what moves a cursor, and not too long."""
        return quoted(text.replace(self.password, "***") if self.password else text)


Config = TypeVar("Config", bound=ServerConfig)


@dataclass(frozen=True)
class ReplicaSession(Generic[Config]):
    """A connection and the configuration of the server that it is to. `note` says that no replica answered."""

    config: Config
    connection: Any
    note: str = ""


def places(config: Config) -> list[Config]:
    """Return the configuration of each replica in order, then of the server itself."""
    hosts = [*(_parsed(text, config.port) for text in config.read_replica), (config.host, config.port)]
    return [replace(config, host=host, port=port, read_replica=()) for host, port in hosts]


def _parsed(text: str, port: int) -> tuple[str, int]:
    """`host`, `host:port`, `[address]:port` or an address of version 6."""
    host, colon, number = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return text.strip("[]"), port
    return (host.strip("[]"), int(number)) if number.isdecimal() else (text.strip("[]"), port)


@contextmanager
def nearest(
    config: Config, connect: Callable[[Config], AbstractContextManager[Any]]
) -> Iterator[ReplicaSession[Config]]:
    """A connection to the first server that can be reached; raises the last one's ConnectError if none can."""
    *replicas, itself = places(config)
    with ExitStack() as stack:
        refused = []
        for place in replicas:
            try:
                connection = stack.enter_context(connect(place))
            except ConnectError as error:
                refused.append(error.message)
                continue
            yield ReplicaSession(place, connection)
            return
        connection = stack.enter_context(connect(itself))
        note = f"no read replica can be reached ({'; '.join(refused)}): read from {config.host}" if refused else ""
        yield ReplicaSession(itself, connection, note)
