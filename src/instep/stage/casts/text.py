"""The canonical text of a value: what string columns, hashes, row ids and quarantine show.

Booleans are true/false, numbers plain decimal (floats in their shortest form), dates and times ISO 8601
with six fractional digits (UTC instants end in Z), UUIDs dashed, other bytes `\\x` and hex, intervals
ISO 8601 durations, arrays and structs compact JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.types import DataType, Uuid

_MICROS_PER_DAY = 86_400_000_000
_MICROS = {"s": 1_000_000, "ms": 1000}
_EPOCH, _CYCLE = 719_162, 146_097  # days from 0001-01-01 to 1970, and in 400 years
# An infinity arrives as the extreme of its integer, or as that extreme moved from 2000 to 1970 with wrap-around.
INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity", -2147472692: "infinity", -2147472691: "-infinity"}
INFINITE_MICROS = {
    2**63 - 1: "infinity",
    -(2**63): "-infinity",
    -9222425352054775809: "infinity",
    -9222425352054775808: "-infinity",
}
_LAST_WRAPPED = -9222425352054775809


def plain(values: pa.Array) -> pa.Array:
    """Return `values` without extension types, dictionaries and views, nested ones included, and without run ends."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(values.storage)
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(values))
    target = _plain_type(kind)
    return values if target == kind else values.cast(target)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain_type(f.type), f.nullable) for f in kind])
    return kind


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def to_text(values: pa.Array, source: DataType | None = None) -> pa.Array:
    """Return the canonical texts of plain `values` as a string array; `source` tells UUIDs from other 16 bytes.

    Raises ArrowInvalid if text is not valid UTF-8.
    """
    kind = values.type
    if is_text(kind):
        values.validate(full=True)
        return values
    for applies, convert in _TEXTS:
        if applies(kind):
            return convert(values)
    if is_bytes(kind):
        return _uuid_text(values) if isinstance(source, Uuid) else _each(values, lambda b: "\\x" + b.hex())
    return pc.cast(values, pa.string())


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if v is None else text(v) for v in values.to_pylist()], pa.string())


def _uuid_text(values: pa.Array) -> pa.Array:
    if not pa.types.is_fixed_size_binary(values.type) or values.type.byte_width != 16:
        return _each(values, lambda b: dashed(b.hex()))
    return pa.array([None if v is None else dashed(v.hex()) for v in values.to_pylist()], pa.string())


def dashed(digits: str) -> str:
    """Return 32 hex digits in the usual five groups."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _float_text(values: pa.Array) -> pa.Array:
    texts = pc.cast(values, pa.string())
    if not pc.all(pc.is_finite(values), min_count=0).as_py():
        names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return _each(texts, lambda t: names.get(t, t))
    return texts


def _decimal_text(values: pa.Array) -> pa.Array:
    return plain_digits(pc.cast(values, pa.string()))


def plain_digits(texts: pa.Array) -> pa.Array:
    """Return the texts of numbers without exponents; NaN and infinities stay."""
    odd = pc.match_substring_regex(texts, "[0-9][eE]")
    if not pc.any(odd, min_count=0).as_py():
        return texts
    return pc.coalesce(_each(pc.if_else(odd, texts, None), lambda t: format(Decimal(t), "f")), texts)


def _date_text(values: pa.Array) -> pa.Array:
    if pa.types.is_date64(values.type):
        values = values.cast(pa.date32())
    return _named(pc.cast(values, pa.string()), values.view(pa.int32()), INFINITE_DAYS)


def _timestamp_text(values: pa.Array) -> pa.Array:
    if (size := _MICROS.get(values.type.unit)) is not None:
        zone = "Z" if values.type.tz else ""
        try:
            values = values.cast(pa.timestamp("us", values.type.tz))
        except pa.ArrowInvalid:  # some have more microseconds than 64 bits hold
            return _each(values.view(pa.int64()), lambda n: _moment(n * size, zone))
    numbers = values.view(pa.int64())
    # Without its zone, which is UTC inside, a column becomes text 25 times as fast.
    texts = pc.cast(numbers.view(pa.timestamp(values.type.unit)), pa.string())
    texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    if values.type.tz:
        texts = pc.binary_join_element_wise(texts, "Z", "")
    return _named(texts, numbers, INFINITE_MICROS) if values.type.unit == "us" else texts


def _named(texts: pa.Array, numbers: pa.Array, names: dict[int, str]) -> pa.Array:
    """Return `texts` with infinities by name, and with the years that Arrow cannot print."""
    odd = pc.or_(pc.match_substring(texts, "<"), pc.is_in(numbers, pa.array(list(names), numbers.type)))
    if numbers.type == pa.int64():
        odd = pc.or_(odd, pc.less(numbers, _LAST_WRAPPED))
    if not pc.any(odd, min_count=0).as_py():
        return texts
    pairs: Iterable[tuple[str | None, int | None]] = zip(texts.to_pylist(), numbers.to_pylist(), strict=True)
    far = _far_day if numbers.type == pa.int32() else _far_moment
    return pa.array([None if t is None or n is None else names.get(n) or far(n, t) for t, n in pairs], pa.string())


def _far_day(number: int, text: str) -> str:
    if "<" not in text:
        return text
    cycles, day = divmod(number + _EPOCH, _CYCLE)
    inside = date.fromordinal(day + 1)
    year = inside.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04}{inside:-%m-%d}"


def _far_moment(number: int, text: str) -> str:
    """Return the text of a far instant. One just above the least number has wrapped around: PostgreSQL's go on after
    2^63 - 1."""
    micros = number + 2**64 if number < _LAST_WRAPPED else number
    if micros == number and "<" not in text:
        return text
    return _moment(micros, "Z" if text.endswith("Z") else "")


def _moment(micros: int, zone: str) -> str:
    days, micros_of_day = divmod(micros, _MICROS_PER_DAY)
    return f"{_far_day(days, '<')}T{clock(micros_of_day)}{zone}"


def _time_text(values: pa.Array) -> pa.Array:
    micros = values.cast(pa.time64("us"), safe=False)
    texts = pc.cast(micros, pa.string())
    if pc.any(pc.match_substring(texts, "<"), min_count=0).as_py():
        return _each(micros.view(pa.int64()), lambda n: clock(n))
    return texts


def clock(micros: int) -> str:
    """Return [-]HH:MM:SS.ffffff; hours may pass 24."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _duration_text(values: pa.Array) -> pa.Array:
    size = _MICROS.get(values.type.unit, 1)
    whole = values.cast(pa.duration("us"), safe=False) if values.type.unit == "ns" else values
    return _each(whole.view(pa.int64()), lambda n: clock(n * size))


def _interval_text(values: pa.Array) -> pa.Array:
    return _each(values, lambda v: iso_interval(v.months, v.days, v.nanoseconds))


def iso_interval(months: int, days: int, nanoseconds: int) -> str:
    """Return an ISO 8601 duration: P1Y2M3DT4H5M6.5S; PT0S for none."""
    years, months_left = _split(months, 12)
    hours, nanos = _split(nanoseconds, 3_600_000_000_000)
    minutes, nanos = _split(nanos, 60_000_000_000)
    seconds = format((Decimal(nanos) / 1_000_000_000).normalize(), "f") if nanos else ""
    dates = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months_left, "M"), (days, "D")) if n)
    times = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n)
    return f"P{dates}{'T' + times if times else ''}" if dates or times else "PT0S"


def _split(number: int, size: int) -> tuple[int, int]:
    """Return whole parts and the rest, both with the sign of `number`."""
    whole, remainder = divmod(abs(number), size)
    return (whole, remainder) if number >= 0 else (-whole, -remainder)


def _json_text(values: pa.Array) -> pa.Array:
    try:
        return _each(values, _dumped)
    except (OverflowError, ValueError):  # Python has no dates and moments outside the years 1 to 9999
        if len(values) == 1:
            return _each(_plain_leaves(values, _checked), _dumped)
        return pa.concat_arrays([_json_text(values.slice(at, 1)) for at in range(len(values))])


def _dumped(value: Any) -> str:
    return json.dumps(value, default=_json_value, ensure_ascii=False, separators=(",", ":"))


def documents(texts: pa.Array) -> pa.Array:
    """Return the texts of nested values with NaN and infinities, which JSON has not, as strings in it."""
    odd = pc.match_substring_regex(texts, "NaN|Infinity")
    if not pc.any(odd, min_count=0).as_py():
        return texts
    named = _each(pc.if_else(odd, texts, None), lambda t: _dumped(json.loads(t, parse_constant=str)))
    return pc.coalesce(named.cast(texts.type), texts)


def with_hex(values: pa.Array) -> pa.Array:
    r"""Return the texts of nested `values`, with `\x` and hex in the place of what is not UTF-8."""
    return _each(_plain_leaves(values, _hexed), _dumped)


def _checked(texts: pa.Array) -> pa.Array:
    texts.validate(full=True)
    return texts


def _hexed(texts: pa.Array) -> pa.Array:
    raw = texts.view(pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary())
    return _each(raw, lambda b: b.decode() if _is_utf8(b) else "\\x" + b.hex())


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain_leaves(values: pa.Array, text: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return nested `values` with dates and moments as texts, and texts converted by `text`."""
    kind = values.type
    if is_text(kind):
        return text(values)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return to_text(values)
    if pa.types.is_struct(kind):
        parts = [_plain_leaves(part, text) for part in values.flatten()]
        return pa.StructArray.from_arrays(parts, [f.name for f in kind], mask=values.is_null())
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return values
    array = _plain_leaves(values.flatten(), text)
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, array, mask=values.is_null())


def _json_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return clock(value // timedelta(microseconds=1))
    return str(value)


def _is_interval(kind: pa.DataType) -> bool:
    return bool(kind == pa.month_day_nano_interval())


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_floating, _float_text),
    (pa.types.is_decimal, _decimal_text),
    (pa.types.is_date, _date_text),
    (pa.types.is_timestamp, _timestamp_text),
    (pa.types.is_time, _time_text),
    (pa.types.is_duration, _duration_text),
    (_is_interval, _interval_text),
    (pa.types.is_nested, _json_text),
)
