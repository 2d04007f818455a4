"""What is said about a database server that is a source, whichever it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from instep.errors import ReadError, quoted
from instep.sources.private_file import carried
from instep.sources.ssh import Ssh

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
    ssh: Ssh | None = None
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
