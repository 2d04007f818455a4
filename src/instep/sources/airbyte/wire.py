"""The bridge's two ends: the lines that a connector prints, and the frames that we are sent.

A frame is the length of its head (4 bytes), that of its body (8 bytes), the head (JSON) and the body, whose parts begin
at multiples of 8.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import struct
import time
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from instep.redaction import cut
from instep.sources.airbyte.columns import Piece

LONGEST_LINE = 128 << 20
_LENGTHS = struct.Struct("<IQ")
_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_PAUSE = 0.02
"""Seconds in which more may come behind a read that has found little: many connectors write each record by itself."""
_COPY = 1 << 20
PARSED_LEVELS = 200
"""The levels of JSON that pydantic_core parses."""
BODIES = {
    "RECORD": "record",
    "STATE": "state",
    "LOG": "log",
    "TRACE": "trace",
    "CONTROL": "control",
    "SPEC": "spec",
    "CATALOG": "catalog",
    "CONNECTION_STATUS": "connectionStatus",
    "DESTINATION_CATALOG": "destination_catalog",
}
"""The messages of the protocol, with the key of what they say."""
_MOST_OBJECTS = 64
"""Places of a line at which a message is looked for."""
_OBJECT = re.compile(r'\{\s*"')


def _beginnings(*words: str) -> str:
    return "|".join(sorted({word[:n] for word in words for n in range(len(word) + 1)}, key=len, reverse=True))


_PART_OF_MESSAGE = re.compile(
    r'"type"\s*:\s*"(?:RECORD|STATE)'
    r'|"(?:RECORD|STATE)"\s*,\s*"(?:record|state)"'
    r'|"record"\s*:\s*\{\s*"(?:stream|namespace|data|emitted_at|meta)"'
    r'|"(?:stream_descriptor|stream_state|shared_state|sourceStats)"\s*:'
    rf'|\{{\s*"(?:{_beginnings("type", "record", "state")})$'
    rf'|\{{\s*"type"\s*:?\s*(?:"(?:{_beginnings("RECORD", "STATE")}))?$'
    r'|\{\s*"(?:record|state)"\s*:?\s*(?:\{|$)'
)
"""A piece of a record or state, wherever it was cut."""
_UNPRINTED = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x20\x7f\ufeff]")


class Broken(Exception):
    """The connector's output cannot be understood: nothing that follows may be trusted."""


def parts_of(line: bytes) -> Iterator[dict[str, Any] | str]:
    """Yield the messages and the texts of a line that is more than one JSON document, in their order. Raises Broken for
    text that looks like a message, or part of one, and cannot be read: it may have been a record."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
        _check_text(text, len(line))
        yield text
        return
    at = begun = 0
    plain: list[str] = []
    for _ in range(_MOST_OBJECTS):
        if (match := _OBJECT.search(text, at)) is None:
            break
        try:
            value, end = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            plain.append(text[at : match.end() - 1])
            at = match.end() - 1
            continue
        plain += [text[at : match.start()], "{}"]
        at = end
        if is_message(value):
            _check_text("".join(plain[:-1]), len(line))
            yield text[begun : match.start()]
            yield _reread(text[match.start() : end])
            begun, plain = end, []
    _check_text("".join([*plain, text[at:]]), len(line))
    yield text[begun:]


_DECODER = json.JSONDecoder()


def is_message(value: Any) -> bool:
    """Return whether a JSON value is a message of the protocol."""
    return isinstance(value, dict) and isinstance(value.get(BODIES.get(str(value.get("type")), "")), dict)


def is_blank(text: str) -> bool:
    """Return whether a text in front of a message shows nothing: blanks, colours, a line that was written over."""
    return not _UNPRINTED.sub("", text.rpartition("\r")[2])


def without_mark(line: bytes) -> bytes:
    """Return a line without the byte order mark that some programs begin their output with."""
    return line.removeprefix(BOM_UTF8)


def check_depth(line: bytes, error: ValueError) -> None:
    """Raise Broken for an object that was not parsed because it nests too deeply."""
    if line.startswith(b"{") and "recursion limit" in str(error):
        raise Broken(f"it sent a message that is not JSON of at most {PARSED_LEVELS} levels, of {len(line):,} bytes")


def check_value(value: Any) -> None:
    """Raise Broken for a JSON document that is no message, and holds one in a form that nobody can rely on."""
    if isinstance(value, list) and any(map(is_message, value)):
        raise Broken("it sent messages in an array: each has to be an object on its own line")
    if isinstance(value, str) and any(not isinstance(part, str) for part in parts_of(value.encode())):
        raise Broken("it sent a message as a JSON string: it has to be an object on its own line")
    if not isinstance(value, dict):
        return
    kind, record, state = value.get("type"), value.get("record"), value.get("state")
    is_record = isinstance(record, dict) and "stream" in record and isinstance(record.get("data"), dict)
    is_state = isinstance(state, dict) and state.get("type") in ("STREAM", "GLOBAL", "LEGACY")
    if is_record or is_state:
        what = "record" if is_record else "state"
        raise Broken(f"it sent a {what} whose `type` is {cut(json.dumps(kind), 100)}, not {what.upper()}")


def _reread(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise Broken(f"it sent a message that is not JSON in UTF-8 on one line: {error}") from None


def _check_text(text: str, size: int) -> None:
    if match := _PART_OF_MESSAGE.search(text):
        raise Broken(f"it sent a message that is not JSON in UTF-8 on one line (at {match.start()}), of {size:,} bytes")


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
