"""Live progress: rows, rate, bytes and step of each table on a terminal, a line now and then elsewhere.

Shows a running connector: its operations so far, and the lines that it logs.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING

from instep.cli.context import console, options, say
from instep.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable

    from instep.schema.catalog.catalog import Catalog, Column
    from instep.sources.connector.segment import LogLine, OperationCounts
    from instep.sync.progress import Progress


HEARTBEAT = 10.0
"""Seconds between lines where no terminal is watching."""
SILENT_SECONDS = 1.0
"""Seconds for which a terminal may be silent before it shows that the command is at work."""
SHOWN = 12
"""Tables shown at once: those at work first."""


@dataclass(frozen=True)
class _Received:
    """Rows that a connector has sent, and expects to send in all (0: it does not say)."""

    rows: int = 0
    expected: int = 0

    def text(self, seconds: float) -> str:
        rate = f"{self.rows / seconds if seconds else 0:,.0f}/s"
        if self.expected <= self.rows:
            return f"{self.rows:,} rows received ({rate})"
        return f"{self.rows:,} of about {self.expected:,} rows received ({self.rows / self.expected:.0%}, {rate})"


@dataclass
class _Row:
    expected: int
    rows: int = 0
    bytes: int = 0
    step: str = "waiting"


class Board:
    """The state of a run; drawn by Rich on a terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._received: dict[str, _Received] = {}
        self._step = ""
        self._begun = time.monotonic()

    def step(self, text: str) -> None:
        with self._lock:
            self._step = text

    def tables(self, rows: dict[str, int]) -> None:
        with self._lock:
            self._rows = {path: _Row(count) for path, count in rows.items()}

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None:
        with self._lock:
            row = self._rows.setdefault(path, _Row(0))
            row.rows, row.bytes, row.step = max(row.rows, rows), max(row.bytes, bytes), step or row.step

    def received(self, path: str, rows: int, expected: int) -> None:
        with self._lock:
            self._received[path] = _Received(rows, expected)

    def line(self) -> str:
        """Return one line for logs."""
        with self._lock:
            if whole := self._received.get(""):
                seconds = time.monotonic() - self._begun
                return f"{seconds:5.1f} s  {self._step}: {whole.text(seconds)}"
            rows, size = sum(r.rows for r in self._rows.values()), sum(r.bytes for r in self._rows.values())
            done = sum(r.step == "done" for r in self._rows.values())
            seconds = time.monotonic() - self._begun
            if not self._rows:
                return f"{seconds:5.1f} s  {self._step or 'starting'}"
            rate = rows / seconds if seconds else 0
            return (
                f"{seconds:5.1f} s  {self._step}: {rows:,} rows ({rate:,.0f}/s, {size / 2**20:,.1f} MB), "
                f"{done} of {len(self._rows)} tables done"
            )

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        from instep.cli.screen import cell

        yield cell(self.line(), style="bold")
        grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        with self._lock:
            busy = sorted(self._rows.items(), key=lambda item: (item[1].step == "done", item[1].step == "waiting"))
            for path, row in busy[:SHOWN]:
                of = f" of about {row.expected:,}" if row.expected > row.rows else ""
                grid.add_row(cell(path), f"{row.rows:,}{of} rows", f"{row.bytes / 2**20:,.1f} MB", cell(row.step))
            if len(busy) > SHOWN:
                grid.add_row(f"and {len(busy) - SHOWN} more", "", "", "")
            self._add_received(grid)
        yield grid

    def _add_received(self, grid: RichTable) -> None:
        """Show what a connector has sent of each table: those that have the most to come first."""
        from rich.text import Text

        seconds = time.monotonic() - self._begun
        open_first = sorted(
            (item for item in self._received.items() if item[0]), key=lambda item: item[1].rows - item[1].expected
        )
        for path, received in open_first[:SHOWN]:
            grid.add_row(Text(path), received.text(seconds), "", "")
        if len(open_first) > SHOWN:
            grid.add_row(f"and {len(open_first) - SHOWN} more", "", "", "")


@contextmanager
def watched() -> Iterator[Progress]:
    """Yield a board that is drawn on stderr while the block runs."""
    board = Board()
    with drawn(board):
        yield board


@contextmanager
def drawn(board: Board) -> Iterator[None]:
    """Draw the board on a terminal; elsewhere print its line now and then."""
    if sys.stderr.isatty() and options.output != "json":
        from rich.live import Live

        with Live(board, console=console(stderr=True), refresh_per_second=8, transient=True):
            yield
        return
    with _beside(_beat, board):
        yield


@contextmanager
def waiting() -> Iterator[None]:
    """Show that the command is at work, and for how long, while the block runs: on a terminal unless it ends soon,
    elsewhere now and then."""
    board = Board()
    board.step(f"{options.command or 'the command'} is at work")
    is_drawn = sys.stderr.isatty() and options.output != "json"
    with _beside(_draw_late if is_drawn else _beat, board):
        yield


@contextmanager
def _beside(show: Callable[[Board, threading.Event], None], board: Board) -> Iterator[None]:
    """Run `show` in a thread of its own while the block runs; it ends when its event is set."""
    stop = threading.Event()
    thread = threading.Thread(target=show, args=(board, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _draw_late(board: Board, stop: threading.Event) -> None:
    if stop.wait(SILENT_SECONDS):
        return
    with drawn(board):
        stop.wait()


def _beat(board: Board, stop: threading.Event) -> None:
    if options.output != "json":
        for name in ("instep.cli.screen", "rich.table"):
            import_module(name)  # what the report is printed with, while others wait for a server
    while not stop.wait(HEARTBEAT):
        print(one_line(board.line()), file=sys.stderr, flush=True)


Line = tuple[str, str]
_CONNECTOR_TEXT_STYLES = {"+": "green", "-": "red", "~": "yellow"}


def operations_lines(counts: OperationCounts, schema_changes: int | None = None) -> Iterator[str]:
    """Yield one line per count, schema changes (if known) before checkpoints."""
    numbers = {field.name: getattr(counts, field.name) for field in fields(counts)}
    if schema_changes is not None:
        checkpoints = numbers.pop("checkpoints")
        numbers |= {"schema changes": schema_changes, "checkpoints": checkpoints}
    for name, number in numbers.items():
        yield f"  {name:<15}{number:>12,}"


def operations_line(counts: OperationCounts) -> str:
    """Return the operations of all tables as one line."""
    return ", ".join(f"{getattr(counts, field.name):,} {field.name}" for field in fields(counts))


def schema_lines(before: Catalog, after: Catalog) -> list[Line]:
    """Return a line for each change of the accepted schema by a run; new tables with their columns."""
    from instep.schema.changes.describe import TableAdded, describe, symbol
    from instep.schema.changes.version import between

    lines: list[Line] = []
    for change in between(before, after).changes:
        lines.append((f"{symbol(change)} {describe(change)}", _CONNECTOR_TEXT_STYLES[symbol(change)]))
        if isinstance(change, TableAdded):
            lines += [(f"    {_column(column)}", "") for column in change.after.live]
    return lines


def _column(column: Column) -> str:
    marks = [f"key {column.key}"] if column.key else []
    return ", ".join([f"{column.name} {column.type}", *marks, *([] if column.nullable else ["not null"])])


_NO_OUTPUT = logging.NullHandler()
"""The trial says its lines itself: without any handler Python would print them a second time."""
_STYLES = {"debug": "dim", "warning": "yellow", "error": "red"}


class TrialBoard(Board):
    """A board that knows operations, too."""

    def __init__(self) -> None:
        from instep.sources.connector.segment import OperationCounts

        super().__init__()
        self._counting = threading.Lock()
        self.counts = OperationCounts()

    def operations(self, counts: OperationCounts) -> None:
        """Set the counts so far."""
        with self._counting:
            self.counts = counts

    def on_log_line(self, line: LogLine) -> None:
        origin = "" if line.origin == "connector" else f" ({line.origin})"
        say(f"{line.level:<8} {line.message}{origin}", _STYLES.get(line.level, ""))

    def line(self) -> str:
        return f"{super().line()}; {operations_line(self.counts)}"


@contextmanager
def followed() -> Iterator[TrialBoard]:
    """Yield a board for a trial, drawn on stderr while the block runs. If it fails, print what had been sent."""
    trial = TrialBoard()
    logging.getLogger("instep").addHandler(_NO_OUTPUT)
    with drawn(trial):
        try:
            yield trial
        except BaseException:
            print(operations_line(trial.counts), file=sys.stderr, flush=True)
            raise
