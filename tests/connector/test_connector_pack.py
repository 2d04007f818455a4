"""Columns of Python values through the pipe's form and back: the values, and the types that they get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.schema.catalog.types import DataType, Int, parse
from instep.sources.connector.sdk.fivetran_connector_sdk import pack
from instep.sources.connector.sdk.fivetran_connector_sdk.convert import InvalidText, inferred_json
from instep.sources.connector.values import Values, converted, join, read_column

BIG, HUGE = 1 << 70, 10**45


def through(values: Sequence[Any], declared: DataType | None = None) -> Values:
    packed = pack.column([inferred_json(v) if isinstance(v, dict | list) else v for v in values])
    assert packed is not None
    parts, places = packed
    data = [memoryview(piece) for _, pieces in parts for piece in pieces]
    return read_column(
        [kind for kind, _ in parts], [*data, *([memoryview(places)] if places else [])], len(values), declared
    )


CASES = [
    ("integers", [1, -(2**63), 2**63 - 1], "int64", None),
    ("beyond 64 bits", [1, BIG, -BIG], "decimal(38,0)", None),
    ("beyond 38 digits", [1, HUGE], "string", ["1", str(HUGE)]),
    ("floats", [0.1, -1e300, math.inf], "float64", None),
    ("truth", [True, False, None], "boolean", None),
    ("texts", ["", "é", "x" * 5000, None], "string", None),
    ("bytes", [b"", b"\x00\xff", None], "binary", None),
    ("objects and lists", [{"a": 1}, [1, {"b": None}], None], "json", ['{"a":1}', '[1,{"b":null}]', None]),
    ("integers and floats", [1, None, 2.5, 2**53], "float64", [1.0, None, 2.5, 2.0**53]),
    ("wide integers and floats", [2**53 + 1, 2.5], "string", ["9007199254740993", "2.5"]),
    ("huge integers and floats", [BIG, 2.5], "string", [str(BIG), "2.5"]),
    ("truth and integers", [True, 1, None, 0], "string", ["true", "1", None, "0"]),
    ("texts and integers", ["a", 1, None], "string", ["a", "1", None]),
    ("objects and texts", [{"a": 1}, "a"], "string", ['{"a":1}', "a"]),
    ("bytes and texts", [b"\x01", "a"], "string", ["\\x01", "a"]),
    ("nulls first", [None, None, 3], "int64", None),
]  # fmt: skip


@pytest.mark.parametrize(("values", "kind", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_inferred(values: list[Any], kind: str, expected: list[Any] | None) -> None:
    got = through(values)
    assert str(got.type) == kind
    assert got.array.to_pylist() == (values if expected is None else expected)


def test_a_nan_is_a_float() -> None:
    got = through([math.nan, None])
    assert str(got.type) == "float64"
    assert math.isnan(got.array[0].as_py())


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int16", [1, None, -5], [1, None, -5]),
        ("decimal(6,2)", ["12.5", "-1", None], ["12.50", "-1.00", None]),
        ("decimal(38,0)", ["9" * 38], ["9" * 38]),
        ("float32", [1.5, None], [1.5, None]),
        ("date", [0, None, -1], ["1970-01-01", None, "1969-12-31"]),
        ("timestamp", [1], ["1970-01-01 00:00:00.000001"]),
        ("timestamptz", [1], ["1970-01-01 00:00:00.000001+00:00"]),
        ("json", ['{"a":1}'], ['{"a":1}']),
    ],
)
def test_declared(kind: str, values: list[Any], expected: list[Any]) -> None:
    got = through(values, parse(kind))
    assert str(got.type) == kind
    found = got.array.to_pylist()
    assert [v if v is None or isinstance(v, int | float | str) else str(v) for v in found] == expected


def test_invalid_values_make_the_column_text() -> None:
    got = through(["1.50", InvalidText("12.345"), None], parse("decimal(6,2)"))
    assert (str(got.type), str(got.stored), got.invalid_values) == ("decimal(6,2)", "string", 1)
    assert got.array.to_pylist() == ["1.50", "12.345", None]


def test_a_column_of_nulls_is_none() -> None:
    assert pack.column([None, None]) is None


@pytest.mark.parametrize(
    ("kinds", "data", "rows"),
    [
        (["q"], [b"12345678"], 2),
        (["q"], [b"1234567"], 1),
        (["s"], [b"\0\0\0\0\xff\0\0\0", b"a"], 1),
        (["s"], [b"\0\0\0\0\1\0\0\0", b"\xff"], 1),
        (["?"], [b"", b""], 0),
        (["q", "d"], [b"12345678", b"12345678"], 2),
        (["q"], [], 1),
        (["q"], [b"12345678", b"\1\1"], 2),
    ],
    ids=["too few", "torn", "beyond the data", "no UTF-8", "unknown kind", "no places", "nothing", "beyond the part"],
)
def test_bytes_that_are_no_column_are_refused(kinds: list[str], data: list[bytes], rows: int) -> None:
    with pytest.raises(ReadError, match="cannot be read"):
        read_column(kinds, [memoryview(d) for d in data], rows, None)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])), st.binary(max_size=20), st.lists(st.integers(), max_size=3),
)  # fmt: skip


@given(st.lists(scalars, min_size=1, max_size=30))
def test_nulls_and_order_are_kept_whatever_is_mixed(values: list[Any]) -> None:
    assume(any(v is not None for v in values))
    got = through(values).array.to_pylist()
    assert [v is None for v in got] == [v is None for v in values]
    for found, value in zip(got, values, strict=True):
        if isinstance(found, type(value)) and not isinstance(value, str):
            assert found == value


@given(
    st.lists(st.sampled_from(["int64", "float64", "decimal(38,0)", "string", "json", "boolean", "unknown"]), min_size=3)
)
def test_the_type_does_not_depend_on_the_order_of_batches(kinds: list[str]) -> None:
    def of(order: Sequence[str]) -> DataType:
        kind, wide = parse("unknown"), False
        for other in order:
            kind, wide = join(kind, wide, parse(other), False)
        return kind

    assert of(kinds) == of(kinds[::-1]) == of(sorted(kinds))
    for a, b in pairwise(kinds):
        assert join(parse(a), True, parse(b), False)[0] == join(parse(b), False, parse(a), True)[0]


def test_integers_before_floats_become_floats() -> None:
    integers = through([1, 2])
    assert converted(integers.array, Int(64), parse("float64")).to_pylist() == [1.0, 2.0]
