"""Places of files: a local folder or an object store, named by a URI, with pyiceberg's property names."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from instep.errors import StageError
from instep.stage.files.names import LOCAL_FILES

_HINTS = {
    errno.ENOSPC: "free space there, or move the location to a larger disk, then sync again",
    errno.EDQUOT: "the quota is used up: free space or raise it, then sync again",
    errno.EFBIG: "the file size limit is reached: raise `ulimit -f` or lower the file size",
    errno.EACCES: "give this user the right to write there",
    errno.EROFS: "the disk is mounted read-only: mount it for writing",
}
_ELSE = "check that the place exists and may be written to"


@dataclass(frozen=True)
class StorageFolder:
    """A folder. `io` may hold credentials (`s3.access-key-id`, ...) and is never shown."""

    uri: str
    io: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def local(self) -> Path | None:
        """The folder as a local path, None on an object store. StageError where `io` keeps to object stores."""
        parsed = urlparse(self.uri)
        if parsed.scheme not in ("", "file"):
            return None
        if self.io.get(LOCAL_FILES) == "false":
            raise StageError(
                f"{self.uri} is on this machine, and its destination comes from an API",
                hint="keep the table in a bucket, or describe the destination in instep.yml",
            )
        return Path(unquote(parsed.path)) if parsed.scheme else Path(self.uri)

    def child(self, name: str) -> str:
        """Return the URI of `name` in this folder, in the form that the folder was given in."""
        return f"{self.uri.rstrip('/')}/{name}"

    def create(self, name: str) -> NewFile:
        """Return a new file in this folder, which is made if it is missing; raises StageError."""
        return NewFile(self, name)

    def resolve(self, name: str) -> tuple[Any, str]:
        """Return (a pyarrow file system, the path of `name` in it)."""
        from pyarrow import fs

        if self.local is not None:
            return fs.LocalFileSystem(), str(self.local / name)
        from instep.stage.files.pyiceberg_code import BucketFileIO, RemoteFileIO

        kind, _, address = self.child(name).partition("://")
        host, _, path = address.partition("/")  # a `?` or `#` in it is part of a name
        scheme, netloc, root = BucketFileIO.parse_location(f"{kind}://{host}/", dict(self.io))
        opens = RemoteFileIO if self.io.get(LOCAL_FILES) == "false" else BucketFileIO
        return opens(dict(self.io)).fs_by_scheme(scheme, netloc), f"{root.rstrip('/')}/{path}"


class NewFile:
    """A file being written through `sink`: either finished or dropped."""

    def __init__(self, place: StorageFolder, name: str) -> None:
        self.uri = place.child(name)
        with clear_errors(self.uri):
            if place.local is not None:
                place.local.mkdir(parents=True, exist_ok=True)
            self._filesystem, self._path = place.resolve(name)
            self.sink = self._filesystem.open_output_stream(self._path)

    @property
    def size(self) -> int:
        return int(self.sink.tell())

    def finish(self) -> int:
        """Close the file; its size in bytes."""
        with clear_errors(self.uri):
            size = self.size
            self.sink.close()
            return size

    def drop(self) -> None:
        """Close and delete the file, as far as the place still lets it."""
        with suppress(OSError, pa.ArrowInvalid):
            self.sink.close()
        with suppress(OSError):
            self._filesystem.delete_file(self._path)


def local(uri: str) -> Path:
    """Return the path of a file that is known to be on a disk of this machine."""
    return Path(unquote(urlparse(uri).path)) if uri.startswith("file://") else Path(uri)


def remove(uri: str, io: Mapping[str, str]) -> None:
    """Delete a folder and what is in it; one that is not there is fine. Best effort: what stays is an orphan."""
    from pyarrow import fs

    filesystem, path = StorageFolder(uri, io).resolve("")
    with suppress(OSError):
        if filesystem.get_file_info(path.rstrip("/")).type == fs.FileType.Directory:
            filesystem.delete_dir(path.rstrip("/"))


def children(uri: str, io: Mapping[str, str]) -> list[str]:
    """Return the names in a folder; none if it is not there or cannot be listed."""
    from pyarrow import fs

    filesystem, path = StorageFolder(uri, io).resolve("")
    with suppress(OSError):
        listed = filesystem.get_file_info(fs.FileSelector(path.rstrip("/"), allow_not_found=True))
        return sorted(str(info.base_name) for info in listed)
    return []


def keep_only(uri: str, io: Mapping[str, str], retained: Collection[str]) -> None:
    """Delete the files of a folder whose URIs are not among `retained`, and the folder if none is. Best effort."""
    names = {file.rsplit("/", 1)[-1] for file in retained}
    if not names:
        remove(uri, io)
        return
    delete_files(uri, io, set(children(uri, io)) - names)


def delete_files(uri: str, io: Mapping[str, str], names: Iterable[str]) -> None:
    """Delete these files of a folder. Best effort."""
    place = StorageFolder(uri, io)
    for name in names:
        filesystem, path = place.resolve(name)
        with suppress(OSError):
            filesystem.delete_file(path)


@contextmanager
def clear_errors(place: str) -> Iterator[None]:
    """Turn failures to write into a StageError that names the place and the next step."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise StageError(f"cannot write {place}: {error}") from error
    except OSError as error:
        raise disk_error(place, error) from error


def disk_error(place: str, error: OSError) -> StageError:
    """Return the operating system's error about `place`, with the next step."""
    reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    return StageError(f"cannot write {place}: {reason}", hint=disk_hint(error) or _ELSE)


def disk_hint(error: BaseException) -> str:
    """Return the next step after an error that the disk causes, whoever raised it: the operating system, Arrow or
    SQLite; "" for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
        number = errno.ENOSPC
    return _HINTS.get(number or 0, "")
