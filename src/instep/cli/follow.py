"""The project file while a server runs: taken in when it was written, told when it is wrong."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.bootstrap import App

_log = logging.getLogger(__name__)
LOOK = 1.0
"""Seconds between two looks at the file."""


class FileFollower:
    """Looks at the file of an open project from a thread until the block ends."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="instep file", daemon=True)

    def _run(self) -> None:
        while not self._ending.wait(LOOK):
            try:
                if wrong := self._app.refresh():
                    _log.warning("%s", wrong)
            except Exception:  # the thread goes on: nobody else would look
                _log.exception("the project file was not read")

    def __enter__(self) -> FileFollower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
