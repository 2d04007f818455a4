"""Progress of what a call does, told to a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One step of a run, or of one table of it."""

    step: str = ""
    """What is done now; "" where only numbers have changed."""
    table: str = ""
    """The table, as `schema.table`; "" for the whole run."""
    rows: int = 0
    """Rows read since the last call for this table."""
    bytes: int = 0
    """Bytes read since the last call for this table."""


ProgressCallback = Callable[[Progress], None]
"""May be called from any thread."""


class Watch:
    """Tells the callback of the call that is under way."""

    def __init__(self) -> None:
        self._callback: ProgressCallback | None = None

    @contextmanager
    def telling(self, callback: ProgressCallback | None) -> Iterator[None]:
        """Tell this callback while the block runs."""
        before, self._callback = self._callback, callback
        try:
            yield
        finally:
            self._callback = before

    @contextmanager
    def __call__(self) -> Iterator[Watch]:
        """Open it, as those that show progress are opened."""
        yield self

    def step(self, text: str) -> None:
        """Tell what the run does now."""
        self._tell(Progress(step=text))

    def tables(self, rows: dict[str, int]) -> None:
        """Ignore the rows that are expected: only those that have come are told."""

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None:
        """Tell rows and bytes, or the step that the table is in."""
        self._tell(Progress(step, path, rows, bytes))

    def _tell(self, progress: Progress) -> None:
        if self._callback is not None:
            self._callback(progress)
