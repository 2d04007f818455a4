"""Progress of a call, passed to a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One step of a run, or of one table of it.

    Example:
        shop.sync(on_progress=lambda now: print(now.step or f"{now.table}: {now.rows} rows more"))
    """

    step: str = ""
    """The step that has begun; "" where only numbers have changed."""
    table: str = ""
    """The table, as `schema.table`; "" for the whole run."""
    rows: int = 0
    """Rows read since the last call for this table."""
    bytes: int = 0
    """Bytes read since the last call for this table."""


ProgressCallback = Callable[[Progress], None]
"""A function that takes progress. It may be called from any thread."""


class ProgressWatch:
    """Passes progress to the callback of the call that is under way."""

    def __init__(self) -> None:
        self._callback: ProgressCallback | None = None

    @contextmanager
    def reporting_to(self, callback: ProgressCallback | None) -> Iterator[None]:
        """Pass progress to this callback while the block runs."""
        before, self._callback = self._callback, callback
        try:
            yield
        finally:
            self._callback = before

    @contextmanager
    def __call__(self) -> Iterator[ProgressWatch]:
        """Open it, as displays of progress are opened."""
        yield self

    def step(self, text: str) -> None:
        """Report the step that the run has begun."""
        self._report(Progress(step=text))

    def tables(self, rows: dict[str, int]) -> None:
        """Ignore the rows that are expected: only those that have come are reported."""

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None:
        """Report rows and bytes of a table, or the step that it is in."""
        self._report(Progress(step, path, rows, bytes))

    def _report(self, progress: Progress) -> None:
        if self._callback is not None:
            self._callback(progress)
