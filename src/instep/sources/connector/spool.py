"""One sync of a connector as a series of segments, each durable before the connector is told so."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from instep.errors import ReadError, StageError
from instep.logs import clean
from instep.schema.types import parse
from instep.sources.connector.child import HERE, Child, Ended, Host, failed, line_of
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.frames import Frame
from instep.sources.connector.paced import Paced
from instep.sources.connector.segment import (
    DELETE,
    UPDATE,
    UPSERT,
    Counts,
    LogLine,
    Segment,
    segment_folder,
    write_manifest,
)
from instep.sources.connector.table_spool import Declaration, TableSpool
from instep.sources.connector.uploads import Uploads
from instep.stage.pandas_free import settle

_TOLD_EVERY = 1.0  # seconds
_PATIENCE = 10.0  # seconds that the process may take to end after update() has returned


class Segments:
    """Runs the connector beside this process and writes what it sends below `folder`.

    `told` gets the counts of the whole sync about once a second, `log` the log lines, from several threads but one at
    a time. A segment has to be acknowledged before the connector goes on to the next one.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        folder: str,
        state: Mapping[str, Any],
        told: Callable[[Counts], None],
        log: Callable[[LogLine], None],
        host: Host = HERE,
    ) -> None:
        settle()
        self._config, self._told, self._log = config, told, Paced(log)
        self._folder = Path(folder)
        self._number, self._ended = 0, False
        self._declared: list[Declaration] = []
        self._names: dict[int, Declaration] = {}
        self._tables: dict[tuple[str, str], TableSpool] = {}
        self._uploads = Uploads(config.name, self._folder, config.limits.file_bytes)
        self._warnings: list[str] = []
        self._counts, self._at = Counts(), 0.0
        self._state, self._same = json.dumps(dict(state), sort_keys=True), 0
        self._child = Child(config, self._log, host)
        self._child.start("update", state)

    @property
    def counts(self) -> Counts:
        """Of the sync so far."""
        return self._counts

    def next(self) -> Segment | None:
        """Blocks until the connector checkpoints or ends; None after the end. Raises ReadError with its own error, or
        with what it did not keep to; the segment that was under way leaves nothing."""
        if self._ended:
            return None
        try:
            with self._child.awaited():
                return self._next()
        except BaseException:
            self._ended = True
            self.close()
            if self._number:
                shutil.rmtree(segment_folder(self._folder, self._number), ignore_errors=True)
            raise

    def _next(self) -> Segment | None:
        self._begin()
        while True:
            frame = self._child.read()
            try:
                segment = self._taken(frame)
            except (KeyError, TypeError, AttributeError, StopIteration) as error:
                raise ReadError(
                    f"connector {self._config.name}: its process sent a frame that cannot be read: {error}"
                ) from error
            except OSError as error:
                raise StageError(f"{self._folder}: {error}", hint="make room there, and run it again") from error
            if segment is not None or self._ended:
                return segment

    def acknowledge(self, segment: Segment) -> None:
        """The op.checkpoint() that ended the segment returns."""
        self._child.send({"acknowledged": segment.number})

    def stop(self) -> None:
        """From another thread: next() raises soon."""
        self._child.stop()

    def close(self) -> Ended | None:
        """Ends the connector's process, if it has not ended."""
        for spool in self._tables.values():
            spool.discard()
        self._uploads.close()
        self._child.close()
        self._log.close()
        return self._child.ended

    def _begin(self) -> None:
        self._number += 1
        folder = segment_folder(self._folder, self._number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._tables, self._warnings = {}, []
        for said in self._declared:
            self._spool(said)

    def _spool(self, said: Declaration) -> TableSpool:
        if (spool := self._tables.get(said.ref)) is None:
            folder = segment_folder(self._folder, self._number)
            spool = self._tables[said.ref] = TableSpool(folder, len(self._tables) + 1, said)
        return spool

    def _taken(self, frame: Frame) -> Segment | None:
        """The segment that the frame ends, None if it ends none."""
        head = frame.head
        match frame.kind:
            case "rows":
                counts = self._spool(self._names[head["table"]]).add(frame)
                self._count(Counts(counts[UPSERT], counts[UPDATE], counts[DELETE]))
            case "file":
                if upload := self._uploads.take(frame, segment_folder(self._folder, self._number)):
                    self._spool(self._names[head["table"]]).uploads.append(upload)
            case "truncate":
                self._spool(self._names[head["table"]]).truncates.append(int(head["number"]))
                self._count(Counts(truncates=1))
            case "table":
                self._name(int(head["number"]), str(head["schema"]), str(head["table"]))
            case "schema":
                self._declare(head["tables"])
            case "log":
                self._log(line_of(frame))
            case "warning":
                self._warnings.append(clean(str(head["message"])))
                self._log(LogLine("warning", self._warnings[-1]))
            case "checkpoint":
                return self._checkpoint(str(head["state"]))
            case "end":
                return self._end()
            case "error":
                if head.get("trace"):
                    self._log(LogLine("error", clean(str(head["trace"]))))
                raise failed(self._config, head)
        return None

    def _declare(self, tables: list[Mapping[str, Any]]) -> None:
        for said in tables:
            types = {name: parse(kind) for name, kind in said["columns"].items()}
            table = Declaration(said["schema"], said["table"], tuple(said["key"]), types, True)
            self._declared.append(table)
            self._spool(table)
        lenient = [t.label for t in self._declared if self._config.is_lenient(t.label)]
        self._child.send({"lenient": lenient})

    def _name(self, number: int, schema: str, name: str) -> None:
        known = (t for t in self._declared if t.ref == (schema, name))
        self._names[number] = next(known, None) or Declaration(schema, name)

    def _count(self, more: Counts) -> None:
        self._counts += more
        if time.monotonic() - self._at >= _TOLD_EVERY or more.checkpoints:
            self._at = time.monotonic()
            self._told(self._counts)

    def _checkpoint(self, text: str) -> Segment:
        state = json.loads(text)
        said = json.dumps(state, sort_keys=True)
        self._same = self._same + 1 if said == self._state else 0
        self._state = said
        most = self._config.limits.checkpoints
        if most and self._same >= most:
            raise ReadError(
                f"connector {self._config.name} makes no progress: its last {self._same:,} checkpoints saved the state "
                "that was there before",
                hint="advance the state in update(), or raise `limits.checkpoints` if every sync begins from the start",
            )
        segment = self._close_segment(state, ends=False)
        self._count(Counts(checkpoints=1))
        return segment

    def _end(self) -> Segment | None:
        """Nothing if the connector's last operation was a checkpoint."""
        self._ended = True
        self._child.wait(_PATIENCE)
        if self._number > 1 and not self._warnings and not any(t.operations for t in self._tables.values()):
            segment_folder(self._folder, self._number).rmdir()
            return None
        segment = self._close_segment(None, ends=True)
        self._told(self._counts)
        return segment

    def _close_segment(self, state: Mapping[str, Any] | None, *, ends: bool) -> Segment:
        folder = segment_folder(self._folder, self._number)
        tables = tuple(spool.close() for spool in self._tables.values())
        for file in (folder / path for t in tables for path in t.paths):
            _sync(file)
        _sync(folder)
        return write_manifest(Segment(self._number, str(folder), state, ends, tables, tuple(self._warnings)))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
