"""Where the task that runs a connector and the driver meet: files in a place that both of them reach.

    driver                       what the driver says, rewritten and again: that it is there, what it has taken
    bundle                       the connector's folder and what runs it
    begin-0                      the state that the first attempt begins with
    0/0, 0/1, ...                what the task says at its first attempt, in order, each word written once
    0/segment-00001/...          the files of a segment, which are there before the word of it

Everything is sealed by a key that goes with the task's own description: a place that outlives the run shows nothing.

A connector's folder and what runs it, as one small file that travels to a machine which has neither.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from instep.errors import ProjectError, StageError
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.dialect import LOCAL_HOST, ChildEnvironment, SdkDialect
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

    def send(self, name: str, message: Any) -> None:
        """Write a JSON document, wholly or not at all; raises StageError if it cannot be written."""
        text = json.dumps(message).encode()
        with clear_errors(self._place.child(name)):
            if self._place.local is None:
                self._write(name, io.BytesIO(text), name)
            else:
                draft = f"{name}.part"
                self._write(draft, io.BytesIO(text), name)
                (self._place.local / draft).replace(self._place.local / name)

    def receive(self, name: str) -> Any:
        """Return the message of this name, None if there is none. Raises StageError if it cannot be read."""
        filesystem, root = self._root
        try:
            with filesystem.open_input_stream(f"{root}/{name}") as source:
                return json.loads(b"".join(plain_pieces(source, name, self._key)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unread(name, error) from error

    def bring(self, name: str, content: Path | bytes) -> None:
        """Write a file's content for `fetch`; raises StageError if it cannot be written."""
        opened = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        with clear_errors(self._place.child(name)), opened as source:
            self._write(name, source, name)

    def fetch(self, name: str, file: Path) -> None:
        """Raise StageError if it cannot be read, or is not as it was brought."""
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
        """Return the attempts that have written a message."""
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


MOST = 64 << 20
"""Bytes of a bundle: each run of the connector brings it to the machines again."""
_LEFT_OUT = frozenset({"__pycache__", ".git", ".instep", ".venv", "venv"})
_CODE, _PROGRAM = "connector", "program"
_BEGINNING = (1980, 1, 1, 0, 0, 0)


def pack(config: ConnectorConfig) -> bytes:
    """Return a bundle; equal files give equal bytes. Left out are caches, virtual environments, and projects below
    the folder (of `connector debug`). Raises ProjectError without a connector.py, and for a folder that is too
    large."""
    SdkDialect(config).check()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for top, root in ((_CODE, Path(config.path)), (_PROGRAM, LOCAL_HOST.program)):
            for file in _files(root) if top == _CODE else _own(root):
                _add(out, f"{top}/{file.relative_to(root)}", file)
                if packed.tell() > MOST:
                    raise ProjectError(
                        f"connector {config.name}: its folder {config.path} is larger than {MOST >> 20} MB when packed "
                        "for Spark's machines",
                        hint="keep data and environments out of the connector's folder",
                    )
    return packed.getvalue()


def unpack(bundle: bytes, folder: Path) -> tuple[Path, ChildEnvironment]:
    """Unpack (the connector's folder, what runs it), both below `folder`."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as packed:
        for info in packed.infolist():
            Path(packed.extract(info, folder)).chmod(info.external_attr >> 16)
    return folder / _CODE, ChildEnvironment(folder / _PROGRAM, str(folder))


def _add(out: zipfile.ZipFile, name: str, file: Path) -> None:
    info = zipfile.ZipInfo(name, _BEGINNING)
    info.external_attr = (0o700 if os.access(file, os.X_OK) else 0o600) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    with file.open("rb") as source, out.open(info, "w", force_zip64=True) as target:
        while piece := source.read(1 << 20):
            target.write(piece)


def _files(root: Path) -> Iterator[Path]:
    """Yield files in order, links followed; a folder to which two links lead is taken once."""
    seen: set[str] = set()
    for folder, below, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(n for n in below if n not in _LEFT_OUT and not Path(folder, n, "instep.yml").is_file())
        yield from (path for path in (Path(folder, name) for name in sorted(names)) if path.is_file())


def _own(root: Path) -> Iterator[Path]:
    yield root / "guard.py"
    yield from sorted((root / "sdk").rglob("*.py"))
