"""Check that files and folders of this machine may be written, before anything is begun."""

from __future__ import annotations

import os
from pathlib import Path

from instep.errors import ConnectError

MAY_NOT, READ_ONLY = "this user has no right to write there", "its disk is mounted read-only"
_NEXT = {MAY_NOT: "give this user the right to write there", READ_ONLY: "mount the disk for writing"}


def check_writable(name: str, *places: Path) -> None:
    """Raise ConnectError for the first file or folder of the destination that may not be written; one that is not
    there yet counts as the folder that it would be made in."""
    for place in places:
        if why := why_not(there := _nearest(place)):
            raise ConnectError(f"destination {name}: {there} cannot be written: {why}", hint=_NEXT[why])


def is_writable(place: Path) -> bool:
    return not why_not(_nearest(place))


def _nearest(place: Path) -> Path:
    """Return the file or folder itself, or the first folder above it that is there."""
    return next(found for found in (place, *place.parents) if found.exists())


def why_not(place: Path) -> str:
    """Return why a file or folder that is there may not be written, "" if it may."""
    if os.access(place, os.W_OK):
        return ""
    return READ_ONLY if os.statvfs(place).f_flag & os.ST_RDONLY else MAY_NOT
