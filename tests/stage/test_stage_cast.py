"""Casts: every source type to every accepted type is exact, counted, or an invalid value with a reason."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stage_world import LOCAL, UTC, arrow

from events.shows import shows
from instep.schema.catalog.types import Unknown, parse
from instep.stage.casts.cast import CUT_MICROS, DROPPED_ZONE, Cast, cast, original
from instep.stage.casts.parse import ASSUMED_UTC, OUT_OF_RANGE

ONE = uuid.UUID("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
NOT_UTF8 = pa.array([b"\xff", b"ok"])


def done(values: pa.Array, source: str, target: pa.DataType, accepted: str = "") -> Cast:
    out = cast(values, parse(source), target, parse(accepted or source))
    assert out.values.type == target
    assert len(out.values) == len(values)
    out.values.validate(full=True)
    return out


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        pytest.param(pa.array([1, None]), "int64", pa.int64(), [1, None], id="same type"),
        pytest.param(pa.array([1, -5], pa.int16()), "int16", pa.int32(), [1, -5], id="wider integer"),
        pytest.param(pa.array([300], pa.uint16()), "int32", pa.int32(), [300], id="unsigned"),
        pytest.param(pa.array([2**63], pa.uint64()), "decimal(20,0)", pa.decimal128(20, 0), [D(2**63)], id="uint64"),
        pytest.param(pa.array([2**60]), "int64", pa.float64(), [float(2**60)], id="large integer that a float holds"),
        pytest.param(pa.array([5]), "int64", pa.decimal128(4, 2), [D("5.00")], id="integer to decimal"),
        pytest.param(pa.array([True, False]), "boolean", pa.int32(), [1, 0], id="boolean to integer"),
        pytest.param(pa.array([True]), "boolean", pa.decimal128(3, 1), [D("1.0")], id="boolean to decimal"),
        pytest.param(pa.array([0, 1, None], pa.int8()), "boolean", pa.bool_(), [False, True, None], id="tinyint(1)"),
        pytest.param(
            pa.array(["1.5", "1.50", "-0.000"]),
            "decimal(4,1)",
            pa.decimal128(4, 1),
            [D("1.5"), D("1.5"), D(0)],
            id="numeric as text",
        ),
        pytest.param(pa.array([D("2.0")]), "decimal(3,1)", pa.int32(), [2], id="whole decimal to integer"),
        pytest.param(pa.array([D("1.1")]), "decimal(3,1)", pa.float64(), [1.1], id="decimal to float"),
        pytest.param(
            pa.array([0.1, 100.0]), "float64", pa.decimal128(5, 2), [D("0.10"), D("100.00")], id="float to decimal"
        ),
        pytest.param(
            pa.array([0.5, float("inf")]), "float64", pa.float32(), [0.5, float("inf")], id="float64 to float32"
        ),
        pytest.param(pa.array([2.0]), "float64", pa.int64(), [2], id="whole float to integer"),
        pytest.param(pa.array(["5", " 5", "+5", "5.0", "5e0"]), "string", pa.int64(), [5] * 5, id="text to integer"),
        pytest.param(
            pa.array(["0.1", "1e5", "-Infinity"]), "string", pa.float64(), [0.1, 1e5, float("-inf")], id="text to float"
        ),
        pytest.param(pa.array(["t", "TRUE", "0"]), "string", pa.bool_(), [True, True, False], id="text to boolean"),
        pytest.param(pa.array(["2024-02-29"]), "string", pa.date32(), [dt.date(2024, 2, 29)], id="text to date"),
        pytest.param(
            pa.array(["2024-02-29T00:00:00"]), "string", pa.date32(), [dt.date(2024, 2, 29)], id="midnight to date"
        ),
        pytest.param(
            pa.array(["2024-01-01 10:00:00.5"]),
            "string",
            LOCAL,
            [dt.datetime(2024, 1, 1, 10, 0, 0, 500000)],
            id="text to timestamp",
        ),
        pytest.param(
            pa.array(["2024-01-01 10:00:00+02", "2024-01-01T08:00:00.0000000Z"]),
            "string",
            UTC,
            [dt.datetime(2024, 1, 1, 8, tzinfo=dt.UTC)] * 2,
            id="text to instant",
        ),
        pytest.param(pa.array(["10:20:30"]), "string", pa.time64("us"), [dt.time(10, 20, 30)], id="text to time"),
        pytest.param(
            pa.array([0], LOCAL), "timestamp", pa.date32(), [dt.date(1970, 1, 1)], id="midnight timestamp to date"
        ),
        pytest.param(
            pa.array([1], pa.timestamp("s")), "timestamp", LOCAL, [dt.datetime(1970, 1, 1, 0, 0, 1)], id="seconds"
        ),
        pytest.param(pa.array([86_400_000], pa.date64()), "date", pa.date32(), [dt.date(1970, 1, 2)], id="date64"),
        pytest.param(pa.array([1000], pa.time32("ms")), "time", pa.time64("us"), [dt.time(0, 0, 1)], id="time32"),
        pytest.param(pa.array([ONE.bytes], pa.binary(16)), "uuid", pa.string(), [str(ONE)], id="uuid to text"),
        pytest.param(pa.array([ONE.bytes]), "uuid", pa.string(), [str(ONE)], id="uuid as plain bytes to text"),
        pytest.param(pa.array([str(ONE), None]), "uuid", pa.binary(16), [ONE.bytes, None], id="text to uuid bytes"),
        pytest.param(pa.array([str(ONE)]), "uuid", pa.uuid(), [ONE], id="text to uuid"),
        pytest.param(pa.array([f"{{{ONE}}}"]), "string", pa.uuid(), [ONE], id="text in braces to uuid"),
        pytest.param(pa.array([b"ok"]), "binary", pa.string(), ["\\x6f6b"], id="bytes to text"),
        pytest.param(
            pa.array([b"ok"], pa.binary(2)), "string", pa.large_string(), ["ok"], id="text that comes as bytes"
        ),
        pytest.param(pa.array(["é"]), "string", pa.large_binary(), ["é".encode()], id="text to bytes"),
        pytest.param(
            pa.array(["\\x6f6b", "\\x", None]),
            "binary",
            pa.large_binary(),
            [b"ok", b"", None],
            id="bytes as text to bytes",
        ),
        pytest.param(pa.array(["a\0b"]), "string", pa.large_string(), ["a\0b"], id="NUL stays"),
        pytest.param(
            pa.array(["a", "b", "a"]).dictionary_encode(), "string", pa.string(), ["a", "b", "a"], id="dictionary"
        ),
        pytest.param(pa.array(["a"], pa.string_view()), "string", pa.string(), ["a"], id="string view"),
        pytest.param(pa.array([None, None]), "unknown", pa.int64(), [None, None], id="null type"),
        pytest.param(pa.array([], pa.string()), "string", pa.int64(), [], id="no rows"),
        pytest.param(pa.array(['{"a": 1}', "[]"]), "json", pa.large_string(), ['{"a": 1}', "[]"], id="json as it is"),
        pytest.param(
            pa.array([[1, 2], None, []]), "array(int32)", arrow(parse("array(int32)")), [[1, 2], None, []], id="array"
        ),
        pytest.param(
            pa.array([["1.5", None]]),
            "array(decimal(3,1))",
            arrow(parse("array(decimal(3,1))")),
            [[D("1.5"), None]],
            id="array of numeric as text",
        ),
        pytest.param(
            pa.array([[[1], []], None]),
            "array(array(int32))",
            arrow(parse("array(array(int32))")),
            [[[1], []], None],
            id="nested array",
        ),
        pytest.param(
            pa.array([{"a": 1, "b": "x"}, None]),
            'struct("a" int64, "b" string)',
            pa.struct([("b", pa.large_string()), ("a", pa.int64()), ("c", pa.date32())]),
            [{"b": "x", "a": 1, "c": None}, None],
            id="struct by names",
        ),
        pytest.param(pa.array(["[1, 2]"]), "string", pa.list_(pa.int64()), [[1, 2]], id="json text to array"),
        pytest.param(
            pa.array(['{"a": 1}']), "json", pa.struct([("a", pa.int64())]), [{"a": 1}], id="json text to struct"
        ),
    ],
)
def test_exact(values: pa.Array, source: str, target: pa.DataType, expected: list[Any]) -> None:
    out = done(values, source, target)
    assert out.values.to_pylist() == expected
    assert (dict(out.invalid_values), dict(out.lossy)) == ({}, {})


@pytest.mark.parametrize(
    ("values", "source", "target", "expected", "reason"),
    [
        pytest.param(
            pa.array([1, 2**31]), "int64", pa.int32(), [1, None], "too large for int32", id="integer overflow"
        ),
        pytest.param(pa.array([2**60 + 1]), "int64", pa.float64(), [None], "not exact as a 64-bit float", id="2**60+1"),
        pytest.param(
            pa.array(["1.05", "1.0"]),
            "decimal(4,1)",
            pa.decimal128(4, 1),
            [None, D("1.0")],
            "more than 1 digits after the point",
            id="scale",
        ),
        pytest.param(
            pa.array(["12345.0"]),
            "decimal(4,1)",
            pa.decimal128(4, 1),
            [None],
            "more than 3 digits before the point",
            id="precision",
        ),
        pytest.param(
            pa.array(["NaN", "1"]),
            "decimal(4,1)",
            pa.decimal128(4, 1),
            [None, D(1)],
            "NaN is not a finite number",
            id="numeric NaN",
        ),
        pytest.param(
            pa.array(["-Infinity"]),
            "decimal(4,1)",
            pa.decimal128(4, 1),
            [None],
            "infinity is not a finite number",
            id="numeric infinity",
        ),
        pytest.param(
            pa.array([float("nan")]),
            "float64",
            pa.decimal128(4, 1),
            [None],
            "NaN is not a finite number",
            id="float NaN to decimal",
        ),
        pytest.param(
            pa.array([0.125]),
            "float64",
            pa.decimal128(4, 2),
            [None],
            "more than 2 digits after the point",
            id="binary fraction",
        ),
        pytest.param(
            pa.array([1e300]), "float64", pa.float32(), [None], "not exact as a 32-bit float", id="float range"
        ),
        pytest.param(pa.array([D("1.5")]), "decimal(3,1)", pa.int64(), [None], "has a fraction", id="fraction"),
        pytest.param(
            pa.array([float("nan")]), "float64", pa.int64(), [None], "NaN is not a finite number", id="NaN to int"
        ),
        pytest.param(
            pa.array([D("12345678901234567.1")]),
            "decimal(20,1)",
            pa.float64(),
            [None],
            "not exact as a 64-bit float",
            id="decimal with too many digits for a float",
        ),
        pytest.param(
            pa.array(["1e999999999"]), "string", pa.int64(), [None], "too large for int64", id="huge exponent"
        ),
        pytest.param(pa.array(["0x10", "1_0"]), "string", pa.int64(), [None, None], "not a number", id="odd integers"),
        pytest.param(pa.array(["n/a"]), "string", pa.decimal128(4, 1), [None], "not a number", id="words"),
        pytest.param(
            pa.array(["0.1000000000000000055"]),
            "string",
            pa.float64(),
            [None],
            "not exact as a 64-bit float",
            id="text longer than a float",
        ),
        pytest.param(pa.array([2], pa.int8()), "boolean", pa.bool_(), [None], "not true or false", id="2 as boolean"),
        pytest.param(
            pa.array(["2024-13-01"]), "string", pa.date32(), [None], "not an ISO date and time", id="month 13"
        ),
        pytest.param(
            pa.array([1], LOCAL), "timestamp", pa.date32(), [None], "has a time of day", id="timestamp to date"
        ),
        pytest.param(pa.array(["2024-01-01T00:00:00+02:00"]), "string", LOCAL, [None], "has a time zone", id="zone"),
        pytest.param(
            pa.array(["2024-01-01T00:00:00.1234567Z"]),
            "string",
            UTC,
            [None],
            "finer than a microsecond",
            id="seven digits",
        ),
        pytest.param(
            pa.array(["infinity", "12024-01-01"]), "string", LOCAL, [None, None], OUT_OF_RANGE, id="text infinity"
        ),
        pytest.param(
            pa.array([-9222425352054775809, 0], UTC),
            "timestamptz",
            UTC,
            [None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
            OUT_OF_RANGE,
            id="infinity as PostgreSQL's driver yields it",
        ),
        pytest.param(pa.array([2**63 - 1], LOCAL), "timestamp", LOCAL, [None], OUT_OF_RANGE, id="largest integer"),
        pytest.param(pa.array([-63517824000000000], LOCAL), "timestamp", LOCAL, [None], OUT_OF_RANGE, id="44 BC"),
        pytest.param(
            pa.array([-2147472692, 0], pa.int32()).view(pa.date32()),
            "date",
            pa.date32(),
            [None, dt.date(1970, 1, 1)],
            OUT_OF_RANGE,
            id="infinite date",
        ),
        pytest.param(
            pa.array([86_400_000_000], pa.time64("us")),
            "time",
            LOCAL,
            [None],
            "not an ISO date and time",
            id="time to timestamp",
        ),
        pytest.param(
            pa.array(["24:00:00", "1:2"]), "string", pa.time64("us"), [None, None], "not a time of day", id="24:00"
        ),
        pytest.param(pa.array(["10:00:00+01:00"]), "string", pa.time64("us"), [None], "has a time zone", id="timetz"),
        pytest.param(
            pa.array(["10:00:00.1234567"]),
            "string",
            pa.time64("us"),
            [None],
            "finer than a microsecond",
            id="fine time",
        ),
        pytest.param(pa.array(["xyz"]), "string", pa.uuid(), [None], "not a UUID", id="uuid"),
        pytest.param(pa.array(["xyz"]), "string", pa.binary(8), [None], "not 8 bytes", id="fixed bytes"),
        pytest.param(NOT_UTF8, "string", pa.string(), [None, "ok"], "not valid UTF-8", id="bytes that are no text"),
        pytest.param(
            NOT_UTF8.view(pa.string()), "string", pa.large_string(), [None, "ok"], "not valid UTF-8", id="bad text"
        ),
        pytest.param(NOT_UTF8.view(pa.string()), "string", pa.int64(), [None, None], None, id="bad text to integer"),
        pytest.param(
            pa.array([[1], [2**40]]),
            "array(int64)",
            pa.list_(pa.int32()),
            [[1], None],
            "an element does not fit list<item: int32>",
            id="one element",
        ),
        pytest.param(
            pa.array([{"a": "x"}]),
            'struct("a" string)',
            pa.struct([("a", pa.int64())]),
            [None],
            "an element does not fit struct<a: int64>",
            id="one field",
        ),
        pytest.param(
            pa.array(["[1"]),
            "string",
            pa.list_(pa.int64()),
            [None],
            "an element does not fit list<item: int64>",
            id="broken json to array",
        ),
        pytest.param(
            pa.array([20240229]), "int64", pa.date32(), [None], "not an ISO date and time", id="integer to date"
        ),
        pytest.param(
            pa.array([2**31 - 1], pa.int32()).view(pa.date32()),
            "date",
            pa.float64(),
            [None],
            "not a number",
            id="infinity to float",
        ),
        pytest.param(
            pa.array([5]),
            "int64",
            pa.large_binary(),
            [None],
            "only text, bytes and UUIDs have a form as bytes",
            id="integer to bytes",
        ),
        pytest.param(
            pa.array(["ok", "\\x6", "\\x6F", "x6f", ""]), "binary", pa.binary(), [None] * 5, "not bytes", id="no bytes"
        ),
        pytest.param(
            pa.array(["1" * 32]), "string", pa.uuid(), [None], "digits alone are a number", id="digits to uuid"
        ),
        pytest.param(
            pa.array(["[1.5]", "[1e400]", '{"a": 1}', "[99999999999]"]),
            "json",
            pa.list_(pa.int32()),
            [None] * 4,
            "an element does not fit list<item: int32>",
            id="json numbers",
        ),
        pytest.param(
            pa.array([[1.5]]),
            "array(float64)",
            pa.list_(pa.int32()),
            [None],
            "an element does not fit list<item: int32>",
            id="a fraction in a list",
        ),
        pytest.param(pa.array([dt.date(2020, 1, 1)]), "date", pa.int32(), [None], "not a number", id="date to integer"),
        pytest.param(
            pa.array([5]),
            "int64",
            pa.map_(pa.string(), pa.string()),
            [None],
            "map<string, string> cannot be made from text",
            id="to a map",
        ),
    ],
)
@shows(trap=1)
def test_invalid_value(
    values: pa.Array, source: str, target: pa.DataType, expected: list[Any], reason: str | None
) -> None:
    out = done(values, source, target)
    assert out.values.to_pylist() == expected
    bad = [at for at, value in enumerate(expected) if value is None]
    assert sorted(out.invalid_values) == bad
    if reason is not None:
        assert set(out.invalid_values.values()) == {reason}


@pytest.mark.parametrize(
    ("values", "source", "target", "lossy"),
    [
        pytest.param(pa.array([0, None, 1], LOCAL), "timestamp", UTC, {ASSUMED_UTC: 2}, id="zone assumed"),
        pytest.param(pa.array([0, None], UTC), "timestamptz", LOCAL, {DROPPED_ZONE: 1}, id="zone dropped"),
        pytest.param(pa.array([0], pa.date32()), "date", UTC, {ASSUMED_UTC: 1}, id="date to instant"),
        pytest.param(pa.array([1000, 1001], pa.timestamp("ns")), "timestamp", LOCAL, {CUT_MICROS: 1}, id="nanoseconds"),
        pytest.param(
            pa.array(["2024-01-01 00:00:00", "2024-01-01 00:00:00Z"]), "string", UTC, {ASSUMED_UTC: 1}, id="text"
        ),
    ],
)
@shows(trap=1)
def test_lossy(values: pa.Array, source: str, target: pa.DataType, lossy: dict[str, int]) -> None:
    out = done(values, source, target)
    assert dict(out.lossy) == lossy
    assert out.values.null_count == values.null_count


@pytest.mark.parametrize(
    ("values", "source", "expected"),
    [
        pytest.param(pa.array(['{"a":1}', "x", None, "NaN"]), "string", ['{"a":1}', None, None, None], id="text"),
        pytest.param(pa.array([1, None]), "int64", ["1", None], id="number"),
        pytest.param(pa.array([float("nan"), 0.5]), "float64", [None, "0.5"], id="NaN"),
        pytest.param(pa.array([True]), "boolean", ["true"], id="boolean"),
        pytest.param(pa.array([dt.date(2020, 1, 1)]), "date", ['"2020-01-01"'], id="date"),
        pytest.param(pa.array([{"a": D("1.50")}]), 'struct("a" decimal(3,2))', ['{"a":"1.50"}'], id="struct"),
        pytest.param(pa.array([None], pa.string()), "string", [None], id="nulls only"),
    ],
)
def test_to_json(values: pa.Array, source: str, expected: list[Any]) -> None:
    assert done(values, source, pa.large_string(), "json").values.to_pylist() == expected


@pytest.mark.parametrize(
    "source", ["boolean", "int32", "decimal(10,2)", "float64", "date", "timestamp", "timestamptz", "uuid"]
)
@pytest.mark.parametrize(
    "accepted", ["boolean", "int64", "decimal(12,2)", "float64", "string", "date", "timestamptz", "json"]
)
def test_every_pair_gives_a_value_or_an_invalid_value(source: str, accepted: str) -> None:
    sample = {
        "boolean": True,
        "int32": 7,
        "decimal(10,2)": D("7.25"),
        "float64": 7.25,
        "date": dt.date(2024, 5, 6),
        "timestamp": dt.datetime(2024, 5, 6, 7),
        "timestamptz": dt.datetime(2024, 5, 6, 7, tzinfo=dt.UTC),
        "uuid": ONE.bytes,
    }[source]
    kind = pa.binary(16) if source == "uuid" else arrow(parse(source))
    out = done(pa.array([None, sample], kind), source, arrow(parse(accepted)), accepted)
    assert not out.values[0].is_valid
    assert out.values[1].is_valid == (1 not in out.invalid_values)


@example([D("9.9999999999999582835946867918540E-31")])
@given(
    st.lists(st.one_of(st.none(), st.decimals(allow_nan=True, places=None), st.text(max_size=6).map(str)), max_size=80)
)
@shows(trap=1)
def test_decimal_text_is_exact_or_held(values: list[Any]) -> None:
    """Law: what lands equals the text as a number; the rest is an invalid value; nothing else is NULL."""
    texts = [None if v is None else str(v).encode("utf-8", "replace").decode() for v in values]
    out = done(pa.array(texts, pa.string()), "decimal(12,3)", pa.decimal128(12, 3))
    for at, (text, value) in enumerate(zip(texts, out.values.to_pylist(), strict=True)):
        assert (value is None) == (text is None or at in out.invalid_values)
        if value is not None and text is not None:
            assert value == D(text.strip())


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=100))
def test_narrowing_keeps_what_fits(values: list[int | None]) -> None:
    """Law: splitting a column in halves finds exactly the values that do not fit."""
    out = done(pa.array(values, pa.int64()), "int64", pa.int32())
    fits = [v is not None and -(2**31) <= v < 2**31 for v in values]
    assert out.values.to_pylist() == [v if ok else None for v, ok in zip(values, fits, strict=True)]
    assert sorted(out.invalid_values) == [at for at, ok in enumerate(fits) if not ok and values[at] is not None]


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_floats_survive_text(values: list[float]) -> None:
    """Law: a float column held as text and read back is the same column."""
    text = done(pa.array(values, pa.float64()), "float64", pa.string()).values
    assert done(text, "string", pa.float64()).values.to_pylist() == values


def test_one_bad_value_among_many_is_found_without_looking_at_all() -> None:
    values = pa.array([str(n) for n in range(100_000)])
    bad = pa.concat_arrays([values.slice(0, 60_000), pa.array(["x"]), values.slice(60_001)])
    out = done(bad, "string", pa.int64())
    assert dict(out.invalid_values) == {60_000: "not a number"}
    assert out.values[59_999].as_py() == 59_999


def test_sliced_arrays_are_cast_where_they_start() -> None:
    values = pa.array([[9], [1, 2], None, [3]]).slice(1)
    assert done(values, "array(int64)", pa.large_list(pa.int32())).values.to_pylist() == [[1, 2], None, [3]]
    assert done(pa.array([9, 1, 2], LOCAL).slice(1), "timestamp", UTC).values.to_pylist()[0].microsecond == 1


@pytest.mark.parametrize(
    ("values", "source", "text"),
    [
        pytest.param(NOT_UTF8.view(pa.string()), "string", "\\xff", id="bad text as hex"),
        pytest.param(NOT_UTF8, "binary", "\\xff", id="bytes as hex"),
        pytest.param(pa.array([2**63 - 1], UTC), "timestamptz", "infinity", id="infinity by name"),
        pytest.param(pa.array([-2147472691], pa.int32()).view(pa.date32()), "date", "-infinity", id="infinite date"),
        pytest.param(pa.array([2**62], LOCAL), "timestamp", "148108-07-06T14:00:27.387904", id="a far instant"),
        pytest.param(pa.array(["NaN"]), "decimal(3,1)", "NaN", id="numeric"),
    ],
)
def test_quarantine_shows_the_original(values: pa.Array, source: str, text: str) -> None:
    assert original(values, 0, parse(source) if source else Unknown()) == text
