"""Shows a running connector: its operations so far, and the lines that it logs."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

from instep.cli.context import say
from instep.cli.render.live import Board, drawn

if TYPE_CHECKING:
    from instep.schema.catalog.catalog import Catalog, Column
    from instep.sources.connector.segment import LogLine, OperationCounts


Line = tuple[str, str]
_CONNECTOR_TEXT_STYLES = {"+": "green", "-": "red", "~": "yellow"}


def operations_lines(counts: OperationCounts, schema_changes: int | None = None) -> Iterator[str]:
    """One count a line; schema changes before checkpoints, where they are known."""
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
        """All so far."""
        with self._counting:
            self.counts = counts

    def on_log_line(self, line: LogLine) -> None:
        origin = "" if line.origin == "connector" else f" ({line.origin})"
        say(f"{line.level:<8} {line.message}{origin}", _STYLES.get(line.level, ""))

    def line(self) -> str:
        return f"{super().line()}; {operations_line(self.counts)}"


@contextmanager
def followed() -> Iterator[TrialBoard]:
    """A trial that is drawn on stderr while the block runs. If it fails, what had been sent is told."""
    trial = TrialBoard()
    logging.getLogger("instep").addHandler(_NO_OUTPUT)
    with drawn(trial):
        try:
            yield trial
        except BaseException:
            print(operations_line(trial.counts), file=sys.stderr, flush=True)
            raise
