"""Parts of columns, as a connector's process sends them, as Arrow columns with the types that they have or get.

A column is of its declared type. Else its type is found by its values: integers are int64, those beyond 64 bits
decimal(38,0) and beyond 38 digits string, floats float64, booleans boolean, texts string, bytes binary, lists and
objects json. Values of several types get the type that holds them all: `promote()`, except that integers of at most 53
bits become floats beside floats. Where that is string, values get their canonical texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import ReadError
from instep.schema.catalog.promotion import promote
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
    Unknown,
)
from instep.stage.casts.text import to_text

_EXACT = 1 << 53
_BIG = Decimal(38, 0)
_FIXED: dict[str, pa.DataType] = {"q": pa.int64(), "d": pa.float64(), "b": pa.uint8()}
_VARYING: dict[str, pa.DataType] = {
    "s": pa.string(),
    "j": pa.string(),
    "n": pa.string(),
    "m": pa.string(),
    "x": pa.binary(),
}
_INFERRED: dict[str, DataType] = {
    "q": Int(64),
    "d": Float(64),
    "b": Boolean(),
    "s": String(),
    "j": Json(),
    "x": Binary(),
}
_ARROW: dict[DataType, pa.DataType] = {
    Boolean(): pa.bool_(), Int(16): pa.int16(), Int(32): pa.int32(), Int(64): pa.int64(), Float(32): pa.float32(),
    Float(64): pa.float64(), String(): pa.string(), Json(): pa.string(), Binary(): pa.binary(), Date(): pa.date32(),
    Timestamp(): pa.timestamp("us"), TimestampTz(): pa.timestamp("us", "UTC"), Unknown(): pa.null(),
}  # fmt: skip


@dataclass(frozen=True)
class Values:
    """A column of a batch. If `invalid_values` of its values do not fit the declared type, all of them are texts."""

    type: DataType
    array: pa.Array
    invalid_values: int = 0
    wide: bool = False
    """Some integer has more than 53 bits."""
    kinds: tuple[str, ...] = ()
    """Kinds of its parts."""

    @property
    def stored(self) -> DataType:
        return String() if self.invalid_values else self.type


def type_of(kind: str) -> DataType:
    """Return the type of undeclared values."""
    return _INFERRED.get(kind, _BIG)


def arrow_type(kind: DataType) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale) if isinstance(kind, Decimal) else _ARROW[kind]


def read_column(kinds: Sequence[str], data: Sequence[memoryview], rows: int, declared: DataType | None) -> Values:
    """Return a column of `rows` rows from its parts: two pieces of data for texts and bytes, one for others, and one
    more that tells which part each row is in, if there are several or nulls. Raises ReadError if they are not so."""
    pieces = iter(data)
    try:
        parts = [_part(kind, pieces, declared) for kind in kinds]
        places = next(pieces, None)
        if next(pieces, None) is not None:
            raise pa.ArrowInvalid("there is a piece too many")
        values = _joined(parts, declared)
        if places is None:
            if len(parts) != 1 or len(values.array) != rows:
                raise pa.ArrowInvalid("a part has another number of rows")
            return replace(values, kinds=tuple(kinds))
        return replace(values, array=_placed(values.array, parts, places, rows), kinds=tuple(kinds))
    except (pa.ArrowException, KeyError, StopIteration, OverflowError) as error:
        raise ReadError(f"the connector's process sent a column that cannot be read: {error}", hint=_HINT) from error


_HINT = "a connector writes to its own output only, never to other file descriptors"


def _part(kind: str, data: Iterable[memoryview], declared: DataType | None) -> Values:
    pieces = iter(data)
    if kind in _FIXED:
        arrow = _FIXED[kind]
        numbers = next(pieces)
        if len(numbers) % (arrow.bit_width // 8):
            raise pa.ArrowInvalid("a number is cut off")
        array = pa.Array.from_buffers(arrow, len(numbers) // (arrow.bit_width // 8), [None, pa.py_buffer(numbers)])
    else:
        offsets, texts = next(pieces), next(pieces)
        if not offsets or len(offsets) % 4:
            raise pa.ArrowInvalid("an offset is cut off")
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
        array = pa.Array.from_buffers(_VARYING[kind], len(offsets) // 4 - 1, buffers)
        array.validate(full=True)
    if kind == "m" and declared is not None:
        return Values(declared, array, invalid_values=len(array))
    return Values(declared, _typed(array, declared)) if declared is not None else _inferred(kind, array)


def _typed(array: pa.Array, declared: DataType) -> pa.Array:
    """Return the values of a declared type as that type."""
    if isinstance(declared, Date):
        return array.cast(pa.int32()).view(pa.date32())
    if isinstance(declared, Timestamp | TimestampTz):
        return array.view(arrow_type(declared))
    return array.cast(arrow_type(declared))


def _inferred(kind: str, array: pa.Array) -> Values:
    if kind == "b":
        return Values(Boolean(), array.cast(pa.bool_()))
    if kind == "n":
        longest = pc.max(pc.utf8_length(pc.utf8_ltrim(array, "-"))).as_py() or 0
        if longest > _BIG.precision:
            return Values(String(), array)
        return Values(_BIG, array.cast(arrow_type(_BIG)))
    return Values(_INFERRED[kind], array, wide=kind == "q" and _is_wide(array))


def _is_wide(array: pa.Array) -> bool:
    least, most = pc.min_max(array).values()
    return len(array) > 0 and (least.as_py() < -_EXACT or most.as_py() > _EXACT)


def _joined(parts: Sequence[Values], declared: DataType | None) -> Values:
    """Return the values of all parts, one after the other, of one type."""
    if len(parts) == 1:
        return parts[0]
    kind: DataType = Unknown()
    wide = False
    for part in parts:
        kind, wide = join(kind, wide, part.type, part.wide)
    invalid_values = sum(part.invalid_values for part in parts)
    target = String() if invalid_values else kind
    arrays = [converted(part.array, part.stored, target) for part in parts]
    return Values(declared or kind, pa.concat_arrays(arrays), invalid_values, wide)


def join(a: DataType, a_wide: bool, b: DataType, b_wide: bool) -> tuple[DataType, bool]:
    """Return (the type of a column with values of both, whether it has integers that no float holds)."""
    wide = a_wide or b_wide
    if {a, b} == {Int(64), Float(64)} and not wide:
        return Float(64), False
    return promote(a, b), wide


def converted(array: pa.Array, kind: DataType, target: DataType) -> pa.Array:
    """Return values of one type as another that holds them."""
    if kind == target:
        return array
    if isinstance(kind, Unknown):
        return pa.nulls(len(array), arrow_type(target))
    if isinstance(target, String):
        return array if array.type == pa.string() else to_text(array, kind)
    return array.cast(arrow_type(target))


def _placed(array: pa.Array, parts: Sequence[Values], places: memoryview, rows: int) -> pa.Array:
    """Return the values in the order of their rows, with nulls for rows that are in no part."""
    place = pa.Array.from_buffers(pa.uint8(), len(places), [None, pa.py_buffer(places)])
    if len(place) != rows:
        raise pa.ArrowInvalid("there is not one place a row")
    index = pa.nulls(rows, pa.int64())
    begin = 0
    for number, part in enumerate(parts, 1):
        in_part = pc.equal(place, number)
        if in_part.true_count != len(part.array):
            raise pa.ArrowInvalid("a part has another number of rows")
        inside = pc.add(pc.subtract(pc.cumulative_sum(in_part.cast(pa.int64())), 1), begin)
        index = pc.if_else(in_part, inside, index)
        begin += len(part.array)
    if pc.sum(pc.equal(place, 0)).as_py() not in (None, rows - begin):
        raise pa.ArrowInvalid("a row is in no part")
    return array.take(index)
