"""Which edits of a table its layout does not allow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnRemoved, ColumnRenamed, ColumnWidened, TableReplaced
from instep.schema.planning.guard import LayoutGuard, first_violation
from instep.schema.planning.step import RewriteColumn, StepChange

REF = ("shop", "t")
A, B = (Column(name, parse("int32")) for name in "ab")
TABLE = Table(*REF, columns=(A, B))
WIDE, NEW = replace(A, type=parse("int64")), replace(A, name="z")
STAYS, GOES = (
    LayoutGuard("an order (a)", "take it off"),
    LayoutGuard("a partition (a)", "load it", widens=False, goes=True),
)
CASES: list[tuple[str, LayoutGuard, list[StepChange], str]] = [
    ("another column", STAYS, [ColumnRemoved(REF, B, 1)], ""),
    ("a drop", STAYS, [ColumnRemoved(REF, A, 0)], "column a cannot be dropped: an order (a) uses it"),
    ("a rename", STAYS, [ColumnRenamed(REF, A, NEW)], ""),
    ("wider", STAYS, [ColumnWidened(REF, A, WIDE)], ""),
    ("wider, and told", GOES, [ColumnWidened(REF, A, WIDE)], "column a cannot become int64: a partition (a)"),
    ("renamed and rewritten", STAYS, [ColumnRenamed(REF, A, NEW), RewriteColumn(REF, NEW, replace(NEW, type=B.type))],
     "column z cannot be rewritten from int32 to int32: an order (a)"),
    ("a new generation", STAYS, [TableReplaced(TABLE, TABLE)], "table shop.t cannot get a new generation: an order"),
    ("a new generation without it", GOES, [TableReplaced(TABLE, TABLE)], ""),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "changes", "why"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_a_layout_allows(guard: LayoutGuard, changes: list[StepChange], why: str) -> None:
    said = first_violation(REF, changes, {"a": (guard,)})
    assert (said.startswith(why), bool(said)) == (True, bool(why))
