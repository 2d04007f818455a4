"""What a destination says that it cannot hold is a misfit, whatever its Arrow type could."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from instep.stage.cast import Cast
from instep.stage.limits import HALF, NO_JSON, NUL, VALID_JSON, WHOLE_JSON, WITHOUT_NUL, limited

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
    assert dict(done.misfits) == {99: "too long", **dict.fromkeys(odd, NUL)}
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
        assert dict(done.misfits) == ({1: reason} if reason else {})
        assert done.values.to_pylist() == [None, None if reason else text]
