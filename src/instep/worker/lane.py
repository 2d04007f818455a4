"""Lanes: processes that do one job after the other and keep their Spark session warm between them.

What kills it (memory, a driver, a person) kills one job, never the process that claims and watches. It ends by itself
when that process is gone.

Notices while a worker runs: sent by a thread of its own, so that a slow receiver holds up no job.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from instep.errors import InstepError, ProjectError
from instep.model import Job

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.worker.perform import JobEnd


Opener = Callable[[], "App"]
_PARENT_SECONDS = 1.0
UNREADABLE = 5.0
"""Seconds after which a job comes again whose lane, a new one, could not read the project file."""


class Lane:
    """A lane as the watching process sees it: `job` is what it does now, `done` how many its process has done, and from
    `kill_at` on (seconds of the monotonic clock) it is not waited for."""

    def __init__(self, opener: Opener) -> None:
        self.job: Job | None = None
        self.done = 0
        self.kill_at = float("inf")
        self._opener = opener
        self._begin()

    def _begin(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._opener, os.getpid()), name="instep lane")
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def signs(self) -> tuple[Connection, int]:
        """Return the handles that become ready when the lane has answered or ended."""
        return self._pipe, self._process.sentinel

    def begin(self, job: Job) -> None:
        """Start a job; `ended` shows whether its process lives."""
        self.job, self.kill_at = job, float("inf")
        with suppress(OSError):
            self._pipe.send(job)

    def ended(self) -> JobEnd | None:
        """Return how its job ended, None while it works; the end of its process is an error that passes."""
        if self.job is None:
            return None
        try:
            if self._pipe.poll():
                end: JobEnd = self._pipe.recv()
                return end
        except (EOFError, OSError):
            self._process.join(5)
        if self._process.is_alive():
            return None
        from instep.worker.perform import JobEnd

        interrupted = self.kill_at < float("inf")
        return JobEnd(f"its process ended with code {self._process.exitcode}", transient=True, interrupted=interrupted)

    def interrupt(self, timeout: float) -> None:
        """Ask it to end its job; it is killed when that takes longer than `timeout` seconds."""
        if self.kill_at == float("inf"):
            self.kill_at = time.monotonic() + timeout
            with suppress(OSError):
                os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End its process and all that it has started."""
        if self.pid:
            _kill(self.pid)
        with suppress(OSError):
            self._process.kill()
        self._process.join(5)

    def renew(self) -> None:
        """Start a new process in place of the old one."""
        self.close()
        self.job, self.done, self.kill_at = None, 0, float("inf")
        self._begin()

    def close(self, seconds: float = 10) -> None:
        """Let an idle process end by itself, then kill it."""
        if self.job is None:
            with suppress(OSError):
                self._pipe.send(None)
            self._process.join(seconds)
        self.kill()
        self._pipe.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def memory(self) -> int:
        """Return bytes that its process and those it started hold; 0 where that cannot be read."""
        return sum(_resident(pid) for pid in _session(self.pid))


def _session(leader: int) -> list[int]:
    """Return the processes of a session: those of a JVM have groups of their own."""
    values = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader:
                values.append(int(entry.name))
    return values


def _kill(leader: int) -> None:
    """End a session, as long as its leader leads one; last the group, which a caller may be of."""
    for pid in _session(leader):
        if pid != os.getpid():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def ready(lanes: list[Lane], seconds: float) -> None:
    """Wait until one of these busy lanes has something to say, or after so many seconds."""
    if lanes:
        wait([sign for lane in lanes for sign in lane.signs], seconds)
    else:
        time.sleep(seconds)


def serve(pipe: Connection, opener: Opener, parent: int) -> None:
    """Run the process of a lane."""
    os.setsid()  # an interrupt at the terminal is for the process that watches; this one's children go with it
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    projects = LaneProject(opener)
    while True:
        try:
            job = pipe.recv()
        except KeyboardInterrupt:
            continue  # meant for a job that had just ended
        except (EOFError, OSError):
            break
        if job is None:
            break
        pipe.send(_one(projects, job))
    projects.close()


def _one(projects: LaneProject, job: Job) -> JobEnd:
    from instep.worker.perform import JobEnd, perform

    try:
        return perform(projects.current(), job)
    except KeyboardInterrupt:
        return JobEnd("interrupted", interrupted=True)
    except ProjectError as error:  # its file is wrong for now: that is no attempt
        return JobEnd(str(error), again=UNREADABLE)
    except Exception as error:  # the store cannot be opened
        return JobEnd(str(error) or type(error).__name__, transient=True)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    _kill(os.getpid())


class LaneProject:
    """The project as its file says it now. `said` hears of a text that is wrong: then what it said before holds on."""

    def __init__(self, opener: Opener, notify: Callable[[str], None] = lambda _: None) -> None:
        self._opener, self._notify = opener, notify
        self._app: App | None = None

    def current(self) -> App:
        """Raise InstepError as long as it could never be opened."""
        if self._app is None:
            self._app = self._opener()
        elif wrong := self._app.refresh():
            self._notify(wrong)
        return self._app

    def close(self) -> None:
        if self._app is not None:
            self._app.__exit__(None, None, None)
            self._app = None


_log = logging.getLogger("instep.worker")
LOOK = 1.0
"""Seconds between two looks at what is due."""
LONGEST_WAIT = 5.0
"""Seconds that the news of a run waits for what becomes of its job."""
AT_END = 5.0
"""Seconds for what is still due when the worker ends."""


class NoticeThread:
    """Sends what is due until it is closed. Several may run, in this process and in others."""

    def __init__(self, opener: Opener, notify: Callable[[str], None]) -> None:
        self._opener, self._notify = opener, notify
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="instep notices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, wait: bool = True) -> None:
        """Send what is due now, for a few seconds, and end; without waiting for it if that is not wanted."""
        self._ends.set()
        if wait and self._thread.is_alive():
            self._thread.join(AT_END + LOOK)

    def _run(self) -> None:
        opened = LaneProject(self._opener)
        while not self._ends.wait(LOOK):
            self._send(opened, 60.0, LONGEST_WAIT)
        self._send(opened, AT_END, 0.0)
        opened.close()

    def _send(self, opened: LaneProject, seconds: float, longest_wait: float) -> None:
        """Send what is due; a store or file that cannot be read for a moment loses nothing."""
        try:
            app = opened.current()
            if app.store.outbox.due():
                for delivery in app.sender().send(seconds=seconds, longest_wait=timedelta(seconds=longest_wait)):
                    if delivery.error:
                        self._notify(f"channel {delivery.delivery.channel} cannot be reached: {delivery.error}")
            self._lineage(app, seconds)
        except InstepError as error:
            self._notify(f"notifications were not sent: {error.message}")
        except Exception as error:  # the thread goes on: nobody else would send
            self._notify(f"notifications were not sent: {type(error).__name__}")
            _log.exception("notifications were not sent")

    def _lineage(self, app: App, seconds: float) -> None:
        try:
            if lineage := app.lineage():
                lineage.send(seconds)
        except InstepError as error:
            self._notify(f"lineage was not sent: {error.message}")
