"""Reading the chunks of a table of files, inside a task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from instep.errors import ReadError
from instep.schema.catalog.types import DataType, parse
from instep.sources.files.config import FILE, NUMBER, FilesConfig
from instep.sources.files.formats import pieces
from instep.sources.files.listing import FileState
from instep.sources.files.seen import File
from instep.sources.files.shape import FilePart, FileShape, Piece
from instep.sources.files.values import integers, rows_of, within
from instep.stage.origin import with_origin
from instep.stage.spec import Chunk


@dataclass(frozen=True)
class FileScan:
    """Scan of one chunk: `columns` with their types, of parts of files (None: a file as a whole), of the rows with
    `where` = (column, type, lower, upper) only. Of rows with the same `key` (columns with their types) the newest
    counts: the chunks of such a table have the newest file first and are read in order."""

    table: str
    columns: Mapping[str, DataType]
    files: tuple[tuple[File, FilePart | None], ...]
    where: tuple[str, DataType, str | None, str | None] | None = None
    key: Mapping[str, DataType] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the text form for a chunk's query."""
        files = [
            [vars(f.state), f.number, f.format, f.shape.to_dict(), None if p is None else list(vars(p).values())]
            for f, p in self.files
        ]
        where = None if self.where is None else [self.where[0], str(self.where[1]), *self.where[2:]]
        columns, key = ({name: str(kind) for name, kind in some.items()} for some in (self.columns, self.key))
        return json.dumps({"table": self.table, "columns": columns, "files": files, "where": where, "key": key})

    @classmethod
    def from_text(cls, text: str) -> FileScan:
        document = json.loads(text)
        files = tuple(
            (
                File(FileState(**state), number, kind, FileShape.from_dict(shape)),
                None if part is None else FilePart(*part),
            )
            for state, number, kind, shape, part in document["files"]
        )
        where = document["where"] and (document["where"][0], parse(document["where"][1]), *document["where"][2:])
        columns, key = ({name: parse(kind) for name, kind in document[some].items()} for some in ("columns", "key"))
        return cls(document["table"], columns, files, where, key)


@dataclass(frozen=True)
class FilesReader:
    """Opens nothing by itself: each chunk opens its files. The configuration may hold credentials."""

    config: FilesConfig = field(repr=False)

    @contextmanager
    def open(self) -> Iterator[FilesSession]:
        yield FilesSession(self.config)


class FilesSession:
    """`keys` that were read of each table, newest first."""

    def __init__(self, config: FilesConfig) -> None:
        self.config = config
        self.keys: dict[str, set[tuple[object, ...]]] = {}

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Batches with the origin of each row (see stage/origin.py); raises ReadError for a file that has changed."""
        if chunk.number == 0:
            self.keys[chunk.table] = set()
        scan = FileScan.from_text(chunk.query)
        for file, part in scan.files:
            self._check(file)
            for piece in self._pieces(scan, file, part, chunk.table):
                yield _batch(scan, file, piece)
            self._check(file)

    def _check(self, file: File) -> None:
        """Raises ReadError unless the file is as it was listed."""
        filesystem, path = self.config.folder.resolve(file.state.name)
        try:
            now = filesystem.get_file_info(path)
        except OSError as error:
            raise ReadError(f"{file.state.name} cannot be read: {error}", hint="sync again") from None
        if (int(now.size or 0), str(now.mtime_ns)) != (file.state.size, file.state.version):
            raise ReadError(
                f"{file.state.name} was changed or taken away after this sync had listed it",
                hint="nothing was loaded from its table: sync again",
            )

    def _pieces(self, scan: FileScan, file: File, part: FilePart | None, table: str) -> Iterator[Piece]:
        wanted = {*scan.columns, *scan.key, *([scan.where[0]] if scan.where else [])}
        found = records(self.config, scan.table, file, part, wanted)
        if scan.key:
            found = self._newest(scan, file, found, self.keys.setdefault(table, set()))
        for piece in found:
            if scan.where is None:
                yield piece
            else:
                column, kind, lower, upper = scan.where
                yield piece.filter(within(piece.arrays[column], kind, lower, upper))

    def _newest(
        self, scan: FileScan, file: File, found: Iterator[Piece], taken: set[tuple[object, ...]]
    ) -> Iterator[Piece]:
        """Yield the rows whose key is in no newer file and in no later row of this one; those without a key stay, to be
        refused. Keys are read first, then rows."""
        last = last_rows(records(self.config, scan.table, file, None, set(scan.key)), scan.key)
        at = 0
        for piece in found:
            keys = rows_of([piece.arrays[k] for k in scan.key], list(scan.key.values()))
            mask = [None in k or (k not in taken and last.get(k) == at + n) for n, k in enumerate(keys)]
            at += len(keys)
            yield piece.filter(pa.array(mask, pa.bool_()))
        taken.update(last)


def last_rows(found: Iterator[Piece], key: Mapping[str, DataType]) -> dict[tuple[object, ...], int]:
    """Return the place of the last row of each key among those that are found."""
    last: dict[tuple[object, ...], int] = {}
    at = 0
    for piece in found:
        for n, values in enumerate(rows_of([piece.arrays[k] for k in key], list(key.values()))):
            if None not in values:
                last[values] = at + n
        at += len(piece.lines)
    return last


def count_keys(config: FilesConfig, table: str, files: Sequence[File], key: Mapping[str, DataType]) -> int:
    """Return how many rows of the files count: one a key, and those without one."""
    distinct: set[tuple[object, ...]] = set()
    keyless = 0
    for file in files:
        for piece in records(config, table, file, None, set(key)):
            rows = rows_of([piece.arrays[k] for k in key], list(key.values()))
            distinct.update(r for r in rows if None not in r)
            keyless += sum(None in r for r in rows)
    return len(distinct) + keyless


def records(config: FilesConfig, table: str, file: File, part: FilePart | None, wanted: set[str]) -> Iterator[Piece]:
    """The records of a file with all columns that are wanted: NULL where the file lacks them."""
    about = wanted & set(config.metadata)
    own = sorted(wanted - about)
    for piece in pieces(config, config.options_of(table), file.state, file.shape, part, own):
        rows = len(piece.lines)
        arrays: dict[str, Any] = {n: piece.arrays.get(n, pa.nulls(rows)) for n in own}
        arrays |= {n: _about(n, file, piece) for n in about}
        yield Piece(arrays, piece.lines, piece.refused)


def _about(name: str, file: File, piece: Piece) -> pa.Array:
    rows = len(piece.lines)
    if name == FILE:
        return pa.repeat(pa.scalar(file.state.name), rows)
    return pa.repeat(pa.scalar(file.number, pa.int64()), rows) if name == NUMBER else piece.lines


def _batch(scan: FileScan, file: File, piece: Piece) -> pa.RecordBatch:
    columns: Sequence[pa.Array] = [integers(piece.arrays[n], kind) for n, kind in scan.columns.items()]
    batch = pa.RecordBatch.from_arrays(columns, [str(at) for at in range(len(columns))])
    return with_origin(batch, file.state.name, piece.lines, [(r.line, r.text, r.reason) for r in piece.refused])
