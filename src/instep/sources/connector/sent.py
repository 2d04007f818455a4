"""What a connector sent, counted: the segments of a run as the tables that `lint` looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.schema.types import DataType, Unknown
from instep.sources.connector.lint import SentColumn, SentTable
from instep.sources.connector.segment import GIVEN, OP, SEQ, UPSERT, Segment, SegmentTable

Ref = tuple[str, str]


class Sent:
    """Adds segments up. Only counts are kept, so that memory does not grow with the rows."""

    def __init__(self) -> None:
        self._tables: dict[Ref, list[SegmentTable]] = {}
        self._values: Counter[tuple[Ref, str]] = Counter()

    def add(self, segment: Segment) -> None:
        """Reads the segment's files, which may be gone afterwards."""
        for table in segment.tables:
            ref = (table.schema, table.name)
            self._tables.setdefault(ref, []).append(table)
            for name, count in _values(Path(segment.folder) / file.path for file in table.files):
                self._values[ref, name] += count

    def tables(self) -> tuple[SentTable, ...]:
        """In the order in which they were seen first."""
        return tuple(self._table(ref, found) for ref, found in self._tables.items())

    def _table(self, ref: Ref, found: list[SegmentTable]) -> SentTable:
        last = found[-1]
        names = dict.fromkeys(c.name for table in found for c in table.columns)
        return SentTable(
            path=".".join(filter(None, ref)),
            declared=last.declared,
            key=last.key,
            rows=sum(t.upserts for t in found),
            operations=sum(t.rows + len(t.truncates) for t in found),
            columns=tuple(self._column(ref, name, found) for name in names),
        )

    def _column(self, ref: Ref, name: str, found: Iterable[SegmentTable]) -> SentColumn:
        all = [c for table in found for c in table.columns if c.name == name]
        met = (kind for c in all for kind in c.met or (c.type,))
        types: dict[DataType, None] = dict.fromkeys(kind for kind in met if not isinstance(kind, Unknown))
        return SentColumn(
            name, tuple(types), any(c.declared for c in all), self._values[ref, name], any(c.key for c in all)
        )


def _values(files: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """(column, upserts with a value in it), several times for one column."""
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches():
                yield from _counted(batch)


def _counted(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Of the record's own columns."""
    upserts = batch.filter(pc.equal(batch.column(OP), UPSERT))
    own = len((OP, SEQ, GIVEN))
    for name, column in zip(upserts.schema.names[own:], upserts.columns[own:], strict=True):
        yield name, len(column) - column.null_count
