"""The bridge's two ends: the lines that a connector prints, and the frames that we are sent.

A frame is the length of its head (4 bytes), that of its body (8 bytes), the head (JSON) and the body, whose parts begin
at multiples of 8.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from instep.sources.airbyte.columns import Piece

LONGEST_LINE = 128 << 20
_LENGTHS = struct.Struct("<IQ")
_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_PAUSE = 0.02
"""Seconds in which more may come behind a read that has found little: many connectors write each record by itself."""
_COPY = 1 << 20


class Broken(Exception):
    """What a connector sends cannot be understood: nothing that follows may be trusted."""


class FrameWriter:
    """FrameWriter down one file descriptor; lines of JSON up another."""

    def __init__(self, out: int, back: int) -> None:
        self.descriptor = out
        self._back = os.fdopen(back, "rb")

    def send(self, head: Mapping[str, Any], body: Sequence[Piece] = ()) -> None:
        self.write(encoded(head, body))

    def write(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self.descriptor, left) :]

    def read(self, name: str) -> Any:
        """Return the value of the next answer that has this name."""
        while True:
            line = self._back.readline()
            if not line:
                os._exit(0)  # nobody is there any more
            message: dict[str, Any] = json.loads(line)
            if name in message:
                return message[name]

    def wait(self, checkpoint: int) -> None:
        while self.read("acknowledged") < checkpoint:
            pass


def encoded(head: Mapping[str, Any], body: Sequence[Piece] = ()) -> bytes:
    """Return a frame."""
    if body:
        head = {**head, "parts": [len(piece) for piece in body]}
    header = json.dumps(head).encode()
    rows = [padded for piece in body for padded in (piece, bytes(-len(piece) % 8))]
    size = sum(map(len, rows))
    return b"".join([_LENGTHS.pack(len(header), size), header, *rows])


class SpilledFrames:
    """FrameWriter that wait on disk until it is known that they count, in files of at most `most` bytes."""

    def __init__(self, folder: Path, stem: str, most: int) -> None:
        self._folder, self._stem, self._most = folder, stem, most
        self._files: list[Path] = []
        self._left = 0

    def add(self, frame: bytes) -> None:
        if len(frame) > self._left:
            self._files.append(self._folder / f"{self._stem}-{len(self._files) + 1}")
            self._left = self._most
        self._left -= len(frame)
        with self._files[-1].open("ab", buffering=0) as file:
            file.write(frame)

    def replay(self, frames: FrameWriter) -> None:
        """Send all that was added; nothing is left."""
        for path in self._files:
            with path.open("rb", buffering=0) as file:
                while data := file.read(_COPY):
                    frames.write(data)
            path.unlink()
        self._files, self._left = [], 0

    def discard(self) -> None:
        for path in self._files:
            path.unlink()
        self._files, self._left = [], 0


class Lines:
    """Lines of a pipe, in the pieces in which they come, but not in crumbs."""

    def __init__(self, descriptor: int) -> None:
        with suppress(OSError):
            fcntl.fcntl(descriptor, _SET_PIPE_SIZE, _PIPE_BYTES)
        self._descriptor, self._found_little = descriptor, False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._begun: list[bytes] = []
        self._size = 0

    def next(self, seconds: float) -> list[bytes] | None:
        """Return the lines that have come whole by now, [] if none did within so many seconds, None at the end. Raises
        Broken for a line that is too long."""
        if self._found_little:
            time.sleep(_PAUSE)
        if not self._poll.poll(seconds * 1000):
            self._found_little = False
            return []
        chunk = os.read(self._descriptor, _CHUNK)
        self._found_little = len(chunk) < _CHUNK // 4
        if not chunk:
            rest, self._begun = b"".join(self._begun), []
            return [rest] if rest else None
        first, *whole = chunk.split(b"\n")
        self._begun.append(first)
        self._size += len(first)
        if self._size > LONGEST_LINE:
            raise Broken(f"it sent a line of more than {LONGEST_LINE >> 20} MiB")
        if not whole:
            return []
        lines = [b"".join(self._begun), *whole]
        last = lines.pop()
        self._begun, self._size = [last], len(last)
        return lines


def private_folder(parent: str) -> Path:
    """Return a folder that only this user can read."""
    folder = Path(parent, "airbyte")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_private(path: Path, document: Any) -> None:
    """Write a JSON file that only this user can read."""
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(document, file)
