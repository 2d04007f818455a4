"""Notices while a worker runs: sent by a thread of its own, so that a slow receiver holds up no job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from instep.errors import InstepError
from instep.worker.lane import LaneProject, Opener

if TYPE_CHECKING:
    from instep.bootstrap import App

_log = logging.getLogger("instep.worker")
LOOK = 1.0
"""Seconds between two looks at what is due."""
PATIENCE = 5.0
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
        """What is due now is sent, for a few seconds; not waited for if that is not wanted."""
        self._ends.set()
        if wait and self._thread.is_alive():
            self._thread.join(AT_END + LOOK)

    def _run(self) -> None:
        opened = LaneProject(self._opener)
        while not self._ends.wait(LOOK):
            self._send(opened, 60.0, PATIENCE)
        self._send(opened, AT_END, 0.0)
        opened.close()

    def _send(self, opened: LaneProject, seconds: float, patience: float) -> None:
        """A store or file that cannot be read for a moment loses nothing."""
        try:
            app = opened.current()
            if app.store.outbox.due():
                for one in app.sender().send(seconds=seconds, patience=timedelta(seconds=patience)):
                    if one.error:
                        self._notify(f"channel {one.delivery.channel} cannot be reached: {one.error}")
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
