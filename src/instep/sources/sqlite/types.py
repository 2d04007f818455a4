"""SQLite's declared types as data types.

SQLite checks types only in STRICT tables; elsewhere a declared type is a wish and each value has a storage
class of its own. So a column has the type that its declaration names, and its values are read as they are, or as
text, for `stage` to cast and check one by one.
"""

from __future__ import annotations

import re

from instep.schema.catalog.catalog import Table
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
from instep.sources.base import ANOTHER_FORM

_DECLARED = re.compile(r"\s*([^()]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*(.*?))?\s*", re.DOTALL)
_NAMED: dict[str, DataType] = {
    "BOOL": Boolean(),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    "TIME": Time(),
    "DATETIME": Timestamp(),
    "TIMESTAMP": Timestamp(),
    "TIMESTAMP WITHOUT TIME ZONE": Timestamp(),
    "TIMESTAMP WITH TIME ZONE": TimestampTz(),
    "TIMESTAMPTZ": TimestampTz(),
    "JSON": Json(),
    "JSONB": Json(),
    "UUID": Uuid(),
    "GUID": Uuid(),
    "UNIQUEIDENTIFIER": Uuid(),
    "STRING": String(),
}
_DECIMALS = {"DECIMAL", "DEC", "NUMERIC", "NUMBER"}


def column_type(declared: str) -> tuple[DataType, str]:
    """Return (the type, a note why it is looser than it looks or "") of a declared type such as `VARCHAR(30)`."""
    match = _DECLARED.fullmatch(declared.upper())
    word, first, second, suffix = match.groups() if match else (declared.upper(), None, None, None)
    name = " ".join(f"{word} {suffix or ''}".split())
    if name in _NAMED:
        return _NAMED[name], ""
    if name in _DECIMALS:
        return _decimal(int(first) if first else 0, int(second or 0))
    return _by_affinity(name, int(first) if first and not second else None)


def _decimal(precision: int, scale: int) -> tuple[DataType, str]:
    if not precision:
        return String(), "a number without a declared precision, kept as text"
    if precision > MAX_PRECISION or scale > precision:
        return String(), f"decimal({precision},{scale}) is beyond {MAX_PRECISION} digits, kept as text"
    return Decimal(precision, scale), ""


def _by_affinity(name: str, length: int | None) -> tuple[DataType, str]:
    """Apply the rules of SQLite's documentation, in their order."""
    if "INT" in name and "POINT" not in name:
        return Int(64), ""
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return String(length or None), ""
    if "BLOB" in name:
        return Binary(), ""
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return Float(64), ""
    return String(), f"{name} says nothing about its values, kept as text" if name else "no declared type, kept as text"


def untyped_key(table: Table) -> str:
    """Return why a key is weak whose columns may hold values of any type; "" for whole numbers, of which nothing else
    passes for one."""
    return ANOTHER_FORM if any(c.key and not isinstance(c.type, Int) for c in table.columns) else ""


def query_type(kind: DataType) -> DataType:
    """Return the type that a query yields for a column of type `kind`: numbers and bytes as they are, all else as text.

    A batch of a number column in which some value is no such number comes as text.
    """
    return kind if isinstance(kind, Int | Float | Binary) else String()
