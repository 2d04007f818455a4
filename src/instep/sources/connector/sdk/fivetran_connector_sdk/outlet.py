"""The way out of this process: operations become frames, from whichever thread they come.

A frame is the length of its head (4 bytes), that of its body (8 bytes), the head (JSON) and the body, whose parts begin
at multiples of 8.
"""

from __future__ import annotations

import json
import math
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from . import rows
from .declared import Named, TableSpec
from .file_upload import FileUpload, chunks

Bytes = bytes | memoryview
LARGEST_STATE = 10 << 20
_LENGTHS = struct.Struct("<IQ")


class Wire(Protocol):
    """Where frames go, and where the answers to the schema and to checkpoints come from."""

    def send(self, head: Mapping[str, Any], body: Sequence[Bytes] = ()) -> None: ...

    def read(self) -> dict[str, Any]: ...

    def wait(self, checkpoint: int) -> None: ...


class Pipes:
    """Frames down one file descriptor; lines of JSON up another."""

    def __init__(self, out: int, back: int) -> None:
        self._out = out
        self._back = os.fdopen(back, "rb")

    def send(self, head: Mapping[str, Any], body: Sequence[Bytes] = ()) -> None:
        said = json.dumps(head).encode()
        rows = b"".join([padded for part in body for padded in (part, bytes(-len(part) % 8))])
        data = memoryview(b"".join([_LENGTHS.pack(len(said), len(rows)), said, rows]))
        while data:
            data = data[os.write(self._out, data) :]

    def read(self) -> dict[str, Any]:
        line = self._back.readline()
        if not line:
            os._exit(0)  # nobody is there any more
        said: dict[str, Any] = json.loads(line)
        return said

    def wait(self, checkpoint: int) -> None:
        while self.read().get("acknowledged", 0) < checkpoint:
            pass


class Outlet:
    """One for each process."""

    def __init__(self, wire: Wire) -> None:
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
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._ended = "operations belong into the process in which update() runs, not into one that it started"
        self._lock = threading.RLock()

    def declare(self, tables: Mapping[Named, TableSpec]) -> None:
        """Has to come before the first operation. The answer names the tables whose misfits are kept as texts."""
        self._specs = dict(tables)
        self._send({"frame": "schema", "tables": [t.document() for t in tables.values()]})
        self._lenient = self._wire.read().get("lenient", ())

    def end(self, head: Mapping[str, Any]) -> None:
        """The last frame. Rows that were not handed on go before it, unless it tells of an error."""
        with self._lock:
            if self._ended:
                return
            if head["frame"] != "error":
                self._flush()
            self._wire.send(head)
            self._ended = "update() has returned: no operation is taken any more"

    def tell(self, head: Mapping[str, Any]) -> None:
        """What is no operation: log lines and warnings. Nothing is sent once the sync is over."""
        with self._lock:
            if not self._ended:
                self._wire.send(head)

    def row(self, operation: int, schema: str, table: str, data: Mapping[str, Any]) -> None:
        with self._lock:
            bucket = self._buckets.get((schema, table)) or self._bucket(schema, table)
            shape, values, size = bucket.looked_at(data)
            if self._ended:
                raise RuntimeError(self._ended)
            self._sequence += 1
            if bucket.add(operation, self._sequence, shape, values, size):
                self._hand_on(bucket)

    def upload(self, operation: int, schema: str, table: str, data: Mapping[str, Any], file: FileUpload) -> None:
        """The file, then its row, if the row can be sent. Other threads may go on meanwhile, but no checkpoint comes
        between the end of a file and its row."""
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
        with self._lock:
            bucket = self._buckets.get((schema, table)) or self._bucket(schema, table)
            self._sequence += 1
            self._send({"frame": "truncate", "table": bucket.number, "number": self._sequence})

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Returns when what came before it is kept. Other threads may go on meanwhile. The state is read when its turn
        has come: threads share it, and what one has kept must not be taken back by another that has waited."""
        with self._turn:
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
        if taken := bucket.taken():
            self._send(*taken)


def _state_text(state: Mapping[str, Any]) -> str:
    """The state as JSON. Raises ValueError for numbers that JSON has not: the next sync could not read them."""
    try:
        return json.dumps(dict(state), allow_nan=False)
    except ValueError as error:
        if "JSON compliant" not in str(error):
            raise
        raise ValueError(
            f"op.checkpoint(state): {_not_a_number(state, 'state')} is NaN or Infinity, which JSON does not have: keep "
            "None or a text instead"
        ) from None


def _not_a_number(value: Any, place: str) -> str:
    """Where the first such number stands, "" if there is none."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else place
    inner = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    )
    return next((found for key, part in inner if (found := _not_a_number(part, f"{place}[{key!r}]"))), "")


_current: Outlet | None = None


def current() -> Outlet:
    """Raises RuntimeError outside of a sync."""
    if _current is None:
        raise RuntimeError("operations are only possible while update() runs")
    return _current


def is_open() -> bool:
    return _current is not None


def use(outlet: Outlet) -> Outlet:
    global _current
    _current = outlet
    return outlet
