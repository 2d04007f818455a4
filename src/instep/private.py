"""Files and folders that are this user's: others on the machine neither read secrets nor replace what is run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MODE = 0o600
_BESIDE = ("", "-wal", "-shm")
"""Suffixes of the files that SQLite makes beside a database's file, with its modes."""
_IGNORE = "# Written by instep: keys, state and caches belong into no repository.\n*\n"


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


def make_state_folder(root: Path) -> Path:
    """Make a project's `.instep`, which others cannot enter and Git does not see; return it."""
    folder = root / ".instep"
    if not folder.is_dir():
        _make(folder, 0o770)
        with suppress(OSError):
            (folder / ".gitignore").write_text(_IGNORE, encoding="utf-8")
    return folder


def make_own_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, in which only this user, or the group as its umask says,
    writes: what is run is found there."""
    for one in reversed([folder, *folder.parents]):
        if not one.is_dir():
            _make(one, 0o777)


def _make(folder: Path, mode: int) -> None:
    """Make a folder; a umask that lets everybody write is one that nobody has thought about."""
    before = os.umask(0o077)
    os.umask(before)
    folder.mkdir(mode=mode if before & 0o002 else mode & ~0o022, exist_ok=True)
