"""Create files atomically and exclusively: complete or absent, and by one writer only."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, ObjectPath
from instep.stage.files.place import clear_errors

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def create(path: AnyPath, content: bytes) -> bool:
    """Make a file that survives a loss of power; False, and nothing changed, if the name is taken. The folder must
    exist. DestinationError for a file system without hard links."""
    if isinstance(path, ObjectPath):
        return path.create(content)
    aside = _aside(path.parent)
    with clear_errors(str(path.parent)):
        try:
            with aside.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if not _linked(aside, path):
                return False
        finally:
            aside.unlink(missing_ok=True)
        _keep_names(path.parent)
    return True


def write_new(path: AnyPath, content: bytes) -> None:
    """Create a file that no other writer can create too; it survives a loss of power."""
    if isinstance(path, ObjectPath):
        path.write_bytes(content)
        return
    with clear_errors(str(path.parent)):
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _keep_names(path.parent)


def _keep_names(folder: Path) -> None:
    """Sync the folder, so that new names in it survive a loss of power."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _linked(aside: Path, path: Path) -> bool:
    try:
        os.link(aside, path)
    except FileExistsError:
        # a network file system that has lost its answer asks again, and meets the link that it has made
        return aside.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise DestinationError(
            f"{path.parent}: its file system has no hard links, without which two writers can make the same version",
            hint="put the warehouse on a local disk, on NFS or into an object store",
        ) from error
    return True


def replace_file(path: AnyPath, content: bytes) -> None:
    """Write a file with this content, replacing any."""
    if isinstance(path, ObjectPath):
        path.write_bytes(content)
        return
    aside = _aside(path.parent)
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _aside(folder: Path) -> Path:
    return folder / f".instep-{uuid.uuid4().hex}.tmp"
