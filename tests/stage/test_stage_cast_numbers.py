"""Every pair of number types, and text to each of them, at the edges of all: held against fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal as D
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from instep.schema.catalog.types import Boolean, DataType, Decimal, Float, Int, String
from instep.stage.casts.cast import cast

KINDS: tuple[DataType, ...] = (
    Boolean(), Int(8), Int(16), Int(32), Int(64), Float(32), Float(64), Decimal(38, 0), Decimal(38, 10),
    Decimal(38, 37), Decimal(38, 38), Decimal(18, 18), Decimal(12, 2), Decimal(5, 0), Decimal(1, 0),
)  # fmt: skip
_POWERS = [2**n + more for n in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 127, 128) for more in (-1, 0, 1)]
_TENS = [10**n + more for n in (1, 2, 5, 10, 12, 18, 28, 37, 38, 39, 300) for more in (-1, 0, 1)]
NUMBERS = (
    *(D(sign * n) for n in (0, 1, 2, 3, *_POWERS, *_TENS) for sign in (1, -1)),
    *map(D, ("0.1", "-0.5", "1.1", "0.01", "-99.99", "1e-10", "1e-38", "1e-39", "999999.9999999", "0." + "9" * 38,
             "1." + "0" * 36 + "1", "9" * 28 + "." + "9" * 10, "0.30000000000000004", "0." + "0" * 80 + "1")),
)  # fmt: skip
FLOATS = (
    3.4028234663852886e38, 3.4028235677973366e38, 1.7976931348623157e308, 5e-324, 1.4e-45, -0.0, math.nan, math.inf,
    -math.inf, 1e22, 1e23, 123456789012345680.0, 2.0**63 - 1024, -(2.0**63) - 2048, 9.999999999999999e37, 1.00000001,
)  # fmt: skip


def arrow(kind: DataType) -> pa.DataType:
    match kind:
        case Boolean():
            return pa.bool_()
        case Int():
            return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bits]
        case Float():
            return pa.float32() if kind.bits == 32 else pa.float64()
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
    return pa.string()


def fits(kind: DataType, number: Fraction) -> bool:
    match kind:
        case Boolean():
            return number in (0, 1)
        case Int():
            return number.denominator == 1 and -(2 ** (kind.bits - 1)) <= number < 2 ** (kind.bits - 1)
        case Decimal():
            scaled = number * 10**kind.scale
            return scaled.denominator == 1 and abs(scaled) < 10**kind.precision
    return True


def edges(kind: DataType) -> list[Any]:
    match kind:
        case Boolean():
            return [False, True]
        case Float():
            found = [*FLOATS, *map(float, NUMBERS)]
            return found if kind.bits == 64 else [_single(v) for v in found]
        case Int():
            return [int(n) for n in NUMBERS if fits(kind, Fraction(n))]
        case Decimal():
            return [n for n in NUMBERS if fits(kind, Fraction(n))]
    texts = [form.format(n) for n in NUMBERS for form in ("{:f}", "{:E}", " {:+f} ", "00{:f}" if n >= 0 else "{:f}")]
    return [*texts, *map(repr, FLOATS), "NaN", "Infinity", "-Infinity"]


def _single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def meanings(kind: DataType, value: Any) -> set[Fraction]:
    """The numbers that a finite value stands for: a float is its bits, and the shortest text that means it."""
    if isinstance(kind, Float):
        short = repr(value) if kind.bits == 64 else np.format_float_scientific(np.float32(value), unique=True)
        return {Fraction(value), Fraction(short)}
    return {Fraction(value.strip() if isinstance(value, str) else value)}


def _finite(value: Any) -> bool:
    return D(value.strip()).is_finite() if isinstance(value, str) else math.isfinite(value)


def _is_held_rightly(source: DataType, target: DataType, value: Any) -> bool:
    if not _finite(value):
        return not isinstance(target, Float)
    if isinstance(source, String) and isinstance(target, Boolean):
        return value.strip() not in ("0", "1")
    if not isinstance(target, Float):
        exact, *short = sorted(meanings(source, value), key=lambda n: n != Fraction(value))
        return not fits(target, short[0] if short and isinstance(target, Decimal) else exact)
    number = Fraction(value.strip() if isinstance(value, str) else value)
    try:
        near = float(number)
    except OverflowError:
        return True
    near = near if target.bits == 64 else _single(near)
    return not math.isfinite(near) or Fraction(near) != number


def _wrong(source: DataType, target: DataType, value: Any, got: Any, held: bool) -> bool:
    if got is None:
        return not (held and _is_held_rightly(source, target, value))
    if not _finite(value):
        wanted = float(value)
        return not (isinstance(got, float) and (got == wanted or (math.isnan(got) and math.isnan(wanted))))
    if isinstance(got, float) and not math.isfinite(got):
        return True
    return not meanings(target, got) & meanings(source, value)


def _run(source: DataType, target: DataType, values: list[Any]) -> Iterator[str]:
    done = cast(pa.array(values, arrow(source)), source, arrow(target), target)
    for at, (value, got) in enumerate(zip(values, done.values.to_pylist(), strict=True)):
        if _wrong(source, target, value, got, at in done.invalid_values):
            yield f"{source} {value!r} as {target}: {got!r} ({done.invalid_values.get(at)})"


@pytest.mark.sampled
@pytest.mark.parametrize("source", [*KINDS, String()], ids=str)
def test_a_number_stays_the_number_or_is_held(source: DataType) -> None:
    values = edges(source)
    wrong = [line for target in KINDS for line in _run(source, target, values)]
    alone = [line for target in KINDS for v in values for line in _run(source, target, [v])]
    assert [*wrong, *alone] == []
