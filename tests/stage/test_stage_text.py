"""Canonical texts: what string columns, hashes, row ids and quarantine show."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_world import LOCAL, UTC

from instep.schema.catalog.types import DataType, parse
from instep.stage.casts.text import clock, iso_interval, plain, to_text

INTERVAL = pa.month_day_nano_interval()


FAR = "148108-07-06T14:00:27.387904"
FAR_DATES = pa.array([[1, -2147472692], None, [2145042905, None], []], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))


@pytest.mark.parametrize(
    ("values", "source", "expected"),
    [
        (pa.array([True, None, False]), "boolean", ["true", None, "false"]),
        (pa.array([-5, None], pa.int16()), "int16", ["-5", None]),
        (pa.array([0.1, 1.0, 1e20, float("nan"), float("-inf")]), "float64", ["0.1", "1", "1e+20", "NaN", "-Infinity"]),
        (pa.array([0.1], pa.float32()), "float32", ["0.1"]),
        (pa.array([D("1.50"), D("-0.10")]), "decimal(4,2)", ["1.50", "-0.10"]),
        (pa.array([D("0.00000001"), None], pa.decimal128(9, 8)), "decimal(9,8)", ["0.00000001", None]),
        (pa.array(["a", None]), "string", ["a", None]),
        (pa.array([b"\x00\xff"]), "binary", ["\\x00ff"]),
        (pa.array([dt.date(1, 1, 1), None]), "date", ["0001-01-01", None]),
        (pa.array([-2147472692], pa.int32()).view(pa.date32()), "date", ["infinity"]),
        (pa.array([0, 1_500_000], LOCAL), "timestamp", ["1970-01-01T00:00:00.000000", "1970-01-01T00:00:01.500000"]),
        (pa.array([0], UTC), "timestamptz", ["1970-01-01T00:00:00.000000Z"]),
        (pa.array([0], pa.timestamp("us", "Europe/Berlin")), "timestamptz", ["1970-01-01T00:00:00.000000Z"]),
        (pa.array([1], pa.timestamp("ns")), "timestamp", ["1970-01-01T00:00:00.000000001"]),
        (pa.array([1 - 2**63], pa.timestamp("ns")), "timestamp", ["1677-09-21T00:12:43.145224193"]),
        (pa.array([-(2**63), 2**63 - 1, None], LOCAL), "timestamp", ["-infinity", "infinity", None]),
        (pa.array([2**62, -(2**62)], UTC), "timestamptz", [f"{FAR}Z", "-144169-06-28T09:59:32.612096Z"]),
        (pa.array([-9222426057710551616], LOCAL), "timestamp", ["294276-12-31T23:59:59.000000"]),
        (pa.array([2145042905, -735160], pa.int32()).view(pa.date32()), "date", ["5874897-12-31", "-0043-03-15"]),
        (pa.array([3_600_000_000, 86_400_000_000], pa.time64("us")), "time", ["01:00:00.000000", "24:00:00.000000"]),
        (pa.array([1_500], pa.time32("ms")), "time", ["00:00:01.500000"]),
        (pa.array([-1, 90_000_000_000], pa.duration("us")), "time", ["-00:00:00.000001", "25:00:00.000000"]),
        (pa.array([(14, 3, 0), None], INTERVAL), "string", ["P1Y2M3D", None]),
        (pa.array([bytes(16), None], pa.binary(16)), "uuid", ["00000000-0000-0000-0000-000000000000", None]),
        (pa.array([bytes(16)], pa.binary(16)), "binary(16)", ["\\x" + "00" * 16]),
        (pa.array([[1, None], None]), "array(int64)", ["[1,null]", None]),
        (pa.array([{"a": D("1.50"), "é": b"\x01"}]), 'struct("a" decimal(3,2))', ['{"a":"1.50","é":"\\\\x01"}']),
        (pa.array([[dt.timedelta(seconds=1)]]), "array(time)", ['["00:00:01.000000"]']),
        (pa.array([[dt.time(1, 2, 3), None]]), "array(time)", ['["01:02:03",null]']),
        (pa.array([[dt.date(2020, 1, 1)]]), "array(date)", ['["2020-01-01"]']),
        (FAR_DATES, "array(date)", ['["1970-01-02","infinity"]', None, '["5874897-12-31",null]', "[]"]),
        (
            pa.StructArray.from_arrays([FAR_DATES], ["d"]).slice(2),
            "unknown",
            ['{"d":["5874897-12-31",null]}', '{"d":[]}'],
        ),
    ],
)
def test_text(values: pa.Array, source: str, expected: list[str | None]) -> None:
    kind: DataType = parse(source)
    assert to_text(values, kind).to_pylist() == expected


@pytest.mark.parametrize(
    ("months", "days", "nanoseconds", "expected"),
    [
        (0, 0, 0, "PT0S"),
        (0, 1, 0, "P1D"),
        (25, 0, 0, "P2Y1M"),
        (-13, 0, 0, "P-1Y-1M"),
        (0, 0, 3_661_500_000_000, "PT1H1M1.5S"),
        (0, 0, -1_000_000_000, "PT-1S"),
        (0, 0, 1, "PT0.000000001S"),
        (1, 2, 100_000_000_000, "P1M2DT1M40S"),
    ],
)
def test_interval(months: int, days: int, nanoseconds: int, expected: str) -> None:
    assert iso_interval(months, days, nanoseconds) == expected


@given(st.integers(0, 86_399_999_999))
def test_clock_agrees_with_python(micros: int) -> None:
    time = (dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=micros)).time()
    assert clock(micros) == time.isoformat("microseconds")


@given(st.lists(st.decimals(-(10**9), 10**9, places=10), max_size=20))
def test_decimal_text_has_no_exponent(values: list[D]) -> None:
    texts = to_text(pa.array(values, pa.decimal128(38, 10))).to_pylist()
    assert all("E" not in t and D(t) == v for t, v in zip(texts, values, strict=True))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array(["a"], pa.string_view()), pa.string()),
        (pa.array([b"a"], pa.binary_view()), pa.binary()),
        (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16))), pa.binary(16)),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), pa.string()),
        (pa.RunEndEncodedArray.from_arrays([2], pa.array([7])), pa.int64()),
        (pa.array([["a"]], pa.large_list(pa.string_view())), pa.large_list(pa.string())),
        (pa.array([{"x": "a"}], pa.struct([("x", pa.string_view())])), pa.struct([("x", pa.string())])),
    ],
)
def test_plain_unwraps(values: pa.Array, kind: pa.DataType) -> None:
    assert plain(values).type == kind
    assert len(plain(values)) == len(values)


def test_arrays_of_extension_values_are_unwrapped() -> None:
    numeric = pa.opaque(pa.string(), "numeric", "PostgreSQL")
    child = pa.ExtensionArray.from_storage(numeric, pa.array(["1.5", "2"]))
    values = pa.ListArray.from_arrays(pa.array([0, 2]), child)
    assert plain(values).to_pylist() == [["1.5", "2"]]
    assert plain(values).type == pa.list_(pa.string())


def test_invalid_utf8_has_no_text() -> None:
    with pytest.raises(pa.ArrowInvalid):
        to_text(pa.array([b"\xff"]).view(pa.string()))
