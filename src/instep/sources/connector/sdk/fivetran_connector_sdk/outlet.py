"""The way out of this process: operations become frames, from whichever thread they come.

A frame is the length of its head (4 bytes), that of its body (8 bytes), the head (JSON) and the body, whose parts begin
at multiples of 8.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from . import rows
from .declared import Named, TableSpec
from .file_upload import FileUpload, chunks
from .shown import cut, shown
from .unrun import check_coroutines

Bytes = bytes | memoryview
LARGEST_STATE = 10 << 20
_LONGEST_MESSAGE = 1 << 20
"""Characters of a log line or a warning: whoever reads the frames takes no head without an end."""
_OPERATIONS = {rows.UPSERT: "op.upsert", rows.UPDATE: "op.update", rows.DELETE: "op.delete"}
_IN_CHILD = "operations belong into the process in which update() runs, not into one that it started"
_LENGTHS = struct.Struct("<IQ")


class FrameChannel(Protocol):
    """Channel for frames and for the answers to the schema and to checkpoints."""

    def send(self, head: Mapping[str, Any], body: Sequence[Bytes] = ()) -> None: ...

    def read(self) -> dict[str, Any]: ...

    def wait(self, checkpoint: int) -> None: ...


class Pipes:
    """Frames down one file descriptor; lines of JSON up another."""

    def __init__(self, out: int, back: int) -> None:
        self._out = out
        self._back = os.fdopen(back, "rb")

    def send(self, head: Mapping[str, Any], body: Sequence[Bytes] = ()) -> None:
        header = json.dumps(head).encode()
        rows = b"".join([padded for part in body for padded in (part, bytes(-len(part) % 8))])
        data = memoryview(b"".join([_LENGTHS.pack(len(header), len(rows)), header, rows]))
        while data:
            data = data[os.write(self._out, data) :]

    def read(self) -> dict[str, Any]:
        line = self._back.readline()
        if not line:
            os._exit(0)  # nobody is there any more
        message: dict[str, Any] = json.loads(line)
        return message

    def wait(self, checkpoint: int) -> None:
        while self.read().get("acknowledged", 0) < checkpoint:
            pass


class Outlet:
    """One for each process."""

    def __init__(self, wire: FrameChannel) -> None:
        self._wire = wire
        self._lock = threading.RLock()
        self._turn = threading.Lock()
        self._specs: dict[Named, TableSpec] = {}
        self._lenient: Sequence[str] = ()
        self._buckets: dict[Named, rows.Bucket] = {}
        self._sequence = 0
        self._checkpoints = 0
        self._uploads = 0
        self._ended = ""
        self._refused = mmap.mmap(-1, mmap.PAGESIZE)  # shared with processes that are forked from this one
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._ended = _IN_CHILD
        self._lock = threading.RLock()

    def declare(self, tables: Mapping[Named, TableSpec]) -> None:
        """Declare the tables before the first operation. The answer names the tables whose invalid values are kept
        as text."""
        self._specs = dict(tables)
        self._send({"frame": "schema", "tables": [t.document() for t in tables.values()]})
        self._lenient = self._wire.read().get("lenient", ())

    def end(self, head: Mapping[str, Any]) -> None:
        """Send the last frame. Rows not handed on yet go before it, unless it reports an error."""
        with self._lock:
            if self._ended:
                return
            if head["frame"] != "error":
                self._flush()
            self._wire.send(head)
            self._ended = "update() has returned: operations are no longer accepted"

    def tell(self, head: Mapping[str, Any]) -> None:
        """Send log lines and warnings, which are no operations. Nothing is sent once the sync is over."""
        if "message" in head:
            head = {**head, "message": cut(head["message"], _LONGEST_MESSAGE)}
        with self._lock:
            if not self._ended:
                self._wire.send(head)

    def check_lost(self) -> None:
        """Raise for what the connector meant to send and nobody will: no state may be kept after it."""
        if self._refused[0]:
            called = self._refused[:].rstrip(b"\0").decode(errors="replace")
            raise RuntimeError(
                f"{called} was called in a process that update() started, and refused: {_IN_CHILD}. Let that process "
                "return the rows and send them here, or start a thread instead"
            )
        check_coroutines()

    def _refuse(self, operation: str, schema: str = "", table: str = "") -> None:
        """Raise RuntimeError; a forked process lets the one that it came from know."""
        if self._ended == _IN_CHILD and not self._refused[0]:
            text = operation + (f" of table {TableSpec(schema, table).label}" if table else "()")
            data = text.encode(errors="replace")[:200]
            self._refused[: len(data)] = data
        raise RuntimeError(self._ended)

    def row(self, operation: int, schema: str, table: str, data: Mapping[str, Any]) -> None:
        if self._ended:
            self._refuse(_OPERATIONS[operation], schema, table)
        with self._lock:
            bucket = self._buckets.get((schema, table)) or self._bucket(schema, table)
            shape, values, size = bucket.looked_at(data)
            if self._ended:
                raise RuntimeError(self._ended)
            self._sequence += 1
            if bucket.add(operation, self._sequence, shape, values, size):
                self._hand_on(bucket)

    def upload(self, operation: int, schema: str, table: str, data: Mapping[str, Any], file: FileUpload) -> None:
        """Send the file, then its row, if the row can be sent. Other threads may go on meanwhile, but no checkpoint
        comes between the end of a file and its row."""
        if self._ended:
            self._refuse(_OPERATIONS[operation], schema, table)
        with self._lock:
            bucket = self._buckets.get((schema, table)) or self._bucket(schema, table)
            bucket.looked_at(data)
            self._uploads += 1
            head = {"frame": "file", "upload": self._uploads, "table": bucket.number, "path": file.place}
        size = 0
        try:
            for chunk in chunks(bucket.table.label, file):
                size += len(chunk)
                self._send({**head, "parts": [len(chunk)]}, [chunk])
        except BaseException:
            self.tell({**head, "parts": [], "lost": True})
            raise
        with self._lock:
            self._send({**head, "parts": [], "bytes": size})
            self.row(operation, schema, table, data)

    def key(self, schema: str, table: str) -> tuple[str, ...]:
        spec = self._specs.get((schema, table))
        return spec.key if spec else ()

    def truncate(self, schema: str, table: str) -> None:
        if self._ended:
            self._refuse("op.truncate", schema, table)
        with self._lock:
            bucket = self._buckets.get((schema, table)) or self._bucket(schema, table)
            self._sequence += 1
            self._send({"frame": "truncate", "table": bucket.number, "number": self._sequence})

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Return when what came before it is kept. Other threads may go on meanwhile. The state is read when its turn
        has come: threads share it, and what one has kept must not be taken back by another that has waited."""
        if self._ended:
            self._refuse("op.checkpoint")
        with self._turn:
            self.check_lost()
            text = _state_text(state)
            if len(text) > LARGEST_STATE:
                raise ValueError(f"the state has {len(text):,} bytes; at most {LARGEST_STATE:,} can be kept")
            with self._lock:
                self._flush()
                self._checkpoints += 1
                self._send({"frame": "checkpoint", "number": self._checkpoints, "state": text})
            self._wire.wait(self._checkpoints)

    def _send(self, head: Mapping[str, Any], body: Sequence[Bytes] = ()) -> None:
        if self._ended:
            raise RuntimeError(self._ended)
        with self._lock:
            self._wire.send(head, body)

    def _bucket(self, schema: str, table: str) -> rows.Bucket:
        spec = self._specs.get((schema, table)) or TableSpec(schema, table)
        bucket = rows.Bucket(len(self._buckets), spec, spec.label in self._lenient)
        self._buckets[schema, table] = bucket
        self._send({"frame": "table", "number": bucket.number, "schema": schema, "table": table})
        return bucket

    def _flush(self) -> None:
        for bucket in self._buckets.values():
            self._hand_on(bucket)

    def _hand_on(self, bucket: rows.Bucket) -> None:
        if packed := bucket.pack():
            self._send(*packed)


def _state_text(state: Mapping[str, Any]) -> str:
    """Return the state as JSON. Raises ValueError, or TypeError for types, with the place, for what JSON does not have:
    the next sync could not read it."""
    try:
        text = json.dumps(dict(state), allow_nan=False)
    except (ValueError, TypeError) as error:
        refused = TypeError if isinstance(error, TypeError) else ValueError
        raise refused(f"op.checkpoint(state): {_unfit(state) or error}") from None
    if _mixes_keys(state) and (problem := _unfit(state)):
        raise ValueError(f"op.checkpoint(state): {problem}")
    return text


def _mixes_keys(state: Mapping[str, Any]) -> bool:
    """True if a dict in it has texts and others as keys, of which two may be one in JSON."""
    try:
        json.dumps(dict(state), sort_keys=True)
    except TypeError:
        return True
    return False


def _unfit(state: Mapping[str, Any]) -> str:
    """Return what in the state is no JSON, and what to do; "" if all is. A value within itself is left to `json`."""
    left: list[tuple[Any, Any]] = [(state, None)]
    seen = {id(state)}
    while left:
        value, parent = left.pop()
        parts = list(value.items() if isinstance(value, Mapping) else enumerate(value))  # threads may change it
        if isinstance(value, Mapping) and (problem := _unfit_key([key for key, _ in parts], parent)):
            return problem
        for key, part in parts:
            place = (parent, key)
            if isinstance(part, (dict, list, tuple)):
                if part and id(part) not in seen:
                    seen.add(id(part))
                    left.append((part, place))
            elif isinstance(part, float):
                if not math.isfinite(part):
                    return f"{_path(place)} is NaN or Infinity, which JSON does not have: keep None or a text instead"
            elif part is not None and not isinstance(part, (str, int)):
                what = "a list" if isinstance(part, (set, frozenset)) else "a text, such as str(value)"
                kind = type(part).__name__
                return f"{_path(place)} is of the type {kind}, which JSON does not have: keep {what} instead"
    return ""


def _unfit_key(keys: Sequence[Any], place: Any) -> str:
    """Return the fault of a key of the dict at this place, "" if there is none."""
    if set(map(type, keys)) <= {str}:
        return ""
    texts: dict[str, Any] = {}
    for key in keys:
        where = f"{_path(place)} has the key {shown(key, 100)}"
        if isinstance(key, float) and not math.isfinite(key):
            return f"{where}, NaN or Infinity, which JSON does not have: use a text instead"
        if key is not None and not isinstance(key, (str, int, float)):
            return f"{where} of the type {type(key).__name__}, and keys in JSON are texts: use a text instead"
        text = key if isinstance(key, str) else next(iter(json.loads(json.dumps({key: 0}))))
        if text in texts:
            return f"{where} and the key {shown(texts[text], 100)}, which are one key in JSON: use one of them"
        texts[text] = key
    return ""


def _path(place: Any) -> str:
    keys = []
    while place is not None:
        place, key = place
        keys.append(f"[{shown(key, 100)}]")
    return "state" + "".join(reversed(keys))


_current: Outlet | None = None


def current() -> Outlet:
    """Raise RuntimeError outside of a sync."""
    if _current is None:
        raise RuntimeError("operations are only possible while update() runs")
    return _current


def is_open() -> bool:
    return _current is not None


def use(outlet: Outlet) -> Outlet:
    global _current
    _current = outlet
    return outlet
