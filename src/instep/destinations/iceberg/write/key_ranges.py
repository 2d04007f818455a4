"""An upsert in ranges of the key: a task finds the edits of one range as this process finds those of a small table.

Files of a table and staged files have their keys in nearly the same order, so that a range of keys is in few of them.
No row is moved between tasks. Of a whole compare, what is equal on both sides is set aside as it passes by; of other
upserts, ranges of which nothing is staged are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IntegerType, LongType

from instep.destinations.iceberg.commit.row_reader import (
    ExistingFile,
    KeySpan,
    existing_rows,
    group_spans,
    light,
    old_file,
)
from instep.destinations.iceberg.metadata.partition import place_of
from instep.destinations.iceberg.write.upsert import OUT_OF_REACH, Delta, find_delta
from instep.spark.merge import BEYOND, EDIT_COLUMNS, MergePlan
from instep.stage.files.pyiceberg_code import load_file_io

RANGE_ROWS = 8_000_000
"""About so many rows of both sides are one task's."""
SMALLEST_ROWS = 500_000
"""Fewer are not divided to occupy more tasks."""
GROUP_ROWS = 1_000_000
"""Files with more rows are read by row groups, whose keys their footers have."""
MOST_READS = 3
"""Times that all rows may be read: a row group is read by each task whose range it may have keys of."""


@dataclass(frozen=True)
class KeyRange:
    """Keys from `low` on and below `high`; None is without a bound, and NULL is below all. `staged`, `files`: the
    numbers of the files that may have them."""

    low: int | None
    high: int | None
    staged: tuple[int, ...]
    files: tuple[int, ...]


@dataclass(frozen=True)
class RangeWork:
    """The settings of the tasks: `table` has no snapshots."""

    plan: MergePlan
    table: TableMetadata
    location: str
    staged: tuple[ExistingFile, ...]
    files: tuple[ExistingFile, ...]
    ranges: tuple[KeyRange, ...]
    io: Mapping[str, str] = field(repr=False)


def range_work(
    table: IcebergTable,
    plan: MergePlan,
    staged: Sequence[DataFile],
    tasks: Sequence[FileScanTask],
    io: Mapping[str, str],
    width: int,
) -> RangeWork | None:
    """Return the work of an upsert for about `width` tasks or more; None where its rows have to be joined: deletes by
    given keys, keys that do not begin with a whole number, and keys that are in no order."""
    if not plan.meets_by_key or any(
        d.content != DataFileContent.POSITION_DELETES for t in tasks for d in t.delete_files
    ):
        return None
    key = table.schema().find_field(plan.key[0])
    if not isinstance(key.field_type, IntegerType | LongType):
        return None
    coming, existing = (
        [_spans(table, file, key.field_id, key.field_type) for file in files]
        for files in (staged, [t.file for t in tasks])
    )
    rows = sum(span.rows for spans in [*coming, *existing] for span in spans)
    ranges = key_ranges(coming, existing, min(RANGE_ROWS, max(-(-rows // width), SMALLEST_ROWS)))
    if ranges is None:
        return None
    olds = [
        ExistingFile(n, f.file_path, f.record_count, f.file_size_in_bytes, place=place_of(f))
        for n, f in enumerate(staged)
    ]
    files = [old_file(n, task) for n, task in enumerate(tasks)]
    return RangeWork(plan, light(table.metadata), table.location(), tuple(olds), tuple(files), tuple(ranges), io)


def _spans(table: IcebergTable, file: DataFile, column: int, kind: IntegerType | LongType) -> list[KeySpan]:
    """Return the keys of a file as its metrics have them, of a large one those of its row groups."""
    if file.record_count > GROUP_ROWS and (groups := group_spans(table.io, file.file_path, column)):
        return groups
    low, high = (file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)
    if low is None or high is None:
        return [KeySpan(None, None, file.record_count)]
    least, most = int(from_bytes(kind, low)), int(from_bytes(kind, high))
    return [KeySpan(None if (file.null_value_counts or {}).get(column, 1) else least, most, file.record_count)]


def key_ranges(
    staged: Sequence[Sequence[KeySpan]], table: Sequence[Sequence[KeySpan]], most: int
) -> list[KeyRange] | None:
    """Return ranges with about `most` rows each, if keys are spread evenly; None where rows would be read too often.
    Each file has the spans of the parts that are read alone."""
    spans = [span for file in (*staged, *table) for span in file]
    cuts = list(_cuts(spans, most))
    ranges, reads = list[KeyRange](), 0
    for low, high in zip([None, *cuts], [*cuts, None], strict=True):
        reads += sum(span.rows for span in spans if span.meets(low, high))
        meeting = (
            tuple(n for n, file in enumerate(files) if any(span.meets(low, high) for span in file))
            for files in (staged, table)
        )
        ranges.append(KeyRange(low, high, *meeting))
    return ranges if reads <= MOST_READS * sum(span.rows for span in spans) else None


def _cuts(spans: Sequence[KeySpan], most: int) -> Iterator[int]:
    """Yield the keys at which ranges begin, but for the first: where files do, as far as possible."""
    changes: list[tuple[int, float]] = []
    for span in spans:
        if span.low is not None and span.high is not None:
            density = span.rows / (span.high + 1 - span.low)
            changes += [(span.low, density), (span.high + 1, -density)]
    density, since, at = 0.0, 0.0, 0
    for key, change in sorted(changes):
        while since + density * (key - at) > most:
            if since < most / 2:
                at += max(int((most - since) / density), 1)
            since = 0.0
            if at < key:
                yield at
        since, at, density = since + max(density, 0) * (key - at), key, density + change


def find_in_range(work: RangeWork, number: int) -> pa.Table:
    """Return the edits of a range; one that is `BEYOND` the task if only a join can find them."""
    part = work.ranges[number]
    if work.plan.leaves_others and not part.staged:
        return EDIT_COLUMNS.empty_table()
    io = load_file_io(dict(work.io), work.location)
    table = IcebergTable(("merge",), work.table, "", io, None)  # type: ignore[arg-type]
    within = (part.low, part.high)
    staged = existing_rows(table, [work.staged[n] for n in part.staged], within)
    rows = existing_rows(table, [work.files[n] for n in part.files], within)
    try:
        delta = find_delta(work.plan, staged, None, rows)
    except Exception as error:
        unread = next((e for read in (staged, rows) for e in read.errors), error)
        if not isinstance(unread, OUT_OF_REACH):
            raise unread from error
        delta = None
    if delta is None:
        return pa.table([[BEYOND], *[[None]] * 4], schema=EDIT_COLUMNS)
    return _edits(delta, np.asarray(part.staged, dtype=np.int64), np.asarray(part.files, dtype=np.int64))


def _edits(delta: Delta, staged: npt.NDArray[np.int64], files: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of a delta; files have the numbers `staged` and `files` outside."""
    parts = []
    for what in ("inserted", "updated", "marked", "removed"):
        places = getattr(delta, what)
        comes, goes = what in ("inserted", "updated"), what != "inserted"
        none = pa.nulls(len(places), pa.int64())
        came = [pa.array(staged[places[:, 0]]), pa.array(places[:, 1])] if comes else [none, none]
        gone = [pa.array(files[places[:, -2]]), pa.array(places[:, -1])] if goes else [none, none]
        kinds = [pa.repeat(what, len(places)), *came, *gone]
        parts.append(pa.table([v.cast(f.type) for v, f in zip(kinds, EDIT_COLUMNS, strict=True)], schema=EDIT_COLUMNS))
    return pa.concat_tables(parts)
