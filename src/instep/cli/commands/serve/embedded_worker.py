"""A worker beside a server, in its process: it watches from a thread, and its lanes are processes of their own."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.worker.worker import JobWorker

_log = logging.getLogger(__name__)
AGAIN = 5.0
"""Seconds until a worker that has failed is begun again."""


class WorkerBeside:
    """Begun again when it fails, until the block ends; then running jobs have the worker's grace time."""

    def __init__(self, make: Callable[[], JobWorker]) -> None:
        self._make = make
        self._ending = threading.Event()
        self._now: JobWorker | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="instep worker", daemon=True)

    def _run(self) -> None:
        while not self._ending.is_set():
            worker = self._make()
            with self._lock:
                self._now = worker
            if self._ending.is_set():
                return
            try:
                worker.run()
            except Exception:
                _log.exception("the worker has failed; it is begun again in %.0f s", AGAIN)
                self._ending.wait(AGAIN)

    def stop(self) -> None:
        """No job is begun any more; again: running ones are given back."""
        self._ending.set()
        with self._lock:
            if self._now is not None:
                self._now.stop()

    def __enter__(self) -> WorkerBeside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ending.is_set():
            self.stop()
        self._thread.join()


@contextmanager
def stopping(ask: Callable[[], None]) -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C call `ask`, also those that an event loop of ours sends on at its end."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        ask()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
