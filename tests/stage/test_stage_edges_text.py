"""Texts of far moments, of nested values and of what drivers wrap them in; casts there and back; names in files."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.types import DataType, String, parse
from instep.stage.casts.cast import cast, original
from instep.stage.casts.parse import OUT_OF_RANGE
from instep.stage.casts.text import clock, dashed, documents, iso_interval, plain, to_text, with_hex
from instep.stage.conform import origins, refused, with_origin
from instep.stage.field_metadata import value_of, with_value
from instep.stage.files.names import STORED, file_name, stored_name, stored_schema

TEXTS = pa.dictionary(pa.int32(), pa.string())
WRAPPED = [
    ("a list of dictionary values", pa.array([["a", None], None], pa.list_(TEXTS)), pa.list_(pa.string())),
    ("a struct of them", pa.array([{"x": "a"}, None], pa.struct([("x", TEXTS)])), pa.struct([("x", pa.string())])),
    ("a list of lists", pa.array([[["a"]], []], pa.list_(pa.list_(TEXTS))), pa.list_(pa.list_(pa.string()))),
    ("a list view", pa.array([["a"], None, []], pa.list_view(pa.string_view())), pa.list_(pa.string())),
    ("a large list view", pa.array([[1], None], pa.large_list_view(pa.int64())), pa.large_list(pa.int64())),
    ("a dictionary of nulls", pa.array([None, "a", None]).dictionary_encode(), pa.string()),
    ("nothing to do", pa.array([[1]]), pa.list_(pa.int64())),
]


@pytest.mark.parametrize(("values", "kind"), [c[1:] for c in WRAPPED], ids=[c[0] for c in WRAPPED])
def test_what_drivers_wrap_values_in_is_taken_off_and_changes_none(values: pa.Array, kind: pa.DataType) -> None:
    assert plain(values).type == kind
    assert plain(values).to_pylist() == values.to_pylist()
    assert plain(values.slice(1)).to_pylist() == values.to_pylist()[1:]


FAR = [
    (2**62, "s", None, "146138514283-06-19T07:45:04.000000"),
    (2**62, "ms", "UTC", "146140482-04-24T15:36:27.904000Z"),
    (253402300800, "s", None, "10000-01-01T00:00:00.000000"),
    (-62167219200, "s", "UTC", "0000-01-01T00:00:00.000000Z"),
    (-62198755200, "s", None, "-0001-01-01T00:00:00.000000"),
    (-1, "ms", None, "1969-12-31T23:59:59.999000"),
]


@pytest.mark.parametrize(("number", "unit", "zone", "expected"), FAR)
def test_moments_beyond_the_microseconds_of_64_bits(number: int, unit: str, zone: str | None, expected: str) -> None:
    values = pa.array([number, None, 0], pa.int64()).view(pa.timestamp(unit, zone))
    end = "Z" if zone else ""
    assert to_text(values).to_pylist() == [expected, None, f"1970-01-01T00:00:00.000000{end}"]


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("number", [2**62, -(2**62), 2**63 - 1])
def test_a_moment_that_no_microsecond_counts_is_an_invalid_value(unit: str, number: int) -> None:
    values = pa.array([0, number], pa.int64()).view(pa.timestamp(unit))
    done = cast(values, parse("timestamp"), pa.timestamp("us"), parse("timestamp"))
    assert (done.values.to_pylist(), dict(done.invalid_values)) == ([datetime(1970, 1, 1), None], {1: OUT_OF_RANGE})


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from(["s", "ms", "us"]))
def test_a_duration_is_its_clock(number: int, unit: str) -> None:
    size = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    (text,) = to_text(pa.array([number], pa.duration(unit))).to_pylist()
    sign, hours, minutes, seconds, micros = re.fullmatch(r"(-?)(\d\d+):(\d\d):(\d\d)\.(\d{6})", text).groups()  # type: ignore[union-attr]
    whole = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(micros)
    assert (-whole if sign else whole) == number * size
    assert text == clock(number * size)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.sampled_from(["s", "ms", "us"]), st.booleans())
def test_a_moment_is_read_back_from_its_text(moment: datetime, unit: str, zoned: bool) -> None:
    size = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) // size * size
    values = pa.array([micros // size], pa.int64()).view(pa.timestamp(unit, "UTC" if zoned else None))
    (text,) = to_text(values).to_pylist()
    expected = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    assert datetime.fromisoformat(text) == (expected.replace(tzinfo=UTC) if zoned else expected)


@given(st.integers(-100_000, 100_000), st.integers(-100_000, 100_000), st.integers(-(2**62), 2**62))
def test_an_interval_adds_up(months: int, days: int, nanos: int) -> None:
    text = iso_interval(months, days, nanos)
    found = re.fullmatch(
        r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?", text
    )
    assert found is not None
    y, mo, d, h, mi, s = (D(part or 0) for part in found.groups())
    assert (y * 12 + mo, d) == (months, days)
    assert (h * 3600 + mi * 60 + s) * 10**9 == nanos


DOCUMENTS: list[tuple[str, pa.Array, str, list[str | None]]] = [
    ("no number", pa.array([[math.nan, 1.5], [math.inf, -math.inf], None]), "array(float64)",
     ['["NaN",1.5]', '["Infinity","-Infinity"]', None]),
    ("the words as texts", pa.array([["NaN", 'a"Infinity']]), "array(string)", ['["NaN","a\\"Infinity"]']),
    ("in a struct", pa.array([{"é": math.nan, "n": [1e300]}]), 'struct("é" float64, "n" array(float64))',
     ['{"é":"NaN","n":[1e+300]}']),
    ("beside others", pa.array([[0.1], [math.nan]]), "array(float64)", ["[0.1]", '["NaN"]']),
    ("whole numbers", pa.array([[2**63 - 1, None]]), "array(int64)", ["[9223372036854775807,null]"]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "source", "expected"), [c[1:] for c in DOCUMENTS], ids=[c[0] for c in DOCUMENTS])
@pytest.mark.parametrize("target", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("accepted", ["json", "string", "as it is"])
def test_nested_values_become_json_that_is_json(
    values: pa.Array, source: str, expected: list[str | None], target: pa.DataType, accepted: str
) -> None:
    done = cast(values, parse(source), target, parse(source if accepted == "as it is" else accepted))
    assert (done.values.to_pylist(), done.values.type, done.invalid_values) == (expected, target, {})


def _refuse(word: str) -> None:
    raise ValueError(word)


leaves = st.none() | st.floats() | st.sampled_from([math.nan, math.inf, 0.0])


@given(st.lists(st.none() | st.lists(leaves, max_size=3), min_size=1, max_size=5))
def test_documents_are_json_and_those_without_an_odd_number_stay(rows: list[list[float | None] | None]) -> None:
    texts = to_text(pa.array(rows, pa.list_(pa.float64())))
    for row, text, done in zip(rows, texts.to_pylist(), documents(texts).to_pylist(), strict=True):
        if row is None:
            assert done is None
            continue
        assert len(json.loads(done, parse_constant=_refuse)) == len(row)
        assert done == text or not all(v is None or math.isfinite(v) for v in row)


ints, floats = st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
THERE_AND_BACK: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("int64", pa.int64(), ints), ("int16", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    ("float64", pa.float64(), floats),
    ("float32", pa.float32(), st.floats(width=32, allow_nan=False)), ("boolean", pa.bool_(), st.booleans()),
    ("decimal(20,6)", pa.decimal128(20, 6), st.decimals(-(10**13), 10**13, places=6)),
    ("date", pa.date32(), st.dates()), ("timestamp", pa.timestamp("us"), moments),
    ("timestamptz", pa.timestamp("us", "UTC"), moments), ("time", pa.time64("us"), st.times()),
    ("uuid", pa.binary(16), st.binary(min_size=16, max_size=16)),
    ("array(int64)", pa.list_(pa.int64()), st.lists(ints, max_size=3)),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "arrow", "some"), THERE_AND_BACK, ids=[c[0] for c in THERE_AND_BACK])
def test_a_value_is_read_back_from_its_text(name: str, arrow: pa.DataType, some: st.SearchStrategy[Any]) -> None:
    kind: DataType = parse(name)

    @given(st.lists(st.none() | some, max_size=40))
    def law(rows: list[Any]) -> None:
        values = pa.array(rows, arrow)
        there = cast(values, kind, pa.string(), String())
        back = cast(there.values, String(), arrow, kind)
        assert (dict(there.invalid_values), dict(back.invalid_values), dict(back.lossy)) == ({}, {}, {})
        assert back.values.equals(values)

    law()


numbers = st.lists(st.none() | ints | st.sampled_from([0, 1, 127, -128]), max_size=80)
TARGETS: list[tuple[str, pa.DataType, Any]] = [
    ("int16", pa.int16(), lambda v: -(2**15) <= v < 2**15), ("boolean", pa.bool_(), lambda v: v in (0, 1)),
    ("decimal(4,1)", pa.decimal128(4, 1), lambda v: abs(v) < 1000),
    ("float64", pa.float64(), lambda v: int(float(v)) == v),
    ("float32", pa.float32(), lambda v: int(pa.scalar(float(v), pa.float32()).as_py()) == v),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arrow", "fits"), TARGETS, ids=[c[0] for c in TARGETS])
def test_a_number_is_taken_exactly_or_is_an_invalid_value(name: str, arrow: pa.DataType, fits: Any) -> None:
    @given(numbers)
    def law(rows: list[int | None]) -> None:
        done = cast(pa.array(rows, pa.int64()), parse("int64"), arrow, parse(name))
        assert len(done.values) == len(rows)
        assert set(done.invalid_values) == {at for at, v in enumerate(rows) if v is not None and not fits(v)}
        for at, (value, found) in enumerate(zip(rows, done.values.to_pylist(), strict=True)):
            assert found is None if value is None or at in done.invalid_values else found == value

    law()


@given(st.lists(st.binary(max_size=4), max_size=40))
def test_what_is_no_text_is_kept_as_hexadecimal_digits(rows: list[bytes]) -> None:
    values = pa.array(rows, pa.binary()).view(pa.string())
    done = cast(values, String(), pa.string(), String())
    for at, raw in enumerate(rows):
        try:
            text, fits = raw.decode(), True
        except UnicodeDecodeError:
            text, fits = "\\x" + raw.hex(), False
        assert (original(values, at, String()), at in done.invalid_values) == (text, not fits)
    nested = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), values)
    assert json.loads(with_hex(nested)[0].as_py()) == [original(values, at, String()) for at in range(len(rows))]


@given(st.uuids())
def test_a_uuid_is_dashed(value: Any) -> None:
    assert dashed(value.hex) == str(value)
    assert to_text(pa.array([value.bytes], pa.binary()), parse("uuid")).to_pylist() == [str(value)]


@given(st.text(), st.integers(0, 99_999), st.integers(0, 9), st.integers(0, 9))
def test_names_of_files_are_safe_and_never_the_same(run: str, chunk: int, attempt: int, part: int) -> None:
    names = [file_name(run, chunk, attempt, part) for _ in range(2)]
    assert len(set(names)) == 2
    end = rf"-{chunk:05}-{attempt}-{part}-[0-9a-f]{{12}}\.parquet"
    assert all(re.fullmatch(rf"[A-Za-z0-9-]{{0,64}}{end}", name) for name in names)


def test_columns_may_have_other_names_in_files() -> None:
    a, b = pa.field("a", pa.int64()), pa.field("größe", pa.string(), metadata={STORED: "col-größe"})
    assert [stored_name(f) for f in (a, b)] == ["a", "col-größe"]
    schema = pa.schema([a, b])
    assert stored_schema(schema).names == ["a", "col-größe"]
    assert stored_schema(schema).types == schema.types
    assert stored_schema(pa.schema([a])) is not None
    constant = with_value(b, "é")
    assert (value_of(constant), value_of(b), stored_name(constant)) == ("é", None, "col-größe")
    assert value_of(with_value(constant, "")) == ""


@given(st.lists(st.integers(0, 2**40), max_size=6), st.text(max_size=5), st.lists(
    st.tuples(st.integers(0, 9), st.text(max_size=3), st.text(max_size=3)), max_size=2))  # fmt: skip
def test_where_rows_come_from_is_kept(lines: list[int], file: str, odd: list[tuple[int, str, str]]) -> None:
    batch = pa.record_batch({"a": pa.array(range(len(lines)), pa.int64())})
    found = with_origin(batch, file, pa.array(lines, pa.int64()), odd)
    assert [origins(found)(at) for at in range(len(lines))] == [f"{file}:{line}" for line in lines]
    assert refused(found) == [(file, record) for record in odd]
    assert (origins(batch)(0), refused(batch)) == ("", [])
