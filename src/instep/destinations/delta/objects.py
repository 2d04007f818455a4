"""Where tables lie in an object store, which cannot move a folder: a table stays where it was made, and its own log
says what it is called, or that it was dropped.

A name's first table lies where its name says; for each later one, and for a table that was renamed, there is a pointer
below `_instep/names`, numbered, made once and never changed. Only the last one counts, and only as long as the log that
it leads to says that name: so a commit of that log, under its fence, is all that a rename or a drop consists of.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

from instep.destinations.base import Ref
from instep.destinations.delta.log import FOLDER, DeltaLog, DeltaSnapshot
from instep.destinations.delta.warehouse import OWN, Waiting, Warehouse, folder_name
from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, ObjectPath
from instep.stage.files.place import StorageFolder

PLACE = "instep.place"
THREADS = 16
T = TypeVar("T")


@dataclass(frozen=True)
class ObjectWarehouse(Warehouse):
    """`root` is a bucket, or a place in one."""

    root: ObjectPath
    days: float = 7
    part: tuple[str, str] | None = None

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
        if names := sorted(pointers.names()):
            pointer = json.loads((pointers / names[-1]).read_once())
            return self.root / pointer["folder"], int(names[-1].partition(".")[0])
        return self.root / folder_name(ref[0]) / folder_name(ref[1]), 0

    def room(self) -> StorageFolder:
        """Return storage for files that belong to no table."""
        return StorageFolder((self.root / OWN / "runs").uri, self.root.io)

    def folder(self, ref: Ref) -> ObjectPath:
        return self._found(ref)[0]

    def each(self, look: Callable[[Ref], T], refs: Iterable[Ref]) -> list[T]:
        """Run the calls in parallel: one answer takes as long as several hundred from a disk."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="tables") as pool:
            return list(pool.map(look, refs))

    def unname(self, ref: Ref) -> None:
        for path, _ in self._pointers(ref).below():
            path.unlink(missing_ok=True)

    def refs(self) -> list[Ref]:
        found = {
            (unquote(space.name), unquote(table.name))
            for space in self.root.folders()
            if space.name != OWN
            for table in space.folders()
            if "~" not in table.name and (table / FOLDER).is_dir()
        }
        for path, _ in self._names.below():
            space, name = path.parent.parent.name, path.parent.name
            found.add((unquote(space), unquote(name)))
        return sorted(found)

    def is_taken(self, ref: Ref) -> bool:
        folder = self.folder(ref)
        return folder.is_dir() and not self._gone(folder, ref)

    def _gone(self, folder: ObjectPath, ref: Ref) -> bool:
        """Return whether what lies there was dropped, or is called something else by now."""
        try:
            snapshot = DeltaLog(folder).snapshot()
        except DestinationError:
            return False
        return snapshot is not None and not self.is_at(snapshot, ref)

    def is_at(self, snapshot: DeltaSnapshot, ref: Ref) -> bool:
        domain = _name_domain(snapshot)
        return not domain or (domain["name"] == list(ref) and not domain["dropped"])

    def name_domain(self, ref: Ref, dropped: int = 0, source_id: str | None = None) -> dict[str, str]:
        """Return what the table's log has to say: its name, or since when (milliseconds since 1970) it waits."""
        return {PLACE: json.dumps({"name": list(ref), "dropped": dropped, "id": source_id})}

    def make(self, ref: Ref) -> DeltaLog:
        """Past a table that was dropped or renamed, in a folder of its own."""
        self._check()
        folder, number = self._found(ref)
        if folder.is_dir() and self._gone(folder, ref):
            self._next(ref, number)
        return self.log(ref)

    def _next(self, ref: Ref, number: int) -> None:
        name = f"{folder_name(ref[0])}/{folder_name(ref[1])}~{number + 2}"
        self._point(ref, number + 1, name)

    def _point(self, ref: Ref, number: int, folder: str) -> None:
        """Whoever is faster with the same number has done it; what it leads to is read again."""
        (self._pointers(ref) / f"{number:08}.json").create(json.dumps({"folder": folder}).encode())

    def point(self, ref: Ref, folder: AnyPath) -> None:
        there, number = self._found(ref)
        if str(there) != str(folder):
            self._point(ref, number + 1, str(folder)[len(str(self.root)) + 1 :])

    def _check(self) -> None:
        if not self._keeps_promises:
            raise DestinationError(
                f"{self.root} lets two writers make the same object: it does not know `If-None-Match: *`",
                hint="without it no Delta log is safe there: choose another store, or an Iceberg lake with a catalog",
            )

    @cached_property
    def _keeps_promises(self) -> bool:
        """Whether of two writers of one object only the first succeeds."""
        probe = self.root / OWN / f"probe-{uuid.uuid4().hex}"
        try:
            return probe.create(b"1") and not probe.create(b"2") and probe.read_bytes() == b"1"
        finally:
            probe.unlink(missing_ok=True)

    def moving(self) -> AbstractContextManager[None]:
        """No lock: the table's log lets one writer through."""
        return nullcontext()

    def wait(self, ref: Ref, source_id: str | None, folder: AnyPath, at: int) -> None:
        entry = {"table": list(ref), "id": source_id, "at": at, "folder": str(folder)[len(str(self.root)) + 1 :]}
        (self._dropped / f"{uuid.uuid4().hex}.json").write_bytes(json.dumps(entry).encode())

    def _entries(self) -> Iterator[tuple[ObjectPath, Mapping[str, Any]]]:
        for name in self._dropped.names():
            with suppress(FileNotFoundError):
                yield self._dropped / name, json.loads((self._dropped / name).read_bytes())

    def waiting(self) -> list[Waiting]:
        found, entries = [], [entry for _, entry in self._entries()]
        going = {entry["folder"] for entry in entries if entry.get("deleting")}
        for entry in entries:
            folder = self.root / str(entry["folder"])
            snapshot = DeltaLog(folder).snapshot() if entry["folder"] not in going else None
            if snapshot is not None and (place := _name_domain(snapshot)) and place["dropped"] == entry["at"]:
                ref = (place["name"][0], place["name"][1])
                found.append(Waiting(folder, ref, place["id"], int(place["dropped"])))
        return sorted(found, key=lambda w: w.at, reverse=True)

    def delete(self, folder: AnyPath) -> None:
        """A table that was dropped: its name leads elsewhere first, so that nobody meets half of it."""
        assert isinstance(folder, ObjectPath)
        snapshot = DeltaLog(folder).snapshot()
        if snapshot is not None and (domain := _name_domain(snapshot)):
            ref = (domain["name"][0], domain["name"][1])
            there, number = self._found(ref)
            if there == folder:
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


def _name_domain(snapshot: DeltaSnapshot) -> dict[str, Any] | None:
    text = snapshot.domains.get(PLACE)
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
