"""Columns of Python values as bytes: one part for each class of values, which the other side reads without a copy.

Kinds of parts: `q` integers (int64), `n` integers beyond that (texts), `d` floats (float64), `b` booleans (bytes), `s`
texts, `j` JSON, `m` texts of values that do not fit their declared type, `x` bytes. Texts and bytes are offsets
(int32, one more than values) and then their data, UTF-8 for texts. A column of one part and no None is just that; every
other has a byte for each row: 0 for None, else the number of its part.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from .convert import InvalidText, JsonText

Part = tuple[str, list[bytes]]
_NONE = type(None)
_KINDS: dict[type, str] = {str: "s", JsonText: "j", InvalidText: "m", bytes: "x", bool: "b", float: "d", int: "q"}


def column(values: Sequence[Any]) -> tuple[list[Part], bytes] | None:
    """Return its parts and the bytes for its rows; None if it has no value. Raises UnicodeEncodeError for half a
    character."""
    types = set(map(type, values))
    if len(types) == 1:
        (only,) = types
        return None if only is _NONE else ([_part(only, values)], b"")
    types.discard(_NONE)
    order = sorted(types, key=lambda t: _KINDS[t])
    numbers = {_NONE: 0, **{t: place for place, t in enumerate(order, 1)}}
    rows = bytes(map(numbers.__getitem__, map(type, values)))
    return [_part(t, [v for v in values if type(v) is t]) for t in order], rows


def _part(kind: type, values: Sequence[Any]) -> Part:
    if kind is int:
        return _integers(values)
    if kind is float:
        return "d", [array("d", values).tobytes()]
    if kind is bool:
        return "b", [bytes(values)]
    if kind is bytes:
        return "x", [_offsets(map(len, values)), b"".join(values)]
    return _KINDS[kind], _texts(values)


def _integers(values: Sequence[int]) -> Part:
    try:
        return "q", [array("q", values).tobytes()]
    except OverflowError:
        return "n", _texts([str(v) for v in values])


def _texts(values: Sequence[str]) -> list[bytes]:
    whole = "".join(values)
    if whole.isascii():
        return [_offsets(map(len, values)), whole.encode("ascii")]
    encoded = [v.encode() for v in values]
    return [_offsets(map(len, encoded)), b"".join(encoded)]


def _offsets(lengths: Any) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()
