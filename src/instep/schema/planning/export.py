"""A catalog as SQL (the dialect of DuckDB) and as Markdown: for people, reviews and scratch databases."""

from __future__ import annotations

from collections.abc import Iterator

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Array, Binary, DataType, Decimal, Float, Int, String, Struct
from instep.schema.planning.naming import quote

_INTS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_FLOATS = {32: "FLOAT", 64: "DOUBLE"}
_NAMED = {
    "boolean": "BOOLEAN",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "uuid": "UUID",
    "json": "JSON",
    "unknown": "VARCHAR",
}


def to_sql(catalog: Catalog) -> str:
    """Return statements that make the schemas and the tables, views as tables; empty for an empty catalog. Names that
    differ by case only are written as they are, which DuckDB refuses."""
    schemas = (f"CREATE SCHEMA IF NOT EXISTS {quote(name)};" for name in sorted(catalog.schemas) if name)
    return "\n".join([*schemas, *(_create(t) for t in catalog.tables)])


def _create(table: Table) -> str:
    lines = [(_column_sql(c), _remark(c)) for c in table.columns]
    if table.key:
        lines.append((f"PRIMARY KEY ({', '.join(map(quote, table.key))})", ""))
    last = len(lines) - 1
    body = "\n".join(f"    {text}{',' * (at < last)}{remark}" for at, (text, remark) in enumerate(lines))
    path = ".".join(quote(name) for name in table.ref if name)
    return f"\nCREATE TABLE {path} ({'  -- kept after its removal' if table.retained else ''}\n{body}\n);"


def _column_sql(column: Column) -> str:
    return f"{quote(column.name)} {sql_type(column.type)}{'' if column.nullable else ' NOT NULL'}"


def _remark(column: Column) -> str:
    return "  -- kept after its removal" if column.retained else ""


def sql_type(kind: DataType) -> str:
    """Return the type as DuckDB writes it; a length is not part of it."""
    match kind:
        case Int():
            return _INTS[kind.bits]
        case Float():
            return _FLOATS[kind.bits]
        case Decimal():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case String():
            return "VARCHAR"
        case Binary():
            return "BLOB"
        case Array():
            return f"{sql_type(kind.element)}[]"
        case Struct():
            return f"STRUCT({', '.join(f'{quote(f.name)} {sql_type(f.type)}' for f in kind.fields)})"
        case _:
            return _NAMED[str(kind)]


def to_markdown(catalog: Catalog) -> str:
    """Return a heading and a table of columns for each table."""
    return "\n".join(line for table in catalog.tables for line in _page(table))


def _page(table: Table) -> Iterator[str]:
    yield f"## {_cell(table.path)}{' (retained after its removal)' if table.retained else ''}"
    if table.comment:
        yield f"\n{_cell(table.comment)}"
    yield "\n| column | type | key | null | at the destination | notes |\n| --- | --- | --- | --- | --- | --- |"
    for c in table.columns:
        notes = "; ".join(filter(None, ("kept after its removal" if c.retained else "", c.note, c.comment)))
        cells = (c.name, str(c.type), str(c.key or ""), "yes" if c.nullable else "no", c.alias, notes)
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _cell(text: str) -> str:
    """One line without marks of Markdown."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in plain)
