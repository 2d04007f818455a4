"""Files beside rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class ByteStream(Protocol):
    def read(self, size: int = -1) -> bytes: ...


class FileUpload:
    """A file that belongs to a row. `stream` has `read(size)`; `expected_bytes` is compared with what it gives."""

    def __init__(self, path: str, stream: ByteStream, expected_bytes: int | None = None) -> None:
        if not isinstance(path, str) or not path:
            raise ValueError("FileUpload: `path` has to be a text")
        if not callable(getattr(stream, "read", None)):
            raise TypeError("FileUpload: `stream` has to have read(size)")
        self.path, self.stream, self.expected_bytes = path, stream, expected_bytes


def uploaded(row: Mapping[str, Any], file: FileUpload) -> Mapping[str, Any]:
    """Raises NotImplementedError: a path to a file that is nowhere would be worse than none."""
    raise NotImplementedError(
        f"the destination keeps no files, so {file.path} cannot be uploaded; send its bytes in a BINARY column, "
        "or the row without `file`"
    )
