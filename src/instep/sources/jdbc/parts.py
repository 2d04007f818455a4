"""Divides a table by ranges of one column, so that several tasks read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

from instep.errors import ProjectError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, Date, Decimal, Int, Timestamp
from instep.schema.selection.selection import Pattern
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.sql import Sql

ROWS = 1_000_000
MOST = 32
CHOSEN = 8
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class NumberScale:
    """Values as whole numbers and back to texts."""

    number: Callable[[str], int]
    text: Callable[[int], str]


def _moment(number: int) -> str:
    return (_EPOCH + timedelta(microseconds=number)).isoformat(" ")


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


_WHOLE = NumberScale(lambda text: int(text.partition(".")[0]), str)
_DAYS = NumberScale(lambda text: date.fromisoformat(text[:10]).toordinal(), lambda n: date.fromordinal(n).isoformat())
_MOMENTS = NumberScale(_microseconds, _moment)


def measure(kind: DataType) -> NumberScale | None:
    """Return how a column's values are counted; None for a type that ranges are not made of."""
    if isinstance(kind, Int) or (isinstance(kind, Decimal) and not kind.scale):
        return _WHOLE
    return _DAYS if isinstance(kind, Date) else _MOMENTS if isinstance(kind, Timestamp) else None


def part_column(config: JdbcConfig, table: Table) -> Column | None:
    """Return the column by which a table is divided: the one that the settings name, or the first of its key if that is
    a whole number. ProjectError for a name that cannot be used."""
    for pattern, name in config.partition_columns.items():
        if not Pattern(pattern).matches(table.path):
            continue
        column = table.by_name.get(name)
        if column is None or measure(column.type) is None:
            what = f"is {column.type}" if column else "does not exist"
            raise ProjectError(
                f"partition_columns: {table.path}.{name} {what}",
                hint="name a column of whole numbers, dates or moments",
            )
        return column
    first = table.by_name[table.key[0]] if table.key else None
    return first if first is not None and measure(first.type) is _WHOLE else None


def count_of(config: JdbcConfig, column: Column, low: int, high: int) -> int:
    """Return how many parts; as many as the settings say, or one for a million values."""
    most = config.max_connections or MOST
    if config.partitions:
        return min(config.partitions, most)
    return min(most, CHOSEN if measure(column.type) is not _WHOLE else -(-(high - low + 1) // ROWS))


def conditions(sql: Sql, column: Column, low: str, high: str, config: JdbcConfig) -> list[str]:
    """Conditions over `p` that every row meets exactly one of, also one that comes later or has NULL there."""
    by = measure(column.type)
    assert by is not None
    first, last = by.number(low), by.number(high)
    count = max(1, min(count_of(config, column, first, last), last - first + 1))
    cuts = [first + (last - first + 1) * n // count for n in range(1, count)]
    if not cuts:
        return [""]
    texts = [sql.literal(column.type, by.text(cut)) for cut in cuts]
    return _ranges(sql.name("p"), texts)


def _ranges(name: str, cuts: Sequence[str]) -> list[str]:
    between = [f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(cuts)]
    return [f"{name} < {cuts[0]} OR {name} IS NULL", *between, f"{name} >= {cuts[-1]}"]
