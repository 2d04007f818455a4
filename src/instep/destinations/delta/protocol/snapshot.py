"""A table at one version of its log: what its commits and its checkpoints add up to.

Files are rows of Arrow tables, so that a table of many files costs the memory of their texts and little time. One
becomes a Python object when it is asked for by its path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.delta.protocol.deletion_vectors import deleted_rows, vector_id
from instep.destinations.delta.protocol.records import is_record, read
from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath

READABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",  # delta-rs names it in every log whose properties it changes; a column of it is refused
    }
)
Action = Mapping[str, Any]
TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_FILE = {"path": pa.string(), "partitionValues": TEXTS, "size": pa.int64(), "dataChange": pa.bool_()}
_MORE = {"tags": TEXTS, "deletionVector": _VECTOR, "baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64()}
ADD = pa.struct(
    {
        **_FILE,
        "modificationTime": pa.int64(),
        "stats": pa.string(),
        **_MORE,
        "clusteringProvider": pa.string(),
    }
)
REMOVE = pa.struct({**_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_(), **_MORE})
_KEY = "key"
_ROWS = r'^\{"numRecords":(?P<rows>\d+)'
"""The beginning of the statistics of all known writers."""
_PENDING = 10_000
"""Actions of commits that are Python objects at a time."""
_CHUNKS = 64
"""Each commit brings some; each costs more than the rows of a small commit."""


def rows_of(file: Action) -> int:
    """Return how many rows of the table the statistics of a file say it has; 0 if it has none, as files of others
    may."""
    stats = file.get("stats")
    return max(int(json.loads(stats).get("numRecords", 0)) - deleted_rows(file), 0) if stats else 0


def plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the fields that are None: a commit does not name them."""
    return {k: v for k, v in body.items() if v is not None}


class FileActions(Mapping[str, Action]):
    """The `add` or the `remove` actions of files by path, decoded and relative to the table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @classmethod
    def of(cls, rows: pa.StructArray) -> FileActions:
        """Return the actions of an array of type ADD or REMOVE."""
        path = rows.field("path")
        if pc.any(pc.match_substring(path, "%")).as_py():
            path = pa.array([unquote(p) for p in path.to_pylist()], pa.string())
        return cls(pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)]).append_column(_KEY, path))

    @classmethod
    def listed(cls, actions: Iterable[Action], kind: pa.StructType) -> FileActions:
        return cls.of(pa.array([{**a} for a in actions], kind))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[str]:
        for chunk in self._table.column(_KEY).chunks:
            yield from chunk.to_pylist()

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {path: number for number, path in enumerate(self)}

    def __contains__(self, path: object) -> bool:
        return path in self._numbers

    def __getitem__(self, path: str) -> Action:
        return self._at(self._table.slice(self._numbers[path], 1))[0]

    def each(self) -> Iterator[Action]:
        """Yield the actions in no order; few are Python objects at a time."""
        for batch in self._table.to_batches(max_chunksize=_PENDING):
            yield from self._at(pa.Table.from_batches([batch]))

    def of_paths(self, paths: Iterable[str]) -> Iterator[Action]:
        """Yield the actions of these files in no order. KeyError if one is not there."""
        requested = [*paths]
        if odd := [p for p in requested if p not in self]:
            raise KeyError(odd[0])
        mask = pc.is_in(self._table.column(_KEY), pa.array(requested, pa.string()))
        yield from FileActions(self._table.filter(mask)).each()

    @staticmethod
    def _at(rows: pa.Table) -> list[Action]:
        return [plain(row) for row in rows.drop_columns(_KEY).to_pylist(maps_as_pydicts="strict")]

    @cached_property
    def ids(self) -> frozenset[tuple[str, str]]:
        """Return the identity of the files in this version: their paths and deletion vectors."""
        vectors = self._table.column("deletionVector")
        if vectors.null_count == len(vectors):
            return frozenset((path, "") for path in self)
        return frozenset(zip(self, (vector_id({"deletionVector": v}) for v in vectors.to_pylist()), strict=True))

    @cached_property
    def bytes(self) -> int:
        return pc.sum(self._table.column("size")).as_py() or 0

    @cached_property
    def rows(self) -> tuple[int, list[Action]]:
        """Return how many rows the files have by their statistics, and the files without any."""
        matches = pc.extract_regex(self._table.column("stats"), _ROWS)
        counted = pc.sum(pc.cast(pc.struct_field(matches, "rows"), pa.int64())).as_py() or 0
        deleted = pc.struct_field(self._table.column("deletionVector"), "cardinality")
        counted -= pc.sum(pc.if_else(pc.is_valid(matches), deleted, 0)).as_py() or 0
        others = [*FileActions(self._table.filter(pc.is_null(matches))).each()] if matches.null_count else []
        return counted + sum(map(rows_of, others)), [f for f in others if not f.get("stats")]

    def in_partition(self, column: str, value: str) -> FileActions:
        """Return the files whose partition has this value, by the column's physical name."""
        values = pc.map_lookup(self._table.column("partitionValues"), pa.scalar(column), "first")
        return FileActions(self._table.filter(pc.equal(values, value)))

    def since(self, time: int) -> FileActions:
        """Return the files that were removed since then (milliseconds since 1970)."""
        removed = pc.fill_null(self._table.column("deletionTimestamp"), 0)
        return FileActions(self._table.filter(pc.greater_equal(removed, time)))

    def after(self, added: Mapping[str, Action], gone: Iterable[str], kind: pa.StructType) -> FileActions:
        """Return the actions without those of `gone`, and with the added ones."""
        out = pa.array([*gone, *added], pa.string())
        left = self._table
        if len(out) and len(left):
            stays = pc.invert(pc.is_in(left.column(_KEY), out))
            left = left if pc.all(stays).as_py() else left.filter(stays)
        if added:
            left = pa.concat_tables([left, FileActions.listed(added.values(), kind)._table])
        return FileActions(left.combine_chunks() if left.column(_KEY).num_chunks > _CHUNKS else left)

    def joined(self, other: FileActions) -> FileActions:
        """Return these actions with others, of other paths."""
        return FileActions(pa.concat_tables([self._table, other._table]))

    def structs(self, kind: pa.StructType) -> Iterator[pa.StructArray]:
        """Yield them as a checkpoint has them."""
        for batch in self._table.drop_columns(_KEY).to_batches():
            yield pa.StructArray.from_arrays(batch.columns, fields=list(kind))


NO_FILES, NONE_GONE = FileActions.listed((), ADD), FileActions.listed((), REMOVE)


@dataclass(frozen=True)
class DeltaSnapshot:
    """A table at one version."""

    version: int
    metadata: Action
    protocol: Action
    files: FileActions = field(default_factory=lambda: NO_FILES)
    tombstones: FileActions = field(default_factory=lambda: NONE_GONE)
    """The `remove` actions of files that older versions need."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """The configuration by domain."""
    txns: Mapping[str, Action] = field(default_factory=dict)
    """The actions by application."""
    table: AnyPath | None = field(default=None, compare=False)
    """Folder of the table."""
    known: dict[int, Mapping[str, str]] = field(default_factory=dict, compare=False, repr=False)
    """Records that were read, by number; later versions name most of them, too."""

    @property
    def record_numbers(self) -> Mapping[str, int]:
        """The numbers of our records by name."""
        return {name: int(txn["version"]) for name, txn in self.txns.items() if is_record(name)}

    @cached_property
    def records(self) -> Mapping[str, str]:
        """Our records by name. DestinationError if one is lost."""
        numbers, files = self.record_numbers, dict[int, Mapping[str, str]]()
        for number in {*numbers.values()}:
            assert self.table is not None, "its log was read"
            files[number] = self.known.get(number) or read(self.table, number)
        self.known.update(files)
        for number in [*self.known]:
            if number not in files:
                self.known.pop(number, None)
        return {name: files[number][name] for name, number in numbers.items()}

    @property
    def bytes(self) -> int:
        return self.files.bytes

    def after(self, version: int, actions: Iterable[Action]) -> DeltaSnapshot:
        """Return the table at a later version, which these actions lead to, in their order."""
        replay = _Replay(self)
        for action in actions:
            for kind, body in action.items():
                if body is not None:
                    replay.apply_action(kind, body)
        return replay.done(version)

    def checked(self, table: AnyPath) -> DeltaSnapshot:
        """Raise DestinationError for a table that this version does not read."""
        if not self.metadata or not self.protocol:
            raise DestinationError(f"the log of {table} does not say what the table is")
        texts = self.metadata.get("configuration") or {}
        if odd := [name for name, value in texts.items() if not isinstance(value, str)]:
            raise DestinationError(
                f"the log of {table} has properties that are no texts: {', '.join(odd)}",
                hint="set them again with the program that has put them there",
            )
        odd = sorted(set(self.protocol.get("readerFeatures") or ()) - READABLE)
        if odd or self.protocol["minReaderVersion"] > 3:
            raise DestinationError(
                f"table {table} uses {', '.join(odd) or 'a protocol'} that this version does not read",
                hint="another program has switched it on: drop the feature there (ALTER TABLE ... DROP FEATURE)",
            )
        return replace(self, table=table)


class _Replay:
    """The changes that actions make to a snapshot."""

    def __init__(self, start: DeltaSnapshot) -> None:
        self._now = start
        self._domains, self._txns = dict(start.domains), dict(start.txns)
        self._files, self._gone = dict[str, Action](), dict[str, Action]()
        self._added = set[str]()

    def apply_action(self, kind: str, body: Action) -> None:
        match kind:
            case "metaData":
                self._now = replace(self._now, metadata=body)
            case "protocol":
                self._now = replace(self._now, protocol=body)
            case "add" | "remove":
                path = unquote(body["path"])
                if kind == "add":
                    self._added.add(path)
                elif path in self._added:
                    return  # the file as it was before, with other deleted rows: a commit has no order
                into, other = (self._files, self._gone) if kind == "add" else (self._gone, self._files)
                other.pop(path, None)
                into[path] = body
                if len(self._files) + len(self._gone) >= _PENDING:
                    self._merge_files()
            case "domainMetadata":
                self._domains[body["domain"]] = "" if body.get("removed") else body["configuration"]
            case "txn":
                self._txns[body["appId"]] = body

    def _merge_files(self) -> None:
        files = self._now.files.after(self._files, self._gone, ADD)
        gone = self._now.tombstones.after(self._gone, self._files, REMOVE)
        self._now = replace(self._now, files=files, tombstones=gone)
        self._files, self._gone = {}, {}

    def done(self, version: int) -> DeltaSnapshot:
        if self._files or self._gone:
            self._merge_files()
        return replace(self._now, version=version, domains=self._domains, txns=self._txns)


NOTHING = DeltaSnapshot(-1, {}, {})


def texts_of(actions: Sequence[Action]) -> str:
    """Return the text of a commit."""
    return "".join(json.dumps(a, separators=(",", ":"), ensure_ascii=False) + "\n" for a in actions)
