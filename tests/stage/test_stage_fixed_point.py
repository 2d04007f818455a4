"""Decimals of texts of one form are those that any text makes."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from instep.stage.casts.fixed_point import fixed_point

MONEY = pa.decimal128(5, 2)
WHOLE = pa.decimal128(3, 0)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    ("texts", "target"),
    [
        (["1.50", "-0.07", "999.99", "-999.99", "0.00", "-0.00", "-.50", "007.10"], MONEY),
        (["1.50", None, "12.00"], MONEY),
        ([None, None], MONEY),
        (["1", "-12", "999", None, "0"], WHOLE),
        (["0." + "9" * 18, "-0." + "9" * 18], pa.decimal128(18, 18)),
    ],
)
def test_texts_of_one_form_are_read_at_once(texts: list[str | None], target: pa.DataType, kind: pa.DataType) -> None:
    wanted = pa.array([t and Decimal(t) for t in texts], target)
    around = pa.array(["x.y", *texts, "77"], kind)
    for values in (pa.array(texts, kind), around.slice(1, len(texts))):
        found = fixed_point(values, target)
        assert found is not None
        found.validate(full=True)
        assert found.equals(wanted)


@pytest.mark.parametrize("text", [
    "1.5", "1.500", "1", ".50", "1000.00", "-1000.00", "1.5e2", "+1.50", " 1.50", "0x1.50", "1.-5", "--1.50",
    "1..50", "NaN", "Infinity", "", "-", "1,50", "1_0.50", "9" * 30 + ".00", "\u0661.50",
])  # fmt: skip
def test_any_other_form_is_left_to_the_slower_cast(text: str) -> None:
    assert fixed_point(pa.array(["2.50", text, "3.50"]), MONEY) is None


@pytest.mark.parametrize("text", ["1.0", "1000", "-1000", "0x1", "1-", "", "."])
def test_a_whole_number_has_no_point(text: str) -> None:
    assert fixed_point(pa.array(["2", text]), WHOLE) is None


@pytest.mark.parametrize("target", [pa.decimal128(19, 2), pa.decimal256(5, 2), pa.decimal128(38, 10)], ids=str)
def test_wider_decimals_are_left_to_the_slower_cast(target: pa.DataType) -> None:
    assert fixed_point(pa.array(["2.50"]), target) is None
