"""Files with what is in them, divided into chunks of about equal size, and the reading of those inside a task.

Files that have not changed since they were looked at are not opened again.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from instep.errors import ConnectError, ReadError, SourceLost
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, parse
from instep.sources.base import CursorRange
from instep.sources.files.config import FILE, NUMBER, FilesConfig, options_digest
from instep.sources.files.formats import inspect, pieces
from instep.sources.files.infer import integers, range_mask
from instep.sources.files.listing import FileState, check_reachable, listing
from instep.sources.files.shape import FilePart, FileShape, Piece, SupersededLines, among
from instep.stage.conform import with_origin
from instep.stage.spec import Chunk
from instep.stage.task import Report
from instep.store.catalogs.discoveries import SeenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    SessionStart = Callable[[], SparkSession]


class FileRecords(Protocol):
    """Store of files and their contents (see store/catalogs/discoveries.py)."""

    def of(self, source: str) -> list[SeenFile]: ...

    def add(self, source: str, found: Sequence[SeenFile]) -> Mapping[str, SeenFile]: ...


@dataclass(frozen=True)
class File:
    """A version of a file: where it is, when it was first seen (`number`), what is in it."""

    state: FileState
    number: int
    format: str
    shape: FileShape


@dataclass(frozen=True)
class SeenFiles:
    """The files of each table in the order in which they were first seen."""

    tables: Mapping[str, tuple[File, ...]]
    broken: Mapping[str, str] = field(default_factory=dict)
    """Tells why a table cannot be read."""
    waiting: Mapping[str, tuple[FileState, ...]] = field(default_factory=dict)
    history: Mapping[str, tuple[SeenFile, ...]] = field(default_factory=dict)
    """Has every version that was ever seen, by path, in order."""
    unread: Mapping[str, tuple[FileState, ...]] = field(default_factory=dict)
    """Files that no reader takes: see `FileListing`."""


def inspect_folder(
    config: FilesConfig, records: FileRecords, now: float | None = None, start: SessionStart | None = None
) -> SeenFiles:
    """Return what the folder holds now. New and changed files are read once and recorded; many bytes of them by tasks
    of the session that `start` gives."""
    listed = listing(config, now)
    history = _by_path(records.of(config.name))
    inspected = {table: _known(config, table, files, history) for table, files in listed.files.items()}
    fresh = [(t, f) for t, files in listed.files.items() for f in files if f.name not in inspected[t]]
    broken: dict[str, str] = {}
    shapes = _inspected(config, fresh, broken, start)
    if shapes:
        new = [_record(config, table, state, shape) for (table, state), shape in shapes]
        added = records.add(config.name, new)
        for (table, state), _ in shapes:
            inspected[table][state.name] = added[state.name]
            history[state.name] = (*history.get(state.name, ()), added[state.name])
    for table, files in listed.unsettled.items():
        if again := [f.name for f in files if f.name in history]:
            broken[table] = f"{again[0]} is being written: it is read once it has not changed for {config.settle:g} s"
    tables = {t: _files(config, t, files, inspected[t]) for t, files in listed.files.items() if t not in broken}
    return SeenFiles(tables, broken, listed.unsettled, history, listed.unread)


def _by_path(seen: Sequence[SeenFile]) -> dict[str, tuple[SeenFile, ...]]:
    by_path: dict[str, tuple[SeenFile, ...]] = {}
    for file in seen:
        by_path[file.path] = (*by_path.get(file.path, ()), file)
    return by_path


def _known(
    config: FilesConfig, table: str, files: Sequence[FileState], history: Mapping[str, tuple[SeenFile, ...]]
) -> dict[str, SeenFile]:
    """Return the known files by path, if their newest version was inspected under the same options."""
    digest = _digest(config, table)
    known_files = {}
    for state in files:
        last = history[state.name][-1] if state.name in history else None
        if last and (last.size, last.version, last.options) == (state.size, state.version, digest):
            known_files[state.name] = last
    return known_files


def _digest(config: FilesConfig, table: str) -> str:
    return f"{options_digest(config.options_of(table))}-{'.'.join(config.metadata)}"


INSPECT_BYTES = 256 << 20
"""More bytes of new text files are read by tasks of Spark; of Parquet only the footers are read."""


def _inspected(
    config: FilesConfig,
    fresh: Sequence[tuple[str, FileState]],
    broken: dict[str, str],
    start: SessionStart | None,
) -> list[tuple[tuple[str, FileState], FileShape]]:
    """Inspect these files; why a table cannot be read goes into `broken`."""
    if not fresh:
        return []
    texts = sum(f.size for table, f in fresh if f.format(config.options_of(table).format) != "parquet")
    if start is not None and texts > INSPECT_BYTES:
        from instep.spark.extract import TASKS_PER_CORE, cores, run_parts

        session = start()
        parts = [InspectPart(config, part) for part in _parted(fresh, TASKS_PER_CORE * cores(session))]
        shapes = [shape for part in run_parts(session, inspect_files, parts, what="look at files") for shape in part]
    else:
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="inspect") as pool:
            shapes = list(pool.map(lambda file: _inspect(config, file), fresh))
    for (table, _), shape in zip(fresh, shapes, strict=True):
        if isinstance(shape, str):
            broken.setdefault(table, shape)
    return [(f, s) for f, s in zip(fresh, shapes, strict=True) if isinstance(s, FileShape)]


def _parted(fresh: Sequence[tuple[str, FileState]], parts: int) -> list[tuple[tuple[str, FileState], ...]]:
    """Divide files that follow one another into about so many parts of the same size."""
    share, groups, size = sum(f.size for _, f in fresh) / parts, [list[tuple[str, FileState]]()], 0
    for file in fresh:
        if groups[-1] and size + file[1].size > share:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file[1].size
    return [tuple(part) for part in groups]


@dataclass(frozen=True)
class InspectPart:
    """New files that one task looks at, each with its table. The configuration may hold credentials."""

    config: FilesConfig = field(repr=False)
    files: tuple[tuple[str, FileState], ...]


def inspect_files(part: InspectPart, attempt: int, report: Report | None) -> list[FileShape | str]:
    """Return what is in each of the files, or why it cannot be read."""
    return [_inspect(part.config, file) for file in part.files]


def _inspect(config: FilesConfig, file: tuple[str, FileState]) -> FileShape | str:
    try:
        return inspect(config, config.options_of(file[0]), file[1])
    except ReadError as error:
        return error_line(error)


def error_line(error: ReadError) -> str:
    """Return an error as one line."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _record(config: FilesConfig, table: str, state: FileState, shape: FileShape) -> SeenFile:
    return SeenFile(state.name, state.size, state.version, 0, _digest(config, table), shape.to_dict())


def _files(
    config: FilesConfig, table: str, files: Sequence[FileState], inspected: Mapping[str, SeenFile]
) -> tuple[File, ...]:
    setting = config.options_of(table).format
    seen = [(f, inspected[f.name]) for f in files]
    versions = (File(f, s.number, f.format(setting), FileShape.from_dict(s.shape)) for f, s in seen)
    return tuple(sorted(versions, key=lambda f: f.number))


FilePiece = tuple[File, FilePart | None]
_NO_LINES: Mapping[int, bytes] = {}


@dataclass(frozen=True)
class FileScan:
    """Scan of one chunk: `columns` with their types, of parts of files (None: a file as a whole), of the rows with
    `where` = (column, type, lower, upper) only. `superseded`: of each part the lines that do not count."""

    table: str
    columns: Mapping[str, DataType]
    files: tuple[FilePiece, ...]
    where: tuple[str, DataType, str | None, str | None] | None = None
    superseded: tuple[Mapping[int, bytes], ...] = ()

    def to_text(self) -> str:
        """Return the text form for a chunk's query."""
        files = [
            [vars(f.state), f.number, f.format, f.shape.to_dict(), None if p is None else list(vars(p).values())]
            for f, p in self.files
        ]
        where = None if self.where is None else [self.where[0], str(self.where[1]), *self.where[2:]]
        columns = {name: str(kind) for name, kind in self.columns.items()}
        lines = [{str(n): b64encode(bits).decode() for n, bits in part.items()} for part in self.superseded]
        document = {"table": self.table, "columns": columns, "files": files, "where": where, "superseded": lines}
        return json.dumps(document)

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
        columns = {name: parse(kind) for name, kind in document["columns"].items()}
        superseded = tuple({int(n): b64decode(bits) for n, bits in part.items()} for part in document["superseded"])
        return cls(document["table"], columns, files, where, superseded)


@dataclass(frozen=True)
class FilesReader:
    """Opens nothing by itself: each chunk opens its files. The configuration may hold credentials."""

    config: FilesConfig = field(repr=False)

    @contextmanager
    def open(self) -> Iterator[FilesReader]:
        """Yield itself."""
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield batches with the origin of each row (see stage/conform.py). Raises ReadError for a file that has
        changed, SourceLost if the folder or its storage has gone."""
        try:
            yield from self._batches(FileScan.from_text(chunk.query))
        except (OSError, ReadError):
            self._check_reachable(chunk.table)
            raise

    def _check_reachable(self, table: str) -> None:
        try:
            check_reachable(self.config)
        except ConnectError as error:
            hint = "check the storage and `instep source test`, then run `instep sync` again"
            raise SourceLost(f"{table}: the files were lost while they were read: {error.message}", hint=hint) from None

    def _batches(self, scan: FileScan) -> Iterator[pa.RecordBatch]:
        for (file, part), superseded in zip(scan.files, scan.superseded, strict=True):
            check_unchanged(self.config, file)
            for piece in self._pieces(scan, file, part, superseded):
                yield _batch(scan, file, piece)
            check_unchanged(self.config, file)

    def _pieces(
        self, scan: FileScan, file: File, part: FilePart | None, superseded: Mapping[int, bytes]
    ) -> Iterator[Piece]:
        columns = {*scan.columns, *([scan.where[0]] if scan.where else [])}
        for piece in records(self.config, scan.table, file, part, columns):
            if superseded:
                lines = np.asarray(piece.lines.cast(pa.int64()))
                piece = piece.filter(pa.array(~among(lines, superseded)))
            if scan.where is not None:
                column, kind, lower, upper = scan.where
                piece = piece.filter(range_mask(piece.arrays[column], kind, lower, upper))
            yield piece


def check_unchanged(config: FilesConfig, file: File) -> None:
    """Raise ReadError unless the file is as it was listed."""
    filesystem, path = config.folder.resolve(file.state.name)
    try:
        now = filesystem.get_file_info(path)
    except OSError as error:
        raise ReadError(f"{file.state.name} cannot be read: {error}", hint="sync again") from None
    if (int(now.size or 0), str(now.mtime_ns)) != (file.state.size, file.state.version):
        raise ReadError(
            f"{file.state.name} was changed or taken away after this sync had listed it",
            hint="nothing was loaded from its table: sync again",
        )


def records(config: FilesConfig, table: str, file: File, part: FilePart | None, columns: set[str]) -> Iterator[Piece]:
    """Yield the records of a file with all requested columns, NULL where the file lacks them."""
    about = columns & set(config.metadata)
    own = sorted(columns - about)
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


CHUNK_ROWS, CHUNK_BYTES = 1_000_000, 256 << 20


def scans(
    spec: str,
    table: Table,
    files: Sequence[File],
    columns: Sequence[str],
    bound: Column | None,
    rows: CursorRange,
    newest: Callable[[Sequence[File]], SupersededLines],
    *,
    numbered: bool = True,
) -> list[Chunk]:
    """Return the chunks of a table, under `Chunk.table = spec`. `newest` finds the lines of the files of a table with a
    key that do not count. `numbered`: a column `_file_number` is ours and not one of the files."""
    scan = FileScan(table.name, {n: table.by_name[n].type for n in columns}, ())
    if numbered and bound is not None and bound.name == NUMBER and (rows.lower or rows.upper):
        files = [f for f in files if _between(f.number, rows)]
    elif bound is not None and (rows.lower is not None or rows.upper is not None):
        scan = replace(scan, where=(bound.name, bound.type, rows.lower, rows.upper))
    pieces = list(file_pieces(files))
    lines = _lines(files, pieces, newest(files)) if table.key else repeat(_NO_LINES)
    return [
        Chunk(
            spec,
            number,
            replace(scan, files=tuple(group), superseded=tuple(islice(lines, len(group)))).to_text(),
            sum(map(rows_of_piece, group)),
            sum(map(bytes_of_piece, group)),
        )
        for number, group in enumerate(grouped_pieces(pieces))
    ]


def _lines(
    files: Sequence[File], pieces: Sequence[FilePiece], superseded: SupersededLines
) -> Iterator[Mapping[int, bytes]]:
    """Yield of each piece the lines that do not count, and perhaps some of the next piece of its file."""
    places = {f.number: at for at, f in enumerate(files)}
    for at, (file, part) in enumerate(pieces):
        after, following = pieces[at + 1] if at + 1 < len(pieces) else (None, None)
        last = following.line + 1 if following is not None and after is file else None
        yield superseded.of(places[file.number], part.line if part else 0, last)


def _between(number: int, rows: CursorRange) -> bool:
    return (rows.lower is None or number >= int(rows.lower)) and (rows.upper is None or number <= int(rows.upper))


def file_pieces(files: Sequence[File]) -> Iterator[FilePiece]:
    """Yield the parts of the files that can be read by themselves, in their order."""
    for file in files:
        if file.format == "parquet":
            yield from ((file, part) for part in _joined(file.shape.parts))
        elif file.shape.parts:
            yield from ((file, part) for part in file.shape.parts)
        else:
            yield file, None


def _joined(groups: Sequence[FilePart]) -> Iterator[FilePart]:
    """Yield neighbouring row groups joined up to the size of a chunk."""
    whole: FilePart | None = None
    for group in groups:
        if whole is None:
            whole = group
        elif whole.rows + group.rows > CHUNK_ROWS or whole.bytes + group.bytes > CHUNK_BYTES:
            yield whole
            whole = group
        else:
            whole = FilePart(whole.start, group.end, whole.line, whole.rows + group.rows, whole.bytes + group.bytes)
    if whole is not None:
        yield whole


def rows_of_piece(piece: FilePiece) -> int:
    """Return the number of rows; of a text file an estimate."""
    return piece[1].rows if piece[1] else piece[0].shape.rows


def bytes_of_piece(piece: FilePiece) -> int:
    """Return the number of bytes of the piece in its file."""
    return piece[1].bytes if piece[1] else piece[0].state.size


def grouped_pieces(pieces: Sequence[FilePiece]) -> list[list[FilePiece]]:
    """Group pieces by size; at least one group, so that a table without rows is read as well."""
    groups: list[list[FilePiece]] = [[]]
    rows = size = 0
    for piece in pieces:
        if groups[-1] and (rows + rows_of_piece(piece) > CHUNK_ROWS or size + bytes_of_piece(piece) > CHUNK_BYTES):
            groups.append([])
            rows = size = 0
        groups[-1].append(piece)
        rows, size = rows + rows_of_piece(piece), size + bytes_of_piece(piece)
    return groups
