"""Cursor columns: conditions, bounds and lookback, all computed by the server on its own texts."""

from __future__ import annotations

from math import ceil

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Date, Decimal, Float, Int, Timestamp, TimestampTz
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange
from instep.sources.postgres.sql import literal, quote, quote_table, select


def condition(read: TableRead, rows: CursorRange) -> str:
    """Return the rows of the range that the filter lets through; a NULL cursor is in no bounded range."""
    terms = [read.condition] if read.where else []
    if rows.column is not None:
        column = cursor_column(read, rows.column)
        bounds = ((">=", rows.lower), ("<=", rows.upper))
        terms += [f"{quote(column.name)} {op} {_value(b, column)}" for op, b in bounds if b is not None]
    return " AND ".join(terms)


def cursor_column(read: TableRead, name: str) -> Column:
    """Return the source column that feeds the accepted column `name`, or is called so; raises SchemaError without
    one."""
    fed = {c.column.name: c.source for c in read.columns if c.source}
    if found := fed.get(name) or read.source.by_name.get(name):
        return found
    hint = "choose another cursor for the table, or load it whole"
    raise SchemaError(f"{read.source.path}: the cursor column {name} is gone", hint=hint)


def _value(text: str, column: Column) -> str:
    return f"CAST({literal(text)} AS {column.native})"


def bounds_statement(table: Table, column: Column, where: str = "") -> str:
    """Return one row: the greatest value as text, and how many rows have no usable one (NULL, infinity or NaN).

    Infinity would be the last cursor value for ever, so it counts as no value. The greatest is that of the column
    (`t.`), not of the text that is selected under the same name.
    """
    name, source = quote(column.name), quote_table(table.schema, table.name)
    finite = _finite(name, column)
    greatest = select(f"{name}::text", f"{source} AS t", f"{name} IS NOT NULL", finite, where)
    nulls = [select("count(*)", source, f"{name} IS NULL", where)] if column.nullable else []
    infinite = [select("count(*)", source, f"NOT ({finite})", where)] if finite else []
    counted = " + ".join(f"({q})" for q in nulls + infinite) or "0"
    return f"SELECT ({greatest} ORDER BY t.{name} DESC LIMIT 1), {counted}"


def _finite(name: str, column: Column) -> str:
    special: tuple[str, ...]
    match column.type:
        case Timestamp() | TimestampTz() | Date():
            special = ("infinity", "-infinity")
        case Float():
            special = ("infinity", "-infinity", "NaN")
        case _ if column.native.startswith("numeric"):
            return f"{name}::text NOT IN ('NaN', 'Infinity', '-Infinity')"
        case _:
            return ""
    return f"{name} NOT IN ({', '.join(_value(s, column) for s in special)})"


def moved_back(column: Column, after: str, lookback: float, path: str) -> str:
    """Return an expression for the text of `after` less `lookback` seconds or units; raises SchemaError for a type
    that has neither."""
    value = _value(after, column)
    match column.type:
        case Timestamp() | TimestampTz():
            return f"({value} - make_interval(secs => {lookback!r}))::text"
        case Date():
            return f"({value} - {ceil(lookback / 86400)})::text"
        case Int(bits):
            return f"greatest({value}::numeric - {ceil(lookback)}, {-(2 ** (bits - 1))})::text"
        case Decimal() | Float():
            return f"({value} - CAST({literal(repr(lookback))} AS {column.native}))::text"
        case _ if column.native.startswith("numeric"):
            return f"({value} - {literal(repr(lookback))}::numeric)::text"
    hint = "set lookback to 0, or choose a cursor that is a number or a time"
    raise SchemaError(f"{path}.{column.name}: {column.native} has no lookback", hint=hint)
