"""One segment on disk: what a connector sent between two checkpoints, as Parquet files and a manifest.

    <folder>/segment-00001/orders-1.parquet     raw rows in the order in which they were sent
    <folder>/segment-00001/upload-1             a file of a row
    <folder>/segment-00001/manifest.json        written last; the segment counts once it is there

The first columns of every file are `__op` (int8: UPSERT, UPDATE, DELETE), `__seq` (int64, the order over all tables and
truncates of the segment), `__given` (string: for an update the JSON list of the columns given), `__record` (int64: what
tells a row of a table without a key from others: see `RECORD`) and `__notes` (string: what the source says about values
of the row, a JSON list of changes). The record's columns follow under their own names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from instep.errors import StageError
from instep.schema.catalog.catalog import ROW_ID
from instep.schema.catalog.types import DataType, String, Unknown, parse

OP, SEQ, GIVEN, RECORD, NOTES = "__op", "__seq", "__given", "__record", "__notes"
"""`RECORD` is a number that no other row of the table has, `EACH` where each row counts and rows of the same values are
told apart by how many came before, or NULL where rows of the same values are one."""
EACH = -1
RESERVED = frozenset({OP, SEQ, GIVEN, RECORD, NOTES})
UPSERT, UPDATE, DELETE = 0, 1, 2
MANIFEST = "manifest.json"
VERSION = 1


_TAKEN = re.compile(rf"(src_)*{ROW_ID}")


def stored_name(column: str) -> str:
    """Return the name of a connector's column in segments and catalogs: that of the row id is ours, so that it gets a
    prefix, as do names that would meet it then."""
    return f"src_{column}" if _TAKEN.fullmatch(column) else column


@dataclass(frozen=True)
class SegmentColumn:
    """A column of a segment."""

    name: str
    type: DataType
    declared: bool = False
    """Its type was. A key without a value and a declaration is `unknown`."""
    key: bool = False
    nullable: bool = True
    invalid_values: int = 0
    """With `invalid_values` (as many values do not fit the declared type) the files hold texts."""
    met: tuple[DataType, ...] = ()
    """The types of its values, if these were several."""
    empty: bool = False
    """No value of it came."""
    value_type: DataType = field(default_factory=Unknown)
    """Type that holds all values of a column whose declared type does not."""

    @property
    def stored(self) -> DataType:
        """The type in the files."""
        return String() if self.invalid_values else self.type


@dataclass(frozen=True)
class SegmentFile:
    """A file of a segment."""

    path: str
    """Relative to the segment's folder."""
    rows: int
    bytes: int


@dataclass(frozen=True)
class SegmentUpload:
    """A file that belongs to a row: `path` is relative to the segment's folder, `name` to the files of its table."""

    path: str
    name: str
    bytes: int


@dataclass(frozen=True)
class SegmentTable:
    """A table of a segment."""

    schema: str
    """"" unless the connector named one."""
    name: str
    declared: bool
    key: tuple[str, ...] = ()
    columns: tuple[SegmentColumn, ...] = ()
    files: tuple[SegmentFile, ...] = ()
    upserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: tuple[int, ...] = ()
    """Their places in the order of `__seq`: each is for what stood before it."""
    uploads: tuple[SegmentUpload, ...] = ()
    steps: tuple[SegmentTable, ...] = ()
    """The table as one checkpoint after the other described it, if not all agree."""
    cursor: str = ""
    """The column that the connector reads it by, "" where none is named."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all its files in the segment's folder."""
        return (*(f.path for f in self.files), *(u.path for u in self.uploads))

    @property
    def rows(self) -> int:
        return self.upserts + self.updates + self.deletes


@dataclass(frozen=True)
class OperationCounts:
    """Operations."""

    upserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    checkpoints: int = 0

    def __add__(self, more: OperationCounts) -> OperationCounts:
        return OperationCounts(
            self.upserts + more.upserts,
            self.updates + more.updates,
            self.deletes + more.deletes,
            self.truncates + more.truncates,
            self.checkpoints + more.checkpoints,
        )


@dataclass(frozen=True)
class LogLine:
    """A line for the log."""

    level: str
    """Debug, info, warning or error."""
    message: str
    origin: str = "connector"
    """`connector` (the SDK's logging), `stdout`, `stderr`, or `instep` for what we say about it."""


@dataclass(frozen=True)
class Segment:
    """Operations up to a checkpoint, or to several."""

    number: int
    """Counts from 1."""
    folder: str
    state: Mapping[str, Any] | None = field(repr=False)
    """State of the last checkpoint, None if the sync ended without one after the last rows."""
    ends: bool
    """Nothing comes after it."""
    tables: tuple[SegmentTable, ...]
    warnings: tuple[str, ...] = ()
    digest: str = ""
    """Digest of all the rest, the same for the same bytes."""

    @property
    def counts(self) -> OperationCounts:
        tables = (OperationCounts(t.upserts, t.updates, t.deletes, len(t.truncates)) for t in self.tables)
        return sum(tables, OperationCounts(checkpoints=int(self.state is not None)))

    def table(self, name: str, schema: str = "") -> SegmentTable | None:
        return next((t for t in self.tables if (t.schema, t.name) == (schema, name)), None)


def declared_table(document: Mapping[str, Any]) -> SegmentTable:
    """Return a table of a declaration as a segment without rows would have it."""
    key = tuple(map(stored_name, document["key"]))
    types = {stored_name(name): parse(kind) for name, kind in document["columns"].items()}
    names = dict.fromkeys((*key, *types))
    columns = tuple(
        SegmentColumn(n, types.get(n, Unknown()), n in types, key=n in key, nullable=n not in key) for n in names
    )
    cursor = stored_name(document.get("cursor", ""))
    return SegmentTable(document["schema"], document["table"], bool(document["declared"]), key, columns, cursor=cursor)


def segment_folder(folder: str | Path, number: int) -> Path:
    return Path(folder) / f"segment-{number:05}"


def write_manifest(segment: Segment) -> Segment:
    """Return the segment with its digest, written so that there is a whole manifest or none."""
    document = _document(segment)
    document["digest"] = _digest(document)
    place = Path(segment.folder) / MANIFEST
    draft = place.with_suffix(".part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(json.dumps(document))  # in ASCII: a state may have halves of surrogate pairs, which UTF-8 has not
        file.flush()
        os.fsync(file.fileno())
    draft.rename(place)
    return _segment(document, segment.folder)


def read_manifest(folder: str | Path) -> Segment:
    """Raise StageError if it is not there or not as it was written."""
    place = Path(folder) / MANIFEST
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise StageError(f"{place}: {error}", hint="run the sync again") from error
    return manifest_of(text, folder)


def manifest_of(text: str, folder: str | Path) -> Segment:
    """Return the segment in `folder` whose manifest has this text; StageError if it is not as it was written."""
    place = Path(folder) / MANIFEST
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StageError(f"{place}: {error}", hint="run the sync again") from error
    whole = isinstance(document, dict) and document.get("version") == VERSION
    if not whole or document.get("digest") != _digest(document):
        raise StageError(f"{place} is not as it was written", hint="run the sync again")
    return _segment(document, str(folder))


def _document(segment: Segment) -> dict[str, Any]:
    return {
        "version": VERSION,
        "segment": segment.number,
        "state": segment.state,
        "ends": segment.ends,
        "tables": [_table_document(t) for t in segment.tables],
        "counts": asdict(segment.counts),
        "warnings": list(segment.warnings),
    }


def _table_document(table: SegmentTable) -> dict[str, Any]:
    columns = [
        {**vars(c), "type": str(c.type), "met": list(map(str, c.met)), "value_type": str(c.value_type)}
        for c in table.columns
    ]
    plain = asdict(replace(table, columns=(), steps=()))
    return {**plain, "columns": columns, "steps": list(map(_table_document, table.steps))}


def _digest(document: Mapping[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _segment(document: Mapping[str, Any], folder: str) -> Segment:
    return Segment(
        number=document["segment"],
        folder=folder,
        state=document["state"],
        ends=document["ends"],
        tables=tuple(map(_table, document["tables"])),
        warnings=tuple(document["warnings"]),
        digest=document["digest"],
    )


def _table(document: Mapping[str, Any]) -> SegmentTable:
    return SegmentTable(
        **{
            **document,
            "key": tuple(document["key"]),
            "columns": tuple(map(_column, document["columns"])),
            "files": tuple(SegmentFile(**f) for f in document["files"]),
            "truncates": tuple(document["truncates"]),
            "uploads": tuple(SegmentUpload(**u) for u in document.get("uploads", ())),
            "steps": tuple(map(_table, document.get("steps", ()))),
        }
    )


def _column(document: Mapping[str, Any]) -> SegmentColumn:
    types = {"type": parse(document["type"]), "value_type": parse(document["value_type"])}
    return SegmentColumn(**{**document, **types, "met": tuple(map(parse, document["met"]))})
