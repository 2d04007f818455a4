"""Keeps a run's lease alive from a thread while the run works."""

from __future__ import annotations

import threading
from types import TracebackType

from instep.errors import Fenced, InstepError
from instep.model import Run
from instep.store.work.runs import Runs


class Heartbeat:
    """`with Heartbeat(store.runs, run):` extends the lease three times per lease.

    `lost` becomes true once the run was taken over; `check()` then raises Fenced. A store that is busy for a
    moment does not end the run: the next beat tries again.
    """

    def __init__(self, runs: Runs, run: Run) -> None:
        self._runs, self._run = runs, run
        self._stop = threading.Event()
        self._lost: Fenced | None = None
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {run.id}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def check(self) -> None:
        """Raise Fenced once the run was taken over."""
        if self._lost is not None:
            raise Fenced(self._lost.message, hint=self._lost.hint)

    def _beat(self) -> None:
        while not self._stop.wait(self._runs.lease.total_seconds() / 3):
            try:
                self._runs.heartbeat(self._run)
            except Fenced as error:
                self._lost = error
                return
            except InstepError:
                continue
