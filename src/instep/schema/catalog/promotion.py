"""The widening lattice: the smallest type that holds every value of two types, exactly.

`unknown` is at the bottom, unbounded `string` at the top; two types without an exact common type meet there.
A number becomes a float only where every value of it is a float: integers (and decimals without a scale) of at
most 7 digits in float32, 15 in float64. Decimals that would need more than 38 digits become string.
"""

from __future__ import annotations

from instep.schema.catalog.types import (
    MAX_PRECISION,
    Array,
    Binary,
    DataType,
    Date,
    Decimal,
    Field,
    Float,
    Int,
    Json,
    String,
    Struct,
    Timestamp,
    TimestampTz,
    Unknown,
)

INT_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
FLOAT_DIGITS = {32: 7, 64: 15}


def promote(a: DataType, b: DataType) -> DataType:
    """Return the join of `a` and `b`: commutative, associative, idempotent, loses no value.

    Structs join field by field, a field that one of them lacks included; they keep the order of their fields
    if it is the same, else the fields are sorted by name. Arrays and structs meet in json. A date becomes a
    timestamp at midnight (those after the year 294246, which timestamps do not have, are invalid values when cast).
    """
    if a == b:
        return a
    match a, b:
        case (Unknown(), other) | (other, Unknown()):
            return other
        case Int(), Int():
            return Int(max(a.bits, b.bits))
        case (Int() | Decimal(), Int() | Decimal()):
            (whole_a, scale_a), (whole_b, scale_b) = _digits(a), _digits(b)
            scale = max(scale_a, scale_b)
            precision = max(whole_a, whole_b) + scale
            return Decimal(precision, scale) if precision <= MAX_PRECISION else String()
        case (Int() | Decimal() | Float(), Int() | Decimal() | Float()):
            bits = [_float_bits(a), _float_bits(b)]
            return String() if None in bits else Float(max(filter(None, bits)))
        case String(), String():
            return String(_longest(a.length, b.length))
        case Binary(), Binary():
            return Binary(_longest(a.length, b.length))
        case (Date(), Timestamp()) | (Timestamp(), Date()):
            return Timestamp()
        case Array(), Array():
            return Array(promote(a.element, b.element))
        case Struct(), Struct() if _distinct(a) and _distinct(b):
            left, right = ({f.name: f.type for f in s.fields} for s in (a, b))
            names = list(left) if list(left) == list(right) else sorted(left.keys() | right.keys())
            return Struct(tuple(Field(n, promote(left.get(n, Unknown()), right.get(n, Unknown()))) for n in names))
        case (Array() | Struct() | Json(), Array() | Struct() | Json()):
            return Json()
        case _:
            return String()


def fitting(a: DataType, b: DataType) -> DataType | None:
    """Return the type of a column whose values were `a` and are `b`: the wider of two of one family, else None.
    (String holds everything, and yet a number that returns as text is another column.)"""
    kind = promote(a, b)
    return kind if type(a) is type(b) and kind in (a, b) else None


def widens(a: DataType, b: DataType) -> bool:
    """Return whether every value of `a` is a value of `b`: `promote(a, b)` is `b`, the order of struct fields aside."""
    return _sorted(promote(a, b)) == _sorted(b)


def keeps_apart(a: DataType, b: DataType) -> bool:
    """Return whether values of `a` that differ are different values of `b`, if they are values of it: as a number,
    `01` is `1`. Of an array only the elements are compared, where a database may tell its bounds apart."""
    if isinstance(a, Array | Struct):
        return False
    return widens(a, b) or (type(a) is type(b) and not isinstance(a, Float))


def narrows(a: DataType, b: DataType) -> bool:
    """Return whether every value of `b` is a value of `a`."""
    return widens(b, a)


def _longest(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _digits(number: Int | Decimal) -> tuple[int, int]:
    """Return the digits before and after the point that the type's largest value needs."""
    if isinstance(number, Int):
        return INT_DIGITS[number.bits], 0
    return number.precision - number.scale, number.scale


def _float_bits(number: Int | Decimal | Float) -> int | None:
    """Return the smallest float that holds every value of `number` exactly."""
    if isinstance(number, Float):
        return number.bits
    whole, scale = _digits(number)
    return next((bits for bits, most in FLOAT_DIGITS.items() if scale == 0 and whole <= most), None)


def _distinct(struct: Struct) -> bool:
    return len({f.name for f in struct.fields}) == len(struct.fields)


def _sorted(kind: DataType) -> DataType:
    """Return `kind` with the fields of its structs in order of name."""
    match kind:
        case Array():
            return Array(_sorted(kind.element))
        case Struct():
            return Struct(tuple(Field(f.name, _sorted(f.type)) for f in sorted(kind.fields, key=lambda f: f.name)))
        case _:
            return kind


_ALIKE: tuple[tuple[type, ...], ...] = ((Int, Decimal), (Date, Timestamp), (TimestampTz,))
ORDERED = tuple(kind for kinds in _ALIKE for kind in kinds)
"""The types that a cursor may have."""


def same_order(before: DataType, after: DataType) -> bool:
    """Return whether values of both compare alike, in text form too: 9 is before 10 as a number and after it as
    text."""
    return before == after or any(isinstance(before, kinds) and isinstance(after, kinds) for kinds in _ALIKE)
