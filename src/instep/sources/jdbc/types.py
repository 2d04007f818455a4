"""JDBC's types, and the names that databases give to their own, as data types.

A driver says of a column its code (java.sql.Types), its type's name, its size and its digits after the point.
Names are looked at first: several databases have one code for types that differ. What is not known here is text, as
the driver prints it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

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
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
)
from instep.sources.sqlite.types import column_type as declared
from instep.spark.jdbc import Form

CODES: Mapping[int, tuple[str, DataType | None]] = {
    -7: ("BIT", Boolean()), 16: ("BOOLEAN", Boolean()),
    -6: ("TINYINT", Int(16)), 5: ("SMALLINT", Int(16)), 4: ("INTEGER", Int(32)), -5: ("BIGINT", Int(64)),
    7: ("REAL", Float(32)), 6: ("FLOAT", Float(64)), 8: ("DOUBLE", Float(64)),
    2: ("NUMERIC", None), 3: ("DECIMAL", None),
    1: ("CHAR", String()), 12: ("VARCHAR", String()), -1: ("LONGVARCHAR", String()),
    -15: ("NCHAR", String()), -9: ("NVARCHAR", String()), -16: ("LONGNVARCHAR", String()),
    2005: ("CLOB", String()), 2011: ("NCLOB", String()), 2009: ("SQLXML", String()), -8: ("ROWID", String()),
    -2: ("BINARY", Binary()), -3: ("VARBINARY", Binary()), -4: ("LONGVARBINARY", Binary()), 2004: ("BLOB", Binary()),
    91: ("DATE", Date()), 92: ("TIME", Time()), 93: ("TIMESTAMP", Timestamp()),
    2014: ("TIMESTAMP_WITH_TIMEZONE", TimestampTz()), 2016: ("JSON", Json()),
    -101: ("TIMESTAMP WITH TIME ZONE (Oracle)", TimestampTz()), -155: ("datetimeoffset (SQL Server)", TimestampTz()),
    100: ("BINARY_FLOAT (Oracle)", Float(32)), 101: ("BINARY_DOUBLE (Oracle)", Float(64)),
}  # fmt: skip
"""By code: its name, and its type; None for numbers, whose size makes it."""
NAMES: Mapping[str, DataType] = {
    "bool": Boolean(),
    "boolean": Boolean(),
    "uuid": Uuid(),
    "uniqueidentifier": Uuid(),
    "json": Json(),
    "jsonb": Json(),
    "variant": Json(),
    "timestamptz": TimestampTz(),
    "timestamp with time zone": TimestampTz(),
    "datetimeoffset": TimestampTz(),
    "timestampltz": TimestampTz(),
    "timestamp_tz": TimestampTz(),
    "timestamp_ltz": TimestampTz(),
}
"""By name, whatever the code."""
LOOSE: Mapping[str, str] = {
    "timetz": "a time with its zone, kept as text",
    "time with time zone": "a time with its zone, kept as text",
    "timestamp with local time zone": "its moments have no zone in the driver's text, kept as text",
    "money": "an amount as the driver prints it, kept as text",
    "year": "a year as the driver prints it, kept as text",
}
"""Names whose code promises more than their text holds: text."""
_SIZED = frozenset((1, 12, -15, -9))
_BYTES = frozenset((-2, -3))
_MOST = 1 << 24


@dataclass(frozen=True)
class JdbcType:
    """A column's type as a driver describes it; `size` and `digits` None where it says nothing."""

    code: int
    name: str
    size: int | None = None
    digits: int | None = None

    @property
    def text(self) -> str:
        """Return the type for people: the name, with a size unless it has its own."""
        if "(" in self.name or not self.size or self.size >= _MOST:
            return self.name
        if self.code in (2, 3):
            return f"{self.name}({self.size},{self.digits or 0})"
        return f"{self.name}({self.size})" if self.code in _SIZED | _BYTES else self.name


def column_type(native: JdbcType, untyped: bool = False) -> tuple[DataType, str]:
    """Return (the type, a note why it is looser than it looks or "")."""
    if untyped:
        return declared(_declaration(native))
    plain = " ".join(re.sub(r"\([^)]*\)", "", native.name).lower().split())
    if plain in LOOSE and native.code not in _BYTES:
        return String(), LOOSE[plain]
    if plain in NAMES:
        return NAMES[plain], ""
    if native.code == -7 and (native.size or 1) > 1:
        return String(), "bits as text"
    if native.code in (2, 3):
        return _decimal(native.size, native.digits)
    if native.code in CODES:
        kind = CODES[native.code][1]
        assert kind is not None
        length = native.size if native.size and native.size < _MOST else None
        if native.code in _SIZED:
            return String(length), ""
        if native.code in _BYTES:
            return Binary(length), ""
        if isinstance(kind, Int) and "unsigned" in plain:
            return (Decimal(20, 0) if kind.bits == 64 else Int(2 * kind.bits)), ""
        return kind, ""
    return String(), f"{native.name} as the driver prints it"


def _declaration(native: JdbcType) -> str:
    """Return a type as SQLite's table declares it. Its driver cuts the sizes off, and adds the digits after the point
    to the size."""
    if not native.size or native.size >= _MOST or "(" in native.name:
        return native.name
    digits = native.digits or 0
    return f"{native.name}({native.size - digits},{digits})" if digits else f"{native.name}({native.size})"


def _decimal(size: int | None, digits: int | None) -> tuple[DataType, str]:
    if not size or digits is None or digits == -127:
        return String(), "a number without a declared precision, kept as text"
    if not 0 < size <= MAX_PRECISION or not 0 <= digits <= size:
        wide = size > MAX_PRECISION
        why = f"is beyond {MAX_PRECISION} digits" if wide else "has its own scale"
        return (
            String(),
            "a number of any size, kept as text" if size > 1000 else f"decimal({size},{digits}) {why}, kept as text",
        )
    return Decimal(size, digits), ""


def form_of(kind: DataType, untyped: bool = False) -> Form:
    """Return how a column of this type crosses: numbers and bytes as they are, everything else as the driver's text."""
    if isinstance(kind, Binary):
        return "binary"
    if untyped:
        return "string"
    if isinstance(kind, Int):
        return "long"
    if isinstance(kind, Float):
        return "double" if kind.bits == 64 else "float"
    return "string"


def query_type(kind: DataType, untyped: bool = False) -> DataType:
    """Return the type that a query yields for a column of this type. A batch of whole numbers in which some value is
    none comes as text."""
    form = form_of(kind, untyped)
    if untyped and isinstance(kind, Int):
        return kind
    if form == "string":
        return Json() if isinstance(kind, Json) and not untyped else String()
    return Int(64) if form == "long" else kind
