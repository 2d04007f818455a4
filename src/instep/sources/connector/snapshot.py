"""The tables that a connector has shown so far, and the operations of the group of segments at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from instep.errors import InstepError, ReadError
from instep.schema.catalog.catalog import ROW_ID, Catalog, fingerprint
from instep.schema.catalog.types import Binary, DataType, Json, String
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorBounds, CursorRange, Discovery, TableStats
from instep.sources.connector.reduce import ConnectorScan, Ends, SegmentScan, What, membership_mask, mixed, reduce
from instep.sources.connector.seen import SeenTables
from instep.sources.connector.segment import NOTES, SegmentTable
from instep.sources.connector.uploads import COLUMN, publish
from instep.sources.query import source_columns
from instep.sources.stream import GIVEN, TableCounts
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.spec import Chunk


@dataclass(frozen=True)
class ConnectorReader:
    """Opens nothing by itself: the chunks name their files."""

    @contextmanager
    def open(self) -> Iterator[ConnectorSession]:
        with ExitStack() as stack:
            yield ConnectorSession(stack)


class ConnectorSession:
    """Keeps how the operations of the table at hand end: its chunks come one after the other."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._last: tuple[object, duckdb.DuckDBPyConnection, Ends] | None = None

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        scan = ConnectorScan.from_text(chunk.query)
        db, ends = self._ends(scan)
        if scan.what == "changed":
            yield from _in_order(scan, mixed(db, scan, loose=True), with_given=True) if ends.mixed else ()
            return
        numbers_read = ends.whole if scan.what == "rows" else ends.gone
        every = len(numbers_read) == ends.all
        for numbers, columns in scan.batches(scan.columns):
            values = [columns.get(c, pa.nulls(len(numbers))) for c in scan.columns]
            batch = pa.RecordBatch.from_arrays(values, names=list(scan.columns))
            yield batch if every else batch.filter(membership_mask(numbers, numbers_read))
        if scan.what == "rows" and ends.mixed:
            yield from _in_order(scan, mixed(db, scan, loose=False), with_given=False)

    def _ends(self, scan: ConnectorScan) -> tuple[duckdb.DuckDBPyConnection, Ends]:
        scanned = (scan.table, scan.key, scan.parts)
        if self._last is None or self._last[0] != scanned:
            self._stack.close()
            db = self._stack.enter_context(in_duckdb(wrong=_failed))
            self._last = (scanned, db, reduce(db, scan))
        return self._last[1], self._last[2]


def _in_order(scan: ConnectorScan, batches: Iterator[pa.RecordBatch], *, with_given: bool) -> Iterator[pa.RecordBatch]:
    names = [*([GIVEN] if with_given else []), *scan.columns]
    for batch in batches:
        yield batch.select(names)


def _value_type(sent: DataType, accepted: DataType) -> DataType:
    """Return the type by which values are cast. Texts for a column of bytes stand for those that came beside other
    values; a text that came as one does not fit: its own bytes would be another text once the column is one."""
    return accepted if isinstance(accepted, Binary) and isinstance(sent, String | Json) else sent


def _failed(message: str) -> InstepError:
    return ReadError(f"operations could not be put in order: {message}", hint="run the sync again")


Ref = tuple[str, str]
Folders = Mapping[Ref, Sequence[tuple[str, SegmentTable]]]
"""Segments with operations, by table, in order: (folder, what the manifest says of the table)."""


def counts_of(table: SegmentTable) -> TableCounts:
    return TableCounts(table.upserts, table.updates, table.deletes, bool(table.truncates))


class ConnectorSnapshot:
    """`folders`: none where no run is under way. `readable` answers where the files of one are, `uploads` is where
    files of rows are put; `before`: what had been seen when this group was taken. `noted`: rows may have notes."""

    def __init__(
        self,
        seen: SeenTables,
        folders: Folders,
        readable: Callable[[str], str] = str,
        uploads: Path = Path(),
        before: SeenTables | None = None,
        *,
        noted: bool = False,
    ) -> None:
        self.seen, self.folders, self.readable, self._uploads = seen, folders, readable, uploads
        self.begun = seen.first_filled(before) if before is not None else {}
        self._tables = seen.by_declaration(before) if before is not None else seen
        self.reader, self._noted = ConnectorReader(), noted

    def discover(self) -> Discovery:
        catalog = self._tables.catalog
        stats = {
            ref: TableStats(sum(t.rows for _, t in some), sum(f.bytes for _, t in some for f in t.files))
            for ref, some in self.folders.items()
        }
        return Discovery(catalog, fingerprint(catalog), stats, silent=self.seen.stale_columns, begun=self.begun)

    def counts(self, ref: Ref) -> TableCounts:
        return sum((counts_of(t) for _, t in self.folders.get(ref, ())), TableCounts())

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return one chunk: the operations of a table are put in order together."""
        return self._chunk(read, key, "rows", columns, noted=self._noted and not columns)

    def deleted_keys(self, read: TableRead, key: str) -> list[Chunk]:
        return self._chunk(read, key, "gone", read.table.key)

    def changed(self, read: TableRead, key: str) -> list[Chunk]:
        return self._chunk(read, key, "changed", ())

    def notes(self, read: TableRead) -> Mapping[str, str]:
        columns = ((c.source, c.column) for c in read.columns)
        return {s.name: c.alias or c.name for s, c in columns if s is not None} if self._noted else {}

    def _chunk(
        self, read: TableRead, key: str, what: What, columns: Sequence[str], *, noted: bool = False
    ) -> list[Chunk]:
        folders = self.folders.get(read.source.ref, ())
        parts = tuple(SegmentScan.of(self.readable(folder), table) for folder, table in folders)
        names = (*(c.name for c in source_columns(read, columns)), *((NOTES,) if noted else ()))
        texts = tuple(c.name for c in read.source.columns if isinstance(c.type, String))
        scan = ConnectorScan(read.source.path, what, read.source.key, names, parts, texts)
        rows, size = sum(t.rows for _, t in folders), sum(f.bytes for _, t in folders for f in t.files)
        return [Chunk(key, 0, scan.to_text(), rows, size, lane=read.source.path)]

    def place_files(self, read: TableRead) -> None:
        """Place files before their rows, and never where the rows do not name them."""
        if [c.hashed for c in read.columns if c.source and c.source.name == COLUMN] != [False]:
            return
        for folder, table in self.folders.get(read.source.ref, ()):
            if table.uploads:
                publish(Path(self.readable(folder)), table, self._uploads)

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        return {c.column.name: _value_type(c.source.type, c.column.type) for c in read.columns if c.source}

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        raise ReadError(
            f"{read.source.path} is read by its operations, not by a cursor", hint="take `cursor` out of instep.yml"
        )

    def count(self, read: TableRead) -> int:
        raise ReadError(
            f"{read.source.path}: a connector's rows cannot be counted, it sends what has changed",
            hint="compare with `instep sync --full`",
        )

    def changed_tables(self, catalog: Catalog) -> frozenset[Ref]:
        """Return no table: a segment never changes once it is written."""
        return frozenset()


__all__ = ["ROW_ID", "ConnectorSnapshot", "Folders", "counts_of"]
