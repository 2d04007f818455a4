"""One sync of a connector as a series of segments, each durable before the connector is told so."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from instep.errors import ReadError, StageError
from instep.project.documents import MOST_LEVELS, is_too_deep
from instep.schema.catalog.types import parse
from instep.sources.connector.child import Child, ChildEnd
from instep.sources.connector.dialect import LOCAL_HOST, ChildEnvironment, ConnectorDialect
from instep.sources.connector.frames import Frame
from instep.sources.connector.output import line_of
from instep.sources.connector.segment import (
    DELETE,
    UPDATE,
    UPSERT,
    LogLine,
    OperationCounts,
    Segment,
    segment_folder,
    stored_name,
    write_manifest,
)
from instep.sources.connector.table_spool import Declaration, TableSpool
from instep.sources.connector.uploads import Uploads
from instep.sources.stream import EVERYTHING, ReceivedCallback, ReceivedRows, StreamFailure, StreamScope
from instep.stage.pandas_free import hide_pandas

GATHER, LONGEST_GATHER = 1.0, 5.0
"""Seconds after its first checkpoint in which a segment takes the parts of later ones, at the begin of a run and in a
long one: each segment is a commit of each of its tables."""
_AGE = 1 / 3
"""The share of a run's age for which a segment gathers, between these two."""
_MOST_NAMED = 5
"""Tables that an error names."""
_ROWS, _BYTES, _STEPS = 50_000, 16 << 20, 100


@dataclass
class SegmentPart:
    """The part of a segment that is being written."""

    number: int
    """Number of the segment that it becomes, if no other one takes it."""
    tables: dict[tuple[str, str], TableSpool] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    state: Mapping[str, Any] | None = field(default=None, repr=False)
    until: float = 0.0
    """Until when it takes the parts of later checkpoints, monotonic."""

    @property
    def is_empty(self) -> bool:
        return not any(spool.operations for spool in self.tables.values())

    @property
    def left(self) -> float:
        """Seconds until it takes no more; 0 once it has enough."""
        return max(self.until - time.monotonic(), 0.0) if self._has_room else 0.0

    @property
    def _has_room(self) -> bool:
        spools = self.tables.values()
        is_small = sum(s.rows for s in spools) < _ROWS and sum(s.bytes for s in spools) < _BYTES
        return is_small and all(s.steps < _STEPS for s in spools)

    def takes(self, later: SegmentPart) -> bool:
        """True if both make the segment that they would be one after the other. A part that deletes from a table in
        which this one has written is apart: its rows land, and are marked as deleted."""
        return all(ref not in self.tables or self.tables[ref].takes(spool) for ref, spool in later.tables.items()) and (
            not any(spool.is_on_disk for spool in later.tables.values())
        )

    def add(self, later: SegmentPart, spool_of: Callable[[SegmentPart, Declaration], TableSpool]) -> None:
        """Take the operations of a part that it `takes`. `spool_of` makes a table that this one does not have yet."""
        for spool in later.tables.values():
            if spool.operations:
                spool_of(self, spool.declaration).absorb(spool)
        self.warnings += later.warnings

    def discard(self) -> None:
        for spool in self.tables.values():
            spool.discard()


MOST_A_MINUTE = 1500
_ALWAYS = frozenset({"warning", "error"})


class LogThrottle:
    """Passes lines on, one at a time, whichever thread they come from. Warnings and errors have as many again."""

    def __init__(self, log: Callable[[LogLine], None]) -> None:
        self._log, self._lock = log, threading.Lock()
        self._since, self._passed, self._left = time.monotonic(), 0, 0

    def __call__(self, line: LogLine) -> None:
        with self._lock:
            if time.monotonic() - self._since >= 60:
                self._begin()
            most = MOST_A_MINUTE * (2 if line.level in _ALWAYS else 1)
            if self._passed >= most:
                self._left += 1
                return
            self._passed += 1
            self._log(line)

    def close(self) -> None:
        with self._lock:
            self._begin()

    def _begin(self) -> None:
        if self._left:
            many = f"{self._left:,} log lines were left out: more than {MOST_A_MINUTE:,} came in a minute"
            self._log(LogLine("warning", many, "instep"))
        self._since, self._passed, self._left = time.monotonic(), 0, 0


_REPORT_EVERY = 1.0  # seconds
_LONGEST = 20_000  # characters of a warning or a traceback
_END_TIMEOUT = 10.0  # seconds that the process may take to end after update() has returned


def _ignore_counts(received: object) -> None:
    pass


class Segments:
    """Runs the connector beside this process and writes what it sends below `folder`.

    `told` gets the counts of the whole sync about once a second, `log` the log lines, from several threads but one at
    a time. A segment has to be acknowledged before the connector goes on to the next one. `failed` tells at the end why
    tables are not complete.
    """

    def __init__(
        self,
        dialect: ConnectorDialect,
        folder: str,
        state: Mapping[str, Any],
        on_counts: Callable[[OperationCounts], None],
        log: Callable[[LogLine], None],
        host: ChildEnvironment = LOCAL_HOST,
        *,
        gather: bool = False,
        scope: StreamScope = EVERYTHING,
        on_received: ReceivedCallback = _ignore_counts,
    ) -> None:
        """Start to spool; `gather`: checkpoints that come soon after one another share a segment."""
        hide_pandas()
        self._dialect, self._on_counts, self._log = dialect, on_counts, LogThrottle(log)
        self._on_received = on_received
        self._folder, self._gather = Path(folder), gather
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ended = False
        self.failed: dict[tuple[str, str], StreamFailure] = {}
        self._failure: BaseException | None = None
        self._declared: list[Declaration] = []
        self._names: dict[int, Declaration] = {}
        self._part = SegmentPart(1)
        self._open: SegmentPart | None = None
        self._ready: deque[Segment] = deque()
        self._made: set[int] = set()
        self._renamed: set[tuple[tuple[str, str], str]] = set()
        self._counts, self._at, self._started = OperationCounts(), 0.0, time.monotonic()
        self._state, self._same = json.dumps(dict(state), sort_keys=True), 0
        self._child = Child(dialect, self._log, host)
        self._uploads = Uploads(dialect.name, self._folder, dialect.limits.file_bytes, self._child.hidden.clean)
        self._child.start("update", state, scope)

    @property
    def counts(self) -> OperationCounts:
        """Return the counts of the sync so far."""
        return self._counts

    def next(self) -> Segment | None:
        """Block until a segment is whole, or the connector ends; None after the end. Raises ReadError with its own
        error, or with what it did not keep to, once what came before its last checkpoint was taken; the part that was
        under way leaves nothing."""
        if not self._ready and not self._ended:
            try:
                with self._child.awaited():
                    self._follow()
            except BaseException as error:
                self._fail(error)
        if self._ready:
            return self._ready.popleft()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self.close()
            raise failure
        return None

    def _follow(self) -> None:
        """Read until a segment is ready, or the end."""
        with self._plainly():
            while not self._ready and not self._ended:
                if self._open is not None and not self._child.frames.wait_for_input(self._open.left):
                    self._emit_open()
                else:
                    self._handle_frame(self._next_frame())
                    if self._open is not None and not self._open.left:
                        self._emit_open()

    def _next_frame(self) -> Frame:
        """Return the child's next frame; the error of one that has gone names the tables whose rows were coming."""
        try:
            return self._child.read()
        except ReadError as error:
            begun = [spool.label for spool in self._part.tables.values()] or [t.label for t in self._names.values()]
            names = begun or [table.label for table in self._declared]
            if not names:
                raise
            shown = f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}"
            raise type(error)(f"{error.message}; not complete: {shown}", hint=error.hint) from None

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """Translate errors of frames and the disk into ours."""
        try:
            yield
        except (KeyError, TypeError, AttributeError, StopIteration) as error:
            raise ReadError(
                f"connector {self._dialect.name}: its process sent a frame that cannot be read: "
                f"{self._child.hidden.clean(str(error))}"
            ) from error
        except OSError as error:
            raise StageError(f"{self._folder}: {error}", hint="make room there, and run it again") from error

    def _fail(self, error: BaseException) -> None:
        """Keep what came before the last checkpoint, if only the connector has failed."""
        self._ended = True
        self._part.discard()
        shutil.rmtree(segment_folder(self._folder, self._part.number), ignore_errors=True)
        try:
            if not isinstance(error, Exception):
                raise error
            if self._open is not None:
                with self._plainly():
                    self._emit_open()
        except BaseException:
            self.close()
            raise
        self._failure = error
        self._on_counts(self._counts)
        self._child.stop()

    def acknowledge(self, segment: Segment) -> None:
        """Let the op.checkpoint() that ended the segment return."""
        pa.default_memory_pool().release_unused()
        if not self._ready and self._failure is None:
            self._child.send({"acknowledged": self._counts.checkpoints})

    def stop(self) -> None:
        """Make next() raise soon; may be called from another thread."""
        self._child.stop()

    def close(self) -> ChildEnd | None:
        """End the connector's process, if it has not ended."""
        for part in filter(None, (self._part, self._open)):
            part.discard()
        self._uploads.close()
        self._child.close()
        self._log.close()
        return self._child.ended

    def _folder_of(self, number: int) -> Path:
        """Return the folder of a segment, empty at first."""
        folder = segment_folder(self._folder, number)
        if number not in self._made:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._made.add(number)
        return folder

    def _spool(self, part: SegmentPart, declaration: Declaration) -> TableSpool:
        if (spool := part.tables.get(declaration.ref)) is None:
            spool = part.tables[declaration.ref] = TableSpool(
                self._folder_of(part.number), len(part.tables) + 1, declaration
            )
        return spool

    def _table(self, head: Mapping[str, Any]) -> TableSpool:
        return self._spool(self._part, self._names[head["table"]])

    def _handle_frame(self, frame: Frame) -> None:
        head = frame.head
        match frame.kind:
            case "rows":
                counts = self._table(head).add(frame)
                self._report_renamed(self._names[head["table"]], head["columns"])
                self._count(OperationCounts(counts[UPSERT], counts[UPDATE], counts[DELETE]))
            case "file":
                if upload := self._uploads.add_frame(frame, self._folder_of(self._part.number)):
                    self._table(head).uploads.append(upload)
            case "truncate":
                self._table(head).truncates.append(int(head["number"]))
                self._count(OperationCounts(truncates=1))
            case "table":
                self._name(int(head["number"]), str(head["schema"]), str(head["table"]))
            case "schema":
                self._declare(head["tables"])
            case "log":
                self._log(line_of(frame, self._child.hidden))
            case "warning":
                self._part.warnings.append(self._child.hidden.clean(str(head["message"]))[:_LONGEST])
                self._log(LogLine("warning", self._part.warnings[-1]))
            case "progress":
                self._on_received({path: ReceivedRows(rows, expected) for path, rows, expected in head["received"]})
            case "checkpoint":
                self._checkpoint(str(head["state"]))
            case "end":
                for schema, name, why, transient in head.get("failed", ()):
                    text = f"connector {self._dialect.name}: {self._child.hidden.clean(why)}"[:_LONGEST]
                    self.failed[schema, name] = StreamFailure(text, bool(transient))
                self._end()
            case "error":
                if head.get("trace"):
                    trace = self._child.hidden.clean(str(head["trace"]))
                    self._log(LogLine("error", trace[-_LONGEST:]))
                raise self._dialect.failed(head, self._child.hidden)
            case _:
                if (reply := self._dialect.reply(head, self._child.hidden)) is not None:
                    self._child.send(reply)

    def _declare(self, tables: list[Mapping[str, Any]]) -> None:
        self._declared = []
        for declaration in tables:
            types = {stored_name(name): parse(kind) for name, kind in declaration["columns"].items()}
            key = tuple(map(stored_name, declaration["key"]))
            cursor = stored_name(declaration.get("cursor", ""))
            table = Declaration(declaration["schema"], declaration["table"], key, types, True, cursor)
            self._declared.append(table)
        lenient = [t.label for t in self._declared if self._dialect.is_lenient(t.label)]
        self._child.send({"lenient": lenient})

    def _name(self, number: int, schema: str, name: str) -> None:
        declarations = (t for t in self._declared if t.ref == (schema, name))
        self._names[number] = next(declarations, None) or Declaration(schema, name)

    def _report_renamed(self, table: Declaration, columns: list[Any]) -> None:
        """Warn once a sync about each column that is stored under another name."""
        for name, *_ in columns:
            if (stored := stored_name(name)) != name and (table.ref, name) not in self._renamed:
                self._renamed.add((table.ref, name))
                text = (
                    f"table {table.label}: {name} is the name of a system column, so the column is stored as {stored}"
                )
                self._part.warnings.append(text)
                self._log(LogLine("warning", text, "instep"))

    def _count(self, more: OperationCounts) -> None:
        self._counts += more
        if time.monotonic() - self._at >= _REPORT_EVERY:
            self._at = time.monotonic()
            self._on_counts(self._counts)

    def _checkpoint(self, text: str) -> None:
        try:
            if is_too_deep(state := json.loads(text)):
                raise RecursionError
        except RecursionError:
            name = self._dialect.name
            raise ReadError(
                f"connector {name}: its state is JSON of more than {MOST_LEVELS} levels",
                hint="let it save a flatter one",
            ) from None
        self._check_progress(state)
        self._child.hidden.note_state(state)
        self._count(OperationCounts(checkpoints=1))
        part = self._part
        if self._open is not None and (part.is_empty or self._open.takes(part)):
            self._open.add(part, self._spool)
            self._part = SegmentPart(part.number)
        else:
            self._emit_open()
            self._open, self._part = part, SegmentPart(part.number + 1)
            part.until = time.monotonic() + self._gathering()
        self._open.state = state
        if not self._gather or not self._open.left:
            self._emit_open()
        if not self._ready:
            self._child.send({"acknowledged": self._counts.checkpoints})

    def _gathering(self) -> float:
        """Return the seconds for which a segment gathers that begins now."""
        return min(max((time.monotonic() - self._started) * _AGE, GATHER), LONGEST_GATHER)

    def _check_progress(self, state: Mapping[str, Any]) -> None:
        text = json.dumps(state, sort_keys=True)
        self._same = self._same + 1 if text == self._state else 0
        self._state = text
        most = self._dialect.limits.checkpoints
        if most and self._same >= most:
            raise ReadError(
                f"connector {self._dialect.name} makes no progress: its last {self._same:,} checkpoints saved the "
                "state that was there before",
                hint="advance the state in update(), or raise `limits.checkpoints` if every sync begins from the start",
            )

    def _end(self) -> None:
        """End the run; there is no last segment if the connector's last operation was a checkpoint."""
        self._ended = True
        self._child.wait(_END_TIMEOUT)
        self._emit_open()
        if self._part.number == 1 or self._part.warnings or not self._part.is_empty:
            self._emit(self._part, ends=True)
        else:
            shutil.rmtree(segment_folder(self._folder, self._part.number), ignore_errors=True)
        self._on_counts(self._counts)

    def _emit_open(self) -> None:
        if self._open is not None:
            part, self._open = self._open, None
            self._emit(part, ends=False)

    def _emit(self, part: SegmentPart, *, ends: bool) -> None:
        """Write the segment."""
        folder = self._folder_of(part.number)
        declared = {declaration.ref: self._spool(part, declaration) for declaration in self._declared}
        tables = tuple(spool.close() for spool in (declared | part.tables).values())
        for file in (folder / path for t in tables for path in t.paths):
            _sync(file)
        _sync(folder)
        segment = Segment(part.number, str(folder), part.state, ends, tables, tuple(part.warnings))
        self._ready.append(write_manifest(segment))
        self._at = time.monotonic()
        self._on_counts(self._counts)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
