"""Connections that are kept for the next one who needs one: logging in costs more than a small table does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

T = TypeVar("T")
_REST = 1.0
"""Seconds after which a connection is asked whether it is still there."""


class Pool(Generic[T]):
    """`open` makes a connection, `close` ends it; `is_alive` asks the server."""

    def __init__(self, open: Callable[[], T], close: Callable[[T], object], is_alive: Callable[[T], bool]) -> None:
        self._open, self._close, self._is_alive = open, close, is_alive
        self._idle: list[tuple[float, T]] = []
        self._lock = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[T]:
        """A connection for one thread; one that something was raised over is not used again."""
        connection = self._waiting() or self._open()
        try:
            yield connection
        except BaseException:
            self._end(connection)
            self.close()  # what has broken it may have broken those that wait
            raise
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def _waiting(self) -> T | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if time.monotonic() - since < _REST or self._is_alive(connection):
                return connection
            self._end(connection)

    def _end(self, connection: T) -> None:
        with suppress(Exception):  # it may be broken, and what broke it is being told already
            self._close(connection)

    def close(self) -> None:
        """Ends those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            self._end(connection)
