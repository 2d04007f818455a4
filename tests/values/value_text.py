"""One text for a value, made from what the source's server prints and from what the destination holds: equal values,
equal texts. Numbers and moments are compared by what they are, everything else letter by letter."""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from instep.schema.catalog.types import Array, Boolean, DataType, Float, Int, Timestamp, TimestampTz, Uuid
from instep.schema.catalog.types import Date as DateType
from instep.schema.catalog.types import Decimal as DecimalType

_BC = re.compile(r"^(\d+)-(.*) BC$")
_WORDS = {"t": "true", "f": "false", "1": "true", "0": "false"}


def printed(kind: DataType, text: Any) -> Any:
    """What the server prints (a list of texts for an array) for a column that has become a `kind`."""
    if text is None:
        return None
    match kind:
        case Array():
            return [printed(kind.element, t) for t in text]
        case Boolean():
            return _WORDS.get(str(text), text)
        case Float():
            return _bits(float(text), kind.bits)
        case Int():
            return str(int(text))
        case DecimalType():
            return _number(Decimal(text))
        case Timestamp() | TimestampTz():
            return _moment(datetime.fromisoformat(text))
    return str(text)


def found(kind: DataType, value: Any) -> Any:
    """The same of a value that was read from the destination as Python has it."""
    if value is None:
        return None
    match kind, value:
        case Array(), list():
            return [found(kind.element, v) for v in value]
        case Float(), float():
            return _bits(value, kind.bits)
        case DecimalType(), Decimal():
            return _number(value)
        case Boolean(), bool():
            return str(value).lower()
        case Timestamp() | TimestampTz(), datetime():
            return _moment(value)
        case DateType(), date():
            return value.isoformat()
        case Uuid(), bytes():
            return str(UUID(bytes=value))
        case _, bytes():
            return "\\x" + value.hex()
    return str(value)


def same_original(kind: DataType, text: Any, kept: str) -> bool:
    """Whether quarantine holds what the server prints: moments as ISO 8601 has them, arrays as json."""
    if isinstance(kind, Array):
        return json.dumps([_iso(t) for t in text]) == json.dumps([_iso(t) for t in json.loads(kept)])
    if isinstance(kind, DateType | Timestamp | TimestampTz):
        return _iso(text) == _iso(kept)
    return bool(str(text) == kept)


def _iso(text: str | None) -> str | None:
    """A date or moment in UTC; years before 1 counted from 0 downwards, no zeros at the end of a fraction."""
    if text is None:
        return None
    if match := _BC.match(text):
        year = int(match[1]) - 1
        text = f"{'-' if year else ''}{year:04}-{match[2]}"
    text = text.replace(" ", "T").removesuffix("Z").removesuffix("+00")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bits(value: float, bits: int) -> str:
    if value != value:
        return "NaN"
    return struct.pack(">d" if bits == 64 else ">f", value).hex()


def _number(value: Decimal) -> str:
    return format(value, "f") if value else "0"


def _moment(value: datetime) -> str:
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
