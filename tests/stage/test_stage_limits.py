"""What a destination says that it cannot hold is an invalid value, whatever its Arrow type could."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from instep.stage.casts.cast import Cast
from instep.stage.field_metadata import (
    EMPTY,
    FAR,
    HALF,
    IN_PARTITIONS,
    NO_JSON,
    NUL,
    VALID_JSON,
    WHOLE_JSON,
    WITHOUT_NUL,
    limited,
)

LIST = pa.large_list(pa.field("element", pa.large_string()))
CASES: list[tuple[str, pa.DataType, list[Any], list[Any], list[int]]] = [
    ("nothing odd", pa.large_string(), ["a", None, ""], ["a", None, ""], []),
    ("a NUL", pa.large_string(), ["a\0", None, "b", "\0"], [None, None, "b", None], [0, 3]),
    ("in a list", LIST, [["a", "\0"], None, [None], ["b"]], [None, None, [None], ["b"]], [0]),
    ("no values", pa.large_string(), [], [], []),
]


@pytest.mark.parametrize(("kind", "given", "kept", "odd"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_text_with_a_nul(kind: pa.DataType, given: list[Any], kept: list[Any], odd: list[int]) -> None:
    before = Cast(pa.array(given, kind), {99: "too long"})
    done = limited(before, pa.field("v", kind, metadata=WITHOUT_NUL))
    assert done.values.equals(pa.array(kept, kind))
    assert dict(done.invalid_values) == {99: "too long", **dict.fromkeys(odd, NUL)}
    assert limited(before, pa.field("v", kind)) is before


JSONS = [
    ('{"a": 1.0, "a": -0, "b": "\\\\x \\ud83e\\uded6 5. "}', "", ""),
    ("9" * 5000, "", ""),
    ("9" * 5000 + ".", NO_JSON, NO_JSON),
    ("[" * 100_000 + "1." + "]" * 100_000, "", ""),
    ('"\\x"', NO_JSON, NO_JSON),
    ("1.", NO_JSON, NO_JSON),
    ("[1.,2]", NO_JSON, NO_JSON),
    ('"\\ud83e"', "", HALF),
    ('"\\uDE00\\uD83E"', "", HALF),
    ('"\\\\ud83e"', "", ""),
    ('"\\ud83e\\\\uded6"', "", HALF),
]


@pytest.mark.parametrize(("text", "valid", "whole"), JSONS, ids=[j[0][:20] for j in JSONS])
def test_what_servers_take_for_json(text: str, valid: str, whole: str) -> None:
    before = Cast(pa.array([None, text], pa.large_string()))
    for limit, reason in ((VALID_JSON, valid), (WHOLE_JSON, whole)):
        done = limited(before, pa.field("v", pa.large_string(), metadata=limit))
        assert dict(done.invalid_values) == ({1: reason} if reason else {})
        assert done.values.to_pylist() == [None, None if reason else text]


DAY, AT, TZ = pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
EARLY = -62_135_596_800_000_000
"""0001-01-01 in microseconds since 1970."""
TOLD: list[tuple[str, pa.DataType, list[Any], dict[int, str]]] = [
    ("texts", pa.large_string(), ["a", "", None, " ", ""], {1: EMPTY, 4: EMPTY}),
    ("no texts", pa.int32(), [0, None], {}),
    ("days", DAY, [-719_162, -719_163, 2_932_896, 2_932_897, None], {1: FAR, 3: FAR}),
    ("times", AT, [EARLY, EARLY - 1, 253_402_300_799_999_999, 253_402_300_800_000_000], {1: FAR, 3: FAR}),
    ("moments", TZ, [EARLY, EARLY - 1, None], {1: FAR}),
]


@pytest.mark.parametrize(("kind", "given", "odd"), [c[1:] for c in TOLD], ids=[c[0] for c in TOLD])
def test_what_a_partition_cannot_tell(kind: pa.DataType, given: list[Any], odd: dict[int, str]) -> None:
    stored = kind if pa.types.is_large_string(kind) else pa.int64() if kind.bit_width == 64 else pa.int32()
    before = Cast(pa.array(given, stored).cast(kind))
    done = limited(before, pa.field("v", kind, metadata=IN_PARTITIONS))
    kept = pa.array([None if at in odd else value for at, value in enumerate(given)], stored)
    assert (done.values.equals(kept.cast(kind)), dict(done.invalid_values)) == (True, odd)
