"""A store in a read-only folder, for commands that only read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import make_url

from instep.errors import ConnectError
from instep.temporary import TemporaryFolder

_WAYS = ("mode=ro", "mode=ro&immutable=1")
"""A write-ahead log that nobody has open cannot be read without a place for its index: then there is nothing in it."""


def is_writable(url: str) -> bool:
    """Return whether a store can be opened, or made, where its URL says; a server always."""
    file = _file(url)
    if file is None:
        return True
    folder = next(place for place in file.parents if place.exists())
    return os.access(folder, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))


def copied(url: str) -> tuple[str, TemporaryFolder]:
    """Return the URL of a copy of the store, empty where there is none yet, and the folder that it leaves with."""
    file, folder = _file(url), TemporaryFolder("store")
    copy = Path(folder.path, "state.db")
    if file is not None and file.exists():
        _copy(file, copy)
    return f"sqlite:///{copy}", folder


def _file(url: str) -> Path | None:
    parsed = make_url(url)
    sqlite = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
    return Path(str(parsed.database)) if sqlite else None


def _copy(file: Path, to: Path) -> None:
    why: sqlite3.Error | None = None
    for way in _WAYS:
        try:
            with (
                closing(sqlite3.connect(f"file:{quote(str(file))}?{way}", uri=True)) as original,
                closing(sqlite3.connect(to)) as duplicate,
            ):
                original.backup(duplicate)
                return
        except sqlite3.Error as error:
            why = error
    raise ConnectError(f"the store {file} cannot be read: {why}", hint="check who may read it")
