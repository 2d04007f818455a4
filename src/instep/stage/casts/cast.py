"""Casts whole columns in Arrow compute; only values that do not fit are looked at one by one.

A cast never changes a value silently: it is exact, or counted under a reason (a time zone assumed or
dropped, digits below a microsecond cut), or the value is invalid, NULL in the result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.types import DataType, Json, String
from instep.stage.casts.exact import exact, unlike
from instep.stage.casts.parse import OUT_OF_RANGE, InvalidValue, parse
from instep.stage.casts.text import documents, is_bytes, is_text, plain, to_text, with_hex

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
    """`values` of the type `source` as the Arrow type `target`, which holds the accepted type."""
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
        if why := unlike(value.type, self.source, self.target):
            raise InvalidValue(why)
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
        """Dates and instants outside the years 0001 to 9999 become invalid values."""
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
    """`text` as a JSON document: text must hold one, numbers and booleans are one, all else is quoted."""
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
    """The text of the value at `at` as quarantine keeps it; bytes that are not text as `\\x` and hex."""
    value = plain(values.slice(at, 1))
    try:
        return str(to_text(value, source)[0].as_py())
    except pa.ArrowInvalid:
        if pa.types.is_nested(value.type):
            return str(with_hex(value)[0].as_py())
        raw = value.view(pa.large_binary() if pa.types.is_large_string(value.type) else pa.binary())
        return "\\x" + bytes(raw[0].as_py()).hex()
