"""Count the work that something takes: the same on every machine, where seconds are not.

A test that code is quick asserts how much it does, and how that grows with what it is given: Python's calls, an SQLite
database's statements and steps. No test asserts how long something takes, but as a bound after which it hangs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from sqlalchemy import Engine, event

STEPS = 100
"""Of how many steps of SQLite's virtual machine one is told; a statement with fewer counts as none."""


@dataclass
class Work:
    """What was done: calls of functions, in Python and in C; statements and steps of a database."""

    calls: int = 0
    statements: int = 0
    steps: int = 0


@contextmanager
def counted(engine: Engine | None = None) -> Iterator[Work]:
    """Count the calls of this thread and of those that begin meanwhile, and what an SQLite database does for them."""
    work = Work()

    def note(_frame: FrameType, what: str, _argument: object) -> None:
        work.calls += what in ("call", "c_call")

    def step() -> int:
        work.steps += STEPS
        return 0

    def state(*_: object) -> None:
        work.statements += 1

    def watch(connection: Any, *_: object) -> None:
        connection.set_progress_handler(step, STEPS)

    def leave(connection: Any, *_: object) -> None:
        connection.set_progress_handler(None, 0)

    listeners = [("checkout", watch), ("checkin", leave), ("before_cursor_execute", state)] if engine else []
    for name, listener in listeners:
        event.listen(engine, name, listener)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield work
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        for name, listener in listeners:
            event.remove(engine, name, listener)


def calls_of(act: Callable[[], object]) -> int:
    """Count the calls of functions that this makes, in Python and in C."""
    with counted() as work:
        act()
    return work.calls
