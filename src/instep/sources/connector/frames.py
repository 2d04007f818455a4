"""Frames from a connector's process, which is not trusted: lengths are bounded, and only JSON and bytes are read."""

from __future__ import annotations

import json
import os
import select
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.errors import ReadError

_LENGTHS = struct.Struct("<IQ")
_LARGEST_HEAD, _LARGEST_BODY = 64 << 20, 512 << 20


@dataclass(frozen=True)
class Frame:
    """A frame of the pipe."""

    head: Mapping[str, Any]
    """Says what it is under `frame`."""
    body: memoryview
    """The bytes of rows."""

    @property
    def kind(self) -> str:
        return str(self.head["frame"])

    def parts(self) -> list[memoryview]:
        """Return the body, cut as the head says, each part at a multiple of 8; raises ReadError if it cannot be cut
        so."""
        lengths = self.head["parts"]
        if any(n < 0 for n in lengths) or sum(n + -n % 8 for n in lengths) != len(self.body):
            raise _torn()
        cut, at = [], 0
        for length in lengths:
            cut.append(self.body[at : at + length])
            at += length + -length % 8
        return cut


class Frames:
    """Reads the frames that come down a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self, seconds: float | None) -> Frame | None:
        """Return the next frame, None at the end of the pipe. Raises TimeoutError if nothing comes for so many
        seconds."""
        if (lengths := self._bytes(_LENGTHS.size, seconds)) is None:
            return None
        head, body = _LENGTHS.unpack(lengths)
        if head > _LARGEST_HEAD or body > _LARGEST_BODY:
            raise _torn()
        message, rows = self._bytes(head, seconds), self._bytes(body, seconds)
        if message is None or rows is None:
            return None
        try:
            document = json.loads(bytes(message))
        except (ValueError, RecursionError):
            raise _torn() from None
        if not isinstance(document, dict) or not isinstance(document.get("frame"), str):
            raise _torn()
        return Frame(document, rows)

    def wait_for_input(self, seconds: float) -> bool:
        """True if something comes, or the pipe ends, within so many seconds."""
        return bool(self._poll.poll(seconds * 1000))

    def _bytes(self, length: int, seconds: float | None) -> memoryview | None:
        data = memoryview(bytearray(length))
        at = 0
        while at < length:
            if not self._poll.poll(None if seconds is None else seconds * 1000):
                raise TimeoutError
            got = os.readv(self._descriptor, [data[at:]])
            if not got:
                return None
            at += got
        return data.toreadonly()


def _torn() -> ReadError:
    return ReadError(
        "the connector's process sent something that is not an operation",
        hint="a connector writes to its own output only, never to other file descriptors",
    )
