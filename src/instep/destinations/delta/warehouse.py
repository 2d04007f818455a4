"""The places of tables: local folders, one a table below one a namespace, or in an object store.

An object store cannot move a folder. There a table stays where it was made, and its own log
says what it is called, or that it was dropped.

A name's first table lies where its name says; for each later one, and for a table that was renamed, there is a pointer
below `_instep/names`, numbered, made once and never changed. Only the last one counts, and only as long as the log that
it leads to says that name: so a commit of that log, under its fence, is all that a rename or a drop consists of.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from instep.destinations.base import Ref
from instep.destinations.delta.protocol.log import FOLDER, DeltaLog, SnapshotCache
from instep.destinations.delta.protocol.records import APP
from instep.destinations.delta.protocol.records import FOLDER as RECORDS
from instep.destinations.delta.protocol.snapshot import DeltaSnapshot
from instep.errors import Conflict, ConnectError, DestinationError, SchemaError
from instep.stage.files.object_store import AnyPath, ObjectPath
from instep.stage.files.place import StorageFolder, clear_errors

OWN = "_instep"
T = TypeVar("T")
_WAITS = "_instep_dropped.json"
_LONGEST = 255
_LOCK_TIMEOUT = 10.0
"""Seconds: who has the lock needs milliseconds."""
_SAFE = re.compile(r"[^\w .=@+-]|^[._]")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class DroppedFolder:
    """A dropped table that waits in `folder` since `at` (milliseconds since 1970 UTC)."""

    folder: AnyPath
    ref: Ref
    source_id: str | None
    at: int


def folder_name(name: str) -> str:
    """Return a name as part of a path; what a file system or a reader of Delta could mistake is percent-encoded.
    SchemaError for one that is too long then."""
    safe = _SAFE.sub(lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)
    if len(safe.encode()) > _LONGEST:
        raise SchemaError(
            f"the name {name!r} is too long for a folder: as {safe!r} it has more than {_LONGEST} bytes",
            hint="give it an alias",
        )
    return safe


class Warehouse(ABC):
    """The place of a destination's Delta tables."""

    days: float
    """Days for which dropped tables and columns are retained."""
    part: tuple[str, str] | None
    """The shard column and the name of the only shard of shared tables that is looked at."""
    cache: SnapshotCache

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
        """Lock claims and moves of tables against each other, so that no run moves what a later one has claimed."""

    @abstractmethod
    def waiting(self) -> list[DroppedFolder]:
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
        """Delete a table and its files; raises DestinationError for what cannot be deleted."""

    @abstractmethod
    def finish(self) -> None:
        """Delete what was left of a folder when a deletion was cut off."""

    @abstractmethod
    def unname(self, ref: Ref) -> None:
        """Remove a name that nobody will use again."""

    def log(self, ref: Ref) -> DeltaLog:
        return self.log_in(self.folder(ref))

    def log_in(self, folder: AnyPath) -> DeltaLog:
        """Return the log of the table in a folder, whatever it is called."""
        return DeltaLog(folder, self.cache)

    def each(self, read: Callable[[Ref], T], refs: Iterable[Ref]) -> list[T]:
        """Return the results for each of these names, in order."""
        return [read(ref) for ref in refs]

    def parked(self, ref: Ref, source_id: str | None) -> DroppedFolder | None:
        """Return the table that was dropped last under this name and had this source id."""
        return next((w for w in self.waiting() if w.ref == ref and w.source_id == source_id), None)

    def old(self, at: int) -> bool:
        """Return whether the time for undoing what was dropped then is over."""
        return at < now_ms() - self.days * 86_400_000

    def is_at(self, snapshot: DeltaSnapshot, ref: Ref) -> bool:
        """Return whether the table whose log says so is the one of that name."""
        return True

    def name_record(self, ref: Ref, dropped: int = 0, source_id: str | None = None) -> dict[str, str]:
        """Return the record of a table's name, or of when it was dropped (milliseconds since 1970), by its name."""
        return {}


class DeltaFacet:
    """The base of the facets of the destination. `prefix` begins system columns."""

    def __init__(self, warehouse: Warehouse, prefix: str) -> None:
        self.warehouse, self.prefix = warehouse, prefix


@dataclass(frozen=True)
class Folders(Warehouse):
    """A warehouse in a folder."""

    root: Path
    """Folder of the warehouse, created when it is first written to."""
    days: float = 7
    part: tuple[str, str] | None = None
    cache: SnapshotCache = field(default_factory=SnapshotCache, compare=False, repr=False)

    def folder(self, ref: Ref) -> Path:
        return self.root / folder_name(ref[0]) / folder_name(ref[1])

    def refs(self) -> list[Ref]:
        """Return every folder that has a log, ours or not."""
        tables = []
        for space in self._children(self.root):
            for table in self._children(space) if space.name != OWN else ():
                if (table / FOLDER).is_dir():
                    tables.append((unquote(space.name), unquote(table.name)))
        return sorted(tables)

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
        """No-op: the folder is the name."""

    def is_taken(self, ref: Ref) -> bool:
        """Return whether something lies where the table would."""
        folder = self.folder(ref)
        with suppress(FileNotFoundError, NotADirectoryError):
            # a run that was killed may have left an empty log, and a record of a version that never came
            return any(p.name != RECORDS and (p.name != FOLDER or any(p.iterdir())) for p in folder.iterdir())
        return False

    def make(self, ref: Ref) -> DeltaLog:
        """Return the log of a table that is about to begin."""
        place = self.folder(ref) / FOLDER
        with clear_errors(str(place)):
            place.mkdir(parents=True, exist_ok=True)
        return self.log(ref)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Lock claims and moves of tables against each other, so that no run moves what a later one has claimed; the
        system releases the lock of a process that dies. Raises Conflict if a live process holds it for too long."""
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
        until = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    raise DestinationError(
                        f"{self.root}: its file system locks no files: {error.strerror}",
                        hint="put the warehouse on a local disk, on NFS with locks or into an object store",
                    ) from error
                if time.monotonic() >= until:
                    raise Conflict(
                        f"{self.root}: another run has been claiming or moving a table for {_LOCK_TIMEOUT:g} s",
                        hint="it is stuck: end its process, then run this again",
                    ) from None
            time.sleep(0.01)

    def move(self, ref: Ref, new: Ref) -> None:
        """Rename the table's folder in one step; the new name must be free."""
        target = self.folder(new)
        with clear_errors(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                target.rmdir()
            self.folder(ref).rename(target)
            _drop_empty(self.folder(ref).parent)

    def park(self, ref: Ref, source_id: str | None) -> None:
        """Move the table out of sight; everything in it stays as it is."""
        folder, place = self.folder(ref), self.root / OWN / "dropped" / uuid.uuid4().hex[:12]
        record = json.dumps({"table": list(ref), "id": source_id, "at": now_ms()})
        with clear_errors(str(place)):
            place.parent.mkdir(parents=True, exist_ok=True)
            (folder / _WAITS).write_text(record, encoding="utf-8")
            folder.rename(place)
            _drop_empty(folder.parent)

    def waiting(self) -> list[DroppedFolder]:
        """Return the dropped tables, the last one first."""
        dropped = []
        for place in self._children(self.root / OWN / "dropped"):
            if place.name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                record = json.loads((place / _WAITS).read_text(encoding="utf-8"))
                schema, name = record["table"]
                dropped.append(DroppedFolder(place, (schema, name), record["id"], record["at"]))
        return sorted(dropped, key=lambda w: w.at, reverse=True)

    def undrop(self, folder: DroppedFolder) -> None:
        assert isinstance(folder.folder, Path)
        target = self.folder(folder.ref)
        with clear_errors(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                target.rmdir()
            folder.folder.rename(target)
            (target / _WAITS).unlink(missing_ok=True)

    def delete(self, folder: AnyPath) -> None:
        """Delete a table and its files; raises DestinationError for what cannot be deleted."""
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
            f"the Delta warehouse {warehouse} is neither a folder nor in an object store",
            hint="name a folder, such as `warehouse: lake`, or `s3://`, `gs://` or `abfss://` and a place there",
        )
    return Path(unquote(warehouse.removeprefix("file://"))).absolute()


PLACE = f"{APP}.place"
THREADS = 16


@dataclass(frozen=True)
class ObjectWarehouse(Warehouse):
    """A warehouse in an object store."""

    root: ObjectPath
    """A bucket, or a place in one."""
    days: float = 7
    part: tuple[str, str] | None = None
    cache: SnapshotCache = field(default_factory=SnapshotCache, compare=False, repr=False)

    @property
    def _names(self) -> ObjectPath:
        return self.root / OWN / "names"

    @property
    def _dropped(self) -> ObjectPath:
        return self.root / OWN / "dropped"

    def _pointers(self, ref: Ref) -> ObjectPath:
        return self._names / folder_name(ref[0]) / folder_name(ref[1])

    def _found(self, ref: Ref) -> tuple[ObjectPath, int]:
        """Return where the name leads to, and the number of its last pointer; 0 without one."""
        pointers = self._pointers(ref)
        if names := sorted(pointers.names_from("")):
            last, mark = names[-1]
            pointer = json.loads((pointers / last).read_once(mark))
            return self.root / pointer["folder"], int(last.partition(".")[0])
        return self.root / folder_name(ref[0]) / folder_name(ref[1]), 0

    def room(self) -> StorageFolder:
        """Return storage for files that belong to no table."""
        return StorageFolder((self.root / OWN / "runs").uri, self.root.io)

    def folder(self, ref: Ref) -> ObjectPath:
        return self._found(ref)[0]

    def each(self, read: Callable[[Ref], T], refs: Iterable[Ref]) -> list[T]:
        """Run the calls in parallel: one answer takes as long as several hundred from a disk."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="tables") as pool:
            return list(pool.map(read, refs))

    def unname(self, ref: Ref) -> None:
        for path, _ in self._pointers(ref).below():
            path.unlink(missing_ok=True)

    def refs(self) -> list[Ref]:
        tables = {
            (unquote(space.name), unquote(table.name))
            for space in self.root.folders()
            if space.name != OWN
            for table in space.folders()
            if "~" not in table.name and (table / FOLDER).is_dir()
        }
        for path, _ in self._names.below():
            space, name = path.parent.parent.name, path.parent.name
            tables.add((unquote(space), unquote(name)))
        return sorted(tables)

    def is_taken(self, ref: Ref) -> bool:
        folder = self.folder(ref)
        some = any(not path.is_relative_to(folder / RECORDS) for path, _ in folder.below())
        return some and not self._is_dropped(folder, ref)

    def _is_dropped(self, folder: ObjectPath, ref: Ref) -> bool:
        """Return whether what lies there was dropped, or is called something else now."""
        try:
            snapshot = self.log_in(folder).snapshot()
        except DestinationError:
            return False
        return snapshot is not None and not self.is_at(snapshot, ref)

    def is_at(self, snapshot: DeltaSnapshot, ref: Ref) -> bool:
        record = _name_record(snapshot)
        return not record or (record["name"] == list(ref) and not record["dropped"])

    def name_record(self, ref: Ref, dropped: int = 0, source_id: str | None = None) -> dict[str, str]:
        """Return the record of the table's name, or of when it was dropped (milliseconds since 1970)."""
        return {PLACE: json.dumps({"name": list(ref), "dropped": dropped, "id": source_id})}

    def make(self, ref: Ref) -> DeltaLog:
        """Create the table in its own folder, apart from one that was dropped or renamed."""
        self._check()
        folder, number = self._found(ref)
        if folder.is_dir() and self._is_dropped(folder, ref):
            self._next(ref, number)
        return self.log(ref)

    def _next(self, ref: Ref, number: int) -> None:
        name = f"{folder_name(ref[0])}/{folder_name(ref[1])}~{number + 2}"
        self._point(ref, number + 1, name)

    def _point(self, ref: Ref, number: int, folder: str) -> None:
        """Point the name to this folder. If another run has used the same number first, its pointer counts and is
        read again."""
        (self._pointers(ref) / f"{number:08}.json").create(json.dumps({"folder": folder}).encode())

    def point(self, ref: Ref, folder: AnyPath) -> None:
        current, number = self._found(ref)
        if str(current) != str(folder):
            self._point(ref, number + 1, str(folder)[len(str(self.root)) + 1 :])

    def _check(self) -> None:
        if not self._keeps_promises:
            raise DestinationError(
                f"{self.root} lets two writers make the same object: it does not know `If-None-Match: *`",
                hint="without it no Delta log is safe there: choose another store, or an Iceberg lake with a catalog",
            )

    @cached_property
    def _keeps_promises(self) -> bool:
        """True if only the first of two writers of one object succeeds."""
        probe = self.root / OWN / f"probe-{uuid.uuid4().hex}"
        try:
            return probe.create(b"1") and not probe.create(b"2") and probe.read_bytes() == b"1"
        finally:
            probe.unlink(missing_ok=True)

    def moving(self) -> AbstractContextManager[None]:
        """No-op: the table's log lets one writer through."""
        return nullcontext()

    def wait(self, ref: Ref, source_id: str | None, folder: AnyPath, at: int) -> None:
        entry = {"table": list(ref), "id": source_id, "at": at, "folder": str(folder)[len(str(self.root)) + 1 :]}
        (self._dropped / f"{uuid.uuid4().hex}.json").write_bytes(json.dumps(entry).encode())

    def _entries(self) -> Iterator[tuple[ObjectPath, Mapping[str, Any]]]:
        for name in self._dropped.names():
            with suppress(FileNotFoundError):
                yield self._dropped / name, json.loads((self._dropped / name).read_bytes())

    def waiting(self) -> list[DroppedFolder]:
        dropped, entries = [], [entry for _, entry in self._entries()]
        going = {entry["folder"] for entry in entries if entry.get("deleting")}
        for entry in entries:
            folder = self.root / str(entry["folder"])
            snapshot = self.log_in(folder).snapshot() if entry["folder"] not in going else None
            if snapshot is not None and (place := _name_record(snapshot)) and place["dropped"] == entry["at"]:
                ref = (place["name"][0], place["name"][1])
                dropped.append(DroppedFolder(folder, ref, place["id"], int(place["dropped"])))
        return sorted(dropped, key=lambda w: w.at, reverse=True)

    def delete(self, folder: AnyPath) -> None:
        """Delete a dropped table. Its name leads elsewhere first, so that nobody reads half of it."""
        assert isinstance(folder, ObjectPath)
        snapshot = self.log_in(folder).snapshot()
        if snapshot is not None and (record := _name_record(snapshot)):
            ref = (record["name"][0], record["name"][1])
            current, number = self._found(ref)
            if current == folder:
                self._next(ref, number)
        own = str(folder)[len(str(self.root)) + 1 :]
        entry = self._dropped / f"{uuid.uuid4().hex}.json"
        entry.write_bytes(json.dumps({"folder": own, "deleting": True}).encode())
        self._empty(own)

    def _empty(self, own: str) -> None:
        for path, _ in (self.root / own).below():
            path.unlink(missing_ok=True)
        for entry, record in self._entries():
            if record["folder"] == own:
                entry.unlink(missing_ok=True)

    def finish(self) -> None:
        for own in {str(entry["folder"]) for _, entry in self._entries() if entry.get("deleting")}:
            self._empty(own)


def _name_record(snapshot: DeltaSnapshot) -> dict[str, Any] | None:
    text = snapshot.records.get(PLACE)
    record: dict[str, Any] | None = json.loads(text) if text else None
    return record
