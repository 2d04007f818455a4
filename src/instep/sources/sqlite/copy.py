"""A copy of a SQLite file that is written with a rollback journal: who reads such a file keeps its writers waiting.

The file is copied in steps, and is free between them. What is written meanwhile begins the copy anew, as SQLite does by
itself. A file that is written again and again is copied in one step at last, and its writers wait for that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from instep.errors import ReadError
from instep.sources.sqlite.connect import SqliteConfig, begin, connect, describing
from instep.temporary import Temporary, remove_abandoned

STEP = 64 << 20
"""Bytes copied while the file is locked: about a tenth of a second."""
RESTARTS = 3


class _Restarted(Exception):
    """The file was written while it was copied, as often as is put up with."""


@contextmanager
def copied(config: SqliteConfig, parent: str = "") -> Iterator[str]:
    """The path of a copy in a folder below `parent`, or the system's for temporary files; it is gone afterwards."""
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
        remove_abandoned(parent)
    folder = Temporary("sqlite", parent)
    try:
        path = Path(folder.path, "copy.db")
        with describing(config.path, ReadError, f"copying it to {folder.path}"):
            try:
                _copy(config, path, STEP)
            except _Restarted:
                path.unlink()
                _copy(config, path, 0)
        yield str(path)
    finally:
        folder.close()


def _copy(config: SqliteConfig, path: Path, step: int) -> None:
    """Copy `step` bytes at a time, or everything in one transaction."""
    with connect(config) as source, closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.execute("PRAGMA synchronous = OFF")
        target.execute("PRAGMA journal_mode = OFF")
        size = int(source.execute("PRAGMA page_size").fetchone()[0])
        if not step:
            begin(source, config.path)
        source.backup(target, pages=max(1, step // size) if step else -1, progress=_Steps().look)


class _Steps:
    """How far a copy has come."""

    def __init__(self) -> None:
        self._left, self._restarts = 0, 0

    def look(self, status: int, left: int, total: int) -> None:
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = status
            raise error
        self._restarts += bool(self._left) and left >= self._left
        self._left = left
        if self._restarts > RESTARTS:
            raise _Restarted
