"""Casts whole columns in Arrow compute; only values that do not fit are looked at one by one.

A cast never changes a value silently: it is exact, or counted under a reason (a time zone assumed or
dropped, digits below a microsecond cut), or the value is invalid, NULL in the result.

Whole-array casts that are exact or raise ArrowInvalid; notes count what a zone or unit change implies.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.types import Array as ArrayType
from instep.schema.catalog.types import (
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Field,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Unknown,
    Uuid,
)
from instep.stage.casts.fixed_point import fixed_point
from instep.stage.casts.parse import ASSUMED_UTC, OUT_OF_RANGE, InvalidValue, parse
from instep.stage.casts.text import documents, is_bytes, is_text, plain, plain_digits, to_text, with_hex

_LEAF = 32
_MIN_DAY, _MAX_DAY = -719162, 2932896
_MIN_MICRO, _MAX_MICRO = _MIN_DAY * 86_400_000_000, (_MAX_DAY + 1) * 86_400_000_000 - 1


@dataclass(frozen=True)
class Cast:
    """`values` has exactly the target type; `invalid_values` (reason by position) are NULL; `lossy` counts reasons."""

    values: pa.Array
    invalid_values: Mapping[int, str] = field(default_factory=dict)
    lossy: Mapping[str, int] = field(default_factory=dict)


def cast(values: pa.Array, source: DataType, target: pa.DataType, accepted: DataType) -> Cast:
    """Cast `values` of the type `source` to the Arrow type `target`, which holds the accepted type."""
    values = plain(values)
    storage = target.storage_type if isinstance(target, pa.BaseExtensionType) else target
    work = _ColumnCast(source, storage, accepted)
    work.run(values, 0)
    out = pa.concat_arrays(work.parts) if len(work.parts) != 1 else work.parts[0]
    out = work.in_range(out)
    if isinstance(target, pa.BaseExtensionType):
        out = pa.ExtensionArray.from_storage(target, out)
    return Cast(out, work.invalid_values, work.lossy)


class _ColumnCast:
    """One column's cast: halves a run of values until what is left fits or is small enough to parse."""

    def __init__(self, source: DataType, target: pa.DataType, accepted: DataType) -> None:
        self.source, self.target, self.accepted = source, target, accepted
        self.parts: list[pa.Array] = []
        self.invalid_values: dict[int, str] = {}
        self.lossy: Counter[str] = Counter()

    def run(self, values: pa.Array, start: int) -> None:
        try:
            out, notes = self.whole(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if len(values) <= _LEAF:
                self.parts.append(self.one_by_one(values, start))
                return
            half = len(values) // 2
            self.run(values.slice(0, half), start)
            self.run(values.slice(half), start + half)
            return
        self.parts.append(out)
        self.lossy.update(notes)

    def whole(self, values: pa.Array) -> tuple[pa.Array, Mapping[str, int]]:
        if isinstance(self.accepted, Json) and not isinstance(self.source, Json):
            if len(values) == values.null_count:
                return pa.nulls(len(values), self.target), {}
            if not pa.types.is_nested(values.type):
                raise pa.ArrowInvalid("JSON is checked value by value")
        out, notes = exact(values, self.source, self.target, _inner)
        is_document = pa.types.is_nested(values.type) and is_text(self.target)
        return (documents(out) if is_document else out), notes

    def one_by_one(self, values: pa.Array, start: int) -> pa.Array:
        out = []
        for at in range(len(values)):
            try:
                out.append(self.one(values.slice(at, 1)))
            except InvalidValue as error:
                out.append(pa.nulls(1, self.target))
                self.invalid_values[start + at] = str(error)
        return pa.concat_arrays(out) if out else pa.nulls(0, self.target)

    def one(self, value: pa.Array) -> pa.Array:
        if value.null_count:
            return pa.nulls(1, self.target)
        try:
            out, notes = self.whole(value)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return self.parsed(value)
        self.lossy.update(notes)
        return out

    def parsed(self, value: pa.Array) -> pa.Array:
        if why := reason_no_form(value.type, self.source, self.target):
            raise InvalidValue(why)
        if is_hex(value.type, self.source, self.target):
            raise InvalidValue(NOT_BYTES)
        text = self.text(value)
        if isinstance(self.accepted, Json) and not isinstance(self.source, Json):
            return pa.array([_json(text, value.type)], self.target)
        result, note = parse(text, self.target)
        self.lossy.update([note] if note else [])
        return pa.array([result], self.target)

    def text(self, value: pa.Array) -> str:
        if is_bytes(value.type) and is_text(self.target) and isinstance(self.source, String | Json):
            raise InvalidValue("not valid UTF-8")
        try:
            return str(to_text(value, self.source)[0].as_py())
        except pa.ArrowInvalid:
            raise InvalidValue("not valid UTF-8" if is_text(value.type) else "has no text form") from None

    def in_range(self, values: pa.Array) -> pa.Array:
        """Make dates and instants outside the years 0001 to 9999 invalid values."""
        if pa.types.is_date32(self.target):
            numbers, low, high = values.view(pa.int32()), _MIN_DAY, _MAX_DAY
        elif pa.types.is_timestamp(self.target) and self.target.unit == "us":
            numbers, low, high = values.view(pa.int64()), _MIN_MICRO, _MAX_MICRO
        else:
            return values
        ends = pc.min_max(numbers)
        if not ends["min"].is_valid or (ends["min"].as_py() >= low and ends["max"].as_py() <= high):
            return values
        outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
        self.invalid_values.update(dict.fromkeys(pc.indices_nonzero(outside).to_pylist(), OUT_OF_RANGE))
        return pc.if_else(outside, pa.scalar(None, values.type), values)


def _inner(values: pa.Array, source: DataType, target: pa.DataType) -> pa.Array:
    """Return a part of a nested value: the same rules, all or nothing."""
    done = cast(values, source, target, source)
    if done.invalid_values:
        raise pa.ArrowInvalid("an element does not fit")
    return done.values


def _json(text: str, kind: pa.DataType) -> str:
    """Return `text` as a JSON document: text must hold one, numbers and booleans are one, all else is quoted."""
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (is_text(kind) or numeric or pa.types.is_boolean(kind)):
        return json.dumps(text, ensure_ascii=False)
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except ValueError:
        raise InvalidValue("not JSON") from None
    except RecursionError:
        raise InvalidValue("nested too deeply to be checked") from None
    return text


def _refuse(word: str) -> None:
    raise ValueError(word)


def original(values: pa.Array, at: int, source: DataType) -> str:
    r"""Return the text of the value at `at` as quarantine stores it; bytes that are not text as `\x` and hex."""
    value = plain(values.slice(at, 1))
    try:
        return str(to_text(value, source)[0].as_py())
    except pa.ArrowInvalid:
        if pa.types.is_nested(value.type):
            return str(with_hex(value)[0].as_py())
        raw = value.view(pa.large_binary() if pa.types.is_large_string(value.type) else pa.binary())
        return "\\x" + bytes(raw[0].as_py()).hex()


DROPPED_ZONE = "time zone dropped, UTC kept"
NOT_BYTES = "not bytes"
CUT_MICROS = "digits below a microsecond cut"
Inner = Callable[[pa.Array, DataType, pa.DataType], pa.Array]
_NONE: Mapping[str, int] = {}
_INTEGER = r"^-?[0-9]{1,19}$"
_PLAIN_NUMBER = r"^-?[0-9]+(\.[0-9]*)?$"
_DECIMAL = r"^-?[0-9]{1,38}(\.[0-9]{0,38})?$"
_WIDE = pa.decimal256(76, 38)  # 38 digits on both sides of the point
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_HEX = r"^\\x([0-9a-f]{2})*$"
_SAFE_DIGITS = {32: 7, 64: 16}  # text no longer than this (sign or point aside) survives the float
types = pa.types


def exact(values: pa.Array, source: DataType, target: pa.DataType, inner: Inner) -> tuple[pa.Array, Mapping[str, int]]:
    """Return `values` as `target`; raises ArrowInvalid or ArrowNotImplementedError if any value does not fit.
    `inner` casts the parts of arrays and structs by the same rules, all or nothing."""
    kind = values.type
    if types.is_null(kind):
        return pa.nulls(len(values), target), _NONE
    if is_text(target):
        return _to_string(values, source, target), _NONE
    if types.is_timestamp(target):
        return _to_timestamp(values, source, target)
    return _by_text(values, source, target, inner), _NONE


def _by_text(values: pa.Array, source: DataType, target: pa.DataType, inner: Inner) -> pa.Array:
    kind = values.type
    if types.is_nested(target):
        return _nested(values, source, target, inner)
    if kind == target:
        return values
    if why := reason_no_form(kind, source, target):
        raise pa.ArrowInvalid(why)
    if is_text(kind):
        return _from_hex(values, target) if is_hex(kind, source, target) else _from_string(values, target)
    if _is_number(kind) and _is_number(target):
        return _number(values, target)
    if types.is_date(kind) and types.is_date(target):
        return pc.cast(values, target)
    if types.is_time(kind) and types.is_time(target):
        return pc.cast(values, target)
    if is_bytes(kind) and is_bytes(target):
        return pc.cast(values, target)
    return _from_string(to_text(values, source), target)


def reason_no_form(kind: pa.DataType, source: DataType, target: pa.DataType) -> str:
    """Return why values of `kind` have no form as `target` although their texts may look like one, else ""."""
    if types.is_fixed_size_binary(target):
        return "a number is not a UUID" if isinstance(source, Boolean | Int | Decimal | Float) else ""
    if is_bytes(target):
        number = isinstance(source, Boolean | Int | Decimal | Float | Date | Time | Timestamp | TimestampTz)
        written = isinstance(source, Uuid | String | Json | Unknown) or (is_bytes(kind) and not number)
        written = written or (isinstance(source, Binary) and is_text(kind))
        return "" if written else "only text, bytes and UUIDs have a form as bytes"
    if _is_number(target) and isinstance(source, Date | Time | Timestamp | TimestampTz | Uuid | Binary):
        return "not a number"
    return ""


def is_hex(kind: pa.DataType, source: DataType, target: pa.DataType) -> bool:
    r"""Return whether texts stand for bytes, as `\x` and hex: those of bytes beside values of other types."""
    return isinstance(source, Binary) and is_text(kind) and is_bytes(target)


def _from_hex(texts: pa.Array, target: pa.DataType) -> pa.Array:
    _all(pc.match_substring_regex(texts, _HEX), NOT_BYTES)
    return pa.array([None if t is None else bytes.fromhex(t[2:]) for t in texts.to_pylist()], target)


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def _all(mask: pa.Array, what: str) -> None:
    if not pc.all(mask, min_count=0).as_py():
        raise pa.ArrowInvalid(what)


def _to_string(values: pa.Array, source: DataType, target: pa.DataType) -> pa.Array:
    if is_bytes(values.type) and not isinstance(source, Binary | Uuid):
        if types.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())
        return pc.cast(values, target)
    texts = to_text(values, source)
    return texts if texts.type == target else pc.cast(texts, target)


def _to_timestamp(values: pa.Array, source: DataType, target: pa.DataType) -> tuple[pa.Array, Mapping[str, int]]:
    kind = values.type
    if kind == target:
        return values, _NONE
    if types.is_date(kind):
        return pc.cast(values, target), _note(values, ASSUMED_UTC if target.tz else "")
    if not types.is_timestamp(kind):
        return _from_string(to_text(values, source), target), _NONE
    notes: dict[str, int] = {}
    if bool(kind.tz) != bool(target.tz):
        notes.update(_note(values, ASSUMED_UTC if target.tz else DROPPED_ZONE))
    out = values.cast(pa.timestamp(target.unit, kind.tz), safe=kind.unit != "ns")
    if kind.unit == "ns":
        changed = pc.sum(pc.not_equal(out.cast(kind), values)).as_py()
        notes.update({CUT_MICROS: changed} if changed else {})
    return out.view(pa.int64()).view(target), notes


def _note(values: pa.Array, reason: str) -> dict[str, int]:
    count = len(values) - values.null_count
    return {reason: count} if reason and count else {}


def _number(values: pa.Array, target: pa.DataType) -> pa.Array:
    kind = values.type
    if types.is_boolean(kind):
        return (
            pc.cast(values.cast(pa.int8()), target)
            if not types.is_decimal(target)
            else _number(values.cast(pa.int8()), target)
        )
    if types.is_boolean(target):
        whole = values.cast(pa.int8())
        _all(pc.is_in(whole, pa.array([0, 1, None], pa.int8())), "not 0 or 1")
        return pc.cast(whole, target)
    if types.is_decimal(target):
        return _to_decimal(values, target)
    if types.is_floating(target):
        return _to_float(values, target)
    return pc.cast(values, target)


def _to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    if types.is_floating(values.type):
        return _decimal_of(plain_digits(to_text(values)), target)
    if types.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0))
    return _rescaled(values, target)


def _to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    kind = values.type
    if types.is_integer(kind):
        return pc.cast(values, target)
    out = pc.cast(values, target, safe=False)
    if types.is_decimal(kind):
        _all(pc.equal(_decimal_of(plain_digits(to_text(out)), kind), values), "rounded")
    else:
        same = pc.or_(pc.equal(out.cast(kind), values), pc.is_nan(values))
        if not pc.all(same, min_count=0).as_py():
            _all(pc.or_(same, pc.equal(to_text(out), to_text(values))), "rounded")
    return out


def _from_string(texts: pa.Array, target: pa.DataType) -> pa.Array:
    texts.validate(full=True)
    if types.is_integer(target):
        _all(pc.match_substring_regex(texts, _INTEGER), "not an integer")
    elif types.is_floating(target):
        _all(pc.match_substring_regex(texts, _PLAIN_NUMBER), "not a plain number")
        _all(pc.less_equal(pc.binary_length(texts), _SAFE_DIGITS[target.bit_width] - 1), "too many digits")
    elif types.is_decimal(target):
        return _decimal_of(texts, target)
    elif types.is_time(target):
        raise pa.ArrowNotImplementedError("times are parsed one by one")
    elif types.is_fixed_size_binary(target):
        if target.byte_width != 16:
            raise pa.ArrowInvalid("not 16 bytes")
        _all(pc.match_substring_regex(texts, _UUID), "not a UUID")
        filled = pc.fill_null(texts, "00000000-0000-0000-0000-000000000000").to_pylist()
        data = bytes.fromhex("".join(filled).replace("-", ""))
        out = pa.FixedSizeBinaryArray.from_buffers(target, len(texts), [None, pa.py_buffer(data)])
        return pc.if_else(texts.is_valid(), out, pa.scalar(None, target)) if texts.null_count else out
    return pc.cast(texts, target)


def _decimal_of(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return digits as decimals; Arrow lets a text wrap around that does not fit into `target`, and reads one with
    an exponent as 0."""
    if (same_scale := fixed_point(texts, target)) is not None:
        return same_scale
    _all(pc.match_substring_regex(texts, _DECIMAL), "not plain digits")
    return _rescaled(pc.cast(texts, _WIDE), target)


def _rescaled(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return decimals of another scale, by way of a type with room for all of them: else Arrow multiplies modulo
    2^128."""
    return pc.cast(pc.cast(values, _WIDE), target)


def _nested(values: pa.Array, source: DataType, target: pa.DataType, inner: Inner) -> pa.Array:
    kind = values.type
    if types.is_struct(kind) and types.is_struct(target):
        return _struct(values, source, target, inner)
    lists = types.is_list(kind) or types.is_large_list(kind)
    if not lists or not (types.is_list(target) or types.is_large_list(target)):
        raise pa.ArrowInvalid(f"{kind} is not {target}")
    element = source.element if isinstance(source, ArrayType) else source
    child = inner(values.flatten(), element, target.value_type)
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths).cast(pa.int64() if types.is_large_list(target) else pa.int32())
    offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
    build = pa.LargeListArray if types.is_large_list(target) else pa.ListArray
    mask = values.is_null() if values.null_count else None
    return build.from_arrays(offsets, child, type=target, mask=mask)


def _struct(values: pa.Array, source: DataType, target: pa.DataType, inner: Inner) -> pa.Array:
    children = dict(zip((f.name for f in values.type), values.flatten(), strict=True))
    kinds = {f.name: f for f in source.fields} if isinstance(source, Struct) else {}
    parts = []
    for to_field in target:
        part = children.get(to_field.name)
        kind = kinds.get(to_field.name, Field(to_field.name, source)).type
        parts.append(pa.nulls(len(values), to_field.type) if part is None else inner(part, kind, to_field.type))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)
