"""Writes docs/reference/types.md from the mapping tables of the sources and of the destination.

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
    delta_primitive,
    duckdb_primitive,
    iceberg_primitive,
    postgres_primitive,
)
from instep.schema.catalog.types import Array, DataType, String
from instep.sources.jdbc import types as jdbc_types
from instep.sources.mysql import types as mysql_types
from instep.sources.postgres import types as postgres_types
from instep.sources.sqlite import types as sqlite_types

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "types.md"
Row = Sequence[str]
Mapped = tuple[str, DataType, str]
"""A native type, the type that it becomes, and a note."""

HEAD = """\
# Types
Made by `python scripts/types_page.py` from the mapping tables of the code; do not edit.

instep maps each source type to one of its own types, and each of these to one type per destination. A type without an
exact equivalent is stored as text, never rounded, and the column carries the note that is shown here;
[`types`](project-file.md#chosen-types) chooses another type for it. A value that its own type does not admit (a zero
date, `infinity`, text in a number column of SQLite) is an invalid value: it is quarantined with its original.

A value arrives unchanged, or as the text that is described here, or it is quarantined; it never becomes another value.
The tests send every type of PostgreSQL and MariaDB with its edge values to all four destinations and compare them with
what the source prints. Another test changes columns of every type to every other type, with values at the edges of all
of them; each run takes a part of the pairs, `INSTEP_FULL=1 pytest tests/values/test_values_retyped.py` all.

A float that becomes a decimal has the value of its shortest text. Only text, bytes and UUIDs can become bytes: text as
UTF-8. In a table that is read in part (by a cursor or CDC), a new type that may format values differently (numbers,
bytes, arrays, intervals, documents or timestamps as text, `char(n)`, fewer fractional digits) makes the next sync read
the whole table, and so does accepting a type that was pending. Wider numbers and longer text do not: rewritten values
(`USING`) count as changes that do not move the cursor.
"""
TEXTS = """
## Values as text
The text that a string column, a hashed column, a row's id and quarantine show for a value that is no text itself.

| value | text |
| --- | --- |
| boolean | `true`, `false` |
| integer, decimal | digits, all of the scale: `-0.10` |
| `numeric` without a precision, or of more than 38 digits | as the server prints it: `1.500`, `NaN`, `-Infinity` |
| float | the shortest text that means the same number; `NaN`, `Infinity`, `-Infinity` |
| date | `2024-02-29`; years before 1 as ISO 8601 counts them, 44 BC is `-0043`; `infinity` |
| timestamp | `2024-02-29T10:00:00.000001`; with a time zone in UTC: `2024-02-29T10:00:00.000001Z` |
| interval | an ISO 8601 duration: `P1Y2M3DT4H5M6.5S` |
| time, time with time zone | `10:00:00.000001`, `24:00:00`, `10:00:00+02`; MariaDB's from `-838:59:59` to `838:59:59` |
| money | its amount: `-12.50` |
| uuid | `00000000-0000-0000-0000-0000000000ff` |
| binary | `\\x00ff` |
| composite, array of composites, of json, of more dimensions | json, as `to_json` makes it: `{"a":1}`, `[[1,null]]` |
| array or struct | json without spaces |
| json | as the source has it: spaces, order, names that occur twice, every digit |
| geometry of MariaDB | `SRID=4326;POINT(1.5 2)` |
| enum, range, network address and every other type | as the server prints it |
"""
HELD: tuple[tuple[str, str, str], ...] = (
    (
        "dates and moments before year 1 or after year 9999, `infinity`; a zero date", "all",
        "outside the years 0001 to 9999",
    ),
    ("a date of MariaDB that is none: `2020-00-10`, `2021-02-30`", "all", "not an ISO date and time"),
    ("`NaN` in `numeric(p,s)`", "all", "NaN is not a finite number"),
    ("any number but 0 and 1 in MariaDB's `tinyint(1)`", "all", "not true or false"),
    ("an array with a date or moment that would be quarantined", "all", "an element does not fit"),
    ("bytes that are no text: PostgreSQL with the encoding SQL_ASCII", "all", "not valid UTF-8"),
    (
        "a geometry whose text is longer than max_allowed_packet; its bytes are the original, behind `ff` if that fits",
        "all", "not valid UTF-8",
    ),
    ("NUL in a text: MariaDB, SQLite", "PostgreSQL", "a NUL in the text"),
    ("what MariaDB takes for JSON and is none: `1.`, `\"\\x\"`", "DuckDB, PostgreSQL", "not JSON"),
    ("`\"\\ud83e\"` in JSON without its other half", "DuckDB", "half of a surrogate pair in the JSON"),
)  # fmt: skip
"""(what is quarantined, where, the reason that quarantine gives)."""
HOLDING = """
## Values that are quarantined
Their rows are loaded with NULL, `_instep_meta` notes it, and the quarantine has the original (see
`instep quarantine list`); with `on_invalid_value: fail` the sync stops and names the row instead.
"""
REFUSED = """
A table is refused as a whole, with an error that names it, for a row of more than 1 GB, which PostgreSQL cannot send
(the error names the row), for a row of more than 2 GB of MariaDB, and for an array of more dimensions than its column
was declared with.
"""
SYSTEM = """
## System columns
System columns begin with the prefix `_instep_`, which `prefix` of a destination changes. instep adds them to the
source's columns.

| column | type | what it holds |
| --- | --- | --- |
| `_instep_synced` | `timestamptz` | start of the run that wrote the row |
| `_instep_deleted` | `boolean` | the source has deleted the row; tables with a key |
| `_instep_id` | `string` | the row's id, from its values; tables without a key |
| `_instep_meta` | `json` | values that became NULL as they did not fit, or that a connector left out or cut |
| `_instep_shard` | `string` | the row's shard; tables that [connections share](../guides/shards.md) |
| `_instep_extra` | `json` | values of new columns over the limit, until they are decided; not in all tables |
| `_instep_valid_from` | `timestamptz` | start of the row's validity; tables that keep [history](../guides/history.md) |
| `_instep_valid_to` | `timestamptz` | end of the validity, NULL for the current version |
| `_instep_current` | `boolean` | true for the current version |
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

_JDBC = (
    (-7, "BIT", 8, None), (5, "SMALLINT UNSIGNED", None, None), (4, "INTEGER UNSIGNED", None, None),
    (-5, "BIGINT UNSIGNED", None, None), (2, "NUMERIC", None, -127), (3, "DECIMAL(50,2)", 50, 2),
)  # fmt: skip


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
    yield ("a json of MariaDB", *mysql_types.column_type(mysql_types.MySqlType("longtext", "longtext", checked=True)))


def _mysql(shown: str, full: str, length: int | None = None) -> Mapped:
    base = full.partition("(")[0].partition(" ")[0]
    return (shown, *mysql_types.column_type(mysql_types.MySqlType(base, full, length)))


def sqlite() -> Iterator[Mapped]:
    for declared in (*sqlite_types._NAMED, *_SQLITE):
        kind, note = sqlite_types.column_type(declared.replace("(n)", "(30)").replace("(p,s)", "(12,2)"))
        yield declared or "no type", kind, note


def jdbc() -> Iterator[Mapped]:
    """By JDBC's code, then the names that count more than their code."""
    for code, (name, _) in jdbc_types.CODES.items():
        sized = name in ("NUMERIC", "DECIMAL", "CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "BINARY", "VARBINARY")
        letters = "" if not sized else "(p,s)" if code in (2, 3) else "(n)"
        size, digits = (12, 2) if letters == "(p,s)" else (30, None) if letters else (None, None)
        yield name + letters, *jdbc_types.column_type(jdbc_types.JdbcType(code, name, size, digits))
    for code, name, size, digits in _JDBC:
        what = f"{name}({size})" if size and "(" not in name else f"{name}, of any size" if digits == -127 else name
        yield what, *jdbc_types.column_type(jdbc_types.JdbcType(code, name, size, digits))
    for name in (*jdbc_types.NAMES, *jdbc_types.LOOSE):
        yield f"a type named `{name}`", *jdbc_types.column_type(jdbc_types.JdbcType(1111, name))
    yield "a type of any other name", String(), "as the driver prints it"


def stored(kind: DataType) -> tuple[str, str, str, str]:
    """What a type that comes from a column of a source is in Iceberg, DuckDB, PostgreSQL and Delta."""
    if not isinstance(kind, Array):
        return iceberg_primitive(kind), duckdb_primitive(kind), postgres_primitive(kind), delta_primitive(kind)
    iceberg, duckdb, postgres, delta = stored(kind.element)
    return f"list<{iceberg}>", f"{duckdb}[]", f"{postgres}[]", f"array<{delta}>"


def table(head: Row, rows: Iterable[Row]) -> list[str]:
    """A Markdown table; equal rows once."""
    lines = [_line(head), _line(["---"] * len(head))]
    return [*lines, *dict.fromkeys(_line(row) for row in rows)]


def _line(cells: Row) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _source(name: str, found: Iterable[Mapped]) -> list[str]:
    rows = (
        (*(_code(_general(native, text)) for text in (native, str(kind), *stored(kind))), note)
        for native, kind, note in found
    )
    return ["", f"## {name}", *table((name, "instep", "Iceberg", "DuckDB", "PostgreSQL", "Delta", "note"), rows)]


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
        TEXTS, HOLDING.lstrip("\n"), *table(("value", "destination", "reason"), HELD), REFUSED.rstrip("\n"),
        SYSTEM.rstrip("\n"),
        *_source("PostgreSQL", postgres()), *_source("MySQL and MariaDB", mysql()), *_source("SQLite", sqlite()),
        *_source("JDBC", jdbc()),
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
