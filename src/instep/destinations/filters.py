"""Filters of rows that are read: what cannot have a row that passes them all need not be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

Operator = Literal["=", "<", "<=", ">", ">=", "in", "null", "not null"]


@dataclass(frozen=True)
class ColumnFilter:
    """A column and what its value has to be."""

    column: str
    operator: Operator
    values: tuple[Any, ...] = ()
    """Values to match: none for NULL, several for `in`, in the column's own type: bool, int, Decimal, str, date, or
    datetime (with a zone where the column has one)."""


@dataclass(frozen=True)
class ColumnRange:
    """The values of a column in a file or a part of it: the least and the greatest, as far as they are known (they may
    be less and greater than any), and whether some, or all of them, may be NULL."""

    low: Any = None
    high: Any = None
    some_null: bool = True
    all_null: bool = False


def may_pass(filters: Iterable[ColumnFilter], ranges: Mapping[str, ColumnRange]) -> bool:
    """Return whether a row may pass all filters where the columns have these values; of one without it any."""
    return all(_may_pass(f, ranges[f.column]) for f in filters if f.column in ranges)


def _may_pass(column_filter: ColumnFilter, values: ColumnRange) -> bool:
    if column_filter.operator == "null":
        return values.some_null
    if values.all_null:
        return False
    low, high, first = values.low, values.high, column_filter.values[0] if column_filter.values else None
    match column_filter.operator:
        case "=" | "in":
            return any((low is None or low <= v) and (high is None or v <= high) for v in column_filter.values)
        case "<":
            return bool(low is None or low < first)
        case "<=":
            return bool(low is None or low <= first)
        case ">":
            return bool(high is None or high > first)
        case ">=":
            return bool(high is None or high >= first)
        case "not null":
            return True


def comparable(value: Any, filters: Sequence[ColumnFilter]) -> Any:
    """Return a bound of a column's values as the values of these filters are, which compare with it; None for one that
    is of another kind."""
    operand = next((v for f in filters for v in f.values), None)
    if isinstance(value, datetime) and isinstance(operand, datetime):
        if (value.tzinfo is None) == (operand.tzinfo is None):
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(operand, bool) or isinstance(value, bool):
        return value if isinstance(operand, bool) and isinstance(value, bool) else None
    if isinstance(operand, int | Decimal):
        return value if isinstance(value, int | Decimal) else None
    return value if type(value) is type(operand) and isinstance(value, str | date) else None


def sql_text(column_filter: ColumnFilter, column: str) -> str:
    """Return the condition in SQL, as DuckDB and PostgreSQL read it; "" for one that they may not read alike.

    Literals take the type of the column. Texts have their own order in PostgreSQL: they are only told apart."""
    if column_filter.operator in ("null", "not null"):
        return f"{column} IS {column_filter.operator.upper()}"
    texts = [_literal(v) for v in column_filter.values]
    if any(not t for t in texts) or (
        column_filter.operator not in ("=", "in") and isinstance(column_filter.values[0], str)
    ):
        return ""
    return (
        f"{column} IN ({', '.join(texts)})"
        if column_filter.operator == "in"
        else f"{column} {column_filter.operator} {texts[0]}"
    )


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str) and "\0" in value:
        return ""
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
