"""What a destination says that it cannot hold is a misfit, whatever its Arrow type could."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from instep.stage.cast import Cast
from instep.stage.limits import NUL, WITHOUT_NUL, limited

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
