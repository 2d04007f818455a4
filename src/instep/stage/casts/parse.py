"""One value from its canonical text: the slow path for values that a vectorised cast refused."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from instep.stage.casts.text import is_text

ASSUMED_UTC = "time zone assumed UTC"
OUT_OF_RANGE = "outside the years 0001 to 9999"
_DAY = re.compile(r"\s*\d{4}-\d\d-\d\d", re.ASCII)
_FRACTION = re.compile(r"[.,](\d{6})(\d+)")


class InvalidValue(Exception):
    """The value has no exact form in the target type; the message is the reason."""


def parse(text: str, target: pa.DataType) -> tuple[Any, str]:
    """Return (the value for Arrow, a note if something was assumed); raises InvalidValue."""
    for applies, convert in _PARSERS:
        if applies(target):
            return convert(text, target), _note(text, target)
    raise InvalidValue(f"{target} cannot be made from text")


def _note(text: str, target: pa.DataType) -> str:
    if pa.types.is_timestamp(target) and target.tz and _instant(text).tzinfo is None:
        return ASSUMED_UTC
    return ""


def _boolean(text: str, _: pa.DataType) -> bool:
    word = text.strip().lower()
    if word in ("true", "t", "1"):
        return True
    if word in ("false", "f", "0"):
        return False
    raise InvalidValue("not true or false")


def _number(text: str) -> Decimal:
    try:
        if "_" in text or not text.isascii():
            raise InvalidOperation
        number = Decimal(text.strip())
    except InvalidOperation:
        raise InvalidValue("not a number") from None
    return number


def _finite(text: str) -> Decimal:
    number = _number(text)
    if not number.is_finite():
        raise InvalidValue(f"{'NaN' if number.is_nan() else 'infinity'} is not a finite number")
    return number


def _integer(text: str, target: pa.DataType) -> int:
    number = _finite(text)
    if number.adjusted() > 40:
        raise InvalidValue(f"too large for {target}")
    if number != int(number):
        raise InvalidValue("has a fraction")
    signed = pa.types.is_signed_integer(target)
    low, high = (-(2 ** (target.bit_width - 1)), 2 ** (target.bit_width - 1)) if signed else (0, 2**target.bit_width)
    if not low <= number < high:
        raise InvalidValue(f"too large for {target}")
    return int(number)


def _decimal(text: str, target: pa.DataType) -> Decimal:
    number = _finite(text)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    chars = list(digits)
    while exponent < -target.scale and chars and chars[-1] == 0:
        chars.pop()
        exponent += 1
    if exponent < -target.scale and any(chars):
        raise InvalidValue(f"more than {target.scale} digits after the point")
    if any(chars) and number.adjusted() >= target.precision - target.scale:
        raise InvalidValue(f"more than {target.precision - target.scale} digits before the point")
    return Decimal((sign, tuple(chars), exponent)) if any(chars) else Decimal(0)


def _float(text: str, target: pa.DataType) -> float:
    number = _number(text)
    value = float(number)
    if not number.is_finite():
        return value
    stored = pa.scalar(value, target)
    shown = Decimal(str(stored.cast(pa.string()).as_py()))
    if number not in (shown, Decimal(stored.as_py())) if shown.is_finite() else True:
        raise InvalidValue(f"not exact as {'a 64' if target.bit_width == 64 else 'a 32'}-bit float")
    return value


def _instant(text: str) -> datetime:
    match = _FRACTION.search(text)
    if match and match[2].strip("0"):
        raise InvalidValue("finer than a microsecond")
    try:
        if not _DAY.match(text):  # the basic forms of ISO 8601 are digits, which may be a number
            raise ValueError
        return datetime.fromisoformat(text.strip())
    except ValueError:
        if re.match(r"\s*([+-]?infinity|[+-]?\d{5,}-|-\d+-|0000-)", text, re.IGNORECASE):
            raise InvalidValue(OUT_OF_RANGE) from None
        raise InvalidValue("not an ISO date and time") from None


def _timestamp(text: str, target: pa.DataType) -> datetime:
    value = _instant(text)
    if target.tz is None:
        if value.tzinfo is not None:
            raise InvalidValue("has a time zone")
        return value
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(OUT_OF_RANGE) from None


def _date(text: str, _: pa.DataType) -> date:
    value = _instant(text)
    if value.timetz().replace(tzinfo=None) != time(0):
        raise InvalidValue("has a time of day")
    return value.date()


def _time(text: str, _: pa.DataType) -> time:
    match = _FRACTION.search(text)
    if match and match[2].strip("0"):
        raise InvalidValue("finer than a microsecond")
    try:
        value = time.fromisoformat(text.strip())
    except ValueError:
        raise InvalidValue("not a time of day") from None
    if value.tzinfo is not None:
        raise InvalidValue("has a time zone")
    return value


def _uuid(text: str, target: pa.DataType) -> bytes:
    if target.byte_width != 16:
        raise InvalidValue(f"not {target.byte_width} bytes")
    if text.strip().isdigit():
        raise InvalidValue("digits alone are a number")
    try:
        return uuid.UUID(text.strip()).bytes
    except ValueError:
        raise InvalidValue("not a UUID") from None


def _bytes(text: str, _: pa.DataType) -> bytes:
    return text.encode()


def _text(text: str, _: pa.DataType) -> str:
    return text


class _Digits(str):
    """A number of a JSON document, as it is written there."""

    __slots__ = ()


def _nested(text: str, target: pa.DataType) -> Any:
    try:
        value = json.loads(
            text, parse_int=_Digits, parse_float=_Digits, parse_constant=refuse, object_pairs_hook=members_once
        )
        if value is None:
            raise ValueError
        return _element(value, target)
    except (ValueError, InvalidValue, RecursionError):
        raise InvalidValue(f"an element does not fit {target}") from None


def _element(value: Any, target: pa.DataType) -> Any:
    """Return a part of a JSON document as Arrow takes it for `target`; raises ValueError or InvalidValue if it is
    none."""
    match value:
        case None:
            return None
        case dict() if pa.types.is_struct(target) and value.keys() <= {f.name for f in target}:
            return {f.name: _element(value.get(f.name), f.type) for f in target}
        case list() if pa.types.is_list(target) or pa.types.is_large_list(target):
            return [_element(v, target.value_type) for v in value]
        case bool() if pa.types.is_boolean(target):
            return value
        case _Digits() if any(of(target) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
            return parse(value, target)[0]
        case str() if not isinstance(value, _Digits) and not pa.types.is_boolean(target):
            # a string of a JSON document: bytes, moments, decimals and what is no finite number are written so
            if pa.types.is_binary(target) or pa.types.is_large_binary(target):
                if not re.fullmatch(r"\\x([0-9a-f]{2})*", value):
                    raise ValueError("not bytes")
                return bytes.fromhex(value[2:])
            finite = pa.types.is_floating(target) and value not in ("NaN", "Infinity", "-Infinity")
            if finite or pa.types.is_integer(target) or pa.types.is_nested(target):
                raise ValueError("a string in the place of another value")
            return parse(value, target)[0]
    raise ValueError(f"not {target}")


def members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; ValueError for a name that occurs twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice")
    return members


def refuse(word: str) -> None:
    """Raise ValueError for NaN and the infinities, which are no JSON."""
    raise ValueError(word)


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any]], ...] = (
    (is_text, _text),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_floating, _float),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
    (pa.types.is_fixed_size_binary, _uuid),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), _bytes),
    (lambda t: pa.types.is_nested(t) and not pa.types.is_map(t), _nested),
)
