"""Files of a Delta table, and row groups of files, that can have rows which pass filters: by statistics of both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq

from instep.destinations.delta.protocol.snapshot import Action
from instep.destinations.delta.shape import DeltaField, values_of
from instep.destinations.filters import ColumnFilter, ColumnRange, comparable, may_pass

_MILLISECOND = timedelta(milliseconds=1)


def may_have(
    file: Action, filters: Sequence[ColumnFilter], fields: Sequence[DeltaField], by: Sequence[DeltaField]
) -> bool:
    """Return whether a file may have a row that passes the filters, whose columns are the `fields`."""
    if not filters:
        return True
    filtered = {f.column for f in filters}
    place = values_of(file, by)
    stats = json.loads(file.get("stats") or "{}", parse_float=Decimal)
    ranges = dict[str, ColumnRange]()
    for field in (f for f in fields if f.name in filtered):
        if field.physical in place:
            value = place[field.physical].as_py()
            ranges[field.name] = ColumnRange(value, value, value is None, value is None)
        else:
            ranges[field.name] = _in_statistics(stats, field)
    return may_pass(filters, _compared(ranges, filters))


def _in_statistics(stats: Mapping[str, Any], field: DeltaField) -> ColumnRange:
    nulls, rows = stats.get("nullCount", {}).get(field.physical), stats.get("numRecords")
    low = _value(stats.get("minValues", {}).get(field.physical), field)
    high = _value(stats.get("maxValues", {}).get(field.physical), field, up=True)
    return ColumnRange(low, high, nulls != 0, nulls is not None and nulls == rows)


def _value(value: Any, field: DeltaField, *, up: bool = False) -> Any:
    """Return a bound as values of the column are; None for one that cannot be told. Times are cut to milliseconds."""
    try:
        if field.type == "date":
            return date.fromisoformat(value)
        if field.type in ("timestamp", "timestamp_ntz"):
            time = datetime.fromisoformat(value)
            time = time.astimezone(UTC) if time.tzinfo else time
            return time + _MILLISECOND if up else time
    except (TypeError, ValueError, OverflowError):
        return None
    return value


def _compared(ranges: Mapping[str, ColumnRange], filters: Sequence[ColumnFilter]) -> dict[str, ColumnRange]:
    own = {name: [f for f in filters if f.column == name] for name in ranges}
    return {
        name: ColumnRange(comparable(r.low, own[name]), comparable(r.high, own[name]), r.some_null, r.all_null)
        for name, r in ranges.items()
    }


def groups(parquet: pq.FileMetaData, filters: Sequence[ColumnFilter]) -> list[int]:
    """Return the row groups of a file that may have a row that passes the filters on its columns."""
    filtered, passing = {f.column for f in filters}, list[int]()
    for group in range(parquet.num_row_groups):
        ranges, part = dict[str, ColumnRange](), parquet.row_group(group)
        for place in range(part.num_columns):
            column = part.column(place)
            stats = column.statistics
            if stats is not None and (name := column.path_in_schema) in filtered:
                nulls = stats.null_count if stats.has_null_count else None
                low, high = (stats.min, stats.max) if stats.has_min_max else (None, None)
                ranges[name] = ColumnRange(low, high, nulls != 0, nulls == part.num_rows)
        if may_pass(filters, _compared(ranges, filters)):
            passing.append(group)
    return passing
