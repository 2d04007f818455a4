"""Values of a column, typed or as texts, as one Arrow type by which they can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.types import Boolean, DataType, Date, Decimal, Float, Int, String, Timestamp, TimestampTz
from instep.stage.casts.cast import cast
from instep.stage.casts.text import is_text, plain


def comparable(values: pa.Array, kind: DataType) -> pa.Array:
    """Return those of a column of type `kind`; NULL for one that does not fit it."""
    values = plain(values)
    return cast(values, String() if is_text(values.type) else kind, _arrow(kind), kind).values


def _arrow(kind: DataType) -> pa.DataType:
    match kind:
        case Int():
            return pa.int64()
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
        case Float():
            return pa.float64()
        case Boolean():
            return pa.bool_()
        case Date():
            return pa.date32()
        case Timestamp():
            return pa.timestamp("us")
        case TimestampTz():
            return pa.timestamp("us", "UTC")
    return pa.string()


def within(values: pa.Array, kind: DataType, lower: str | None, upper: str | None) -> pa.Array:
    """Return a mask of the values between two bounds, both included, which are texts; NULL is between none."""
    found = comparable(values, kind)
    mask = found.is_valid()
    for bound, compare in ((lower, pc.greater_equal), (upper, pc.less_equal)):
        if bound is not None:
            mask = pc.and_(mask, pc.fill_null(compare(found, _bound(bound, kind)), False))
    return mask


def _bound(text: str, kind: DataType) -> pa.Scalar:
    """A bound that lies outside of the type's values is as far as they go."""
    value = comparable(pa.array([text]), kind)[0]
    if not value.is_valid and isinstance(kind, Int | Decimal):
        return comparable(pa.array([text]), Decimal(38, 0))[0]
    return value


def integers(values: pa.Array, kind: DataType) -> pa.Array:
    """Return texts of an integer column as int64 if each is one; anything else as it is."""
    if isinstance(kind, Int) and is_text(values.type):
        try:
            if pc.all(pc.match_substring_regex(values, "^-?[0-9]+$"), min_count=0).as_py():
                return pc.cast(values, pa.int64())
        except pa.ArrowInvalid:
            return values
    return values


def rows_of(columns: Sequence[pa.Array], kinds: Sequence[DataType]) -> list[tuple[object, ...]]:
    """Return the rows of some columns as tuples that are equal where the rows are."""
    parts = [comparable(c, k).to_pylist() for c, k in zip(columns, kinds, strict=True)]
    return list(zip(*parts, strict=True))
