"""Reads the chunks of one lane with several sessions that show one state, each on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from instep.stage.spec import Chunk, ChunkResult, ReadSession, Stoppable

if TYPE_CHECKING:
    from instep.stage.task import ChunkProgress, Report

Work = Callable[[ReadSession, Callable[[], "Chunk | None"], "Report"], Iterator[ChunkResult]]
"""Reads with one session what the function hands out, until that is None."""


class _LaneStopped(BaseException):
    """The lane was stopped. A BaseException: to a task an Exception is the failure of one table, and it goes on."""


@dataclass
class LaneProgress:
    """Progress of all sessions as that of one: their rows of a table add up. `inner` may raise to stop all."""

    inner: Report | None
    stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _now: dict[int, ChunkProgress] = field(default_factory=dict)

    def tell(self, session: int, progress: ChunkProgress) -> None:
        if self.stop.is_set():
            raise _LaneStopped
        with self._lock:
            self._now[session] = progress
            if progress.done:
                del self._now[session]
            if self.inner is not None:
                if progress.done:
                    self.inner(progress)
                self.inner(self._sum(progress.table, progress))

    def _sum(self, table: str, like: ChunkProgress) -> ChunkProgress:
        own = [now for now in self._now.values() if now.table == table]
        return replace(like, rows=sum(p.rows for p in own), bytes=sum(p.bytes for p in own), done=0)


def read_lane(
    sessions: Sequence[ReadSession], chunks: Sequence[Chunk], work: Work, progress: Report | None
) -> Iterator[ChunkResult]:
    """Yield the results as they come. What `progress` raises stops all sessions, and is raised here."""
    left, results = deque(chunks), queue.SimpleQueue[ChunkResult | BaseException | None]()
    shared = LaneProgress(progress)

    def next_chunk() -> Chunk | None:
        try:
            return left.popleft()
        except IndexError:
            return None

    def run(number: int, session: ReadSession) -> None:
        try:
            for result in work(session, next_chunk, lambda now: shared.tell(number, now)):
                results.put(result)
        except _LaneStopped:
            pass
        except BaseException as error:
            shared.stop.set()
            results.put(error)
        finally:
            results.put(None)

    threads = [threading.Thread(target=run, args=n, name="lane", daemon=True) for n in enumerate(sessions)]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            item = results.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        left.clear()
        shared.stop.set()
        if running:  # a thread that waits for the server sees no event
            for session in sessions:
                if isinstance(session, Stoppable):
                    session.stop()
        for thread in threads:
            thread.join()
