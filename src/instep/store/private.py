"""Files that only the account of this process can read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MODE = 0o600
_BESIDE = ("", "-wal", "-shm")
"""What SQLite makes beside a database's file, with the modes of that file."""


def write_private(file: Path, text: str) -> None:
    """Write a new file that was never open to others; FileExistsError for one that is there, a link included."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def make_private(database: Path) -> None:
    """Make a SQLite database's file before SQLite does, and take what is there, with its WAL, away from others. What
    belongs to another account stays as it is."""
    with suppress(OSError):
        os.close(os.open(database, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    for ending in _BESIDE:
        file = database.with_name(database.name + ending)
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(MODE)
