"""Values of records as the parts of columns that frames carry: see `sources/connector/values.py` for the other side.

The classes of a column's values decide: those that its declared type takes as they are go through Arrow at once, any
other mixture value by value. A value that does not fit its declared type is kept as a text, which the policy's
`on_invalid_value` decides about; nothing becomes NULL here.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import to_json

from instep.schema.catalog.types import (
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Timestamp,
    TimestampTz,
)

Piece = Any
"""Bytes, or a buffer of Arrow."""
_NONE = type(None)
_EPOCH, _DAY_ONE = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_PRECISE = re.compile(r"\.(\d{6})(\d+)")
_WIDE = 1 << 63
_ZONE = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_ARROW = {"q": pa.int64(), "d": pa.float64(), "s": pa.string(), "j": pa.string(), "n": pa.string(), "m": pa.string()}


class UnfitValue(Exception):
    """A value does not fit the declared type of its column."""


@dataclass(frozen=True)
class PackedColumn:
    """`kinds` and `pieces` are those of a frame; `unfit` values of it are texts, of the kinds `found` before."""

    kinds: tuple[str, ...]
    pieces: tuple[Piece, ...]
    placed: bool
    nulls: int
    unfit: int = 0
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packing:
    """How a declared type is sent: the kind of its part, what makes an Arrow array of values of the classes `plain`,
    and what makes one of any other value; it raises UnfitValue."""

    kind: str
    plain: frozenset[type]
    array: Callable[[Sequence[Any]], pa.Array]
    value: Callable[[Any], Any]

    def pack(self, values: Sequence[Any]) -> PackedColumn | None:
        """Return the column; None if it has no value."""
        classes = set(map(type, values))
        if classes == {_NONE}:
            return None
        if classes - {_NONE} <= self.plain:
            try:
                return _of_array(self.kind, self.array(values))
            except (pa.ArrowException, ValueError, OverflowError):
                pass
        return self._one_by_one(values)

    def _one_by_one(self, values: Sequence[Any]) -> PackedColumn:
        good: list[Any] = []
        bad: list[str] = []
        found: dict[str, None] = {}
        places = bytearray(len(values))
        for at, value in enumerate(values):
            if value is None:
                continue
            try:
                good.append(self.value(value))
                places[at] = 1
            except (UnfitValue, ValueError, OverflowError):
                bad.append(json_text(value) if not isinstance(value, str) else value)
                found[_inferred_kind(value)] = None
                places[at] = 2
        parts = [(self.kind, good), ("m", bad)]
        if not good:
            parts, places = parts[1:], places.replace(b"\2", b"\1")
        elif not bad:
            parts = parts[:1]
        pieces = [piece for kind, some in parts for piece in _pieces(kind, _plain_array(kind, some))]
        kinds = tuple(kind for kind, _ in parts)
        return PackedColumn(kinds, (*pieces, bytes(places)), True, places.count(0), len(bad), tuple(found))


def inferred(values: Sequence[Any]) -> PackedColumn | None:
    """Return a column that nothing is declared for: a part for each class of values; None if it has no value."""
    by_kind: dict[str, list[Any]] = {}
    kinds = [_inferred_kind(value) for value in values]
    order = {kind: place for place, kind in enumerate(dict.fromkeys(filter(None, kinds)), 1)}
    if not order:
        return None
    for kind, value in zip(kinds, values, strict=True):
        if kind:
            by_kind.setdefault(kind, []).append(_bare(kind, value))
    places = bytes(order.get(kind, 0) for kind in kinds)
    pieces = [piece for kind in order for piece in _pieces(kind, _plain_array(kind, by_kind[kind]))]
    return PackedColumn(tuple(order), (*pieces, places), True, places.count(0))


def packing(kind: DataType) -> Packing:
    """Return how values of a declared type are sent."""
    match kind:
        case Int():
            return Packing("q", frozenset({int}), lambda v: pa.array(v, pa.int64()), _whole)
        case Float():
            return Packing("d", frozenset({int, float}), lambda v: pa.array(v, pa.float64()), _number)
        case Boolean():
            return Packing("b", frozenset({bool}), lambda v: pa.array(v, pa.bool_()), _as_boolean)
        case Decimal():
            return Packing("s", frozenset(), _texts, _digits)
        case Date():
            return Packing("q", frozenset({str}), _days, _day)
        case Timestamp():
            return Packing("q", frozenset({str}), lambda v: _texts(v).cast(pa.timestamp("us")), _local)
        case TimestampTz():
            return Packing("q", frozenset({str}), _instants, _instant)
        case Binary():
            return Packing("x", frozenset(), _texts, _bytes_of)
        case Json():
            return Packing("j", frozenset({bool, int, str, dict, list}), _documents, _document)
        case String():
            return Packing("s", frozenset({str}), _texts, _text)
    raise TypeError(f"no stream has values of the type {kind}")


def json_text(value: Any) -> str:
    return to_json(value, inf_nan_mode="constants").decode()


def _texts(values: Sequence[Any]) -> pa.Array:
    return pa.array(values, pa.string())


def _days(values: Sequence[Any]) -> pa.Array:
    return _texts(values).cast(pa.date32()).view(pa.int32()).cast(pa.int64())


def _instants(values: Sequence[Any]) -> pa.Array:
    texts = _texts(values)
    zoned = pc.match_substring_regex(texts, _ZONE)
    if pc.all(zoned).as_py() is False:
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return texts.cast(pa.timestamp("us", "UTC"))


def _documents(values: Sequence[Any]) -> pa.Array:
    """Return the texts of documents. Raise ArrowInvalid for numbers that are not finite, which no document has."""
    encoded = [None if value is None else to_json(value, inf_nan_mode="constants") for value in values]
    texts = pa.array(encoded, pa.binary()).cast(pa.string())
    if pc.any(pc.match_substring_regex(texts, "NaN|Infinity")).as_py():
        raise pa.ArrowInvalid("it may have a number that is not finite")
    return texts


def _of_array(kind: str, array: pa.Array) -> PackedColumn:
    nulls = array.null_count
    places: tuple[Piece, ...] = ()
    if nulls:
        places = (pc.is_valid(array).cast(pa.uint8()).buffers()[1].slice(0, len(array)),)
        array = array.drop_null()
    return PackedColumn((kind,), (*_pieces(kind, array), *places), bool(nulls), nulls)


def _plain_array(kind: str, values: Sequence[Any]) -> pa.Array:
    if kind == "b":
        return pa.array(values, pa.bool_())
    return pa.array(values, pa.binary() if kind == "x" else _ARROW[kind])


def _pieces(kind: str, array: pa.Array) -> tuple[Piece, ...]:
    """Return the buffers of an array without nulls that begins at its first value."""
    if kind == "b":
        array = array.cast(pa.uint8())
        return (array.buffers()[1].slice(0, len(array)),)
    if kind in "qd":
        return (array.buffers()[1].slice(0, 8 * len(array)),)
    _, offsets, data = array.buffers()
    end = int.from_bytes(offsets.slice(4 * len(array), 4).to_pybytes(), sys.byteorder)
    return offsets.slice(0, 4 * (len(array) + 1)), data.slice(0, end) if data is not None else b""


def _inferred_kind(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "b"
        case int():
            return "q" if -_WIDE <= value < _WIDE else "n"
        case float():
            return "d"
        case str():
            return "s"
    return "j"


def _bare(kind: str, value: Any) -> Any:
    if kind == "n":
        return str(value)
    return json_text(value) if kind == "j" else value


def _whole(value: Any) -> int:
    if (type(value) is float and value.is_integer()) or (type(value) is str and re.fullmatch(r"[+-]?\d{1,19}", value)):
        value = int(value)
    if type(value) is not int or not -_WIDE <= value < _WIDE:
        raise UnfitValue
    return value


def _number(value: Any) -> float:
    if type(value) is int and int(float(value)) != value:
        raise UnfitValue
    if type(value) not in (int, float, str):
        raise UnfitValue
    number = float(value)
    if type(value) is str and ("_" in value or not math.isfinite(number)):
        raise UnfitValue
    return number


def _as_boolean(value: Any) -> bool:
    if type(value) is bool or value in (0, 1):
        return bool(value)
    raise UnfitValue


def _digits(value: Any) -> str:
    text = str(value) if type(value) is int else value
    if type(text) is str and re.fullmatch(r"[+-]?\d+", text) and len(text.lstrip("+-").lstrip("0")) <= 38:
        return text.removeprefix("+")
    raise UnfitValue


def _day(value: Any) -> int:
    if type(value) is not str:
        raise UnfitValue
    time = datetime.fromisoformat(value) if len(value) > 10 else datetime.combine(date.fromisoformat(value), _MIDNIGHT)
    if time.timetz().replace(tzinfo=None) != _MIDNIGHT:
        raise UnfitValue
    return (time.date() - _DAY_ONE).days


_MIDNIGHT = datetime.min.time()


def _moment(value: Any) -> datetime:
    if type(value) is not str or ((match := _PRECISE.search(value)) and match[2].strip("0")):
        raise UnfitValue
    return datetime.fromisoformat(_PRECISE.sub(r".\1", value.strip()))


def _local(value: Any) -> int:
    moment = _moment(value)
    if moment.tzinfo is not None:
        raise UnfitValue
    return (moment.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def _instant(value: Any) -> int:
    """Return microseconds since 1970; a time without a zone is UTC, as the protocol's own destinations take it."""
    moment = _moment(value)
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _bytes_of(value: Any) -> bytes:
    if type(value) is not str:
        raise UnfitValue
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise UnfitValue from None


def _document(value: Any) -> str:
    text = json_text(value)
    if ("NaN" in text or "Infinity" in text) and not _is_json(value):
        raise UnfitValue
    return text


def _is_json(value: Any) -> bool:
    """Return whether all numbers of a document are finite."""
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return not isinstance(value, float) or math.isfinite(value)


def _text(value: Any) -> str:
    return value if type(value) is str else json_text(value)
