"""The log of one Delta table: what its versions say, and commits that only one writer can make.

A version is a file of JSON lines. It is written aside and linked to its name, which fails if the name is taken, or put
into an object store on the condition that there is none: of two writers that start from the same version one is
refused, whatever they do.

Checkpoints of a Delta log: the state of a table as one Parquet file, in the columns that every reader knows.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, ObjectPath, is_object, opened
from instep.stage.files.place import clear_errors

FOLDER = "_delta_log"
EVERY = 20
"""A checkpoint is written at every so many versions."""
READABLE = frozenset({"columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck"})
WRITABLE = READABLE | {"domainMetadata", "appendOnly", "invariants"}
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
Action = Mapping[str, Any]


@dataclass(frozen=True)
class DeltaSnapshot:
    """A table at one version. `files`: the `add` actions by path, decoded and relative to the table; `gone`: the
    `remove` actions of files that older versions need. `domains`: the configuration by domain."""

    version: int
    metadata: Action
    protocol: Action
    files: Mapping[str, Action]
    gone: Mapping[str, Action]
    domains: Mapping[str, str]
    txns: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(int(f["size"]) for f in self.files.values())


def rows_of(file: Action) -> int:
    """Return how many rows the statistics of a file say it has; 0 if it has none, as files of others may."""
    stats = file.get("stats")
    return int(json.loads(stats).get("numRecords", 0)) if stats else 0


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


@dataclass
class _State:
    metadata: Action | None = None
    protocol: Action | None = None
    files: dict[str, Action] = field(default_factory=dict)
    gone: dict[str, Action] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)

    def take(self, actions: Iterable[Action]) -> None:
        for action in actions:
            for kind, body in action.items():
                if body is not None:
                    self._one(kind, body)

    def _one(self, kind: str, body: Action) -> None:
        match kind:
            case "metaData":
                self.metadata = body
            case "protocol":
                self.protocol = body
            case "add":
                path = unquote(body["path"])
                self.files[path] = body
                self.gone.pop(path, None)
            case "remove":
                path = unquote(body["path"])
                self.files.pop(path, None)
                self.gone[path] = body
            case "domainMetadata":
                self.domains[body["domain"]] = "" if body.get("removed") else body["configuration"]
            case "txn":
                self.txns[body["appId"]] = body["version"]


class DeltaLog:
    """`table` is the folder that holds the log's folder."""

    def __init__(self, table: AnyPath) -> None:
        self.table = table
        self.folder = table / FOLDER

    def _names(self) -> list[str]:
        if isinstance(self.folder, ObjectPath):
            return self.folder.names()
        with suppress(FileNotFoundError, NotADirectoryError):
            return [path.name for path in self.folder.iterdir()]
        return []

    def _listed(self) -> tuple[set[int], dict[int, list[AnyPath]]]:
        """Return the versions whose commits are there, and the files of each whole checkpoint."""
        commits, parts = set[int](), dict[tuple[int, int], list[str]]()
        for name in self._names():
            if found := _COMMIT.fullmatch(name):
                commits.add(int(found[1]))
            elif found := _CHECKPOINT.fullmatch(name):
                parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(name)
        whole = {
            version: [self.folder / name for name in sorted(names)]
            for (version, count), names in parts.items()
            if len(names) == count
        }
        return commits, whole

    def versions(self) -> list[int]:
        """Return the versions that can be read, in order."""
        commits, whole = self._listed()
        start = min([*(v for v in whole), *([0] if 0 in commits else [])], default=None)
        return sorted(v for v in commits | set(whole) if start is not None and v >= start)

    def snapshot(self, version: int | None = None) -> DeltaSnapshot | None:
        """Return the table at a version, the newest by default; None if nothing is there. Raises DestinationError for a
        log that cannot be read."""
        commits, whole = self._listed()
        last = max([*commits, *whole], default=None) if version is None else version
        if last is None:
            return None
        base = max((v for v in whole if v <= last), default=-1)
        state = _State()
        if base >= 0:
            state.take(read(whole[base]))
        for number in range(base + 1, last + 1):
            if number not in commits:
                hint = "restore the folder from a backup, or drop the table and load it again"
                raise DestinationError(f"the log of {self.table} lacks version {number}", hint=hint)
            state.take(self.actions(number))
        if state.metadata is None or state.protocol is None:
            raise DestinationError(f"the log of {self.table} does not say what the table is")
        odd = sorted(set(state.protocol.get("readerFeatures") or ()) - READABLE)
        if odd or state.protocol["minReaderVersion"] > 3:
            raise DestinationError(
                f"table {self.table} uses {', '.join(odd) or 'a protocol'} that this version does not read",
                hint="another program has switched it on: drop the feature there (ALTER TABLE ... DROP FEATURE)",
            )
        return DeltaSnapshot(last, state.metadata, state.protocol, state.files, state.gone, state.domains, state.txns)

    def actions(self, version: int) -> Iterator[Action]:
        """Return what one commit says; FileNotFoundError if it is not kept any more."""
        path = self._path(version)
        text = path.read_once().decode() if isinstance(path, ObjectPath) else path.read_text(encoding="utf-8")
        # not splitlines(): JSON may hold U+2028 and others that it would break lines at
        return (json.loads(line) for line in text.split("\n") if line)

    def _path(self, version: int) -> AnyPath:
        return self.folder / f"{version:020}.json"

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Make that version; False, and nothing changed, if it is there already. The folder must exist."""
        text = "".join(json.dumps(a, separators=(",", ":"), ensure_ascii=False) + "\n" for a in actions)
        path = self._path(version)
        return path.create(text.encode()) if isinstance(path, ObjectPath) else _link(path, text)

    def checkpoint(self, snapshot: DeltaSnapshot, keep_after: int) -> None:
        """A file from which readers start; tombstones older than `keep_after` (milliseconds since 1970) stay out."""
        gone = [a for a in snapshot.gone.values() if a.get("deletionTimestamp", 0) >= keep_after]
        lines: list[dict[str, Any]] = [{"protocol": snapshot.protocol}, {"metaData": snapshot.metadata}]
        lines += [{"txn": {"appId": a, "version": v}} for a, v in snapshot.txns.items()]
        lines += [
            {"domainMetadata": {"domain": d, "configuration": c, "removed": False}}
            for d, c in snapshot.domains.items()
            if c
        ]
        lines += [{"add": a} for a in snapshot.files.values()] + [{"remove": a} for a in gone]
        _replace(self.folder / f"{snapshot.version:020}.checkpoint.parquet", content(lines))
        pointer = json.dumps({"version": snapshot.version, "size": len(lines)})
        _replace(self.folder / "_last_checkpoint", pointer.encode())

    def clean(self, first: int) -> None:
        """Delete commits and checkpoints that only versions before `first` need."""
        commits, whole = self._listed()
        base = max((v for v in whole if v <= first), default=-1)
        for path in [*(self._path(v) for v in commits if v < base), *(p for v in whole if v < base for p in whole[v])]:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def tidy(self, age: float = 0) -> None:
        """Delete what writers of ours that died have left in the log's folder; call it when there can be none, or say
        how old (seconds) it is at least."""
        if isinstance(self.folder, Path):
            for path in self.folder.glob(".instep-*.tmp"):
                with suppress(FileNotFoundError):
                    if not age or path.stat().st_mtime < time.time() - age:
                        path.unlink()


def _aside(folder: Path) -> Path:
    return folder / f".instep-{uuid.uuid4().hex}.tmp"


def _link(path: Path, text: str) -> bool:
    """False if the name is taken."""
    aside = _aside(path.parent)
    with clear_errors(str(path.parent)):
        try:
            with aside.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(aside, path)
        except FileExistsError:
            return False
        finally:
            aside.unlink(missing_ok=True)
        # the new name survives a loss of power
        number = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    return True


def _replace(path: AnyPath, content: bytes) -> None:
    if isinstance(path, ObjectPath):
        path.write_bytes(content)
        return
    aside = _aside(path.parent)
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def encoded(path: str) -> str:
    """Return a path below the table as the log spells it."""
    return quote(path, safe="/=-_.~")


_TEXTS = pa.map_(pa.string(), pa.string())
_WORDS = pa.list_(pa.string())
_FILE = {"path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64()}


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


_PROTOCOL = _struct(
    minReaderVersion=pa.int32(), minWriterVersion=pa.int32(), readerFeatures=_WORDS, writerFeatures=_WORDS
)
_METADATA = _struct(
    id=pa.string(),
    name=pa.string(),
    description=pa.string(),
    format=_struct(provider=pa.string(), options=_TEXTS),
    schemaString=pa.string(),
    partitionColumns=_WORDS,
    createdTime=pa.int64(),
    configuration=_TEXTS,
)
SCHEMA = pa.schema(
    {
        "protocol": _PROTOCOL,
        "metaData": _METADATA,
        "txn": _struct(appId=pa.string(), version=pa.int64(), lastUpdated=pa.int64()),
        "domainMetadata": _struct(domain=pa.string(), configuration=pa.string(), removed=pa.bool_()),
        "add": _struct(**_FILE, modificationTime=pa.int64(), dataChange=pa.bool_(), stats=pa.string()),
        "remove": _struct(
            **_FILE, deletionTimestamp=pa.int64(), dataChange=pa.bool_(), extendedFileMetadata=pa.bool_()
        ),
    }
)


def content(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the file: one row an action."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(a) for a in actions], schema=SCHEMA), out)
    made: bytes = out.getvalue().to_pybytes()
    return made


def read(paths: Sequence[AnyPath]) -> Iterator[dict[str, Any]]:
    """Yield the actions of a checkpoint; maps come back as dicts."""
    for path in paths:
        try:
            file = pq.ParquetFile(opened(path))
            wanted = [f.name for f in file.schema_arrow if f.name in SCHEMA.names]
            for batch in file.iter_batches(columns=wanted):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    yield {kind: _plain(body) for kind, body in row.items() if body is not None}
        except (OSError, pa.ArrowException) as error:
            hint = "delete the checkpoint if the commits before it are still there, or restore the folder"
            raise DestinationError(f"the checkpoint {path} cannot be read: {error}", hint=hint) from error


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not set: a commit would not name it."""
    return {k: v for k, v in body.items() if v is not None}
