"""Whether a file says something else than before: its times are asked first, its text only when they have moved."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

SETTLED = 2.0
"""Seconds after which a file system's clock tells another writing apart from the last one."""


class FileWatch:
    """`digest` is that of the text that is known; "" for a file that is not there."""

    def __init__(self, file: Path, digest: str) -> None:
        self._file, self._digest = file, digest
        self._stamp: tuple[int, ...] | None = None

    def moved(self) -> bool:
        """Return whether the text is another one than at the last look, or than the one that is known."""
        stamp, now = _stamp(self._file), time.time()
        if stamp is not None and stamp == self._stamp:
            return False
        settled = stamp is None or abs(now - stamp[0] / 1e9) > SETTLED
        self._stamp = stamp if settled else None
        before, self._digest = self._digest, digest_of(self._file)
        return self._digest != before


def digest_of(file: Path) -> str:
    """SHA-256 of a file, "" for one that cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
