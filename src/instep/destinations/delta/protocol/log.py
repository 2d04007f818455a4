"""The log of one Delta table: its versions, and commits that only one writer can make.

A version is a file of JSON lines. It is written aside and linked to its name, which fails if the name is taken, or put
into an object store on the condition that there is none: of two writers that start from the same version one is
refused, whatever they do.

The newest version is read once and then kept up to date by the commits that came since.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from urllib.parse import quote, unquote, urlparse

import pyarrow as pa

from instep.destinations.delta.protocol import checkpoint
from instep.destinations.delta.protocol.new_file import create, replace_file
from instep.destinations.delta.protocol.snapshot import NOTHING, Action, DeltaSnapshot, texts_of
from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, ObjectPath, is_object

FOLDER = "_delta_log"
EVERY = 20
"""A checkpoint is written at every so many versions, unless the table says how many."""
POINTER = "_last_checkpoint"
_LOST = "restore the folder from a backup, or drop the table and load it again"
_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(?:parquet|json)")


def place_of(table: AnyPath, file: Action) -> AnyPath:
    """Return where a data file lies: below the table, unless another program has named it by an absolute path or URL.
    Who writes a log in a bucket has no say over this machine's files."""
    path = str(file["path"])
    if isinstance(table, ObjectPath):
        if ":" in path.partition("/")[0] and not is_object(path):
            raise DestinationError(
                f"the log of {table} names {path[:200]!r}, which is in no bucket",
                hint="take the file out of the table with the program that has put it there",
            )
        return ObjectPath(unquote(path), table.io) if "://" in path else table / unquote(path)
    return table / unquote(urlparse(path).path if path.startswith("file:") else path)


class SnapshotCache:
    """The newest snapshots that one process has read, by folder, each with what tells its commit from another one of
    that name. Those that were used last stay."""

    MOST, FILES = 2_000, 2_000_000

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[DeltaSnapshot, object]] = OrderedDict()
        self._files, self._lock = 0, Lock()

    def __reduce__(self) -> tuple[type[SnapshotCache], tuple[()]]:
        """Pickle to an empty cache: another process reads for itself."""
        return SnapshotCache, ()

    def get(self, folder: str) -> tuple[DeltaSnapshot, object] | None:
        with self._lock:
            if folder in self._known:
                self._known.move_to_end(folder)
            return self._known.get(folder)

    def put(self, folder: str, snapshot: DeltaSnapshot, mark: object) -> None:
        with self._lock:
            old = self._known.pop(folder, None)
            self._known[folder] = snapshot, mark
            self._files += _count(snapshot) - (_count(old[0]) if old else 0)
            while len(self._known) > 1 and (len(self._known) > self.MOST or self._files > self.FILES):
                _, (out, _) = self._known.popitem(last=False)
                self._files -= _count(out)


def _count(snapshot: DeltaSnapshot) -> int:
    """Return how many files it names, those included that were removed."""
    return len(snapshot.files) + len(snapshot.tombstones)


@dataclass(frozen=True)
class _LogFiles:
    """The contents of a log's folder: versions with a commit, each with what tells it from another one; the
    files of each whole checkpoint; the last version of each file that has several commits, by the first one."""

    commits: Mapping[int, object]
    checkpoints: Mapping[int, Sequence[AnyPath]]
    compacted: Mapping[int, int]

    @property
    def last(self) -> int | None:
        return max([*self.commits, *self.checkpoints], default=None)


@dataclass(frozen=True)
class DeltaLog:
    """The log of a Delta table."""

    table: AnyPath
    """The folder that holds the log's folder."""
    cache: SnapshotCache = field(default_factory=SnapshotCache, compare=False, repr=False)

    @property
    def folder(self) -> AnyPath:
        return self.table / FOLDER

    def _names(self, first: int) -> Iterator[tuple[str, object]]:
        """Yield the names from a version on, with the identity of each file."""
        start = f"{first:020}"
        if isinstance(self.folder, ObjectPath):
            yield from self.folder.names_from(start)
            return
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(self.folder):
                if entry.name >= start:
                    yield entry.name, None

    def _listed(self, first: int = 0) -> _LogFiles:
        commits, compacted, parts = dict[int, object](), dict[int, int](), dict[tuple[int, str, int], list[str]]()
        for name, mark in self._names(first):
            if match := _COMMIT.fullmatch(name):
                commits[int(match[1])] = mark
            elif match := _CHECKPOINT.fullmatch(name):
                parts.setdefault((int(match[1]), match[4] or "", int(match[3] or 1)), []).append(name)
            elif match := _COMPACTED.fullmatch(name):
                compacted[int(match[1])] = max(int(match[2]), compacted.get(int(match[1]), 0))
        whole = {
            version: [self.folder / name for name in sorted(names)]
            for (version, _, count), names in sorted(parts.items())
            if len(names) == count
        }
        return _LogFiles(commits, whole, compacted)

    def versions(self) -> list[int]:
        """Return the versions that can be read, in order."""
        listed = self._listed()
        start = min([*listed.checkpoints, *([0] if 0 in listed.commits else [])], default=None)
        return sorted(v for v in {*listed.commits, *listed.checkpoints} if start is not None and v >= start)

    def snapshot(self, version: int | None = None) -> DeltaSnapshot | None:
        """Return the table at a version, the newest by default; None if nothing is there. Raises DestinationError for a
        log that cannot be read."""
        return self._newest() if version is None else self._replayed(self._listed(), version)

    def _newest(self) -> DeltaSnapshot | None:
        place = str(self.folder)
        if cached := self.cache.get(place):
            before, mark = cached
            listed = self._listed(before.version)
            if before.version in listed.commits and self._mark(listed, before.version) == mark:
                last = max(listed.commits)
                if last == before.version:
                    return before
                if all(v in listed.commits for v in range(before.version, last)):
                    return self._remember(listed, self._apply_commits(before, listed, last).checked(self.table))
        listed = self._listed(self._pointer_version())
        if not listed.checkpoints:
            listed = self._listed()
        if listed.last is None:
            return None
        return self._remember(listed, self._replayed(listed, listed.last))

    def _pointer_version(self) -> int:
        """Return the version that the checkpoint pointer names; a wrong pointer costs a listing."""
        path = self.folder / POINTER
        if isinstance(self.folder, ObjectPath):  # a folder is listed whole anyway
            with suppress(OSError, ValueError, KeyError, TypeError):
                return int(json.loads(path.read_text(encoding="utf-8"))["version"])
        return 0

    def _remember(self, listed: _LogFiles, snapshot: DeltaSnapshot) -> DeltaSnapshot:
        if snapshot.version in listed.commits:
            self.cache.put(str(self.folder), snapshot, self._mark(listed, snapshot.version))
        return snapshot

    def _mark(self, listed: _LogFiles, version: int) -> object:
        path = self.path(version)
        if isinstance(path, ObjectPath):
            return listed.commits[version]
        try:
            file_stat = path.stat()
        except FileNotFoundError:
            return None
        return file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size

    def _replayed(self, listed: _LogFiles, last: int) -> DeltaSnapshot:
        base = max((v for v in listed.checkpoints if v <= last), default=-1)
        start = checkpoint.read(base, listed.checkpoints[base]) if base >= 0 else NOTHING
        return self._apply_commits(start, listed, last).checked(self.table)

    def _apply_commits(self, start: DeltaSnapshot, listed: _LogFiles, last: int) -> DeltaSnapshot:
        """Return a snapshot with the commits up to `last`; of several in one file by that."""
        while start.version < last:
            number = start.version + 1
            end = listed.compacted.get(number, -1)
            if not number <= end <= last and number not in listed.commits:
                raise DestinationError(f"the log of {self.table} lacks version {number}", hint=_LOST)
            try:
                if number <= end <= last:
                    start = start.after(end, self._read(self.folder / f"{number:020}.{end:020}.compacted.json"))
                else:
                    start = start.after(number, self.actions(number))
            except (pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
                text = f"the log of {self.table} cannot be read: version {number}: {type(error).__name__}: {error}"
                raise DestinationError(text, hint=_LOST) from error
        return start

    def actions(self, version: int) -> Iterator[Action]:
        """Yield the actions of one commit; raises FileNotFoundError if it is gone."""
        return self._read(self.path(version))

    @staticmethod
    def _read(path: AnyPath) -> Iterator[Action]:
        text = path.read_text(encoding="utf-8")
        # not splitlines(): JSON may hold U+2028 and others that it would break lines at
        return (json.loads(line) for line in text.split("\n") if line)

    def path(self, version: int) -> AnyPath:
        return self.folder / f"{version:020}.json"

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Create that version; return False and change nothing if it exists already. The folder must exist."""
        return create(self.path(version), texts_of(actions).encode())

    def checkpoint(self, snapshot: DeltaSnapshot, keep_after: int) -> None:
        """Write a checkpoint from which readers start, this process included; tombstones older than `keep_after`
        (milliseconds since 1970) are left out."""
        snapshot = replace(snapshot, tombstones=snapshot.tombstones.since(keep_after))
        data, size = checkpoint.content(snapshot)
        replace_file(self.folder / f"{snapshot.version:020}.checkpoint.parquet", data)
        replace_file(self.folder / POINTER, json.dumps({"version": snapshot.version, "size": size}).encode())
        if (cached := self.cache.get(str(self.folder))) and cached[0].version == snapshot.version:
            self.cache.put(str(self.folder), snapshot, cached[1])

    def clean(self, first: int) -> None:
        """Delete commits and checkpoints that only versions before `first` need, the oldest first."""
        listed = self._listed()
        base = max((v for v in listed.checkpoints if v <= first), default=-1)
        old = [self.path(v) for v in sorted(listed.commits) if v < base]
        old += [self.folder / f"{a:020}.{z:020}.compacted.json" for a, z in listed.compacted.items() if z < base]
        for path in [*old, *(p for v in sorted(listed.checkpoints) if v < base for p in listed.checkpoints[v])]:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def remove_leftovers(self, age: float = 0) -> None:
        """Delete what writers of ours that died have left in the log's folder; call it when there can be none, or say
        how old (seconds) it is at least."""
        if isinstance(self.folder, Path):
            for path in self.folder.glob(".instep-*.tmp"):
                with suppress(FileNotFoundError):
                    if not age or path.stat().st_mtime < time.time() - age:
                        path.unlink()


def encoded(path: str) -> str:
    """Return a path below the table as the log spells it."""
    return quote(path, safe="/=-_.~")
