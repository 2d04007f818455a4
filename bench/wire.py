"""Counts what a server sends: a relay on a loopback port that moves bytes inside the kernel."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE = 1 << 20


class Wire:
    """`port` is where clients connect; `take` answers the bytes that the server has sent since it was asked last."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock, self._sent = threading.Lock(), 0
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self) -> int:
        with self._lock:
            sent, self._sent = self._sent, 0
            return sent

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._move, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._move, args=(server, client, True), daemon=True).start()

    def _move(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        """Until one side is done; then the other is told."""
        out, into = os.pipe()
        with suppress(OSError):
            while moved := os.splice(source.fileno(), into, PIECE):
                if counts:
                    with self._lock:
                        self._sent += moved
                while moved:
                    moved -= os.splice(out, target.fileno(), moved)
        for end in (out, into):
            os.close(end)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def counted(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
