"""Folders for files that live as long as their process: what does not fit into memory, what another program has to see.

Each holds a lock while its process lives. One whose process was killed stays, without a holder of its lock, and the
next sync on the machine removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "instep-"
_LOCK = "lock"
_FILES = "files"


class Temporary:
    """A folder of this process, `path`, below the system's one for such or below `parent`."""

    def __init__(self, purpose: str, parent: str = "") -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{purpose}-", dir=parent or None))
        self.path = str(folder / _FILES)
        (folder / _FILES).mkdir()
        draft = folder / f"{_LOCK}.new"
        draft.touch()
        held = _locked(draft)
        draft.rename(folder / _LOCK)  # a folder is abandoned only once it has a lock that nobody holds
        self._end = weakref.finalize(self, _remove, folder, held, os.getpid())

    def close(self) -> None:
        """Remove the folder; once is enough."""
        self._end()


@contextmanager
def temporary(purpose: str) -> Iterator[str]:
    """A folder that is gone afterwards."""
    made = Temporary(purpose)
    try:
        yield made.path
    finally:
        made.close()


def remove_abandoned(parent: str = "") -> None:
    """Remove the folders of processes on this machine that were killed: the system's, or those below `parent`."""
    for lock in Path(parent or tempfile.gettempdir()).glob(f"{_NAME}*/{_LOCK}"):
        with suppress(OSError):
            _remove(lock.parent, _locked(lock), os.getpid())


def _locked(file: Path) -> int:
    """Lock the file and return its descriptor; OSError if it is gone, or somebody else's."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(folder: Path, held: int, owner: int) -> None:
    """The lock goes last. A process that was forked off leaves the folder to the `owner`."""
    if os.getpid() == owner:
        shutil.rmtree(folder / _FILES, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    os.close(held)
