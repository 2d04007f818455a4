"""Reading from a replica of the server: the first that answers, else the server itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from instep.errors import ConnectError
from instep.sources.server import ServerConfig

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
