"""Opening a file below a folder, so that nothing leads out of it: whoever writes there may put a link in place of a
file, or of a folder, between the listing and the reading."""

from __future__ import annotations

import os
import stat
from pathlib import PurePath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def open_below(folder: str, path: str) -> int:
    """Return the descriptor of a file. Raises ValueError if `path` leads to none below the folder, links followed;
    OSError if it is gone, or changes while it is looked up."""
    root = os.path.realpath(folder)
    *folders, name = PurePath(os.path.realpath(path)).relative_to(root).parts or ("",)
    place = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        opened = os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise ValueError(f"{path} is not a file")
    return opened
