"""Staged files on their way into a database, which copies what a lake adopts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from instep.stage.place import local
from instep.stage.spec import StagedFile


def filled(files: Iterable[StagedFile]) -> list[StagedFile]:
    """The files that hold rows, in the order of their chunks."""
    return sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path))


def consume(files: Sequence[StagedFile]) -> None:
    """The rows are in the table: their files have served, and the folder of their run with them."""
    for file in files:
        with suppress(OSError):
            local(file.path).unlink(missing_ok=True)
            if (folder := local(file.path).parent).name != "data":
                folder.rmdir()
