"""A connector that runs inside a Spark task, seen from the driver: its segments, brought to this machine's disk.

A segment counts for the task once it is in the exchange, for us once it is here; from there on it is what a child
beside us would have written. If the task is tried again, the new attempt begins with the state of the last segment
that we have taken, and whatever the one before it still says is not heard.
"""

from __future__ import annotations

import logging
import pickle
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from instep.errors import InstepError, ProjectError, ReadError, StageError, named
from instep.sources.connector.cluster.exchange import BUNDLE, DRIVER, SegmentExchange, begin, pack
from instep.sources.connector.cluster.task import Assignment, perform
from instep.sources.connector.config import ConnectorConfig, Hidden
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.segment import (
    LogLine,
    OperationCounts,
    Segment,
    manifest_of,
    segment_folder,
    write_manifest,
)
from instep.sources.stream import StreamFailure
from instep.stage.files.place import StorageFolder, children, remove

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("instep.connector")
POLL, POLLS = 0.2, 1.0
"""Seconds between two looks for the task's next word, while words come and while none does."""
BEAT = 5.0
"""Seconds between two signs of ours."""
LOOK = 2.0
"""Seconds of silence after which a new attempt is looked for."""
_ENDING = 20.0
_MOST = 900_000
"""Bytes of an assignment: pyspark writes a task's description to disk, as it is, if it has more than 1 MiB."""


@dataclass(frozen=True)
class Cluster:
    """Machines that a connector can run on."""

    place: StorageFolder
    """A folder that they reach as well as we do."""
    run: Callable[[Assignment, Callable[[], None]], None]
    """Carries the work out as one task of one job, calls the function that it is given about twice a second, and
    cancels the job if that raises; InstepError if the task failed for good."""


def cluster_of(start: Callable[[], SparkSession], place: StorageFolder | None, name: str) -> Cluster | None:
    """Return the cluster of a Spark session; None, with a log line, if the connector has to run beside this process."""
    from instep.spark.executors import probe_file, slots
    from instep.spark.extract import elsewhere, run_parts

    if place is None:
        LOG.warning(
            "connector %s runs beside the driver: its destination has no place that Spark's machines reach", name
        )
        return None
    spark = start()
    if slots(spark) < 2:  # its task would hold the only one, and a merge wait for it
        LOG.warning("connector %s runs beside the driver: the cluster runs one task at a time", name)
        return None

    def run(work: Assignment, tick: Callable[[], None]) -> None:
        with probe_file([work.place.uri], elsewhere(spark)) as seen:
            run_parts(spark, perform, [replace(work, seen=seen)], lambda _: tick(), what="connector")

    return Cluster(place, run)


class _Cancelled(Exception):
    pass


class RemoteSegments:
    """Segments like `spool.Segments`; leftovers of earlier runs in the cluster's place are removed."""

    failed: Mapping[tuple[str, str], StreamFailure] = MappingProxyType({})
    """A run on other machines is one of the Connector SDK, which fails as a whole."""

    def __init__(
        self,
        config: ConnectorConfig,
        folder: str,
        state: Mapping[str, Any],
        on_counts: Callable[[OperationCounts], None],
        log: Callable[[LogLine], None],
        on: Cluster,
    ) -> None:
        self._config, self._folder, self._on_counts, self._log = config, Path(folder), on_counts, log
        self._hidden = Hidden(SdkDialect(config).secrets())
        self._state: Mapping[str, Any] = dict(state)
        self._number, self._before, self._earlier = 0, OperationCounts(), OperationCounts()
        self._attempt, self._next, self._taken = 0, 0, 0
        self._events: deque[Mapping[str, Any]] = deque()
        self._over, self._last_message, self._looked = False, time.monotonic(), 0.0
        self._closed, self._news, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._beats = 0
        self._error: BaseException | None = None
        place = replace(on.place, uri=on.place.child(f"run-{uuid4().hex[:12]}"))
        work = Assignment(config.model_copy(update={"path": ""}), place, secrets.token_bytes(32))
        if len(pickle.dumps(work)) > _MOST:
            raise ProjectError(
                f"connector {work.config.name}: its configuration has more than {_MOST // 1000} kB, too much for the "
                "description of a Spark task",
                hint="keep data in a file of the connector's folder, or run it beside the driver (`engine: local`)",
            )
        bundle = pack(config)
        _delete_old_runs(on.place)
        self._exchange = SegmentExchange(place, work.key)
        self._exchange.bring(BUNDLE, bundle)
        self._exchange.send(begin(0), self._state)
        self._speak()
        self._threads = [
            threading.Thread(target=target, args=args, name=f"connector-{name}", daemon=True)
            for name, target, args in (("job", self._perform, (on, work)), ("beat", self._beat, ()))
        ]
        for thread in self._threads:
            thread.start()

    def next(self) -> Segment | None:
        """Block until the next segment is here; None after the end. Raises the connector's own error, or that of the
        job."""
        while not (self._over or self._closed.is_set()):
            if self._events:
                if (segment := self._on_event(self._events.popleft())) is not None:
                    return segment
            else:
                self._listen()
        return None

    def acknowledge(self, segment: Segment) -> None:
        """No-op: the task acknowledged it once the segment was in the exchange."""

    def stop(self) -> None:
        """End next() soon; may be called from another thread."""
        if not self._over:
            self._closed.set()
            self._news.set()

    def close(self) -> None:
        """End the task, if it has not ended, and with it the connector. Nothing is left in the exchange."""
        if self._over:
            self._ended.wait(_ENDING)
        self._closed.set()
        self._news.set()
        for thread in self._threads:
            thread.join(_ENDING)
        self._exchange.forget()

    def _listen(self) -> None:
        """Wait for the next message, a newer attempt, or the end of the job."""
        ended = self._ended.is_set()
        word = self._exchange.receive(f"{self._attempt}/{self._next}")
        now = time.monotonic()
        if word is not None:
            self._next, self._last_message = self._next + 1, now
            self._events += word
        elif ended:
            raise self._failure()
        elif now - max(self._last_message, self._looked) > LOOK:
            self._looked = now
            self._follow_attempt()
        else:
            self._closed.wait(POLL if now - self._last_message < LOOK else POLLS)

    def _on_event(self, event: Mapping[str, Any]) -> Segment | None:
        match event:
            case {"log": line}:
                log_line = LogLine(**line)
                self._log(replace(log_line, message=self._hidden.clean(log_line.message)))
            case {"counts": counts}:
                self._on_counts(self._before + OperationCounts(**counts))
            case {"segment": manifest, "folder": folder}:
                return self._fetch_segment(manifest, folder)
            case {"error": {"kind": kind, "message": message, "hint": hint}}:
                raise named(kind, ReadError)(self._hidden.clean(message), hint=hint)
            case {"over": _}:
                self._over = True
        return None

    def _fetch_segment(self, manifest: str, name: str) -> Segment:
        """Fetch a segment, under our own number: an attempt counts from 1."""
        self._number += 1
        try:
            folder = segment_folder(self._folder, self._number)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            manifest_table = manifest_of(manifest, folder)
            for path in (path for table in manifest_table.tables for path in table.paths):
                self._exchange.fetch(f"{self._attempt}/{name}/{path}", folder / path)
            segment = write_manifest(replace(manifest_table, number=self._number))
        except OSError as error:
            raise StageError(f"{self._folder}: {error}", hint="make room there, and run it again") from error
        self._exchange.forget(f"{self._attempt}/{name}")
        self._state = segment.state if segment.state is not None else self._state
        self._taken += 1
        self._earlier += segment.counts
        self._over = segment.ends
        self._news.set()
        return segment

    def _follow_attempt(self) -> None:
        """Switch to the newest attempt, once every message of the one before it was read."""
        newest = max(self._exchange.attempts(), default=0)
        if newest <= self._attempt or self._exchange.receive(f"{self._attempt}/{self._next}") is not None:
            return
        self._log(LogLine("warning", "its task was lost, and begins again with the last checkpoint", "instep"))
        self._exchange.forget(str(self._attempt))
        self._exchange.send(begin(newest), self._state)
        self._attempt, self._next, self._taken, self._before = newest, 0, 0, self._earlier
        self._news.set()

    def _failure(self) -> BaseException:
        if self._error is not None:
            return self._error
        return StageError(
            f"connector {self._config.name}: its Spark task ended before update() returned",
            hint="run it again: it begins with the last checkpoint",
        )

    def _perform(self, on: Cluster, work: Assignment) -> None:
        def tick() -> None:
            if self._closed.is_set():
                raise _Cancelled

        try:
            on.run(work, tick)
        except _Cancelled:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _beat(self) -> None:
        while not self._closed.is_set():
            self._news.wait(BEAT)
            self._news.clear()
            with suppress(InstepError):  # it is said again, and the task waits
                self._speak()

    def _speak(self) -> None:
        self._beats += 1
        message = {"beat": self._beats, "attempt": self._attempt, "taken": self._taken, "ends": self._closed.is_set()}
        self._exchange.send(DRIVER, message)


def _delete_old_runs(place: StorageFolder) -> None:
    """Delete older runs: a connection has one run at a time."""
    for name in children(place.uri, place.io):
        if name.startswith("run-"):
            with suppress(Exception):  # what stays is sealed, and the next run looks again
                remove(place.child(name), place.io)
