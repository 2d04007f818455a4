"""Reading from a database server, whichever it is: in time, and from a replica, the first that answers, else the server
itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from instep.errors import ConnectError, ReadError
from instep.project.sections.databases import DatabaseSection

T = TypeVar("T")
_LATE = 2.0
"""Seconds that a server may take to end a statement."""
_EARLY = 0.95
"""Clocks differ: of this part of its time a statement is over."""


def in_time(config: DatabaseSection, batches: Iterator[T], table: str) -> Iterator[T]:
    """Yield the batches of one statement; a ReadError if the server goes on with it, although it should have ended it.
    What is done with a batch before the next one is asked for does not count."""
    waited, end = 0.0, object()
    while True:
        began = time.monotonic()
        batch: Any = next(batches, end)
        waited += time.monotonic() - began
        if batch is end:
            return
        if config.statement_timeout and waited > config.statement_timeout + _LATE:
            message = "the server goes on sending after statement_timeout"
            raise ReadError(f"{table}: {message}", hint="raise it if the query needs longer")
        yield batch


def is_over(config: DatabaseSection, begun: float) -> bool:
    """Return whether a statement that began then (monotonic) has used up its `statement_timeout`."""
    return bool(config.statement_timeout) and time.monotonic() - begun >= config.statement_timeout * _EARLY


Config = TypeVar("Config", bound=DatabaseSection)


def with_files(config: Config, authority: str, certificate: str) -> Config:
    """Return the configuration with the paths that these certificates have here."""
    return config.model_copy(update={"tls": config.tls.model_copy(update={"ca": authority, "cert": certificate})})


@dataclass(frozen=True)
class ReplicaSession(Generic[Config]):
    """A connection and the configuration of the server that it is to."""

    config: Config
    connection: Any
    note: str = ""
    """Note that no replica answered."""


def places(config: Config) -> list[Config]:
    """Return the configuration of each replica in order, then of the server itself."""
    hosts = [*(_parsed(text, config.port) for text in config.read_replica), (config.host, config.port)]
    return [config.model_copy(update={"host": host, "port": port, "read_replica": ()}) for host, port in hosts]


def _parsed(text: str, port: int) -> tuple[str, int]:
    """Parse `host`, `host:port`, `[address]:port` or an IPv6 address."""
    host, colon, number = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return text.strip("[]"), port
    return (host.strip("[]"), int(number)) if number.isdecimal() else (text.strip("[]"), port)


@contextmanager
def nearest(
    config: Config, connect: Callable[[Config], AbstractContextManager[Any]]
) -> Iterator[ReplicaSession[Config]]:
    """Connect to the first server that can be reached; raises the last one's ConnectError if none can."""
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
