"""The demo's second source: a SQLite file, which has no ids for its columns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from instep.project.demo.server import text

FILE = "till.db"


def create_till(folder: Path) -> None:
    """Make `till.db` in `folder`; one that is there must be gone."""
    _execute(folder, text("till.sql"))


def change_till(folder: Path) -> None:
    """Rename a column and changes rows."""
    _execute(folder, changes_sql())


def changes_sql() -> str:
    """Return what `change_till` runs."""
    return text("till_changes.sql")


def _execute(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.executescript(script)
