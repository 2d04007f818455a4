"""An end for conversations: who sends a byte now and then never runs into a timeout of a socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class Talking(Protocol):
    """What has its connection, once it is there, in `sock`."""

    @property
    def sock(self) -> socket.socket | None: ...


@contextmanager
def ended_at(talking: Talking, deadline: float) -> Iterator[None]:
    """Ends the connection at `deadline` (of the monotonic clock) if the block is not over by then: what reads from it
    fails."""

    def end() -> None:
        if (open_socket := talking.sock) is not None:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
