"""Data types: one frozen class per family, with a text form that parses back.

The text form is what files, plans and people use: `int64`, `decimal(12,2)`, `string(200)`,
`array(int32)`, `struct("a" int32, "b c" string)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from instep.errors import SchemaError


@dataclass(frozen=True)
class Boolean:
    def __str__(self) -> str:
        return "boolean"


@dataclass(frozen=True)
class Int:
    """A signed integer of 8, 16, 32 or 64 bits."""

    bits: int

    def __str__(self) -> str:
        return f"int{self.bits}"


@dataclass(frozen=True)
class Decimal:
    """An exact number: `precision` digits (1 to 38), `scale` of them after the point (0 to precision)."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Float:
    """An IEEE 754 number of 32 or 64 bits."""

    bits: int

    def __str__(self) -> str:
        return f"float{self.bits}"


@dataclass(frozen=True)
class String:
    """Text, of at most `length` characters where the source says so."""

    length: int | None = None

    def __str__(self) -> str:
        return "string" if self.length is None else f"string({self.length})"


@dataclass(frozen=True)
class Binary:
    """Bytes, at most `length` of them where the source says so."""

    length: int | None = None

    def __str__(self) -> str:
        return "binary" if self.length is None else f"binary({self.length})"


@dataclass(frozen=True)
class Date:
    def __str__(self) -> str:
        return "date"


@dataclass(frozen=True)
class Time:
    """Time of day without a zone, in microseconds."""

    def __str__(self) -> str:
        return "time"


@dataclass(frozen=True)
class Timestamp:
    """A local date and time, in microseconds, without a zone."""

    def __str__(self) -> str:
        return "timestamp"


@dataclass(frozen=True)
class TimestampTz:
    """An instant, in microseconds since 1970 UTC."""

    def __str__(self) -> str:
        return "timestamptz"


@dataclass(frozen=True)
class Uuid:
    def __str__(self) -> str:
        return "uuid"


@dataclass(frozen=True)
class Json:
    def __str__(self) -> str:
        return "json"


@dataclass(frozen=True)
class Array:
    element: DataType

    def __str__(self) -> str:
        return f"array({self.element})"


@dataclass(frozen=True)
class Field:
    """A named part of a struct."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return '"' + self.name.replace('"', '""') + f'" {self.type}'


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct({', '.join(map(str, self.fields))})"


@dataclass(frozen=True)
class Unknown:
    """Type of a column without a value so far: promotes to every type."""

    def __str__(self) -> str:
        return "unknown"


DataType = (
    Boolean
    | Int
    | Decimal
    | Float
    | String
    | Binary
    | Date
    | Time
    | Timestamp
    | TimestampTz
    | Uuid
    | Json
    | Array
    | Struct
    | Unknown
)

MAX_PRECISION = 38

_PLAIN: dict[str, DataType] = {
    str(t): t
    for t in (
        Boolean(), Int(8), Int(16), Int(32), Int(64), Float(32), Float(64), String(), Binary(),
        Date(), Time(), Timestamp(), TimestampTz(), Uuid(), Json(), Unknown(),
    )
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SIZED = re.compile(r"(string|binary)\((\d+)\)")
_FIELD_NAME = re.compile(r'"((?:[^"]|"")*)" ')


@lru_cache(4096)
def parse(text: str) -> DataType:
    """Return the type whose text form is `text`; raises SchemaError if there is none."""
    kind, end = _parse(text, 0)
    if end != len(text):
        raise SchemaError(f"unknown type {text!r}", hint="types are listed in docs/reference/types.md")
    return kind


def _parse(text: str, at: int) -> tuple[DataType, int]:
    if match := _DECIMAL.match(text, at):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            raise SchemaError(f"decimal({precision},{scale}) is out of range", hint="use precision 1 to 38")
        return Decimal(precision, scale), match.end()
    if match := _SIZED.match(text, at):
        length = int(match[2])
        return (String(length) if match[1] == "string" else Binary(length)), match.end()
    if text.startswith("array(", at):
        element, end = _parse(text, at + 6)
        return Array(element), _expect(text, end, ")")
    if text.startswith("struct(", at):
        return _parse_struct(text, at + 7)
    word = re.compile(r"\w+").match(text, at)
    if word and word[0] in _PLAIN:
        return _PLAIN[word[0]], word.end()
    raise SchemaError(f"unknown type {text[at:]!r}", hint="types are listed in docs/reference/types.md")


def _parse_struct(text: str, at: int) -> tuple[DataType, int]:
    fields: list[Field] = []
    while not text.startswith(")", at):
        if fields:
            at = _expect(text, at, ", ")
        name = _FIELD_NAME.match(text, at)
        if not name:
            raise SchemaError(f"a struct field needs a quoted name at {text[at:]!r}")
        kind, at = _parse(text, name.end())
        fields.append(Field(name[1].replace('""', '"'), kind))
    return Struct(tuple(fields)), at + 1


def _expect(text: str, at: int, token: str) -> int:
    if not text.startswith(token, at):
        raise SchemaError(f"expected {token!r} in type {text!r} at position {at}")
    return at + len(token)
