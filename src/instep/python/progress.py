"""Progress of a call, passed to a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One step of a run, or of one table of it.

    Example:
        shop.sync(on_progress=lambda now: print(now.step or f"{now.table}: {now.rows} of {now.expected or '?'} rows"))
    """

    step: str = ""
    """The step that has begun; "" where only numbers have changed."""
    table: str = ""
    """The table, as `schema.table`; "" for the whole run."""
    rows: int = 0
    """Rows read of the table so far, or received from a connector; 0 where only the step has changed."""
    bytes: int = 0
    """Bytes read of the table so far."""
    expected: int = 0
    """Rows that are expected in all, by statistics of the source or as the connector estimates; 0 if unknown."""


ProgressCallback = Callable[[Progress], None]
"""A function that takes progress. It may be called from any thread."""


class CallProgress:
    """Passes the progress of one call to its callback, from whatever thread it comes."""

    def __init__(self, callback: ProgressCallback | None) -> None:
        self._callback = callback
        self._expected: dict[str, int] = {}

    def step(self, text: str) -> None:
        """Report the step that the run has begun."""
        self._report(Progress(step=text))

    def tables(self, rows: dict[str, int]) -> None:
        """Remember the rows that are expected of each table."""
        self._expected = rows

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None:
        """Report rows and bytes of a table, or the step that it is in."""
        self._report(Progress(step, path, rows, bytes, self._expected.get(path, 0)))

    def received(self, path: str, rows: int, expected: int) -> None:
        """Report the rows that a connector has sent of a table, or ("" as path) in all."""
        self._report(Progress(table=path, rows=rows, expected=expected))

    def _report(self, progress: Progress) -> None:
        if self._callback is not None:
            self._callback(progress)


class ProgressWatch:
    """Opens the progress of calls: several threads may call at once, each with a callback of its own."""

    def __init__(self) -> None:
        self._callback: ContextVar[ProgressCallback | None] = ContextVar("callback", default=None)

    @contextmanager
    def reporting_to(self, callback: ProgressCallback | None) -> Iterator[None]:
        """Pass the progress of what this thread calls in the block to this callback."""
        before = self._callback.set(callback)
        try:
            yield
        finally:
            self._callback.reset(before)

    @contextmanager
    def __call__(self) -> Iterator[CallProgress]:
        """Open the progress of the call that this thread is in, as displays of progress are opened."""
        yield CallProgress(self._callback.get())

    def step(self, text: str) -> None:
        """Report a step of what this thread calls."""
        CallProgress(self._callback.get()).step(text)
