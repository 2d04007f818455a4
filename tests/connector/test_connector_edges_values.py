"""Parts of columns as they come from a connector's process: which column they make, and which are refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Decimal as D
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.schema.catalog.types import DataType, parse
from instep.sources.connector.values import converted, join, read_column, type_of

Part = tuple[str, Sequence[Any]]
_NUMBERS = {"q": "q", "d": "d", "b": "B"}


def pieces(*parts: Part) -> list[memoryview]:
    """The buffers of parts: numbers, or offsets and texts."""
    found = []
    for kind, values in parts:
        if kind in _NUMBERS:
            found.append(struct.pack(f"<{len(values)}{_NUMBERS[kind]}", *values))
        else:
            raw = [v if isinstance(v, bytes) else v.encode() for v in values]
            ends = [sum(map(len, raw[:n])) for n in range(len(raw) + 1)]
            found += [struct.pack(f"<{len(ends)}i", *ends), b"".join(raw)]
    return list(map(memoryview, found))


def column(*parts: Part, places: Sequence[int] | None = None, declared: str = "", rows: int | None = None) -> Any:
    data = pieces(*parts)
    if places is not None:
        data.append(memoryview(bytes(places)))
    count = rows if rows is not None else len(parts[0][1] if places is None else places)
    return read_column([k for k, _ in parts], data, count, parse(declared) if declared else None)


BIG = 2**63
INFERRED: list[tuple[str, list[Part], list[int] | None, str, list[Any]]] = [
    ("integers", [("q", [1, -(2**63), 2**63 - 1])], None, "int64", [1, -(2**63), 2**63 - 1]),
    ("floats", [("d", [0.5, -0.0])], None, "float64", [0.5, -0.0]),
    ("booleans", [("b", [1, 0])], None, "boolean", [True, False]),
    ("texts", [("s", ["é", ""])], None, "string", ["é", ""]),
    ("bytes", [("x", [b"\xff", b""])], None, "binary", [b"\xff", b""]),
    ("objects", [("j", ['{"a":1}'])], None, "json", ['{"a":1}']),
    ("beyond 64 bits", [("n", [str(BIG), str(-BIG - 1)])], None, "decimal(38,0)", [D(BIG), D(-BIG - 1)]),
    ("of 38 digits", [("n", ["-" + "9" * 38])], None, "decimal(38,0)", [D("-" + "9" * 38)]),
    ("beyond 38 digits", [("n", ["1" + "0" * 38])], None, "string", ["1" + "0" * 38]),
    ("with nulls", [("q", [7, 8])], [1, 0, 1, 0], "int64", [7, None, 8, None]),
    ("small integers and floats", [("q", [2**53]), ("d", [0.5])], [2, 1], "float64", [0.5, 2.0**53]),
    ("one of 54 bits and floats", [("q", [2**53 + 1]), ("d", [1e20])], [1, 2], "string", [str(2**53 + 1), "1e+20"]),
    ("and a negative one", [("q", [-(2**53) - 1]), ("d", [0.5])], [1, 2], "string", [str(-(2**53) - 1), "0.5"]),
    ("large ones and others", [("q", [7]), ("n", [str(BIG)])], [1, 2, 0], "decimal(38,0)", [D(7), D(BIG), None]),
    ("large ones and floats", [("n", [str(BIG)]), ("d", [math.nan])], [1, 2], "string", [str(BIG), "NaN"]),
    ("huge ones and others", [("q", [7]), ("n", ["9" * 39])], [1, 2], "string", ["7", "9" * 39]),
    ("flags and numbers", [("b", [1]), ("q", [2])], [2, 1], "string", ["2", "true"]),
    ("texts and bytes", [("s", ["a"]), ("x", [b"\xff"])], [1, 2], "string", ["a", "\\xff"]),
    ("objects and texts", [("j", ["[1]"]), ("s", ["a"])], [2, 1], "string", ["a", "[1]"]),
    ("three kinds", [("q", [1]), ("d", [0.5]), ("s", ["x"])], [3, 2, 1], "string", ["x", "0.5", "1"]),
]


@pytest.mark.parametrize(
    ("parts", "places", "kind", "expected"), [c[1:] for c in INFERRED], ids=[c[0] for c in INFERRED]
)
def test_a_column_that_is_not_declared(
    parts: list[Part], places: list[int] | None, kind: str, expected: list[Any]
) -> None:
    found = column(*parts, places=places)
    assert (str(found.type), found.stored, found.invalid_values) == (kind, found.type, 0)
    assert found.array.to_pylist() == expected
    assert found.kinds == tuple(k for k, _ in parts)


DECLARED: list[tuple[str, str, list[Part], list[int] | None, int, list[str | None]]] = [
    ("a short one", "int16", [("q", [-5])], None, 0, ["-5"]),
    ("a date", "date", [("q", [-719162, 1])], None, 0, ["0001-01-01", "1970-01-02"]),
    ("a moment", "timestamp", [("q", [1])], None, 0, ["1970-01-01 00:00:00.000001"]),
    ("a moment in UTC", "timestamptz", [("q", [0])], None, 0, ["1970-01-01 00:00:00.000000Z"]),
    ("a decimal", "decimal(4,2)", [("n", ["-1.25", "0"])], None, 0, ["-1.25", "0.00"]),
    ("JSON", "json", [("j", ["{}"])], [0, 1], 0, [None, "{}"]),
    ("an invalid value", "int32", [("m", ["x"])], None, 1, ["x"]),
    ("an invalid value beside others", "int32", [("q", [7, 8]), ("m", ["x"])], [1, 2, 0, 1], 1, ["7", "x", None, "8"]),
    ("an invalid value beside a date", "date", [("q", [0]), ("m", ["soon"])], [2, 1], 1, ["soon", "1970-01-01"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "parts", "places", "invalid_values", "expected"), [c[1:] for c in DECLARED], ids=[c[0] for c in DECLARED]
)
def test_a_column_of_a_declared_type(
    kind: str, parts: list[Part], places: list[int] | None, invalid_values: int, expected: list[str | None]
) -> None:
    found = column(*parts, places=places, declared=kind)
    assert (found.invalid_values, str(found.stored)) == (invalid_values, "string" if invalid_values else kind)
    assert str(found.type) == kind
    assert found.array.cast(pa.string()).to_pylist() == expected


def test_what_each_kind_is_without_a_declaration() -> None:
    assert {k: str(type_of(k)) for k in "qdbsjxn"} == {
        "q": "int64", "d": "float64", "b": "boolean", "s": "string", "j": "json", "x": "binary", "n": "decimal(38,0)",
    }  # fmt: skip


EIGHT = memoryview(struct.pack("<q", 7))
TORN: list[tuple[str, list[str], list[memoryview], int]] = [
    ("a kind that is none", ["z"], [EIGHT], 1),
    ("no part", [], [memoryview(b"\0")], 1),
    ("no pieces", ["q"], [], 1),
    ("texts without offsets", ["s"], [memoryview(b"")], 0),
    ("more rows", ["q"], [EIGHT], 2),
    ("fewer rows", ["q"], [EIGHT], 0),
    ("half a number", ["q"], [memoryview(b"\0" * 12)], 1),
    ("half an offset", ["s"], [memoryview(b"\0" * 7), memoryview(b"")], 0),
    ("no offsets", ["s"], [memoryview(b""), memoryview(b"")], 0),
    ("offsets beyond the texts", ["s"], [memoryview(struct.pack("<2i", 0, 9)), memoryview(b"abc")], 1),
    ("offsets that go back", ["s"], [memoryview(struct.pack("<3i", 0, 3, 1)), memoryview(b"abc")], 2),
    ("no UTF-8", ["s"], [memoryview(struct.pack("<2i", 0, 1)), memoryview(b"\xff")], 1),
    ("no number", ["n"], pieces(("n", ["1x"])), 1),
    ("several parts, no places", ["q", "q"], [EIGHT, EIGHT], 2),
    ("too few places", ["q"], [EIGHT, memoryview(b"\1")], 2),
    ("too many places", ["q"], [EIGHT, memoryview(b"\1\0\0")], 2),
    ("a place in no part", ["q"], [EIGHT, memoryview(b"\1\2")], 2),
    ("a value without a place", ["q"], [EIGHT, memoryview(b"\0\0")], 2),
    ("a place without a value", ["q"], [EIGHT, memoryview(b"\1\1")], 2),
    ("places that run into the next part", ["q", "d"], [EIGHT, memoryview(b"\0" * 8), memoryview(b"\1\1")], 2),
    ("a piece too many", ["q"], [EIGHT, memoryview(b"\1"), EIGHT], 1),
]


@pytest.mark.parametrize(("kinds", "data", "rows"), [c[1:] for c in TORN], ids=[c[0] for c in TORN])
def test_parts_that_do_not_fit_together_are_refused(kinds: list[str], data: list[memoryview], rows: int) -> None:
    with pytest.raises(ReadError, match="a column that cannot be read") as refused:
        read_column(kinds, data, rows, None)
    assert "output only" in refused.value.hint


@pytest.mark.parametrize(
    ("declared", "part"),
    [("int16", ("q", [40_000])), ("date", ("q", [2**40])), ("date", ("s", ["x"])), ("boolean", ("x", [b"a"]))],
)
def test_what_its_declared_type_cannot_hold_is_refused(declared: str, part: Part) -> None:
    with pytest.raises(ReadError, match="cannot be read"):
        column(part, declared=declared)


values = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9), st.booleans(), st.text(), st.binary(max_size=3),
    st.floats(allow_nan=False),
)  # fmt: skip
_KIND = {int: "q", bool: "b", str: "s", bytes: "x", float: "d"}


@given(st.lists(values, min_size=1, max_size=12))
def test_each_value_stays_in_its_row(rows: list[Any]) -> None:
    assume(any(v is not None for v in rows))  # a column without a value is not sent
    kinds = list(dict.fromkeys(_KIND[type(v)] for v in rows if v is not None))
    parts: list[Part] = [(k, [v for v in rows if v is not None and _KIND[type(v)] == k]) for k in kinds]
    places = [0 if v is None else kinds.index(_KIND[type(v)]) + 1 for v in rows]
    found = column(*parts, places=places)
    got = found.array.to_pylist()
    assert [v is None for v in got] == [v is None for v in rows]
    for value, result in zip(rows, got, strict=True):
        if len(kinds) == 1 or str(found.type) == "float64" or isinstance(value, str):
            assert result == value
        elif value is not None:
            words = {bool: lambda v: str(v).lower(), bytes: lambda v: "\\x" + v.hex()}
            assert float(result) == value if isinstance(value, float) else result == words.get(type(value), str)(value)


KINDS = [("int64", True), ("int64", False), *((k, False) for k in (
    "float64", "boolean", "string", "json", "binary", "decimal(38,0)", "unknown"))]  # fmt: skip


@given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=4))
def test_the_type_of_several_parts_does_not_depend_on_their_order(parts: list[tuple[str, bool]]) -> None:
    found = set()
    for order in permutations(parts):
        kind, wide = parse("unknown"), False
        for name, more in order:
            kind, wide = join(kind, wide, parse(name), more)
        found.add((str(kind), wide))
    assert len(found) == 1


@pytest.mark.parametrize("target", ["string", "json", "int64", "timestamptz", "decimal(5,2)"])
def test_nothing_settles_as_nulls_of_any_type(target: str) -> None:
    kind: DataType = parse(target)
    found = converted(pa.nulls(2), parse("unknown"), kind)
    assert (found.null_count, converted(found, kind, kind)) == (2, found)
