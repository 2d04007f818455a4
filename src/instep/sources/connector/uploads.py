"""Files that belong to rows: on their way into a segment, and from there to where rows find them.

<uploads>/<table>/<path as the connector gave it>
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from instep.crash import crashpoint
from instep.errors import ReadError, StageError
from instep.redaction import cut
from instep.sources.connector.frames import Frame
from instep.sources.connector.segment import SegmentTable, SegmentUpload

COLUMN = "_fivetran_file_path"
"""The column with the path of a row's file."""
_DRAFT = ".part"


class Uploads:
    """Uploads of one sync. `most` bytes in one file; 0: no limit. `clean` takes secrets out of texts."""

    def __init__(self, name: str, folder: Path, most: int, clean: Callable[[str], str]) -> None:
        self._name, self._folder, self._most, self._clean = name, folder, most, clean
        self._sizes: dict[int, int] = {}

    def add_frame(self, frame: Frame, segment: Path) -> SegmentUpload | None:
        """Return the file that the frame ends, which is in the segment's folder then. ReadError for one that is too
        large, or not what was said of it."""
        head, number = frame.head, int(frame.head["upload"])
        part = self._part(number)
        with part.open("ab" if number in self._sizes else "xb") as file:
            file.writelines(frame.parts())
            size = self._sizes[number] = file.tell()
        label = f"connector {self._name}: its file {self._clean(str(head['path']))}"
        if self._most and size > self._most:
            raise ReadError(
                f"{label} has more than {self._most:,} bytes", hint="raise `limits.file`, or leave the file out"
            )
        if "lost" in head or "bytes" in head:
            del self._sizes[number]
        if "lost" in head:
            part.unlink()
        elif "bytes" in head:
            if size != int(head["bytes"]):
                raise ReadError(f"{label} has not come as a whole")
            part.rename(segment / f"upload-{number}")
            # the path, which cannot lead out of the folder that it is put into
            path = str(head["path"])
            leads_out = any(name in ("", ".", "..") for name in path.split("/"))
            if leads_out or any(unicodedata.category(c) in ("Cc", "Cs") for c in path):
                raise TypeError(f"the path {cut(repr(path), 300)} of a file")
            return SegmentUpload(f"upload-{number}", path, size)
        return None

    def _part(self, number: int) -> Path:
        return self._folder / f"upload-{number}.part"

    def close(self) -> None:
        """Remove those that have not ended."""
        for number in self._sizes:
            self._part(number).unlink(missing_ok=True)
        self._sizes = {}


def folder_of(uploads: Path, table: SegmentTable) -> Path:
    """Return where the files of a table are: its name, with what no file system takes as %XX."""
    label = f"{table.schema}.{table.name}" if table.schema else table.name
    return uploads / re.sub(r"[/%\x00-\x1f]|^\.", lambda m: f"%{ord(m[0]):02X}", label)


def publish(segment: Path, table: SegmentTable, uploads: Path) -> None:
    """Move the files of a table's operations to where their rows say, each as a whole, replacing any. Runs before
    the rows are loaded, so that no row names a missing file; repeating it changes nothing. Raises StageError if a
    file cannot be moved."""
    folder = folder_of(uploads, table)
    for upload in table.uploads:
        target = folder / upload.name
        draft = uploads / f".{uuid4().hex}{_DRAFT}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(segment / upload.path, draft)
            crashpoint("connector.file.copied")
            draft.replace(target)
            crashpoint("connector.file.placed")
        except OSError as error:
            raise StageError(
                f"table {table.name}: its file {target} cannot be put there: {error.strerror}",
                hint="make room there; a path cannot be that of a file and of a folder",
            ) from error
        finally:
            with suppress(OSError):  # a rename leaves both names of what is one file
                draft.unlink(missing_ok=True)


def remove_leftovers(uploads: Path) -> None:
    """Remove files that a run which died had begun to put there. No table's folder begins with a dot."""
    for draft in uploads.glob(f".*{_DRAFT}"):
        draft.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Link the file, or copy it where both are not on one file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as written:
            os.fsync(written.fileno())
