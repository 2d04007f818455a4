"""Whether a value at the destination is the source's, as it is or as documented text.

Nothing of the product's own casts takes part: numbers are compared as fractions, everything else by what Python's
library makes of the server's text.
"""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import UTC, datetime, time
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any
from uuid import UUID

from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Float,
    Int,
    Json,
    Timestamp,
    TimestampTz,
    Uuid,
)
from instep.schema.catalog.types import Decimal as DecimalType

NUMBERS = ("smallint", "integer", "bigint", "numeric", "money", "real", "double precision")
_BC = re.compile(r"^(\d+)-(.*) BC$")


def is_number(native: str) -> bool:
    return native.startswith(NUMBERS) and not native.endswith("[]")


def arrives(native: str, text: Any, kind: DataType, value: Any) -> bool:
    """Whether `value`, of the accepted type `kind`, is what the source prints as `text` (a list of texts for an array)
    for a column of the type `native`."""
    match kind:
        case Boolean():
            return str(value).lower() == _boolean(native, text)
        case Int() | DecimalType() | Float():
            return _is_same_number(native, text, kind, value)
        case Date():
            moment = _moment(native, text)
            return moment is not None and moment.time() == time() and moment.date() == value
        case Timestamp() | TimestampTz():
            moment = _moment(native, text)
            return moment is not None and moment == (
                value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            )
        case Binary():
            return bool(value == _bytes(native, text))
        case Uuid() if not isinstance(value, str):
            return _uuid(native, text) == (value if isinstance(value, UUID) else UUID(bytes=value))
        case Json() if not native.startswith("json"):
            return _is_document(native, text, value)
        case Array(element):
            return _is_list(native, text, element, value)
    return is_text_of(native, text, value)


def is_text_of(native: str, text: Any, value: Any) -> bool:
    """Whether `value` is the documented text of what the source prints."""
    if not isinstance(value, str):
        return False
    if native.endswith("[]"):
        try:
            parts = json.loads(value, parse_constant=str)
        except ValueError:
            return False
        return len(parts) == len(text) and all(
            (p is None) == (t is None) and (p is None or _is_in_json(native[:-2], t, p))
            for p, t in zip(parts, text, strict=True)
        )
    if native in ("real", "double precision"):
        return _bits(native, value) == _bits(native, text) and len(value) <= max(len(text), len(repr(float(text))))
    if native in ("date", "timestamp", "timestamptz"):
        return _iso(value) == _iso(text) and value.endswith("Z") == (native == "timestamptz" and "infinity" not in text)
    if native == "boolean":
        return value == {"t": "true", "f": "false"}.get(text, text)
    return bool(value == text)


def _is_in_json(native: str, text: str, part: Any) -> bool:
    """An element of a list's text: a number is one there, everything else a string."""
    if native in ("real", "double precision"):
        return _bits(native, str(part)) == _bits(native, text)
    if is_number(native):
        return not isinstance(part, str | bool) and Fraction(part) == Fraction(text)
    return isinstance(part, str) and (_iso(part) == _iso(text) if native == "date" else part == text)


def _boolean(native: str, text: str) -> str:
    if is_number(native):
        found = _finite(text)
        return {Fraction(0): "false", Fraction(1): "true"}.get(found, "") if found is not None else ""
    return {"t": "true", "true": "true", "1": "true", "f": "false", "false": "false", "0": "false"}.get(
        text.strip(), ""
    )


def _finite(text: str) -> Fraction | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return Fraction(number) if number.is_finite() else None


def _is_same_number(native: str, text: str, kind: DataType, value: Any) -> bool:
    if native == "boolean":
        text = {"t": "1", "true": "1"}.get(text, "0")
    if native.endswith("[]") or native in ("date", "timestamp", "timestamptz", "time", "timetz", "uuid", "bytea"):
        return False
    if isinstance(value, float) and not math.isfinite(value):
        try:
            found = float(Decimal(text.strip())) if not _finite(text) else None
        except InvalidOperation:
            return False
        return found is not None and (found == value or (math.isnan(found) and math.isnan(value)))
    wanted = _finite(text)
    if wanted is None:
        return False
    means = {wanted}
    if native == "real":
        means.add(Fraction(struct.unpack("f", struct.pack("f", float(text)))[0]))
    elif native == "double precision":
        means |= {Fraction(float(text)), Fraction(repr(float(text)))}
    if not isinstance(kind, Float):
        return Fraction(value) in means
    short = _shortest(value) if kind.bits == 32 else repr(value)
    return Fraction(value) in means or Fraction(short) in means


def _shortest(value: float) -> str:
    import numpy as np

    return str(np.format_float_scientific(np.float32(value), unique=True))


def _bits(native: str, text: str) -> bytes:
    number = float(text)
    return b"NaN" if math.isnan(number) else struct.pack("f" if native == "real" else "d", number)


def _moment(native: str, text: str) -> datetime | None:
    """A date, a moment or a text that is one, in UTC and without its zone."""
    if native.endswith("[]") or is_number(native) or not re.match(r"\s*\d{4}-\d\d-\d\d", text):
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _bytes(native: str, text: str) -> bytes | None:
    if native == "bytea":
        return bytes.fromhex(text[2:])
    if native == "uuid":
        return UUID(text).bytes
    binary = (
        "boolean",
        "date",
        "timestamp",
        "timestamptz",
        "smallint",
        "integer",
        "bigint",
        "real",
        "double precision",
    )
    return None if native.endswith("[]") or native in binary else text.encode()


def _uuid(native: str, text: str) -> UUID | None:
    if native == "bytea":
        return UUID(text[2:]) if len(text) == 34 else None
    if native.endswith("[]") or is_number(native):
        return None
    try:
        return UUID(text.strip())
    except ValueError:
        return None


def _is_document(native: str, text: Any, value: str) -> bool:
    if native.endswith("[]"):
        return is_text_of(native, text, value)
    plain = is_number(native) and native not in ("numeric", "money")
    quoted = json.loads(value) if value.startswith('"') else None
    texts = ("text", "character varying(40)", "character(4)")
    if isinstance(quoted, str) and native not in texts:
        return is_text_of(native, text, quoted)
    if native in ("real", "double precision"):
        return _bits(native, value) == _bits(native, text) and math.isfinite(float(text))
    return is_text_of(native, text, value) or (plain and Fraction(value) == Fraction(text))


def _is_list(native: str, text: Any, element: DataType, value: list[Any]) -> bool:
    if native.endswith("[]"):
        return len(text) == len(value) and all(
            v is None if t is None else v is not None and arrives(native[:-2], t, element, v)
            for t, v in zip(text, value, strict=True)
        )
    try:
        parts = json.loads(text, parse_int=_Digits, parse_float=_Digits, parse_constant=_Digits)
    except (ValueError, TypeError):
        return False
    if not isinstance(parts, list) or len(parts) != len(value):
        return False
    return all(_is_part(part, element, v) for part, v in zip(parts, value, strict=True))


class _Digits(str):
    __slots__ = ()


def _is_part(part: Any, element: DataType, value: Any) -> bool:
    if part is None or value is None:
        return part is None and value is None
    if isinstance(part, bool):
        return part is value
    native = "numeric" if isinstance(part, _Digits) else "text"
    if isinstance(element, Binary):
        native = "bytea"
    return arrives(native, str(part), element, value)


def _iso(text: str) -> str:
    if match := _BC.match(text):
        year = int(match[1]) - 1
        text = f"{'-' if year else ''}{year:04}-{match[2]}"
    text = text.replace(" ", "T").removesuffix("Z").removesuffix("+00")
    return text.rstrip("0").rstrip(".") if "." in text else text
