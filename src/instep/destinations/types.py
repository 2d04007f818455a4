"""How each data type is stored at the destinations: the one table, from which docs/types.md is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instep.schema.types import Array, Binary, DataType, Decimal, String, Struct


@dataclass(frozen=True)
class Stored:
    """One row: the text form of a type and what it is in each format. `note` tells what is special about it."""

    type: str
    iceberg: str
    arrow: str
    note: str = ""


STORED: tuple[Stored, ...] = (
    Stored("boolean", "boolean", "bool"),
    Stored("int8", "int", "int32", "read back as int8: the narrower type is recorded beside the column"),
    Stored("int16", "int", "int32", "read back as int16: the narrower type is recorded beside the column"),
    Stored("int32", "int", "int32"),
    Stored("int64", "long", "int64"),
    Stored("decimal(p,s)", "decimal(p, s)", "decimal128(p, s)"),
    Stored("float32", "float", "float32"),
    Stored("float64", "double", "float64"),
    Stored("string", "string", "large_string"),
    Stored("string(n)", "string", "large_string", "the length is recorded, not enforced"),
    Stored("binary", "binary", "large_binary"),
    Stored("binary(n)", "binary", "large_binary", "the length is recorded, not enforced"),
    Stored("date", "date", "date32"),
    Stored("time", "string", "large_string", "ISO 8601 text: Spark cannot read a table that holds a time column"),
    Stored("timestamp", "timestamp", "timestamp[us]"),
    Stored("timestamptz", "timestamptz", "timestamp[us, tz=UTC]"),
    Stored("uuid", "uuid", "uuid"),
    Stored("json", "string", "large_string"),
    Stored("array(T)", "list<T>", "large_list<T>", "elements are optional"),
    Stored("struct(...)", "struct<...>", "struct<...>", "fields are optional"),
    Stored("unknown", "string", "large_string", "no value has been seen yet"),
)

_ICEBERG: Mapping[str, str] = {row.type: row.iceberg for row in STORED}
_FROM_ICEBERG: Mapping[str, str] = {
    "boolean": "boolean", "int": "int32", "long": "int64", "float": "float32", "double": "float64",
    "string": "string", "binary": "binary", "date": "date", "time": "time", "timestamp": "timestamp",
    "timestamptz": "timestamptz", "uuid": "uuid",
}  # fmt: skip


def iceberg_primitive(kind: DataType) -> str:
    """The Iceberg name of a type that is neither an array nor a struct, as table metadata spells it."""
    assert not isinstance(kind, Array | Struct), kind
    if isinstance(kind, Decimal):
        return f"decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, String | Binary):
        return _ICEBERG[type(kind).__name__.lower()]
    return _ICEBERG[str(kind)]


def from_iceberg_primitive(name: str) -> str | None:
    """The text form of the type that an Iceberg primitive is read as; None for one that we have no type for."""
    if name.startswith("decimal("):
        return name.replace(" ", "")
    if name.startswith("fixed["):
        return f"binary({name[6:-1]})"
    return _FROM_ICEBERG.get(name)


ICEBERG_PROMOTIONS: frozenset[tuple[str, str]] = frozenset(
    {
        ("int8", "int16"), ("int8", "int32"), ("int8", "int64"), ("int16", "int32"), ("int16", "int64"),
        ("int32", "int64"), ("float32", "float64"), ("decimal(p,s)", "decimal(p+,s)"),
        ("string(n)", "string(n+)"), ("binary(n)", "binary(n+)"),
        ("time", "string"), ("json", "string"), ("unknown", "string"), ("unknown", "json"), ("unknown", "time"),
    }
)  # fmt: skip
"""What Iceberg's own rules allow in place, as `Capabilities.promotes` spells it; the rest is refused."""
