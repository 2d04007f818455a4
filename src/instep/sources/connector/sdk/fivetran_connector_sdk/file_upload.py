"""Files beside rows."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from .shown import shown

CHUNK = 2 << 20
COLUMN = "_fivetran_file_path"
_LONGEST = 255  # bytes of a name that file systems take
_REFUSED = ("Cc", "Cs")  # control characters, halves of surrogate pairs


class ByteStream(Protocol):
    def read(self, size: int = -1) -> bytes: ...


class FileUpload:
    """A file that belongs to a row. `path` is where it will be in the files of its table, `stream` has `read(size)`;
    `expected_bytes` is compared with what it gives. ValueError for a path that leads out of there."""

    def __init__(self, path: str, stream: ByteStream, expected_bytes: int | None = None) -> None:
        if not isinstance(path, str) or not path:
            raise ValueError("FileUpload: `path` has to be a text")
        if not callable(getattr(stream, "read", None)):
            raise TypeError("FileUpload: `stream` has to have read(size)")
        if expected_bytes is not None and (isinstance(expected_bytes, bool) or not isinstance(expected_bytes, int)):
            raise TypeError(f"FileUpload: `expected_bytes` has to be a whole number, not {shown(expected_bytes, 100)}")
        self.path, self.stream, self.expected_bytes = path, stream, expected_bytes
        self.place = _place(path)


def _place(path: str) -> str:
    """Return the path without what changes nothing of it."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not names or ".." in names or any(unicodedata.category(c) in _REFUSED for c in path):
        raise ValueError(f"FileUpload: the path {shown(path, 300)} leads to no file below the table's files")
    if longest := next((n for n in names if len(n.encode()) > _LONGEST), ""):
        raise ValueError(f"FileUpload: {shown(longest, 50)} in the path has more than {_LONGEST} bytes")
    return "/".join(names)


def named(row: Mapping[str, Any], file: FileUpload) -> dict[str, Any]:
    """Return the row with the path of its file."""
    return {**row, COLUMN: file.path}


def chunks(table: str, file: FileUpload) -> Iterator[memoryview]:
    """Yield its bytes, at most CHUNK at a time, so that a file need not fit into memory."""
    size = 0
    while data := file.stream.read(CHUNK):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"table {table}, file {file.path}: read() gave {type(data).__name__} instead of bytes")
        whole = memoryview(data).cast("B")
        size += len(whole)
        for at in range(0, len(whole), CHUNK):
            yield whole[at : at + CHUNK]
    if file.expected_bytes is not None and size != file.expected_bytes:
        raise ValueError(
            f"table {table}, file {file.path}: its stream gave {size:,} bytes, expected_bytes says "
            f"{file.expected_bytes:,}"
        )
