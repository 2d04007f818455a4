"""The widening lattice: its laws over a dense sample, and what is decided where."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from strategies import types

from events.shows import shows
from instep.schema.catalog.promotion import narrows, promote, widens
from instep.schema.catalog.types import Array, DataType, Decimal, Field, Float, Int, String, Struct, Unknown, parse

_WORDS = (
    "unknown boolean int8 int16 int32 int64 float32 float64 string string(1) string(5) binary binary(3) date time "
    "timestamp timestamptz uuid json array(unknown) array(int32) array(int64) array(float32) array(array(json))"
)
_STRUCTS = (
    "struct()",
    'struct("a" int8)',
    'struct("b" int8, "a" int8)',
    'struct("a" int64, "b" float32)',
    'struct("b" int16, "a" float64, "c" date)',
    'struct("a" int8, "a" date)',
    'array(struct("a" int8))',
)
_DECIMALS = [(1, 0), (3, 0), (5, 0), (7, 0), (8, 0), (10, 0), (15, 0), (16, 0), (19, 0), (20, 0), (38, 0)]
_FRACTIONS = [(1, 1), (3, 1), (10, 2), (12, 4), (20, 1), (38, 10), (38, 38)]
SAMPLE: list[DataType] = [
    *map(parse, _WORDS.split()),
    *map(parse, _STRUCTS),
    *(Decimal(p, s) for p, s in _DECIMALS + _FRACTIONS),
]


def test_the_laws_hold_for_every_pair_and_triple_of_the_sample() -> None:
    join = {(a, b): promote(a, b) for a, b in product(SAMPLE, SAMPLE)}
    assert all(join[a, a] == a for a in SAMPLE)
    assert all(join[a, b] == join[b, a] for a, b in join)
    for (a, b), ab in join.items():
        for c in SAMPLE:
            assert promote(ab, c) == promote(a, join[b, c]), (str(a), str(b), str(c))


@given(types(), types(), types())
def test_the_laws_hold_for_any_types(a: DataType, b: DataType, c: DataType) -> None:
    assert promote(a, a) == a
    assert promote(a, b) == promote(b, a)
    assert promote(promote(a, b), c) == promote(a, promote(b, c))
    assert widens(a, promote(a, b))
    assert promote(a, Unknown()) == a
    assert promote(a, String()) == String()


@given(types(), types(), types())
def test_widening_is_transitive(a: DataType, b: DataType, c: DataType) -> None:
    top = promote(promote(a, b), c)
    assert widens(a, promote(a, b))
    assert widens(promote(a, b), top)
    assert widens(a, top)


def _extremes(kind: DataType) -> list[Fraction]:
    """The numbers of a type that are hardest to hold."""
    match kind:
        case Int(bits):
            return [Fraction(-(1 << (bits - 1))), Fraction((1 << (bits - 1)) - 1)]
        case Decimal(precision, scale):
            most = Fraction(10**precision - 1, 10**scale)
            return [most, -most, Fraction(1, 10**scale)]
        case Float(bits):
            digits = 24 if bits == 32 else 53
            return [Fraction((1 << digits) - 1), Fraction(1, 1 << digits)]
        case _:
            raise AssertionError(kind)


def _holds(kind: DataType, value: Fraction) -> bool:
    match kind:
        case Int(bits):
            return value.denominator == 1 and -(1 << (bits - 1)) <= value < 1 << (bits - 1)
        case Decimal(precision, scale):
            return (value * 10**scale).denominator == 1 and abs(value * 10**scale) < 10**precision
        case Float(bits):
            digits = 24 if bits == 32 else 53
            power_of_two = value.denominator & (value.denominator - 1) == 0
            odd = value.numerator
            while odd and odd % 2 == 0:
                odd //= 2
            return power_of_two and odd.bit_length() <= digits
        case _:
            return kind == String()


NUMBERS = [t for t in SAMPLE if isinstance(t, Int | Decimal | Float)]


@shows(trap=1)
def test_no_number_is_lost() -> None:
    for a, b in product(NUMBERS, NUMBERS):
        joined = promote(a, b)
        assert all(_holds(joined, v) for v in _extremes(a) + _extremes(b)), (str(a), str(b), str(joined))


CASES = [
    ("int8", "int64", "int64"),
    ("int32", "float32", "float64"),
    ("int16", "float32", "float32"),
    ("int64", "float64", "string"),
    ("int64", "decimal(5,2)", "decimal(21,2)"),
    ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
    ("decimal(38,0)", "decimal(38,10)", "string"),
    ("decimal(15,0)", "float64", "float64"),
    ("decimal(10,2)", "float64", "string"),
    ("string(5)", "string(9)", "string(9)"),
    ("string(5)", "string", "string"),
    ("binary(5)", "binary", "binary"),
    ("int32", "string(5)", "string"),
    ("date", "timestamp", "timestamp"),
    ("date", "timestamptz", "string"),
    ("timestamp", "timestamptz", "string"),
    ("boolean", "int8", "string"),
    ("uuid", "binary", "string"),
    ("array(int8)", "array(int16)", "array(int16)"),
    ("array(int8)", 'struct("a" int8)', "json"),
    ("json", "array(int8)", "json"),
    ("json", "int8", "string"),
    ('struct("b" int8)', 'struct("a" date, "b" int16)', 'struct("a" date, "b" int16)'),
    ('struct("b" int8, "a" date)', 'struct("b" int16, "a" date)', 'struct("b" int16, "a" date)'),
    ('struct("a" int8, "a" date)', 'struct("a" int8)', "json"),
]


@pytest.mark.parametrize(("a", "b", "joined"), CASES)
def test_where_two_types_meet(a: str, b: str, joined: str) -> None:
    assert str(promote(parse(a), parse(b))) == joined


VERBS = [
    ("int32", "int64", "widens"),
    ("int64", "int32", "narrows"),
    ("int64", "string", "widens"),
    ("int64", "string(20)", "neither"),
    ("string", "uuid", "narrows"),
    ("decimal(10,2)", "decimal(12,2)", "widens"),
    ("decimal(10,2)", "decimal(10,4)", "neither"),
    ("date", "timestamptz", "neither"),
    ("unknown", "uuid", "widens"),
    ('struct("b" int8, "a" int8)', 'struct("b" int8, "a" int8, "c" date)', "widens"),
    ('struct("b" int8, "a" int8)', 'struct("b" int8)', "narrows"),
    ('array(struct("b" int8))', 'array(struct("b" int16, "a" int8))', "widens"),
]


@pytest.mark.parametrize(("a", "b", "verb"), VERBS)
def test_wider_narrower_or_neither(a: str, b: str, verb: str) -> None:
    before, after = parse(a), parse(b)
    assert (widens(before, after), narrows(before, after)) == (verb == "widens", verb == "narrows")


def test_a_field_added_to_a_struct_in_an_array_loses_no_other() -> None:
    one = Array(Struct((Field("z", Int(8)),)))
    two = Array(Struct((Field("a", Int(8)),)))
    assert str(promote(one, two)) == 'array(struct("a" int8, "z" int8))'
