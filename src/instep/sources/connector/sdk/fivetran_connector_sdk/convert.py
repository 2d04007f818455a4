"""Values of declared types: each function takes any value but None and gives what is sent for it, or raises ValueError
with the reason. Dates are sent as days since 1970, moments as microseconds since then, decimals as text."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_MIDNIGHT = datetime.min.time()
_DAY_MICROS = 86_400_000_000
_WHOLE = re.compile(r"[+-]?\d+(?:\.0*)?", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_FORMATS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
_FLOAT32_MOST = 3.4028235677973366e38  # from here on a number rounds to infinity
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class JsonText(str):
    """The JSON of a list or an object in a column without a declared type."""

    __slots__ = ()


class InvalidText(str):
    """The text of a value that does not fit its declared type, where such values are kept."""

    __slots__ = ()


def as_json(value: Any) -> str:
    try:
        return _json(value)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}; send None or a text instead") from None
    except TypeError as error:
        raise TypeError(f"is not JSON: {error}") from None


def inferred_json(value: Any) -> JsonText:
    return JsonText(as_json(value))


def boolean(value: Any) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise ValueError("is not a valid BOOLEAN: send True or False")


def integer(name: str, bits: int) -> Convert:
    """Return a conversion to integers, of whole texts and floats as well."""
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any) -> int:
        number = value if type(value) is int else _whole(value, name)
        if least <= number <= most:
            return number
        raise ValueError(f"is out of range for {name}: {least} to {most}")

    return convert


def _whole(value: Any, name: str) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) < 50 and _WHOLE.fullmatch(value):
        return int(value.partition(".")[0])
    if hasattr(value, "__index__"):
        return operator.index(value)
    raise ValueError(f"is not a valid {name}: send a whole number")


def floating(name: str, most: float) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not (isinstance(value, str) or hasattr(value, "__float__")):
            raise ValueError(f"is not a valid {name}: send a number")
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise ValueError(f"is not a valid {name}: send a number") from None
        if math.isfinite(number) and abs(number) >= most:
            raise ValueError(f"is out of range for {name}")
        return number

    return convert


def decimal(precision: int, scale: int) -> Convert:
    """Return texts and integers whose digits fit, zeros at either end aside. Nothing is rounded."""
    name, whole = f"DECIMAL({precision},{scale})", precision - scale
    point = rf"(?:\.\d{{1,{scale}}})?" if scale else ""
    plain = re.compile(rf"-?\d{{1,{whole}}}{point}" if whole else r"(?!)", re.ASCII)

    def convert(value: Any) -> str:
        if type(value) is str and plain.fullmatch(value):
            return value
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise ValueError(
                f"is not a valid {name}: send it as text, such as '12.50', because other numbers may be rounded"
            )
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise ValueError(f"is not a valid {name}") from None
        if not number.is_finite():
            raise ValueError(f"is not a valid {name}")
        if not _fits(number, whole, scale):
            raise ValueError(f"does not fit {name}: {whole} digits before the point and {scale} after it")
        text = format(number, "f") if number else "0"
        return text.rstrip("0").rstrip(".") if "." in text else text

    return convert


def _fits(number: Decimal, whole: int, scale: int) -> bool:
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    zeros = 0
    for digit in reversed(digits):
        if digit:
            break
        zeros += 1
    if zeros == len(digits):
        return True
    return -(exponent + zeros) <= scale and number.adjusted() < whole


def naive_date(value: Any) -> int:
    if type(value) is str:
        return _day(value).toordinal() - _FIRST_DAY
    if isinstance(value, datetime):
        if value.tzinfo is not None or value.time() != _MIDNIGHT:
            raise ValueError("is not a valid NAIVE_DATE: it has a time of day, which would be lost; send value.date()")
        return value.toordinal() - _FIRST_DAY
    if isinstance(value, date):
        return value.toordinal() - _FIRST_DAY
    if isinstance(value, str):
        return _day(str(value)).toordinal() - _FIRST_DAY
    raise ValueError("is not a valid NAIVE_DATE: send a date or a text such as '2026-01-31'")


def _day(text: str) -> date:
    try:
        if len(text) == 10 and text[4] == "-" and text[7] == "-":
            return date.fromisoformat(text)
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise ValueError("is not a valid NAIVE_DATE: send a date or a text such as '2026-01-31'") from None


def naive_datetime(value: Any) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return _micros(value)
        raise ValueError("is not a valid NAIVE_DATETIME: it has a time zone; declare UTC_DATETIME")
    if isinstance(value, str):
        match = _MOMENT.fullmatch(value)
        if match and match[3] is None:
            return _moment(match[1], match[2])
        if not match and (moment := _parsed(value, "")) is not None:
            return _micros(moment)
    raise ValueError(
        "is not a valid NAIVE_DATETIME: send a datetime or a text such as '2026-01-31T12:00:00', without a zone"
    )


def utc_datetime(value: Any) -> int:
    if isinstance(value, datetime):
        if value.utcoffset() is not None:
            return _utc_micros(value)
    elif isinstance(value, str):
        match = _MOMENT.fullmatch(value)
        if match and match[3] is not None:
            return _moment(match[1], match[2]) - _offset(match[3])
        if not match and (moment := _parsed(value, "%z")) is not None:
            return _utc_micros(moment)
    raise ValueError(
        "is not a valid UTC_DATETIME: send a datetime with a zone or a text such as '2026-01-31T12:00:00Z'"
    )


def _moment(text: str, fraction: str | None) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"is not a date and time: {error}") from None
    return _micros(moment) + (int(fraction.ljust(6, "0")) if fraction else 0)


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return since.days * _DAY_MICROS + since.seconds * 1_000_000 + since.microseconds


def _utc_micros(moment: datetime) -> int:
    offset = moment.utcoffset() or timedelta()
    return _micros(moment.replace(tzinfo=None)) - offset // timedelta(microseconds=1)


def _offset(text: str) -> int:
    if text in "Zz":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    if minutes >= 24 * 60 or int(text[-2:]) > 59:
        raise ValueError(f"has no such time zone: {text}")
    return (-minutes if text[0] == "-" else minutes) * 60_000_000


def _parsed(text: str, zone: str) -> datetime | None:
    """Parse rarer forms, such as months of one digit."""
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form + zone)
        except ValueError:
            continue
    return None


def binary(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ValueError("is not a valid BINARY: send bytes")


def string(value: Any) -> str:
    return str.__str__(value) if isinstance(value, str) else str(value)


def xml(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise ValueError("is not a valid XML: send a text")


def double() -> Convert:
    return floating("DOUBLE", math.inf)


def single() -> Convert:
    return floating("FLOAT", _FLOAT32_MOST)


def with_fallback(convert: Convert) -> Convert:
    """Return a conversion that keeps a value that does not fit as its text."""

    def convert_or_keep(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError:
            return InvalidText(string(value))

    return convert_or_keep
