"""The narrowest type that holds every text of a column, each looked at once.

A number is one that is written as we would write it: `0`, `-12`, `1.50`, `1e5`; with leading zeros or a plus sign it is
text (codes and telephone numbers look so). Dates and times are ISO 8601 only. Texts that are nothing else are strings.

While texts are looked at, numbers are decimals with as many digits as were seen, so that more of them can join;
`final_type` makes of them what a column is: int64, float64 where at most 15 digits are needed, otherwise a decimal.

Values of a column, typed or as texts, as one Arrow type by which they can be compared.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.promotion import FLOAT_DIGITS, INT_DIGITS, promote
from instep.schema.catalog.types import (
    MAX_PRECISION,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    String,
    Time,
    Timestamp,
    TimestampTz,
    Unknown,
)
from instep.stage.casts.cast import cast
from instep.stage.casts.text import is_text, plain

_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_DIGITS = FLOAT_DIGITS[64]
_DAYS = pa.int32(), -719_162, 2_932_896
_MICROSECONDS = pa.int64(), -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in UTC, since 1970: what values of these types are."""


def infer(texts: pa.Array, before: DataType, *, numbers: bool = True) -> DataType:
    """Return `before` joined with the type of these texts (null: no value). Without `numbers` only dates and times
    are told from other text: where a number would not be written as text."""
    remaining = texts.drop_null()
    kind = before
    patterns = _NUMBERS + _MOMENTS if numbers else _MOMENTS
    for pattern, find, _ in sorted(patterns, key=lambda p: p[2] is not type(before)):
        if isinstance(kind, String) or not len(remaining):
            break
        same = pc.match_substring_regex(remaining, pattern)
        if same.true_count:
            matching = remaining.filter(same)
            kind = join(kind, find(matching))
            remaining = remaining.filter(pc.invert(same)) if len(matching) < len(remaining) else remaining.slice(0, 0)
    return kind if isinstance(kind, String) or not len(remaining) else String()


def join(a: DataType, b: DataType) -> DataType:
    """Return `promote`'s type, but a number of at most 15 digits is a float where others are."""
    if Float(64) in (a, b) and all(
        k == Float(64) or (isinstance(k, Decimal) and k.precision <= _DIGITS) for k in (a, b)
    ):
        return Float(64)
    return promote(a, b)


def final_type(kind: DataType) -> DataType:
    """Return the type of a column whose texts have joined to `kind`."""
    match kind:
        case Decimal(precision, 0) if precision <= INT_DIGITS[64]:
            return Int(64)
        case Decimal(precision, scale) if scale and precision <= _DIGITS:
            return Float(64)
    return kind


def _exact(digits: int, scale: int) -> DataType:
    return Decimal(max(digits, 1), scale) if digits <= MAX_PRECISION else String()


def _integers(texts: pa.Array) -> DataType:
    digits = _longest(pc.utf8_ltrim(texts, "-"))
    if digits < INT_DIGITS[64]:
        return _exact(digits, 0)
    try:
        pc.cast(texts, pa.int64())
    except pa.ArrowInvalid:
        return _exact(max(digits, INT_DIGITS[64] + 1), 0)
    return Decimal(INT_DIGITS[64], 0)


def _fractions(texts: pa.Array) -> DataType:
    """Return texts such as 12.50."""
    digits = pc.utf8_ltrim(texts, "-")
    whole, scale = (_longest(pc.replace_substring_regex(digits, part, "")) for part in (r"\..*", r".*\."))
    return _exact(whole + scale, scale)


def _exponents(texts: pa.Array) -> DataType:
    mantissa = pc.replace_substring_regex(texts, r"[eE].*|[-.]", "")
    exponent = pc.cast(pc.replace_substring_regex(texts, r".*[eE]\+?", ""), pa.int64())
    fits = _longest(mantissa) <= _DIGITS and pc.max(pc.abs(exponent)).as_py() < 290
    return Float(64) if fits else String()


def _longest(texts: pa.Array) -> int:
    return int(pc.max(pc.binary_length(texts)).as_py())


def _castable(target: pa.DataType, kind: DataType) -> Callable[[pa.Array], DataType]:
    number, low, high = _DAYS if target == pa.date32() else _MICROSECONDS

    def find(texts: pa.Array) -> DataType:
        try:
            ends = pc.min_max(pc.cast(pc.cast(texts, target), number)).as_py()
        except pa.ArrowInvalid:  # 30 February
            return String()
        return kind if low <= ends["min"] and ends["max"] <= high else String()

    return find


def _always(kind: DataType) -> Callable[[pa.Array], DataType]:
    return lambda texts: kind


_Pattern = tuple[str, Callable[[pa.Array], DataType], type[DataType]]
"""What such texts look like, their type, and its class: the texts of a column mostly look like those before them."""
_NUMBERS: tuple[_Pattern, ...] = (
    (r"^(0|-?[1-9][0-9]*)$", _integers, Decimal),
    (r"^-?(0|[1-9][0-9]*)\.[0-9]+$", _fractions, Decimal),
    (r"^(true|false|True|False|TRUE|FALSE)$", _always(Boolean()), Boolean),
    (r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?[eE][-+]?[0-9]{1,4}$", _exponents, Float),
)
_MOMENTS: tuple[_Pattern, ...] = (
    (f"^{_DAY}$", _castable(pa.date32(), Date()), Date),
    (f"^{_DAY}[T ]{_CLOCK}$", _castable(pa.timestamp("us"), Timestamp()), Timestamp),
    (f"^{_DAY}[T ]{_CLOCK}(Z|[-+]\\d\\d:?\\d\\d)$", _castable(pa.timestamp("us", "UTC"), TimestampTz()), TimestampTz),
    (f"^{_CLOCK}$", _always(Time()), Time),
)
NOTHING: DataType = Unknown()


def comparable(values: pa.Array, kind: DataType) -> pa.Array:
    """Return values that a column of type `kind` can hold; NULL for one that does not fit it."""
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


def range_mask(values: pa.Array, kind: DataType, lower: str | None, upper: str | None) -> pa.Array:
    """Return a mask of the values between two bounds, both included, which are texts; NULL is between none."""
    comparable_values = comparable(values, kind)
    mask = comparable_values.is_valid()
    for bound, compare in ((lower, pc.greater_equal), (upper, pc.less_equal)):
        if bound is not None:
            mask = pc.and_(mask, pc.fill_null(compare(comparable_values, _bound(bound, kind)), False))
    return mask


def _bound(text: str, kind: DataType) -> pa.Scalar:
    """Return a bound; one outside of the type's values becomes their limit."""
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
