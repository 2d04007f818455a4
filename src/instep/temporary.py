"""Folders for files that live as long as their process: what does not fit into memory, what another program has to see.

Each holds a lock while its process lives. One whose process was killed stays, without a holder of its lock, and the
next sync on the machine removes it. Folders for temporary files are open to everybody: only what belongs to this user,
is no link and has the mark of this module in its lock is taken for one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "instep-"
_LOCK = "lock"
_DRAFT = "lock.new"
_FILES = "files"
_MARK = "instep: in use while a process holds a lock of this file\n"
_DRAFTED = 3600.0
"""Seconds after which a folder that was never finished has no process any more."""


class TemporaryFolder:
    """A folder of this process, `path`, below the system's one for such or below `parent`. A program that is given the
    descriptor `lock` holds it, too."""

    def __init__(self, purpose: str, parent: str = "") -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{purpose}-", dir=parent or None))
        self.path = str(folder / _FILES)
        (folder / _FILES).mkdir()
        draft = folder / _DRAFT
        draft.write_text(_MARK)
        self.lock = _locked(draft)
        draft.rename(folder / _LOCK)  # a folder is abandoned only once it has a lock that nobody holds
        self._end = weakref.finalize(self, _remove, folder, self.lock, os.getpid())

    def close(self) -> None:
        """Remove the folder; once is enough."""
        self._end()


@contextmanager
def temporary(purpose: str) -> Iterator[str]:
    """Yield a folder that is deleted afterwards."""
    made = TemporaryFolder(purpose)
    try:
        yield made.path
    finally:
        made.close()


def temporaries(purpose: str) -> list[Path]:
    """Return the folders that processes of this user have for a purpose, below the system's one."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{_NAME}{purpose}-*"):
        with suppress(OSError):
            about = folder.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
                found.append(folder / _FILES)
    return found


def remove_abandoned(parent: str = "") -> None:
    """Remove the folders of processes on this machine that were killed: the system's, or those below `parent`."""
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{_NAME}*"):
        with suppress(OSError):
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            if (folder / _LOCK).exists():
                _remove(folder, _locked(folder / _LOCK), os.getpid())
            elif time.time() - about.st_mtime > _DRAFTED:
                _remove_drafted(folder)


def _remove_drafted(folder: Path) -> None:
    """Remove a folder whose process was killed before it had a lock; OSError if there is anything else in it."""
    if {found.name for found in folder.iterdir()} <= {_FILES, _DRAFT}:
        os.close(_locked(folder / _DRAFT))
        (folder / _FILES).rmdir()
        (folder / _DRAFT).unlink()
        folder.rmdir()


def _locked(file: Path) -> int:
    """Lock the file and return its descriptor; OSError if it is gone, or somebody else's, or no lock of this module."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(descriptor, len(_MARK) + 1) != _MARK.encode():
            raise OSError(f"{file} is no lock of a temporary folder")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(folder: Path, lock: int, owner: int) -> None:
    """Delete the folder, its lock last. A forked process leaves it to the `owner`."""
    if os.getpid() == owner:
        shutil.rmtree(folder / _FILES, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
