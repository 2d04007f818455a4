"""Messages between a command, the engine and Spark's keeper: a length and a JSON document, with file descriptors."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LENGTH = struct.Struct("!I")
_MOST = 64 << 20
"""Bytes of a message: an environment and arguments are far below."""
_DESCRIPTORS = 4
SPARK_WITHIN = 300.0
"""Seconds that the keeper may take until Spark's session is there: a machine that is ten times slower needs half."""
TELLS_AFTER = 5.0
"""Seconds after which whoever waits for another process says so."""


def send(to: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message; `descriptors` are open files that the receiver gets its own copies of."""
    data = json.dumps(message).encode()
    whole = _LENGTH.pack(len(data)) + data
    sent = socket.send_fds(to, [whole], list(descriptors)) if descriptors else 0
    to.sendall(whole[sent:])  # in one piece: a signal's message may come from within


def receive(of: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and the files that came with it; None at the end of the connection."""
    begin, descriptors, _, _ = socket.recv_fds(of, _LENGTH.size, _DESCRIPTORS)
    try:
        if not begin:
            return None, descriptors
        begin += _read(of, _LENGTH.size - len(begin))
        (length,) = _LENGTH.unpack(begin)
        if length > _MOST:
            raise ConnectionError(f"a message of {length:,} bytes")
        message = json.loads(_read(of, length))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    if not isinstance(message, dict):
        raise ConnectionError("a message that is not a document")
    return message, descriptors


def _read(of: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = of.recv(count - len(parts))
        if not part:
            raise ConnectionError("the connection has ended within a message")
        parts += part
    return bytes(parts)


def user_of(peer: socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel says."""
    return _credentials(peer)[1]


def process_of(peer: socket.socket) -> int:
    """Return the id of the process at the other end, as the kernel says."""
    return _credentials(peer)[0]


def _credentials(peer: socket.socket) -> tuple[int, int, int]:
    process, user, group = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return process, user, group


def log_of(place: Path) -> Path:
    """Return the file that an engine, its keeper and what they start write to; `place` is the engine's socket."""
    return place.with_suffix(".log")


def log_tail(place: Path) -> str:
    """Return the end of an engine's log on one line, as it stands there: whoever shows it takes secrets out."""
    try:
        with log_of(place).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-4:] if line.strip())
