"""Where the task that runs a connector and the driver meet: files in a place that both of them reach.

    driver                       what the driver says, rewritten and again: that it is there, what it has taken
    bundle                       the connector's folder and what runs it
    begin-0                      the state that the first attempt begins with
    0/0, 0/1, ...                what the task says at its first attempt, in order, each word written once
    0/segment-00001/...          the files of a segment, which are there before the word of it

Everything is sealed by a key that goes with the task's own description: a place that outlives the run shows nothing.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from instep.errors import StageError
from instep.sources.connector.sealed import plain_pieces, sealed_pieces
from instep.stage.files.place import StorageFolder, children, clear_errors, remove

DRIVER, BUNDLE = "driver", "bundle"


def begin(attempt: int) -> str:
    return f"begin-{attempt}"


class SegmentExchange:
    """`place` may hold credentials and is never shown; `key` is that of `sealed.key_of`."""

    def __init__(self, place: StorageFolder, key: bytes) -> None:
        self._place, self._key = place, key

    @cached_property
    def _root(self) -> tuple[Any, str]:
        filesystem, path = self._place.resolve("")
        return filesystem, path.rstrip("/")

    def say(self, name: str, message: Any) -> None:
        """A JSON document: it is there as a whole or not at all. StageError if it cannot be written."""
        text = json.dumps(message).encode()
        with clear_errors(self._place.child(name)):
            if self._place.local is None:
                self._write(name, io.BytesIO(text), name)
            else:
                draft = f"{name}.part"
                self._write(draft, io.BytesIO(text), name)
                (self._place.local / draft).replace(self._place.local / name)

    def hear(self, name: str) -> Any:
        """Return what was said, None if nothing was. StageError if it cannot be read."""
        filesystem, root = self._root
        try:
            with filesystem.open_input_stream(f"{root}/{name}") as source:
                return json.loads(b"".join(plain_pieces(source, name, self._key)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unread(name, error) from error

    def bring(self, name: str, content: Path | bytes) -> None:
        """A file's content, for `fetch`; StageError if it cannot be written."""
        opened = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        with clear_errors(self._place.child(name)), opened as source:
            self._write(name, source, name)

    def fetch(self, name: str, file: Path) -> None:
        """StageError if it cannot be read, or is not as it was brought."""
        filesystem, root = self._root
        try:
            with filesystem.open_input_stream(f"{root}/{name}") as source, file.open("wb") as target:
                for piece in plain_pieces(source, name, self._key):
                    target.write(piece)
                target.flush()
                os.fsync(target.fileno())
        except Exception as error:
            raise self._unread(name, error) from error

    def attempts(self) -> list[int]:
        """Return those that have said something."""
        return sorted(int(name) for name in children(self._place.uri, self._place.io) if name.isdecimal())

    def forget(self, name: str = "") -> None:
        """Remove a folder, or all of it; best effort."""
        with suppress(Exception):  # the next run looks here again
            remove(self._place.child(name) if name else self._place.uri, self._place.io)

    def _write(self, at: str, source: io.BytesIO | io.BufferedReader, name: str) -> None:
        filesystem, root = self._root
        if self._place.local is not None:
            (self._place.local / PurePosixPath(at).parent).mkdir(parents=True, exist_ok=True)
        with filesystem.open_output_stream(f"{root}/{at}") as sink:
            for piece in sealed_pieces(source, name, self._key):
                sink.write(piece)

    def _unread(self, name: str, error: Exception) -> StageError:
        why = (str(error) or type(error).__name__).splitlines()[0]
        return StageError(f"cannot read {self._place.child(name)}: {why}", hint="run the sync again")
