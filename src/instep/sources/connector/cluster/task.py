"""A connector's run inside a Spark task: its child beside the task, its segments brought to where the driver is.

The task may be tried again after its executor was lost, while the first attempt still runs somewhere. The driver
decides which attempt it hears, from which state on; an attempt that is not heard ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from instep.errors import InstepError, ReadError
from instep.sources.connector.cluster.exchange import BUNDLE, DRIVER, SegmentExchange, begin, unpack
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.dialect import ChildEnvironment, SdkDialect
from instep.sources.connector.environment import place_of
from instep.sources.connector.segment import MANIFEST, LogLine, OperationCounts, Segment
from instep.sources.connector.spool import Segments
from instep.spark.executors import check_witness
from instep.stage.files.place import StorageFolder

_NAME = "instep-connector-task-"
_DELETE_FOLDER = """
import os, shutil, sys, time
folder = sys.stdin.buffer.read()
for _ in range(600):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        break
    time.sleep(0.1)
"""
"""Its input ends with the task; the connector may write for a moment longer."""


@contextmanager
def task_scratch() -> Iterator[Path]:
    """Yield a temporary folder with a lock that lives as long as its task; it is deleted afterwards."""
    for left in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with suppress(OSError), _locked(left / "lock"):
            shutil.rmtree(left, ignore_errors=True)
    with _sweeper() as register, tempfile.TemporaryDirectory(prefix=_NAME) as folder:
        register(folder)
        draft = Path(folder, "lock.new")
        draft.touch()
        with _locked(draft):
            draft.rename(Path(folder, "lock"))
            yield Path(folder)


@contextmanager
def _sweeper() -> Iterator[Callable[[str], None]]:
    """Take the folder that it removes once this process has ended. In its own session: what ends this process
    by its group does not end that one."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _DELETE_FOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        env={"PATH": os.defpath},
        bufsize=0,
    ) as process:
        pipe = process.stdin
        assert pipe is not None

        def register(folder: str) -> None:
            pipe.write(os.fsencode(folder))

        yield register


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Raise OSError if it is not there, or somebody else's: another user may have left a link or a pipe there."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{file} belongs to another user")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


EVERY = 1.0
"""Seconds between two looks at what the driver says, and between two words of log lines."""
LOST = 180.0
"""Seconds without a sign of the driver, after which it is taken to be gone."""
ROOM = 6 * 3600.0
"""Seconds that a task waits for the driver to take segments: it may wait itself, for cores that other tasks hold."""


@dataclass(frozen=True)
class Assignment:
    """Assignment in a task's description. The connector's folder does not: pyspark writes descriptions of more than
    1 MB to disk as they are."""

    config: ConnectorConfig = field(repr=False)
    place: StorageFolder
    key: bytes = field(repr=False)
    seen: str = ""
    """A file that the task has to see if its machine shares the place as a folder."""


def perform(work: Assignment, attempt: int, unused: object = None) -> None:
    """Run one attempt. The connector's own failures are reported to the driver; any other is raised and retried."""
    check_witness(work.seen)
    exchange = SegmentExchange(work.place, work.key)
    with task_scratch() as scratch:
        _Performance(work, exchange, attempt, scratch).run()


class _Performance:
    def __init__(self, work: Assignment, exchange: SegmentExchange, attempt: int, scratch: Path) -> None:
        self._exchange, self._attempt, self._scratch = exchange, attempt, scratch
        self._config = work.config.model_copy(update={"environments": _environments(work.config, scratch)})
        self._words = AttemptMessages(exchange, attempt)
        self._driver = Driver(exchange, attempt)

    def run(self) -> None:
        self._words.say({"begun": self._attempt})
        with self._driver.following(self._words):
            if (state := self._driver.begin()) is None:
                return
            config, host = self._fetched()
            try:
                self._all(state, config, host)
            except InstepError as error:
                self._driver.receive()  # if it has just gone, that is why
                if not self._driver.gone.is_set():
                    document = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
                    self._words.say({"error": document})

    def _fetched(self) -> tuple[ConnectorConfig, ChildEnvironment]:
        """Return the connector's folder, here, and what runs it."""
        packed = self._scratch / "bundle"
        self._exchange.fetch(BUNDLE, packed)
        folder, host = unpack(packed.read_bytes(), self._scratch)
        packed.unlink()
        return self._config.model_copy(update={"path": str(folder)}), host

    def _all(self, state: Mapping[str, Any], config: ConnectorConfig, host: ChildEnvironment) -> None:
        gather = config.limits.ahead > 1
        spool = str(self._scratch / "spool")
        segments = Segments(SdkDialect(config), spool, state, self._on_counts, self._log, host, gather=gather)
        try:
            self._driver.ends(segments)
            while (segment := segments.next()) is not None:
                self._bring(segment)
                self._driver.wait_for_room(segment.number - self._config.limits.ahead, self._config.name)
                segments.acknowledge(segment)
        finally:
            segments.close()
        self._words.say({"over": True})

    def _bring(self, segment: Segment) -> None:
        """Upload the segment's files first, then the message that makes it count."""
        folder = Path(segment.folder)
        for path in (path for table in segment.tables for path in table.paths):
            self._exchange.bring(f"{self._attempt}/{folder.name}/{path}", folder / path)
        self._words.say({"segment": (folder / MANIFEST).read_text(encoding="utf-8"), "folder": folder.name})
        shutil.rmtree(folder, ignore_errors=True)

    def _on_counts(self, counts: OperationCounts) -> None:
        self._words.add({"counts": asdict(counts)})

    def _log(self, line: LogLine) -> None:
        self._words.add({"log": asdict(line)})


class AttemptMessages:
    """Messages of an attempt, in order. Log lines and counts are sent with the next message, or after a second."""

    def __init__(self, exchange: SegmentExchange, attempt: int) -> None:
        self._exchange, self._attempt = exchange, attempt
        self._adding, self._saying = threading.Lock(), threading.Lock()
        self._waiting: list[Mapping[str, Any]] = []
        self._word: list[Mapping[str, Any]] = []
        self._number = 0

    def add(self, event: Mapping[str, Any]) -> None:
        with self._adding:
            self._waiting.append(event)

    def say(self, *events: Mapping[str, Any]) -> None:
        """Send events. A message that could not be written is rewritten unchanged: the driver may have read it."""
        with self._saying:
            with self._adding:
                self._waiting += events
            while self._word or self._waiting:
                if not self._word:
                    with self._adding:
                        self._word, self._waiting = self._waiting, []
                self._exchange.send(f"{self._attempt}/{self._number}", self._word)
                self._word, self._number = [], self._number + 1


class Driver:
    """Messages of the driver, received by a thread. `gone`: the driver no longer listens to this attempt."""

    def __init__(self, exchange: SegmentExchange, attempt: int) -> None:
        self._exchange, self._attempt = exchange, attempt
        self.gone, self._stop = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._message: Mapping[str, Any] = {}
        self._at = time.monotonic()
        self._segments: Segments | None = None

    @contextmanager
    def following(self, words: AttemptMessages) -> Iterator[None]:
        def follow() -> None:
            while not self._stop.wait(EVERY):
                self.receive()
                with suppress(InstepError):  # it is said again with what comes next
                    words.say()

        self.receive()
        thread = threading.Thread(target=follow, name="connector-driver", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def begin(self) -> Mapping[str, Any] | None:
        """Return the state to begin with, once it is this attempt's turn; None if it never is."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ours or self.gone.is_set())
        return None if self.gone.is_set() else self._exchange.receive(begin(self._attempt))

    def ends(self, segments: Segments) -> None:
        """Stop these segments once the driver is gone."""
        self._segments = segments
        if self.gone.is_set():
            segments.stop()

    def wait_for_room(self, number: int, name: str) -> None:
        """Wait until the driver has taken the segment of that number; raises ReadError if it never does."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fetched_number >= number or self.gone.is_set(), ROOM):
                raise ReadError(
                    f"connector {name}: none of its segments was taken for {ROOM / 3600:.0f} h",
                    hint="each connector that runs holds one core of the cluster: give it more cores than connectors",
                )

    @property
    def _is_ours(self) -> bool:
        return bool(self._message) and self._message["attempt"] == self._attempt

    @property
    def _fetched_number(self) -> int:
        return int(self._message.get("taken", 0)) if self._is_ours else 0

    def receive(self) -> None:
        """Read the next message now."""
        ended = False
        with suppress(InstepError):  # it may pass; the driver is gone if it does not
            message = self._exchange.receive(DRIVER)
            ended = message is None or message["ends"] or message["attempt"] > self._attempt
            if message and message != self._message:
                self._message, self._at = message, time.monotonic()
        if ended or time.monotonic() - self._at > LOST:
            self.gone.set()
        with self._changed:
            self._changed.notify_all()
        if self.gone.is_set() and self._segments is not None:
            self._segments.stop()


def _environments(config: ConnectorConfig, scratch: Path) -> str:
    """Return where this machine keeps connectors' environments; one that lets us keep nothing has one for the run."""
    place = place_of(config)
    with suppress(OSError, RuntimeError):
        place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            return str(place)
    return str(scratch / "environments")
