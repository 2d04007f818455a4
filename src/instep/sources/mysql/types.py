"""MySQL's and MariaDB's column types as data types, and how each is selected.

Numbers and bytes come as themselves; what may hold a value that its type does not admit comes as text for `stage`
to check: dates and times (`0000-00-00`, `2024-00-00`) and tinyint(1) (any number from -128 to 127).

Names, literals and name patterns as MySQL's SQL (sql_mode is empty: backslashes escape).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import (
    MAX_PRECISION,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Timestamp,
    TimestampTz,
    Uuid,
)
from instep.sources.query import glob_to_like, glob_to_regex, is_glob, is_regex, whole_regex

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_UNSIGNED: dict[str, DataType] = {
    "tinyint": Int(16),
    "smallint": Int(32),
    "mediumint": Int(32),
    "int": Int(64),
    "bigint": Decimal(20, 0),
}
_PLAIN: dict[str, DataType] = {
    "float": Float(32),
    "double": Float(64),
    "date": Date(),
    "datetime": Timestamp(),
    "timestamp": TimestampTz(),
    "year": Int(16),
    "enum": String(),
    "set": String(),
    "json": Json(),
    "uuid": Uuid(),
    "inet4": String(),
    "inet6": String(),
}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}
_GEOMETRIES = {
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
}
_SIZES = re.compile(r"\((\d+)(?:,(\d+))?\)")


@dataclass(frozen=True)
class MySqlType:
    """A column's type in the words of information_schema: `base` is `decimal`, `full` `decimal(12,2) unsigned`."""

    base: str
    full: str
    length: int | None = None
    """Length in characters or bytes."""
    checked: bool = False
    """True if MariaDB checks the text to be JSON."""


def column_type(native: MySqlType) -> tuple[DataType, str]:
    """Return (the type, a note why it is looser than the native one or "")."""
    base, full = native.base.lower(), native.full.lower()
    if base in _INTEGERS:
        if full == "tinyint(1)":
            return Boolean(), ""
        return (_UNSIGNED[base] if "unsigned" in full else Int(_INTEGERS[base])), ""
    if base in _PLAIN:
        return _PLAIN[base], ""
    if base == "decimal":
        precision, scale = (int(size or 0) for size in _sizes(full))
        if precision > MAX_PRECISION:
            return String(), f"decimal({precision},{scale}) is beyond {MAX_PRECISION} digits, kept as text"
        return Decimal(precision or 10, scale), ""
    if base == "bit":
        return _bit(int(_sizes(full)[0] or 1)), ""
    if base in _TEXTS:
        return (Json() if native.checked else String(native.length if base in ("char", "varchar") else None)), ""
    if base in _BYTES:
        return Binary(native.length if base in ("binary", "varbinary") else None), ""
    if base == "time":
        return String(), "a time may pass 24 hours or be negative, kept as text"
    if base in _GEOMETRIES:
        return String(), "a geometry, kept as text: SRID=n;WKT"
    return String(), f"type {native.full} is not known, kept as text"


def _sizes(full: str) -> tuple[str | None, str | None]:
    match = _SIZES.search(full)
    return (match[1], match[2]) if match else (None, None)


def _bit(bits: int) -> DataType:
    return Boolean() if bits == 1 else Int(64) if bits < 64 else Decimal(20, 0)


def query_type(kind: DataType, native: str) -> DataType:
    """Return the type that a query yields for a column of type `kind` that the server calls `native`."""
    if isinstance(kind, Boolean):
        return kind if native.lower().startswith("bit") else String()
    return kind if isinstance(kind, Int | Decimal | Float | Binary | Json) else String()


def expression(column: str, native: str) -> str:
    """Return SQL for the quoted `column`, so that its text form is exact. A float's own text has six digits, a
    float(m,d)'s is rounded: as a double both have all. Geometry and bits have no text of their own. A geometry's
    text longer than max_allowed_packet would be NULL: then its bytes follow one that no text begins with, for
    `stage` to quarantine."""
    base = native.lower().partition("(")[0].partition(" ")[0]
    if base == "float" or (base == "double" and "(" in native):
        return f"{column} * 1e0"
    if base == "bit":
        return f"{column} + 0"
    if base in _GEOMETRIES:
        text = f"CONCAT('SRID=', ST_SRID({column}), ';', ST_AsText({column}))"
        return f"COALESCE({text}, CONCAT(x'FF', {column}), {column})"
    return column


def selected(column: Column) -> str:
    """Return the column under the name of the type that `read.convert` makes of it."""
    kind = column.type if isinstance(column.type, TimestampTz) else query_type(column.type, column.native)
    return f"{expression(quoted(column.name), column.native)} AS {quoted(str(kind))}"


_EXACT = "COLLATE utf8mb4_bin"


def quoted(name: str) -> str:
    """Return an identifier, always quoted."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}"


def literal(text: str) -> str:
    """Return a string constant."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def matches(schema: str, table: str, database: str, include: Sequence[str], exclude: Sequence[str]) -> str:
    """Return a condition on the expressions `schema` and `table`: included by some pattern, or in `database` when no
    include is given, and excluded by none. A pattern without a schema is for tables of `database`."""
    home = f"{schema} = {literal(database)}"
    terms = [_schemas(schema, database, include)]
    if include:
        terms.append(f"({' OR '.join(_either(schema, table, home, p) for p in include)})")
    terms += [f"NOT {_either(schema, table, home, p)}" for p in exclude]
    return " AND ".join(terms)


def _schemas(schema: str, database: str, include: Sequence[str]) -> str:
    """Return SQL for the schemas to read: a constant list when the patterns name them, which spares the server the
    rest."""
    named = {p.partition(".")[0] for p in include if "." in p and not is_regex(p)}
    if any(is_glob(name) for name in named) or any(is_regex(p) for p in include):
        return f"{schema} NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"
    return f"{schema} IN ({', '.join(literal(name) for name in sorted({*named, database}))})"


def _either(schema: str, table: str, home: str, pattern: str) -> str:
    path = f"CONCAT({schema}, '.', {table})"
    return f"({_matches(path, pattern)} OR ({home} AND {_matches(table, pattern)}))"


def _matches(text: str, pattern: str) -> str:
    """Return a condition that matches the pattern. Case matters, as in the names themselves. An exact text may hold
    the characters of a glob."""
    text = f"CONVERT({text} USING utf8mb4)"
    exact = f"{text} {_EXACT} = {literal(pattern)}"
    if is_regex(pattern):
        return f"{text} {_EXACT} REGEXP {literal(whole_regex(pattern))}"
    if "[" in pattern:
        return f"({exact} OR {text} {_EXACT} REGEXP {literal(glob_to_regex(pattern))})"
    if is_glob(pattern):
        return f"{text} {_EXACT} LIKE {literal(glob_to_like(pattern))}"
    return exact


def probing(ref: tuple[str, str]) -> str:
    """Return a query that needs the table's lock and reads nothing."""
    return f"SELECT 1 FROM {quoted_table(*ref)} LIMIT 0"  # noqa: S608


def locking(ref: tuple[str, str]) -> str:
    """Return a statement that keeps writers of the table away until UNLOCK TABLES."""
    return f"LOCK TABLES {quoted_table(*ref)} READ"
