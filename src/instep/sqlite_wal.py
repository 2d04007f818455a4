"""Put a SQLite file into WAL mode while other processes open it, too."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.01


def use_wal(execute: Callable[[str], object], seconds: float) -> None:
    """Run the pragma with `execute`, again and again for `seconds` while another process holds the file.

    SQLite does not wait here as it does elsewhere: of two processes that change the mode of a new file at once, one is
    told "database is locked" immediately, whatever its timeout is (https://www.sqlite.org/wal.html, section 9).
    """
    until = time.monotonic() + seconds
    while True:
        try:
            execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)
