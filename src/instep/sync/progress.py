"""Progress of a run, and its results by table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from instep.model import EngineUse, TableRun


class Progress(Protocol):
    """Shown live by the CLI; every method may be called from any thread."""

    def step(self, text: str) -> None:
        """Report the step that the run has begun."""
        ...

    def tables(self, rows: dict[str, int]) -> None:
        """Set the tables of this run with the estimated rows of each."""
        ...

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None:
        """Report rows and bytes read so far, or the step that the table is in."""
        ...

    def received(self, path: str, rows: int, expected: int) -> None:
        """Rows that a connector has sent so far of a table, or ("" as path) in all, and how many it expects to send
        (0: it does not say)."""
        ...


class Silent:
    """Tells nobody."""

    def step(self, text: str) -> None: ...

    def tables(self, rows: dict[str, int]) -> None: ...

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None: ...

    def received(self, path: str, rows: int, expected: int) -> None: ...


def telling(progress: Progress, path: str, step: str) -> Callable[[Mapping[str, tuple[int, int]]], None]:
    """Return a listener that shows what tasks have read of a table."""

    def tell(counts: Mapping[str, tuple[int, int]]) -> None:
        rows, size = (sum(count[at] for count in counts.values()) for at in (0, 1))
        progress.table(path, rows=rows, bytes=size, step=step)

    return tell


def reading(progress: Progress, paths: Mapping[str, str]) -> Callable[[Mapping[str, tuple[int, int]]], None]:
    """Return a listener that shows what tasks have read of each spec, under the path of its table."""

    def on_progress(rows: Mapping[str, tuple[int, int]]) -> None:
        for spec, (count, size) in rows.items():
            progress.table(paths[spec], rows=count, bytes=size, step="reading")

    return on_progress


@dataclass(frozen=True)
class SyncReport:
    """The end of a run: what became of each table, notes for people, the run's status and what read the rows.
    `retryable` are the failed tables (paths) that may be complete when they are read again, `unread` those whose source
    could not be reached, or has gone."""

    run: str
    status: str
    tables: tuple[TableRun, ...]
    notes: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    seconds: float = 0.0
    casts: dict[str, int] = field(default_factory=dict)
    engine: EngineUse | None = None
    retryable: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def has_no_source(self) -> bool:
        """True if nothing was loaded, as the source of every table could not be reached, or has gone."""
        failed = {".".join(filter(None, t.table)) for t in self.tables if t.status == "failed"}
        return self.status == "failed" and bool(failed) and failed <= set(self.unread)
