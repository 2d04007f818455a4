"""Staged files on their way into a database, which copies what a lake adopts."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from instep.errors import ConnectError, InstepError
from instep.stage.files.object_store import ObjectPath, is_object, opened, path_at
from instep.stage.files.place import children, clear_errors, delete_files, remove
from instep.stage.spec import StagedFile

THREADS = 4
ORDER = "_instep_order"
"""The column that numbers staged rows as they came, where they are a table."""
Files = Sequence[StagedFile]


@dataclass(frozen=True)
class StagingArea:
    """Place of a database's staged files and quarantine: `uri` is a folder of this
    machine or a place in an object store, which tasks on other machines reach as well, by `io`."""

    uri: str
    io: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, place: str, properties: Mapping[str, str], name: str) -> StagingArea:
        """Return the folder of the destination `name` below a place; raise ConnectError for a place that is neither."""
        if is_object(place):
            return cls(f"{place.rstrip('/')}/{name}", properties)
        if "://" in place and not place.startswith("file://"):
            hint = "name a folder, or `s3://`, `gs://` or `abfss://` with `properties`"
            raise ConnectError(f"staging {place} is neither a folder nor in an object store", hint=hint)
        return cls(f"{path_at(place, {}).absolute().as_uri()}/{name}")  # type: ignore[union-attr]

    def folder(self, place: str) -> str:
        """Return the folder of one table."""
        return f"{self.uri}/{place}"

    def open(self, file: StagedFile) -> Any:
        """Open a staged file for pyarrow."""
        return opened(path_at(file.path, self.io))

    def consume(self, files: Files) -> None:
        """Delete the staged files, and the folder of their run with them: their rows are in the table."""
        for file in files:
            path = path_at(file.path, self.io)
            with suppress(OSError, InstepError):
                path.unlink(missing_ok=True)
                if path.parent.name != "data":
                    path.parent.rmdir()

    def remove_uncommitted_files(self, place: str, runs: Collection[str], committed: Collection[str]) -> None:
        """Delete what dead runs have staged for a table, and what they held there unless they have `committed`."""
        data, quarantine = f"{self.folder(place)}/data", f"{self.folder(place)}/quarantine"
        for name in children(data, self.io):
            if any(name == run or name.startswith(f"{run}-") for run in runs):
                remove(f"{data}/{name}", self.io)
        if gone := tuple(f"{run}-" for run in runs if run not in committed):
            # by name: what another process has written since they were listed stays
            delete_files(quarantine, self.io, [n for n in children(quarantine, self.io) if n.startswith(gone)])

    def local_files(self, folder: Path, files: Files) -> Files:
        """Return the files on this machine: those in a bucket are copied into `folder`."""
        if not is_object(self.uri):
            return files
        with ThreadPoolExecutor(THREADS, thread_name_prefix="staged") as pool:
            return list(pool.map(lambda f: self._bring(f, folder), files))

    def _bring(self, file: StagedFile, folder: Path) -> StagedFile:
        path = folder / file.path.removeprefix(f"{self.uri}/")
        with clear_errors(str(path)):
            content = ObjectPath(file.path, self.io).open()
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as out:
                shutil.copyfileobj(content, out, 8 << 20)
        return replace(file, path=path.as_uri())


def filled(files: Iterable[StagedFile]) -> list[StagedFile]:
    """Return the files that hold rows, in the order of their chunks."""
    return sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path))
