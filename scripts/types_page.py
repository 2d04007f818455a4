"""Writes docs/types.md from the mapping tables of the sources and of the destination.

python scripts/types_page.py          writes the page
python scripts/types_page.py --check  exits 1 if the page is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from instep.destinations.types import (
    DELTA_PROMOTIONS,
    DUCKDB_PROMOTIONS,
    ICEBERG_PROMOTIONS,
    POSTGRES_PROMOTIONS,
    STORED,
    iceberg_primitive,
)
from instep.schema.types import Array, DataType
from instep.sources import mysql_types, postgres_types, sqlite_types

PAGE = Path(__file__).parents[1] / "docs" / "types.md"
Row = Sequence[str]
Mapped = tuple[str, DataType, str]
"""A native type, the type that it becomes, and a note."""

HEAD = """\
# Types
Made by `python scripts/types_page.py` from the mapping tables of the code; do not edit.

A source's type becomes one of ours, and ours has one form at the destination. A type without an exact form is kept as
text, never rounded, and the column carries the note that stands here. A value that its own type does not admit (a zero
date, `infinity`, text in a number column of SQLite) is a misfit: it is held in quarantine with its original.
"""
SYSTEM = """
## System columns
They begin with the prefix `_instep_`, which a connection may change, and come from no column of the source.

| column | type | what it holds |
| --- | --- | --- |
| `_instep_synced` | `timestamptz` | when the run began that wrote the row |
| `_instep_deleted` | `boolean` | the source has deleted the row; tables with a key |
| `_instep_id` | `string` | the row's id, from its values; tables without a key |
| `_instep_meta` | `json` | what was nulled in the row, and why |
| `_instep_extra` | `json` | values of new columns over the limit, until somebody decides; not in all tables |
"""
PROMOTIONS = """
## What widens in place
These changes touch metadata only in Iceberg and Delta (which switches type widening on for the table, if stored values
grow); DuckDB and PostgreSQL make them by themselves, in the same transaction: PostgreSQL writes the table again under a
lock, except where a decimal gets more digits before the point and where the stored form stays. Any other widening
rewrites the column, and the plan shows its cost.
"""
_POSTGRES = (
    "character varying(n)", "character(n)", "numeric(p,s)", "numeric(50,2)", "numeric(5,-2)",
    "timestamp(3) with time zone",
    "integer[]", "text[]", "numeric(p,s)[]", "integer[][]", "jsonb[]", "a composite type", "an enum or any other type",
)  # fmt: skip
_MYSQL = (
    ("tinyint(1)", "tinyint(1)"), ("decimal(p,s)", "decimal(12,2)"), ("decimal(65,2)", "decimal(65,2)"),
    ("bit(1)", "bit(1)"), ("bit(8)", "bit(8)"), ("bit(64)", "bit(64)"), ("time", "time"), ("geometry", "geometry"),
)  # fmt: skip
_SQLITE = ("INTEGER", "VARCHAR(n)", "TEXT", "REAL", "BLOB", "DECIMAL(p,s)", "NUMERIC", "DECIMAL(50,2)", "", "MONEY")


def postgres() -> Iterator[Mapped]:
    """Every type that the source knows, and how the patterns for the others come out."""
    for native in (*postgres_types._PLAIN, *postgres_types._LOOSE, *_POSTGRES):
        yield native, *_postgres(native)


def _postgres(native: str) -> tuple[DataType, str]:
    kind = postgres_types.COMPOSITE if "composite" in native else "b"
    text = native.replace("(n)", "(30)").replace("(p,s)", "(12,2)").replace("[][]", "[]")
    mapped = postgres_types.map_type(text, kind, native.count("[]"))
    return mapped.type, _general(native, mapped.note.removeprefix("composite "))


def mysql() -> Iterator[Mapped]:
    for base in mysql_types._INTEGERS:
        yield _mysql(base, base)
        yield _mysql(f"{base} unsigned", f"{base} unsigned")
    for base in mysql_types._PLAIN:
        yield _mysql(base, base)
    for base in sorted({*mysql_types._TEXTS, *mysql_types._BYTES}):
        sized = base in ("char", "varchar", "binary", "varbinary")
        yield _mysql(f"{base}(n)" if sized else base, base, 30 if sized else None)
    for shown, full in _MYSQL:
        yield _mysql(shown, full)
    yield ("a json of MariaDB", *mysql_types.column_type(mysql_types.Native("longtext", "longtext", checked=True)))


def _mysql(shown: str, full: str, length: int | None = None) -> Mapped:
    base = full.partition("(")[0].partition(" ")[0]
    return (shown, *mysql_types.column_type(mysql_types.Native(base, full, length)))


def sqlite() -> Iterator[Mapped]:
    for declared in (*sqlite_types._NAMED, *_SQLITE):
        kind, note = sqlite_types.column_type(declared.replace("(n)", "(30)").replace("(p,s)", "(12,2)"))
        yield declared or "no type", kind, note


def iceberg(kind: DataType) -> str:
    return f"list<{iceberg(kind.element)}>" if isinstance(kind, Array) else iceberg_primitive(kind)


def table(head: Row, rows: Iterable[Row]) -> list[str]:
    """A Markdown table; equal rows once."""
    lines = [_line(head), _line(["---"] * len(head))]
    return [*lines, *dict.fromkeys(_line(row) for row in rows)]


def _line(cells: Row) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _source(name: str, found: Iterable[Mapped]) -> list[str]:
    rows = (
        (_code(native), _code(_general(native, str(kind))), _code(_general(native, iceberg(kind))), note)
        for native, kind, note in found
    )
    return ["", f"## {name}", *table((name, "instep", "Iceberg", "note"), rows)]


def _general(native: str, text: str) -> str:
    """Sizes that stand for any size, as letters again."""
    if "(p,s)" in native:
        return text.replace("(12,2)", "(p,s)").replace("(12, 2)", "(p, s)")
    return text.replace("(30)", "(n)") if "(n)" in native else text


def _code(text: str) -> str:
    return text if text.startswith(("a ", "an ", "no ")) else f"`{text}`"


def promotions() -> Iterator[Row]:
    known = (ICEBERG_PROMOTIONS, DUCKDB_PROMOTIONS, POSTGRES_PROMOTIONS, DELTA_PROMOTIONS)
    for pair in sorted(frozenset().union(*known)):
        yield *map(_code, pair), *("yes" if pair in able else "" for able in known)


def page() -> str:
    """The whole page."""
    stored = ((*map(_code, (r.type, r.iceberg, r.duckdb, r.postgres, r.delta, r.arrow)), r.note) for r in STORED)
    head = ("instep", "Iceberg", "DuckDB", "PostgreSQL", "Delta", "Arrow", "note")
    lines = [
        HEAD, "## At the destination", *table(head, stored),
        SYSTEM.rstrip("\n"),
        *_source("PostgreSQL", postgres()), *_source("MySQL and MariaDB", mysql()), *_source("SQLite", sqlite()),
        PROMOTIONS, *table(("from", "to", "Iceberg", "DuckDB", "PostgreSQL", "Delta"), promotions()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    if "--check" in arguments:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
