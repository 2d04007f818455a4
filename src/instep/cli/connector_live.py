"""What a connector does while it runs: its operations so far, and the lines that it logs."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from instep.cli.connector_text import operations_line
from instep.cli.context import say
from instep.cli.live import Board, drawn

if TYPE_CHECKING:
    from instep.sources.connector.segment import Counts, LogLine

_SAID = logging.NullHandler()
"""The trial says its lines itself: without any handler Python would print them a second time."""
_STYLES = {"debug": "dim", "warning": "yellow", "error": "red"}


class Trial(Board):
    """A board that knows operations, too."""

    def __init__(self) -> None:
        from instep.sources.connector.segment import Counts

        super().__init__()
        self._counting = threading.Lock()
        self.counts = Counts()

    def operations(self, counts: Counts) -> None:
        """All so far."""
        with self._counting:
            self.counts = counts

    def said(self, line: LogLine) -> None:
        origin = "" if line.origin == "connector" else f" ({line.origin})"
        say(f"{line.level:<8} {line.message}{origin}", _STYLES.get(line.level, ""))

    def line(self) -> str:
        return f"{super().line()}; {operations_line(self.counts)}"


@contextmanager
def followed() -> Iterator[Trial]:
    """A trial that is drawn on stderr while the block runs. If it fails, what had been sent is told."""
    trial = Trial()
    logging.getLogger("instep").addHandler(_SAID)
    with drawn(trial):
        try:
            yield trial
        except BaseException:
            print(operations_line(trial.counts), file=sys.stderr, flush=True)
            raise
