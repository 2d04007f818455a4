"""Storage of each data type at the destinations: the one table, from which docs/reference/types.md is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    String,
    Struct,
    Timestamp,
    TimestampTz,
    Uuid,
)


@dataclass(frozen=True)
class Stored:
    """One row: the text form of a type and what it is in each format (`arrow`: in data files)."""

    type: str
    iceberg: str
    duckdb: str
    postgres: str
    delta: str
    arrow: str
    note: str = ""
    """Note on what is special about it."""


_NARROWER = "Iceberg: the narrower type is recorded beside the column"
_LENGTH = "the length is recorded, not enforced"
STORED: tuple[Stored, ...] = (
    Stored("boolean", "boolean", "BOOLEAN", "boolean", "boolean", "bool"),
    Stored("int8", "int", "TINYINT", "smallint", "byte", "int32", _NARROWER),
    Stored("int16", "int", "SMALLINT", "smallint", "short", "int32", _NARROWER),
    Stored("int32", "int", "INTEGER", "integer", "integer", "int32"),
    Stored("int64", "long", "BIGINT", "bigint", "long", "int64"),
    Stored("decimal(p,s)", "decimal(p, s)", "DECIMAL(p,s)", "numeric(p,s)", "decimal(p,s)", "decimal128(p, s)"),
    Stored("float32", "float", "FLOAT", "real", "float", "float32"),
    Stored("float64", "double", "DOUBLE", "double precision", "double", "float64"),
    Stored("string", "string", "VARCHAR", "text", "string", "large_string"),
    Stored("string(n)", "string", "VARCHAR", "text", "string", "large_string", _LENGTH),
    Stored("binary", "binary", "BLOB", "bytea", "binary", "large_binary"),
    Stored("binary(n)", "binary", "BLOB", "bytea", "binary", "large_binary", _LENGTH),
    Stored("date", "date", "DATE", "date", "date", "date32"),
    Stored(
        "time", "string", "VARCHAR", "text", "string", "large_string",
        "ISO 8601 text: Spark cannot read a table that holds a time column, and 24:00:00 is one",
    ),
    Stored("timestamp", "timestamp", "TIMESTAMP", "timestamp", "timestamp_ntz", "timestamp[us]"),
    Stored(
        "timestamptz", "timestamptz", "TIMESTAMP WITH TIME ZONE", "timestamptz", "timestamp", "timestamp[us, tz=UTC]"
    ),
    Stored("uuid", "uuid", "UUID", "uuid", "string", "uuid"),
    Stored("json", "string", "JSON", "json", "string", "large_string", "PostgreSQL: not jsonb, which changes the text"),
    Stored(
        "array(T)", "list<T>", "T[]", "T[]", "array<T>", "large_list<T>",
        "elements are optional; PostgreSQL: arrays of arrays, structs or json are json",
    ),
    Stored("struct(...)", "struct<...>", "STRUCT(...)", "json", "struct<...>", "struct<...>", "fields are optional"),
    Stored("unknown", "string", "VARCHAR", "text", "string", "large_string", "no value has been seen yet"),
)  # fmt: skip

_DUCKDB: Mapping[str, str] = {row.type: row.duckdb for row in STORED}
_POSTGRES: Mapping[str, str] = {row.type: row.postgres for row in STORED}
_ICEBERG: Mapping[str, str] = {row.type: row.iceberg for row in STORED}
_DELTA: Mapping[str, str] = {row.type: row.delta for row in STORED}
_FROM_ICEBERG: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "uuid": "uuid",
}

_FROM_DELTA: Mapping[str, str] = {
    "boolean": "boolean",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
}


def _primitive(kind: DataType, names: Mapping[str, str], decimal: str) -> str:
    """Return the name of a type that is neither an array nor a struct; `decimal` is the form of decimals."""
    assert not isinstance(kind, Array | Struct), kind
    if isinstance(kind, Decimal):
        return decimal.format(kind.precision, kind.scale)
    return names[type(kind).__name__.lower() if isinstance(kind, String | Binary) else str(kind)]


def iceberg_primitive(kind: DataType) -> str:
    return _primitive(kind, _ICEBERG, "decimal({}, {})")


def duckdb_primitive(kind: DataType) -> str:
    return _primitive(kind, _DUCKDB, "DECIMAL({},{})")


def delta_primitive(kind: DataType) -> str:
    return _primitive(kind, _DELTA, "decimal({},{})")


def postgres_primitive(kind: DataType) -> str:
    return _primitive(kind, _POSTGRES, "numeric({},{})")


def from_delta_primitive(name: str) -> str | None:
    """Return the text form of the type that a primitive of a Delta schema is read as; None for one without a type of
    ours."""
    if name.startswith(("decimal(", "varchar(", "char(")):
        return name.replace(" ", "").replace("varchar", "string").replace("char", "string")
    return _FROM_DELTA.get(name)


def from_iceberg_primitive(name: str) -> str | None:
    """Return the text form of the type that an Iceberg primitive is read as; None for one that we have no type for."""
    if name.startswith("decimal("):
        return name.replace(" ", "")
    if name.startswith("fixed["):
        return f"binary({name[6:-1]})"
    return _FROM_ICEBERG.get(name)


_INTS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def plain_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a type without parts; what has no other is text."""
    match kind:
        case Boolean():
            return pa.bool_()
        case Int(bits):
            return _INTS[bits]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Float(bits):
            return pa.float64() if bits == 64 else pa.float32()
        case Binary():
            return pa.large_binary()
        case Date():
            return pa.date32()
        case Timestamp():
            return pa.timestamp("us")
        case TimestampTz():
            return pa.timestamp("us", "UTC")
        case Uuid():
            return pa.uuid()
    return pa.large_string()


ICEBERG_PROMOTIONS: frozenset[tuple[str, str]] = frozenset(
    {
        ("int8", "int16"), ("int8", "int32"), ("int8", "int64"), ("int16", "int32"), ("int16", "int64"),
        ("int32", "int64"), ("float32", "float64"), ("decimal(p,s)", "decimal(p+,s)"),
        ("string(n)", "string(n+)"), ("binary(n)", "binary(n+)"),
        ("time", "string"), ("json", "string"), ("unknown", "string"), ("unknown", "json"), ("unknown", "time"),
    }
)  # fmt: skip
"""Promotions that Iceberg's rules allow in place, in the spelling of `Capabilities.promotes`; others are refused."""

DUCKDB_PROMOTIONS: frozenset[tuple[str, str]] = frozenset(
    {
        ("int8", "int16"), ("int8", "int32"), ("int8", "int64"), ("int16", "int32"), ("int16", "int64"),
        ("int32", "int64"), ("int", "decimal(p,s)"), ("float32", "float64"), ("decimal(p,s)", "decimal(p+,s+)"),
        ("string(n)", "string(n+)"), ("binary(n)", "binary(n+)"),
        ("time", "string"), ("json", "string"), ("unknown", "string"), ("unknown", "json"), ("unknown", "time"),
    }
)  # fmt: skip
"""Conversions by DuckDB that change no value; it writes the column again, in the same transaction."""

DELTA_PROMOTIONS: frozenset[tuple[str, str]] = frozenset(
    {
        ("int8", "int16"), ("int8", "int32"), ("int8", "int64"), ("int16", "int32"), ("int16", "int64"),
        ("int32", "int64"), ("float32", "float64"), ("decimal(p,s)", "decimal(p+,s+)"),
        ("string(n)", "string(n+)"), ("binary(n)", "binary(n+)"),
        ("time", "string"), ("uuid", "string"), ("json", "string"), ("unknown", "string"), ("unknown", "json"),
        ("unknown", "time"), ("unknown", "uuid"),
    }
)  # fmt: skip
"""What readers of Delta tables widen while they read (table feature typeWidening), and types that are kept alike."""

POSTGRES_PROMOTIONS: frozenset[tuple[str, str]] = DUCKDB_PROMOTIONS
"""What PostgreSQL converts by itself without changing a value. It writes the table again, in the same transaction,
except for a decimal that gets more digits before the point, and where nothing is stored in another way."""


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Decimal digits of integers, by their bits."""


def casts_exactly(before: DataType, after: DataType) -> bool:
    """Return whether CAST of a database makes of each value what a cast of ours does, and none can fail."""
    match before, after:
        case ((Boolean() | Int() | Uuid()), String()):
            return True
        case Decimal(precision, scale), String():
            return precision > scale  # DuckDB writes 0.5 as .5 otherwise
        case Int(), Int():
            return after.bits >= before.bits
        case Int(), Decimal():
            return after.precision - after.scale >= _DIGITS[before.bits]
        case Decimal(), Decimal():
            more = after.scale - before.scale
            return more >= 0 and after.precision - before.precision >= more
    return False
