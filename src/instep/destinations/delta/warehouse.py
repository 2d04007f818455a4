"""Where tables lie: one folder a table below one a namespace, and beside them what was dropped and waits.

In an object store: see `delta/objects.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from instep.destinations.base import Ref
from instep.destinations.delta.log import FOLDER, DeltaLog, DeltaSnapshot
from instep.errors import Conflict, ConnectError, DestinationError, SchemaError
from instep.stage.files.object_store import AnyPath
from instep.stage.files.place import StorageFolder, clear_errors

OWN = "_instep"
T = TypeVar("T")
_WAITS = "_instep_dropped.json"
_LONGEST = 255
_PATIENCE = 10.0
"""Seconds: who has the lock needs milliseconds."""
_SAFE = re.compile(r"[^\w .=@+-]|^[._]")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Waiting:
    """A dropped table that waits in `folder` since `at` (milliseconds since 1970 UTC)."""

    folder: AnyPath
    ref: Ref
    source_id: str | None
    at: int


def folder_name(name: str) -> str:
    """Return a name as part of a path; what a file system or a reader of Delta could mistake is percent-encoded.
    SchemaError for one that is too long then."""
    made = _SAFE.sub(lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)
    if len(made.encode()) > _LONGEST:
        raise SchemaError(
            f"the name {name!r} is too long for a folder: as {made!r} it has more than {_LONGEST} bytes",
            hint="give it an alias",
        )
    return made


class Warehouse(ABC):
    """`days`: how long what was dropped is kept. `part`: the shard column and the name of the only shard of shared
    tables that is looked at."""

    days: float
    part: tuple[str, str] | None

    @abstractmethod
    def folder(self, ref: Ref) -> AnyPath: ...

    @abstractmethod
    def refs(self) -> list[Ref]:
        """Return every folder that has a log, ours or not."""

    @abstractmethod
    def is_taken(self, ref: Ref) -> bool:
        """Return whether something lies where the table would."""

    @abstractmethod
    def make(self, ref: Ref) -> DeltaLog:
        """Return the log of a table that is about to begin."""

    @abstractmethod
    def moving(self) -> AbstractContextManager[None]:
        """Claims and moves of tables wait for each other, so that no run moves what a later one has claimed."""

    @abstractmethod
    def waiting(self) -> list[Waiting]:
        """Return the dropped tables, the last one first."""

    @abstractmethod
    def room(self) -> StorageFolder:
        """Return storage for files that belong to no table."""

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders of this machine that every run writes to."""
        return ()

    @abstractmethod
    def delete(self, folder: AnyPath) -> None:
        """A table and its files; what cannot be deleted raises DestinationError."""

    @abstractmethod
    def finish(self) -> None:
        """Delete what was left of a folder when a deletion was cut off."""

    @abstractmethod
    def unname(self, ref: Ref) -> None:
        """A name that nobody will ever use again leaves nothing."""

    def log(self, ref: Ref) -> DeltaLog:
        return DeltaLog(self.folder(ref))

    def each(self, look: Callable[[Ref], T], refs: Iterable[Ref]) -> list[T]:
        """Return what is found at each of these names, in order."""
        return [look(ref) for ref in refs]

    def parked(self, ref: Ref, source_id: str | None) -> Waiting | None:
        """Return the table that was dropped last under this name and had this source id."""
        return next((w for w in self.waiting() if w.ref == ref and w.source_id == source_id), None)

    def old(self, at: int) -> bool:
        """Return whether the time for undoing what was dropped then is over."""
        return at < now_ms() - self.days * 86_400_000

    def is_at(self, snapshot: DeltaSnapshot, ref: Ref) -> bool:
        """Return whether the table whose log says so is the one of that name."""
        return True

    def name_domain(self, ref: Ref, dropped: int = 0, source_id: str | None = None) -> dict[str, str]:
        """Return what a log has to say of the table's name, or since when it waits (milliseconds since 1970), by
        domain."""
        return {}


class DeltaFacet:
    """What a facet of the destination stands on. `prefix` begins system columns."""

    def __init__(self, warehouse: Warehouse, prefix: str) -> None:
        self.warehouse, self.prefix = warehouse, prefix


@dataclass(frozen=True)
class Folders(Warehouse):
    """`root` is made when it is first written to."""

    root: Path
    days: float = 7
    part: tuple[str, str] | None = None

    def folder(self, ref: Ref) -> Path:
        return self.root / folder_name(ref[0]) / folder_name(ref[1])

    def refs(self) -> list[Ref]:
        """Return every folder that has a log, ours or not."""
        found = []
        for space in self._children(self.root):
            for table in self._children(space) if space.name != OWN else ():
                if (table / FOLDER).is_dir():
                    found.append((unquote(space.name), unquote(table.name)))
        return sorted(found)

    def _children(self, folder: Path) -> list[Path]:
        try:
            return [p for p in folder.iterdir() if p.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConnectError(f"{folder}: {error.strerror}", hint="check the path and its rights") from error

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders of this machine that every run writes to."""
        return self.root, self.root / OWN

    def room(self) -> StorageFolder:
        """Return storage for files that belong to no table."""
        return StorageFolder((self.root / OWN / "runs").as_uri())

    def unname(self, ref: Ref) -> None:
        """Nothing: its folder was its name."""

    def is_taken(self, ref: Ref) -> bool:
        """Return whether something lies where the table would."""
        folder = self.folder(ref)
        with suppress(FileNotFoundError, NotADirectoryError):
            return any(p.name != FOLDER or any(p.iterdir()) for p in folder.iterdir())
        return False

    def make(self, ref: Ref) -> DeltaLog:
        """Return the log of a table that is about to begin."""
        place = self.folder(ref) / FOLDER
        with clear_errors(str(place)):
            place.mkdir(parents=True, exist_ok=True)
        return self.log(ref)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Claims and moves of tables wait for each other, so that no run moves what a later one has claimed; the
        system lets go of the lock of a process that dies. Conflict if one that lives holds it for too long."""
        own = self.root / OWN
        with clear_errors(str(own)):
            own.mkdir(parents=True, exist_ok=True)
            lock = os.open(own / "moves.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._wait(lock)
            yield
        finally:
            os.close(lock)

    def _wait(self, lock: int) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise Conflict(
                        f"{self.root}: another run has been claiming or moving a table for {_PATIENCE:g} s",
                        hint="it stands still: end its process, then run this again",
                    ) from None
            time.sleep(0.01)

    def move(self, ref: Ref, new: Ref) -> None:
        """The table's folder under another name, in one step; that must be free."""
        target = self.folder(new)
        with clear_errors(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                target.rmdir()
            self.folder(ref).rename(target)
            _drop_empty(self.folder(ref).parent)

    def park(self, ref: Ref, source_id: str | None) -> None:
        """The table out of sight; everything of it stays as it is."""
        folder, place = self.folder(ref), self.root / OWN / "dropped" / uuid.uuid4().hex[:12]
        record = json.dumps({"table": list(ref), "id": source_id, "at": now_ms()})
        with clear_errors(str(place)):
            place.parent.mkdir(parents=True, exist_ok=True)
            (folder / _WAITS).write_text(record, encoding="utf-8")
            folder.rename(place)
            _drop_empty(folder.parent)

    def waiting(self) -> list[Waiting]:
        """Return the dropped tables, the last one first."""
        found = []
        for place in self._children(self.root / OWN / "dropped"):
            if place.name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                record = json.loads((place / _WAITS).read_text(encoding="utf-8"))
                found.append(Waiting(place, (record["table"][0], record["table"][1]), record["id"], record["at"]))
        return sorted(found, key=lambda w: w.at, reverse=True)

    def undrop(self, one: Waiting) -> None:
        assert isinstance(one.folder, Path)
        target = self.folder(one.ref)
        with clear_errors(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                target.rmdir()
            one.folder.rename(target)
            (target / _WAITS).unlink(missing_ok=True)

    def delete(self, folder: AnyPath) -> None:
        """A table and its files; what cannot be deleted raises DestinationError."""
        assert isinstance(folder, Path)
        away = self.root / OWN / "dropped" / f".{uuid.uuid4().hex[:12]}"
        try:
            away.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(away)
            with suppress(FileNotFoundError):  # another run finishes it
                shutil.rmtree(away)
        except OSError as error:
            hint = "delete it manually, or check its rights and run this again"
            raise DestinationError(f"{folder} cannot be deleted: {error.strerror}", hint=hint) from error

    def finish(self) -> None:
        """Delete what was left of a folder when a deletion was cut off."""
        for place in self._children(self.root / OWN / "dropped"):
            if place.name.startswith("."):
                shutil.rmtree(place, ignore_errors=True)


def _drop_empty(space: Path) -> None:
    with suppress(OSError):
        space.rmdir()


def local_root(warehouse: str) -> Path:
    """Return the folder that a project file names; ConnectError for an object store."""
    if "://" in warehouse and not warehouse.startswith("file://"):
        raise ConnectError(
            f"the Delta warehouse {warehouse} is neither a folder nor in S3",
            hint="name a folder, such as `warehouse: lake`, or `s3://bucket/prefix`; Iceberg takes other stores, too",
        )
    return Path(unquote(warehouse.removeprefix("file://"))).absolute()
