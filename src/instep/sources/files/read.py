# ruff: noqa: S608 - columns are numbered
"""Reading the chunks of a table of files, inside a task.

Divides the files of a table into chunks of about equal size.

Files with what is in them: those that have not changed since they were looked at are not opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.errors import ReadError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, parse
from instep.sources.base import CursorRange
from instep.sources.files.config import FILE, NUMBER, FilesConfig, options_digest
from instep.sources.files.formats import inspect, pieces
from instep.sources.files.infer import comparable, integers, within
from instep.sources.files.listing import FileState, listing
from instep.sources.files.shape import FilePart, FileShape, Piece
from instep.stage.conform import with_origin
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.fold import MEMORY, slices
from instep.stage.key_hashes import HashKeys, key_hashes, key_totals
from instep.stage.spec import Chunk
from instep.stage.task import Report
from instep.store.catalogs.discoveries import SeenFile

if TYPE_CHECKING:
    import duckdb
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


def inspect_folder(
    config: FilesConfig, records: FileRecords, now: float | None = None, start: SessionStart | None = None
) -> SeenFiles:
    """Return what the folder holds now. New and changed files are read once and recorded; many bytes of them by tasks
    of the session that `start` gives."""
    listed = listing(config, now)
    known = _by_path(records.of(config.name))
    found = {table: _known(config, table, files, known) for table, files in listed.files.items()}
    fresh = [(t, f) for t, files in listed.files.items() for f in files if f.name not in found[t]]
    broken: dict[str, str] = {}
    shapes = _inspected(config, fresh, broken, start)
    if shapes:
        new = [_record(config, table, state, shape) for (table, state), shape in shapes]
        added = records.add(config.name, new)
        for (table, state), _ in shapes:
            found[table][state.name] = added[state.name]
            known[state.name] = (*known.get(state.name, ()), added[state.name])
    for table, files in listed.unsettled.items():
        if again := [f.name for f in files if f.name in known]:
            broken[table] = f"{again[0]} is being written: it is read once it has not changed for {config.settle:g} s"
    tables = {t: _files(config, t, files, found[t]) for t, files in listed.files.items() if t not in broken}
    return SeenFiles(tables, broken, listed.unsettled, known)


def _by_path(seen: Sequence[SeenFile]) -> dict[str, tuple[SeenFile, ...]]:
    found: dict[str, tuple[SeenFile, ...]] = {}
    for one in seen:
        found[one.path] = (*found.get(one.path, ()), one)
    return found


def _known(
    config: FilesConfig, table: str, files: Sequence[FileState], known: Mapping[str, tuple[SeenFile, ...]]
) -> dict[str, SeenFile]:
    """Return the known files by path, if their newest version was inspected under the same options."""
    digest = _digest(config, table)
    found = {}
    for state in files:
        last = known[state.name][-1] if state.name in known else None
        if last and (last.size, last.version, last.options) == (state.size, state.version, digest):
            found[state.name] = last
    return found


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
        shapes = [shape for found in run_parts(session, inspect_files, parts, what="look at files") for shape in found]
    else:
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="inspect") as pool:
            shapes = list(pool.map(lambda file: _inspect(config, file), fresh))
    for (table, _), shape in zip(fresh, shapes, strict=True):
        if isinstance(shape, str):
            broken.setdefault(table, shape)
    return [(f, s) for f, s in zip(fresh, shapes, strict=True) if isinstance(s, FileShape)]


def _parted(fresh: Sequence[tuple[str, FileState]], parts: int) -> list[tuple[tuple[str, FileState], ...]]:
    """Divide files that follow one another into about so many parts of the same size."""
    share, found, size = sum(f.size for _, f in fresh) / parts, [list[tuple[str, FileState]]()], 0
    for one in fresh:
        if found[-1] and size + one[1].size > share:
            found.append([])
            size = 0
        found[-1].append(one)
        size += one[1].size
    return [tuple(part) for part in found]


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
    config: FilesConfig, table: str, files: Sequence[FileState], found: Mapping[str, SeenFile]
) -> tuple[File, ...]:
    setting = config.options_of(table).format
    made = [File(f, found[f.name].number, f.format(setting), FileShape.from_dict(found[f.name].shape)) for f in files]
    return tuple(sorted(made, key=lambda f: f.number))


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
        with ExitStack() as closing:
            yield FilesSession(self.config, closing)


class FilesSession:
    """`keys` that were read of each table, newest first; `closing` ends them."""

    def __init__(self, config: FilesConfig, closing: ExitStack) -> None:
        self.config, self.closing = config, closing
        self.keys: dict[str, SeenKeys] = {}

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Batches with the origin of each row (see stage/conform.py); raises ReadError for a file that has changed."""
        scan = FileScan.from_text(chunk.query)
        if scan.key and (chunk.number == 0 or chunk.table not in self.keys):
            self.keys[chunk.table] = SeenKeys(self.closing.enter_context(in_duckdb(MEMORY)))
        for file, part in scan.files:
            self._check(file)
            for piece in self._pieces(scan, file, part, chunk.table):
                yield _batch(scan, file, piece)
            self._check(file)

    def _check(self, file: File) -> None:
        """Raise ReadError unless the file is as it was listed."""
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
        columns = {*scan.columns, *scan.key, *([scan.where[0]] if scan.where else [])}
        found = records(self.config, scan.table, file, part, columns)
        if scan.key:
            found = self._newest(scan, file, found, self.keys[table])
        for piece in found:
            if scan.where is None:
                yield piece
            else:
                column, kind, lower, upper = scan.where
                yield piece.filter(within(piece.arrays[column], kind, lower, upper))

    def _newest(self, scan: FileScan, file: File, found: Iterator[Piece], seen: SeenKeys) -> Iterator[Piece]:
        """Yield the rows whose key is in no newer file and in no later row of this one; those without a key stay, to be
        refused. Keys are read first, then rows."""
        rows = seen.newest(_keys(self.config, scan.table, file, scan.key))
        at = 0
        for piece in found:
            low, high = np.searchsorted(rows, [at, at + len(piece.lines)])
            mask = np.zeros(len(piece.lines), dtype=np.bool_)
            mask[rows[low:high] - at] = True
            at += len(piece.lines)
            yield piece.filter(pa.array(mask))


class SeenKeys:
    """The keys that were read, as two hashes each: on disk where they do not fit into memory."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self.db = db
        db.execute("CREATE OR REPLACE TEMP TABLE seen (a BIGINT, b BIGINT)")

    def newest(self, keys: Iterator[pa.RecordBatch]) -> npt.NDArray[np.int64]:
        """Return the places of a file's rows that count, in order: those whose key was not read before and comes in no
        later row, and those without a key. Their keys are seen from then on."""
        db, at = self.db, 0
        db.execute("CREATE OR REPLACE TEMP TABLE own (a BIGINT, b BIGINT, absent BOOLEAN, n BIGINT)")
        for rows in slices(keys):
            coming = rows.append_column("n", pa.array(np.arange(at, at + len(rows))))
            db.register("coming", coming)
            db.execute(f"INSERT INTO own SELECT {key_hashes(rows.schema)}, n FROM coming")
            db.unregister("coming")
            at += len(rows)
        db.execute(
            "CREATE OR REPLACE TEMP TABLE fresh AS SELECT a, b, max(n) AS n FROM own ANTI JOIN seen USING (a, b) "
            "WHERE NOT absent GROUP BY a, b"
        )
        db.execute("INSERT INTO seen SELECT a, b FROM fresh")
        found = db.execute("SELECT n FROM fresh UNION ALL SELECT n FROM own WHERE absent ORDER BY n").fetchnumpy()
        return np.asarray(found["n"], dtype=np.int64)


def _keys(config: FilesConfig, table: str, file: File, key: Mapping[str, DataType]) -> Iterator[pa.RecordBatch]:
    """Yield the keys of a file's rows, in forms that are equal where they are; NULL for a value that is none."""
    for piece in records(config, table, file, None, set(key)):
        yield pa.RecordBatch.from_arrays(
            [comparable(piece.arrays[k], t) for k, t in key.items()], names=[f"c{at}" for at in range(len(key))]
        )


def count_keys(config: FilesConfig, table: str, files: Sequence[File], key: Mapping[str, DataType]) -> int:
    """Return how many rows of the files count: one a key, and those without one."""
    keys = chain.from_iterable(_keys(config, table, file, key) for file in files)
    totals = key_totals(HashKeys()(keys))
    return totals.rows - totals.duplicates


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
FilePiece = tuple[File, FilePart | None]


def scans(
    spec: str,
    table: Table,
    files: Sequence[File],
    columns: Sequence[str],
    bound: Column | None,
    rows: CursorRange,
    *,
    numbered: bool = True,
) -> list[Chunk]:
    """Return the chunks of a table, under `Chunk.table = spec`; those of a table with a key share a lane. `numbered`: a
    column `_file_number` is ours and not one of the files."""
    key = {k: table.by_name[k].type for k in table.key}
    scan = FileScan(table.name, {n: table.by_name[n].type for n in columns}, (), key=key)
    if numbered and bound is not None and bound.name == NUMBER and (rows.lower or rows.upper):
        files = [f for f in files if _between(f.number, rows)]
    elif bound is not None and (rows.lower is not None or rows.upper is not None):
        scan = replace(scan, where=(bound.name, bound.type, rows.lower, rows.upper))
    pieces: list[FilePiece] = [(f, None) for f in reversed(files)] if key else list(_pieces(files))
    lane = f"{spec} {table.name}" if key else ""
    return [
        Chunk(
            spec,
            number,
            replace(scan, files=tuple(group)).to_text(),
            sum(map(_rows, group)),
            sum(map(_bytes, group)),
            lane,
        )
        for number, group in enumerate(_groups(pieces))
    ]


def _between(number: int, rows: CursorRange) -> bool:
    return (rows.lower is None or number >= int(rows.lower)) and (rows.upper is None or number <= int(rows.upper))


def _pieces(files: Sequence[File]) -> Iterator[FilePiece]:
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


def _rows(piece: FilePiece) -> int:
    return piece[1].rows if piece[1] else piece[0].shape.rows


def _bytes(piece: FilePiece) -> int:
    return piece[1].bytes if piece[1] else piece[0].state.size


def _groups(pieces: Sequence[FilePiece]) -> list[list[FilePiece]]:
    """Group pieces by size; at least one group, so that a table without rows is read as well."""
    groups: list[list[FilePiece]] = [[]]
    rows = size = 0
    for piece in pieces:
        if groups[-1] and (rows + _rows(piece) > CHUNK_ROWS or size + _bytes(piece) > CHUNK_BYTES):
            groups.append([])
            rows = size = 0
        groups[-1].append(piece)
        rows, size = rows + _rows(piece), size + _bytes(piece)
    return groups
