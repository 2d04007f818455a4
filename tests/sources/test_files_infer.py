"""The narrowest type of texts, and the laws that let it be found batch by batch and file by file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.types import Unknown
from instep.sources.files.infer import comparable, final_type, infer, join

CASES = [
    ("nothing", [None, None], "unknown"),
    ("integers", ["0", "-12", None, "123456789012345678"], "int64"),
    ("the widest integer", ["9223372036854775807", "-9223372036854775808"], "int64"),
    ("beyond 64 bits", ["9223372036854775808"], "decimal(20,0)"),
    ("beyond 38 digits", ["1" * 39], "string"),
    ("fractions", ["1.50", "-0.25", "3"], "float64"),
    ("15 digits in all", ["1234567890.12345"], "float64"),
    ("16 digits in all", ["12345678901.12345", "7"], "decimal(16,5)"),
    ("digits that no single value has", ["12345678901", "0.123456"], "decimal(17,6)"),
    ("exponents", ["1e5", "2.5E-3", "7"], "float64"),
    ("an exponent that no float has", ["1e999"], "string"),
    ("an exponent beside many digits", ["1e5", "12345678901234567"], "string"),
    ("leading zeros", ["007", "8"], "string"),
    ("a plus sign", ["+1"], "string"),
    ("minus nothing", ["-0"], "string"),
    ("a decimal comma", ["1,5"], "string"),
    ("underscores", ["1_000"], "string"),
    ("blanks", [" 1"], "string"),
    ("an empty text", ["", "1"], "string"),
    ("truth", ["true", "False", "TRUE"], "boolean"),
    ("truth and numbers", ["true", "1"], "string"),
    ("days", ["2024-02-29", "0001-01-01"], "date"),
    ("a day that is none", ["2023-02-29"], "string"),
    ("other days", ["29.02.2024"], "string"),
    ("moments", ["2024-02-29T12:00:00", "2024-02-29 12:00", "2024-02-29T12:00:00.123456"], "timestamp"),
    ("finer than a microsecond", ["2024-02-29T12:00:00.1234567"], "string"),
    ("days and moments", ["2024-02-29", "2024-02-29T12:00:00"], "timestamp"),
    ("instants", ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00+02:00"], "timestamptz"),
    ("instants and moments", ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00"], "string"),
    ("times", ["12:30", "23:59:59.5"], "time"),
    ("a time that is none", ["24:30"], "string"),
    ("words", ["1", "x"], "string"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_types_of_texts(texts: list[str | None], expected: str) -> None:
    assert str(final_type(infer(pa.array(texts, pa.string()), Unknown()))) == expected


def test_numbers_in_quotes_are_no_numbers() -> None:
    assert str(infer(pa.array(["1"]), Unknown(), numbers=False)) == "string"
    assert str(infer(pa.array(["2024-01-01"]), Unknown(), numbers=False)) == "date"


numbers = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9).map(str),
    st.sampled_from(["1e5", "true", "2024-02-29", "2024-02-29T12:00:00", "007", "x"]),
)


@given(st.lists(numbers, max_size=6), st.lists(numbers, max_size=6))
def test_what_is_found_in_parts_is_what_is_found_at_once(one: list[str], two: list[str]) -> None:
    parts = [infer(pa.array(texts, pa.string()), Unknown()) for texts in (one, two)]
    whole = infer(pa.array([*one, *two], pa.string()), Unknown())
    assert final_type(join(*parts)) == final_type(join(*reversed(parts))) == final_type(whole)


@given(st.lists(numbers, min_size=1, max_size=6))
def test_every_text_fits_its_type(texts: list[str]) -> None:
    kind = final_type(infer(pa.array(texts, pa.string()), Unknown()))
    assert comparable(pa.array(texts, pa.string()), kind).null_count == 0
