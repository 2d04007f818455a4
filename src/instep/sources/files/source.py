"""A folder of files as a source. Tables and columns are known by their names alone.

A read point is a listing: the files that were there, each with its size and the time of its last change. What comes
later is not read; a file that was changed or taken away since makes the read of its table fail, and the next sync
reads it as it is then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import InstepError, ReadError
from instep.model import Check
from instep.project.sections.file_settings import FileOptions
from instep.schema.catalog.catalog import Catalog, Column, Table, fingerprint
from instep.schema.catalog.promotion import promote
from instep.schema.catalog.types import DataType, parse
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorBounds, CursorRange, Discovery, TableStats, WholeCatalog, object_path
from instep.sources.files.config import METADATA, NUMBER, SCHEMA, FilesConfig
from instep.sources.files.infer import comparable, final_type, join
from instep.sources.files.listing import UNREAD_DATA, FileState, table_of, unread_text
from instep.sources.files.newest import superseded_lines
from instep.sources.files.read import (
    INSPECT_BYTES,
    File,
    FileRecords,
    FilesReader,
    SeenFiles,
    error_line,
    inspect_folder,
    records,
    scans,
)
from instep.sources.files.shape import FileColumn, SupersededLines
from instep.sources.query import cursor_source, digest, moved_back, source_columns
from instep.stage.casts.text import to_text
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    from instep.sources.files.read import SessionStart

_TEXTS = ("text", "json")


def table_of_files(config: FilesConfig, name: str, files: Sequence[File]) -> Table:
    """Return the table, its columns in the order in which they were first seen; raises ReadError if the declared key
    is missing."""
    options = config.options_of(name)
    by_name: dict[str, list[tuple[File, FileColumn]]] = {}
    for file in files:
        for column in file.shape.columns:
            by_name.setdefault(column.name, []).append((file, column))
    columns = [_column(column, seen, options) for column, seen in by_name.items()]
    own = [Column(n, METADATA[n], native="file") for n in config.metadata]
    return Table(SCHEMA, name, tuple(_keyed([*columns, *own], name, options)))


def _column(name: str, seen: Sequence[tuple[File, FileColumn]], options: FileOptions) -> Column:
    natives = list(dict.fromkeys(c.native for _, c in seen))
    notes = dict.fromkeys(c.note for _, c in seen if c.note)
    if declared := options.types.get(name):
        return Column(name, parse(declared), native=natives[0], note="; ".join(notes))
    kind, why = _joined(seen)
    notes |= {why: None} if why else {}
    return Column(name, kind, native=natives[0] if len(natives) == 1 else str(kind), note="; ".join(notes))


def _joined(seen: Sequence[tuple[File, FileColumn]]) -> tuple[DataType, str]:
    """Return (the type, which file made it differ from that of the files before)."""
    kind, why = seen[0][1].type, ""
    texts = all(c.native in _TEXTS for _, c in seen)
    for file, column in seen[1:]:
        before = final_type(kind)
        now = column.type if texts or column.native not in _TEXTS else final_type(column.type)
        kind = join(kind, now) if texts else promote(before, now)
        if type(final_type(kind)) is not type(before) and str(before) != "unknown":
            why = f"{before} before {file.state.name}"
    return final_type(kind) if seen[0][1].native in _TEXTS or texts else kind, why


def _keyed(columns: Sequence[Column], table: str, options: FileOptions) -> list[Column]:
    missing = [k for k in options.key if k not in {c.name for c in columns}]
    if missing:
        raise ReadError(
            f"table {SCHEMA}.{table}: its key {', '.join(missing)} is not a column of its files",
            hint="correct `key` of the source's options",
        )
    places = {name: place for place, name in enumerate(options.key, 1)}
    return [replace(c, key=places[c.name], nullable=False) if c.name in places else c for c in columns]


@dataclass(frozen=True)
class _ReadFiles:
    """Files that were read before: the number of the version of each file, for those that are there as another version
    now (`replaced`) and for those that no longer exist (`gone`)."""

    replaced: dict[str, int]
    gone: dict[str, int]


def number_bounds(
    config: FilesConfig, seen: SeenFiles, table: Table, after: str | None, lookback: float
) -> tuple[str | None, CursorBounds]:
    """Return the bounds: from the number behind `after`, or from that of the earliest version read that has changed
    since: rows from there on are replaced. The rows of files that are gone stay, and those that came after them are not
    replaced then: that would take them along. Of a key whose newest row has left a file the row of an earlier one
    counts again, which may be below that number, and is below that of the row which it replaces."""
    files = seen.tables.get(table.name, ())
    newest = max((f.number for f in files), default=None)
    if after is None:
        return None, CursorBounds(None if newest is None else str(newest), 0)
    reached = int(after)
    if not any(v.number == reached for versions in seen.history.values() for v in versions):
        lost = f"the store does not know which files were read up to {NUMBER} {after}"
        return None, CursorBounds(str(newest), 0, lost=lost)
    past = _past(config, seen, table.name, files, reached)
    lower, notes, whole = reached + 1, [], ""
    if past.gone:
        notes.append(f"{len(past.gone):,} files that were read are gone ({min(past.gone)}, ...): their rows stay")
    if past.replaced:
        first, last = min(past.replaced.values()), max(past.replaced.values())
        numbers = [name for name, number in past.gone.items() if number >= first]
        if numbers and not table.key:
            notes.append(
                f"{', '.join(sorted(past.replaced))} changed: read again beside the rows that are there, for replacing"
                f" them would take those of {', '.join(sorted(numbers))} along"
            )
        else:
            lower = first
        if table.key and any(f.number < last for f in files):
            whole = f"{', '.join(sorted(past.replaced))} changed, and rows of earlier files may count again"
    lower = min(lower, reached + 1 - int(lookback)) if lookback else lower
    upper = str(max(reached, newest or 0))
    return str(lower), CursorBounds(upper, 0, notes=tuple(notes), fresh=lower > reached, whole=whole)


def _past(config: FilesConfig, seen: SeenFiles, table: str, files: tuple[File, ...], reached: int) -> _ReadFiles:
    now = {f.state.name: f for f in files}
    replaced: dict[str, int] = {}
    gone: dict[str, int] = {}
    for name, versions in seen.history.items():
        read = max((v.number for v in versions if v.number <= reached), default=None)
        if read is None:
            continue
        if name in now:
            if now[name].number > reached:
                replaced[name] = read
        elif table_of(config, FileState(name, 0, "")) == table:
            gone[name] = read
    return _ReadFiles(replaced, gone)


class FilesSource(WholeCatalog):
    """See the module. `records` keeps what was found in each file: those that have not changed are not opened. `start`
    gives a session of Spark, whose tasks look at many new files; without it threads of this process do."""

    kind = "files"
    default_schema = SCHEMA

    def __init__(self, config: FilesConfig, records: FileRecords, start: SessionStart | None = None) -> None:
        self.config, self.records, self.start = config, records, start

    def inspect(self) -> SeenFiles:
        """Return what the folder holds now."""
        return inspect_folder(self.config, self.records, start=self.start)

    def test(self) -> list[Check]:
        """List the folder and look at each table's files."""
        try:
            with self.snapshot() as snapshot:
                discovery, seen = snapshot.discover(), snapshot.seen
        except InstepError as error:
            return [Check("list the folder", False, error.message, error.hint)]
        count, tables = sum(map(len, seen.tables.values())), len(discovery.catalog.tables)
        hint = "" if tables else "check `path`, `tables`, `include` and `exclude`"
        waiting = [f"{f.name} is being written" for files in seen.waiting.values() for f in files]
        return [
            Check("list the folder", True, "; ".join([f"{self.config.path}: {count:,} files", *waiting])),
            Check("list tables", bool(tables), f"{tables} tables", hint),
            *(
                Check(f"read {'.'.join(ref)}", False, why, "repair it, or `exclude` the table")
                for ref, why in discovery.denied.items()
            ),
            *(
                Check(f"read all of {object_path(ref)}", False, why, needed=False)
                for ref, why in discovery.unread.items()
            ),
        ]

    @contextmanager
    def snapshot(self) -> Iterator[FilesSnapshot]:
        """Open a snapshot of the files that are there now."""
        yield FilesSnapshot(self, self.inspect())


class FilesSnapshot:
    """The files as of one listing."""

    def __init__(self, source: FilesSource, seen: SeenFiles) -> None:
        self.source, self.config, self.seen = source, source.config, seen
        self.reader = FilesReader(source.config)
        self._found: dict[tuple[Any, ...], SupersededLines] = {}

    @cached_property
    def _tables(self) -> tuple[dict[tuple[str, str], Table], dict[tuple[str, ...], str]]:
        """(tables that can be read, why others cannot be)."""
        tables: dict[tuple[str, str], Table] = {}
        denied: dict[tuple[str, ...], str] = {(SCHEMA, name): why for name, why in self.seen.broken.items()}
        for name, files in self.seen.tables.items():
            try:
                table = table_of_files(self.config, name, files)
            except ReadError as error:
                denied[SCHEMA, name] = error_line(error)
                continue
            if any(f.shape.columns for f in files):
                tables[table.ref] = table
            elif none := next((f for f in files if f.shape.refused), None):
                denied[SCHEMA, name] = _without_rows(none)
        for name, unread in self.seen.unread.items():
            known_names = {*self.seen.tables, *self.seen.broken, *self.seen.waiting}
            if name not in known_names and any(UNREAD_DATA.fullmatch(s) for f in unread for s in f.suffixes):
                denied[SCHEMA, name] = unread_text(unread)
        return tables, denied

    def discover(self) -> Discovery:
        tables, denied = self._tables
        catalog = Catalog.of(tables.values())
        unread = {(SCHEMA, n): unread_text(f) for n, f in self.seen.unread.items() if (SCHEMA, n) not in denied}
        parts = [fingerprint(catalog), sorted(".".join(r) for r in denied)]
        fingerprints = digest([*parts, sorted(unread.items())] if unread else parts)
        stats = {t.ref: _stats(self.seen.tables[t.name]) for t in catalog.tables}
        return Discovery(catalog, fingerprints, stats, denied, broken=frozenset(denied), unread=unread)

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        """Return the types of the columns; text files yield texts of them."""
        return {c.column.name: c.source.type for c in read.columns if c.source}

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return files, row groups and parts of big text files, of about a million rows or 256 MB together. The keys of
        a table with a declared one are read first: of each the newest row counts."""
        names = [c.name for c in source_columns(read, columns)]
        bound = None if rows.column is None else cursor_source(read, rows.column)
        numbered = NUMBER in self.config.metadata
        newest = partial(self._superseded, read.source)
        return scans(key, read.source, self._files(read), names, bound, rows, newest, numbered=numbered)

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        """Return the bounds of a cursor: `_file_number` from the listing; for another column all files are read."""
        source = cursor_source(read, column)
        if source.name == NUMBER and NUMBER in self.config.metadata:
            return number_bounds(self.config, self.seen, read.source, after, lookback)
        upper, nulls = None, 0
        for file in self._files(read):
            for piece in records(self.config, read.source.name, file, None, {source.name}):
                values = comparable(piece.arrays[source.name], source.type)
                nulls += values.null_count
                most = pc.max(values)
                upper = most if upper is None or (most.is_valid and most.as_py() > upper.as_py()) else upper
        return moved_back(after, lookback, f"{read.source.path}.{source.name}"), CursorBounds(_shown(upper), nulls)

    def count(self, read: TableRead) -> int:
        """Return rows that can be read; of a table with a declared key those that count."""
        files = self._files(read)
        superseded = self._superseded(read.source, files).lines if read.source.key else 0
        return sum(f.shape.rows for f in files) - superseded

    def _superseded(self, table: Table, files: Sequence[File]) -> SupersededLines:
        """Return the superseded lines; the keys of the same files are read once."""
        key = {k: table.by_name[k].type for k in table.key}
        key_of_files = (table.name, tuple(key.items()), tuple(f.number for f in files))
        if key_of_files not in self._found:
            start = self.source.start
            large = start is not None and sum(f.state.size for f in files) > INSPECT_BYTES
            session = start() if large and start is not None else None
            self._found[key_of_files] = superseded_lines(self.config, table.name, files, key, session)
        return self._found[key_of_files]

    @property
    def reason_not_repeatable(self) -> str:
        return ""  # a file that has changed is an error

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        """Return the tables that have changed; one with a file that is being written now counts as unchanged."""
        now, denied = FilesSnapshot(self.source, self.source.inspect())._tables
        return frozenset(t.ref for t in catalog.tables if t.ref not in denied and now.get(t.ref) != t)

    def _files(self, read: TableRead) -> tuple[File, ...]:
        files = self.seen.tables.get(read.source.name)
        if files is None:
            why = self.seen.broken.get(read.source.name, "there is no file of it")
            raise ReadError(f"{read.source.path}: {why}", hint="run `instep source test`")
        return files


def _without_rows(file: File) -> str:
    """Return why files with records but without columns are not a table."""
    what = "has to be one JSON object" if file.format == "jsonl" else "needs a header"
    return f"none of the {file.shape.refused:,} records of {file.state.name} is a row: each {what}"


def _shown(value: pa.Scalar | None) -> str | None:
    if value is None or not value.is_valid:
        return None
    return str(to_text(pa.array([value.as_py()], value.type))[0].as_py())


def _stats(files: Sequence[File]) -> TableStats:
    return TableStats(sum(f.shape.rows for f in files), sum(f.state.size for f in files))
