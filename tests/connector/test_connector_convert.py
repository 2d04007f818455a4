"""Values of declared types: what each takes, what is sent for it, and what is refused with which words."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.sources.connector.sdk.fivetran_connector_sdk.convert import (
    decimal,
    naive_datetime,
    utc_datetime,
    with_fallback,
)
from instep.sources.connector.sdk.fivetran_connector_sdk.declared import tables_of

EAST = timezone(timedelta(hours=2))
DAY = 86_400_000_000


class Color(StrEnum):
    RED = "red"


def sent(kind: Any, value: Any) -> Any:
    (table,) = tables_of([{"table": "t", "columns": {"c": kind}}]).values()
    said = table.types["c"]
    return value if said.exact is type(value) else said.convert(value)


NUMBER = {"type": "DECIMAL", "precision": 6, "scale": 2}
WHOLE = {"type": "decimal", "precision": 3, "scale": 0}
TAKEN = [
    ("BOOLEAN", True, True), ("boolean", 0, False), ("BOOLEAN", 1, True),
    ("SHORT", 32767, 32767), ("SHORT", -32768, -32768), ("SHORT", True, 1),
    ("INT", 2**31 - 1, 2**31 - 1), ("INT", "7", 7), ("INT", 1.0, 1), ("INT", "1.0", 1), ("INT", " +7"[1:], 7),
    ("LONG", np.int64(5), 5), ("DOUBLE", np.float32(0.5), 0.5), ("DOUBLE", Decimal("0.5"), 0.5),
    ("LONG", 2**63 - 1, 2**63 - 1), ("LONG", -(2**63), -(2**63)),
    (NUMBER, "12.5", "12.5"), (NUMBER, "-0001.25", "-1.25"), (NUMBER, "12.5000", "12.50"), (NUMBER, 7, "7.00"),
    (NUMBER, "1e2", "100.00"), (NUMBER, "0e99", "0"), (NUMBER, "-9999.99", "-9999.99"), (WHOLE, "999", "999"),
    ({"type": "DECIMAL", "precision": 2, "scale": 2}, "0.25", "0.25"),
    ("FLOAT", 1.5, 1.5), ("DOUBLE", 2, 2.0), ("DOUBLE", "1e-4", 1e-4), ("FLOAT", math.inf, math.inf),
    ("NAIVE_DATE", "1970-01-02", 1), ("NAIVE_DATE", date(1969, 12, 31), -1), ("NAIVE_DATE", "2026-1-5", 20458),
    ("NAIVE_DATE", datetime(1970, 1, 3), 2), ("NAIVE_DATE", "0001-01-01", -719162),
    ("NAIVE_DATETIME", "1970-01-02T00:00:01", DAY + 1_000_000), ("NAIVE_DATETIME", "1970-01-01 00:00:00.5", 500_000),
    ("NAIVE_DATETIME", datetime(1969, 12, 31, 23, 59, 59), -1_000_000),
    ("NAIVE_DATETIME", "1970-01-01T00:00:00.1234560000", 123_456), ("NAIVE_DATETIME", "1970-1-2T0:0:0", DAY),
    ("UTC_DATETIME", "1970-01-01T02:00:00+02:00", 0), ("UTC_DATETIME", "1970-01-01T00:00:00Z", 0),
    ("UTC_DATETIME", "1969-12-31 19:00:00.25-0500", 250_000), ("UTC_DATETIME", datetime(1970, 1, 1, 2, tzinfo=EAST), 0),
    ("UTC_DATETIME", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
    ("BINARY", b"\x00\xff", b"\x00\xff"), ("BINARY", bytearray(b"ab"), b"ab"), ("BINARY", memoryview(b"cd"), b"cd"),
    ("XML", "<a/>", "<a/>"), ("STRING", 7, "7"), ("STRING", True, "True"), ("STRING", [1], "[1]"),
    ("STRING", date(2026, 1, 2), "2026-01-02"), ("STRING", Color.RED, "red"),
    ("JSON", {"b": [1, None, "é"]}, '{"b":[1,null,"é"]}'), ("JSON", "text", '"text"'), ("JSON", 3, "3"),
]  # fmt: skip
REFUSED = [
    ("BOOLEAN", "true", "valid BOOLEAN"), ("BOOLEAN", 2, "valid BOOLEAN"), ("BOOLEAN", 1.0, "valid BOOLEAN"),
    ("SHORT", 32768, "out of range for SHORT"), ("INT", 2**31, "out of range for INT"), ("INT", "x", "valid INT"),
    ("INT", 1.5, "valid INT"), ("INT", "1.5", "valid INT"), ("INT", None.__class__, "valid INT"),
    ("INT", "٣", "valid INT"),
    ("LONG", 2**63, "out of range for LONG"), ("LONG", Decimal(1), "valid LONG"),
    (NUMBER, 12.5, "send it as text"), (NUMBER, Decimal("12.5"), "send it as text"), (NUMBER, True, "send it as text"),
    (NUMBER, "12.345", "does not fit"), (NUMBER, "12345.6", "does not fit"), (NUMBER, 10_000, "does not fit"),
    (NUMBER, "NaN", "valid DECIMAL"), (NUMBER, "1,5", "valid DECIMAL"), (NUMBER, "", "valid DECIMAL"),
    (WHOLE, "0.5", "not fit"),
    ("FLOAT", 1e39, "out of range for FLOAT"), ("FLOAT", True, "valid FLOAT"), ("DOUBLE", "x", "valid DOUBLE"),
    ("DOUBLE", 10**400, "valid DOUBLE"), ("DOUBLE", b"1", "valid DOUBLE"),
    ("NAIVE_DATE", "2026-02-30", "valid NAIVE_DATE"), ("NAIVE_DATE", "20260101", "valid NAIVE_DATE"),
    ("NAIVE_DATE", datetime(2026, 1, 1, 12), "time of day"), ("NAIVE_DATE", 20260101, "valid NAIVE_DATE"),
    ("NAIVE_DATETIME", "2026-01-01T00:00:00Z", "valid NAIVE_DATETIME"), ("NAIVE_DATETIME", "2026-01-01", "valid NAIVE"),
    ("NAIVE_DATETIME", "2026-01-01T25:00:00", "not a date and time"),
    ("NAIVE_DATETIME", date(2026, 1, 1), "valid NAIVE"),
    ("NAIVE_DATETIME", "2026-01-01T00:00:00.1234567", "valid NAIVE_DATETIME"),
    ("NAIVE_DATETIME", datetime(2026, 1, 1, tzinfo=UTC), "time zone"),
    ("UTC_DATETIME", "2026-01-01T00:00:00", "valid UTC_DATETIME"),
    ("UTC_DATETIME", datetime(2026, 1, 1), "with a zone"),
    ("UTC_DATETIME", "2026-01-01T00:00:00+25:00", "time zone"), ("UTC_DATETIME", 1767225600, "valid UTC_DATETIME"),
    ("BINARY", "text", "valid BINARY"), ("XML", 7, "valid XML"), ("JSON", math.nan, "not JSON"),
]  # fmt: skip


def shown(case: tuple[Any, ...]) -> str:
    """The case's id, without the addresses that some objects show."""
    return re.sub(r" at 0x[0-9a-f]+", "", f"{case[0]} {case[1]!r}")[:60]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN, ids=map(shown, TAKEN))
def test_taken(kind: Any, value: Any, expected: Any) -> None:
    got = sent(kind, value)
    if isinstance(kind, dict):
        assert Decimal(got) == Decimal(expected)
    else:
        assert got == expected
        assert type(got) is type(expected)


@pytest.mark.parametrize(("kind", "value", "why"), REFUSED, ids=map(shown, REFUSED))
def test_refused(kind: Any, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        sent(kind, value)


def test_what_json_has_not_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not JSON"):
        sent("JSON", {"a": {1, 2}})


def test_invalid_values_may_be_kept_as_their_texts() -> None:
    convert = with_fallback(decimal(6, 2))
    assert [convert("1.5"), convert("12.345"), type(convert("12.345")).__name__] == ["1.5", "12.345", "InvalidText"]


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4), st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_is_taken_exactly_or_refused(number: Decimal, precision: int, scale: int) -> None:
    scale = min(scale, precision)
    with localcontext() as context:
        context.prec = 200
        fits = abs(number) < Decimal(10) ** (precision - scale) and number.scaleb(scale) % 1 == 0
    convert = decimal(precision, scale)
    if fits:
        assert Decimal(convert(format(number, "f"))) == number
    else:
        with pytest.raises(ValueError, match="does not fit"):
            convert(format(number, "f"))


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_moments_in_text_are_those_of_objects(moment: datetime, minutes: int) -> None:
    assert naive_datetime(moment.isoformat()) == naive_datetime(moment)
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert utc_datetime(zoned.isoformat()) == utc_datetime(zoned)
    assert utc_datetime(zoned) == naive_datetime(moment) - minutes * 60_000_000
