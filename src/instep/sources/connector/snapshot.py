"""What a connector has shown by now, and the operations of the group of segments at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from instep.errors import ReadError
from instep.schema.names import ROW_ID
from instep.schema.read import TableRead
from instep.schema.table import Catalog, fingerprint
from instep.schema.types import DataType
from instep.sources.base import CursorBounds, CursorRange, Discovery, TableStats
from instep.sources.connector.read import ConnectorReader
from instep.sources.connector.scan import Part, Scan, What
from instep.sources.connector.seen import Seen
from instep.sources.connector.segment import SegmentTable
from instep.sources.connector.uploads import COLUMN, publish
from instep.sources.query import wanted
from instep.sources.stream import Brought
from instep.stage.spec import Chunk

Ref = tuple[str, str]
Folders = Mapping[Ref, Sequence[tuple[str, SegmentTable]]]
"""Segments with operations, by table, in order: (folder, what the manifest says of the table)."""


def brought(told: SegmentTable) -> Brought:
    return Brought(told.upserts, told.updates, told.deletes, bool(told.truncates))


class ConnectorSnapshot:
    """`folders`: none where no run is under way. `readable` answers where the files of one are, `uploads` is where
    files of rows are put; `before`: what had been seen when this group was taken."""

    def __init__(
        self,
        seen: Seen,
        folders: Folders,
        readable: Callable[[str], str] = str,
        uploads: Path = Path(),
        before: Seen | None = None,
    ) -> None:
        self.seen, self.folders, self.readable, self._uploads = seen, folders, readable, uploads
        self.begun = seen.begun(before) if before is not None else {}
        self.reader = ConnectorReader()

    def discover(self) -> Discovery:
        catalog = self.seen.catalog
        stats = {
            ref: TableStats(sum(t.rows for _, t in some), sum(f.bytes for _, t in some for f in t.files))
            for ref, some in self.folders.items()
        }
        return Discovery(catalog, fingerprint(catalog), stats, silent=self.seen.silent, begun=self.begun)

    def brought(self, ref: Ref) -> Brought:
        return sum((brought(t) for _, t in self.folders.get(ref, ())), Brought())

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """One chunk: the operations of a table are put in order together."""
        return self._chunk(read, key, "rows", columns)

    def gone(self, read: TableRead, key: str) -> list[Chunk]:
        return self._chunk(read, key, "gone", read.table.key)

    def changed(self, read: TableRead, key: str) -> list[Chunk]:
        return self._chunk(read, key, "changed", ())

    def _chunk(self, read: TableRead, key: str, what: What, columns: Sequence[str]) -> list[Chunk]:
        found = self.folders.get(read.source.ref, ())
        parts = tuple(Part.of(self.readable(folder), table) for folder, table in found)
        names = tuple(c.name for c in wanted(read, columns))
        scan = Scan(read.source.path, what, read.source.key, names, parts)
        rows, size = sum(t.rows for _, t in found), sum(f.bytes for _, t in found for f in t.files)
        return [Chunk(key, 0, scan.to_text(), rows, size, lane=read.source.path)]

    def place_files(self, read: TableRead) -> None:
        """Files come before their rows, and never where the rows do not tell of them."""
        if [c.hashed for c in read.columns if c.source and c.source.name == COLUMN] != [False]:
            return
        for folder, table in self.folders.get(read.source.ref, ()):
            if table.uploads:
                publish(Path(self.readable(folder)), table, self._uploads)

    def yields(self, read: TableRead) -> Mapping[str, DataType]:
        return {c.column.name: c.source.type for c in read.columns if c.source}

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

    def moved(self, catalog: Catalog) -> frozenset[Ref]:
        """What has come does not change any more."""
        return frozenset()


__all__ = ["ROW_ID", "ConnectorSnapshot", "Folders", "brought"]
