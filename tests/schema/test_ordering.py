from __future__ import annotations

import pytest

from instep.schema.catalog.promotion import same_order
from instep.schema.catalog.types import parse

CASES = [
    ("int32", "int64", True), ("int64", "decimal(20,0)", True), ("date", "timestamp", True),
    ("string", "string", True), ("int32", "string", False), ("timestamp", "timestamptz", False),
    ("int64", "timestamp", False), ("date", "string", False), ("string", "string(9)", False),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), CASES)
def test_which_types_order_alike(before: str, after: str, expected: bool) -> None:
    assert same_order(parse(before), parse(after)) is expected
    assert same_order(parse(after), parse(before)) is expected
