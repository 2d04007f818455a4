"""What every destination that holds views does with them: one suite over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destinations import duckdb, iceberg, memory
from instep.destinations.base import Commit
from instep.errors import Conflict, Fenced
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    ColumnWidened,
    TableRemoved,
    TableRenamed,
)
from instep.schema.planning.aliases import View
from instep.schema.planning.step import step
from lake import ID, ORDERS, REF, column, create, stage

SHOWN = ("shop", "orders__compat")
VIEW = View(SHOWN, REF, (("id", "id"), ("amount", "amount"), ("total", "amount"), ("gone", "gone")), "shop")


@pytest.fixture(params=[duckdb, iceberg, memory], ids=lambda make: make.__name__)
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """With a table that has rows, and a view of it."""
    make: Callable[[Path], Any] = request.param
    made = make(tmp_path)
    create(made)
    made.write.overwrite(REF, [stage(made, REF, [{"id": 1, "name": "a", "amount": 5}])], Commit("run-1", 1))
    made.views.put(VIEW, 1)
    return made


def shown(destination: Any) -> dict[Any, Any]:
    return {ref: (view.table, dict(view.columns)) for ref, view in destination.views.all().items()}


def test_it_says_that_it_can_and_shows_what_the_table_has(destination: Any) -> None:
    assert destination.views is not None
    assert (destination.capabilities.views, destination.views.why_none) == (True, "")
    assert shown(destination) == {SHOWN: (REF, {"id": "id", "amount": "amount", "total": "amount"})}
    assert destination.views.all()[SHOWN].owner == "shop"
    schema = destination.schema
    assert (schema.tables(), dict(schema.foreign([SHOWN])), schema.inspect([SHOWN]).tables) == ([REF], {}, ())
    destination.views.put(VIEW, 1)
    assert list(destination.views.all()) == [SHOWN]


_ID, _NAME, _AMOUNT = ORDERS.by_name["id"], ORDERS.by_name["name"], ORDERS.by_name["amount"]
SUM, WIDE = replace(_AMOUNT, name="sum"), replace(_AMOUNT, type=parse("decimal(12,2)"))
REST = ORDERS.columns[3:]
CASES = [
    ("renamed", [ColumnRenamed(REF, _AMOUNT, SUM)], (_ID, _NAME, SUM), {"id": "id", "sum": "sum", "total": "sum"}),
    ("widened", [ColumnWidened(REF, _AMOUNT, WIDE)], (_ID, _NAME, WIDE),
     {"id": "id", "amount": "amount", "total": "amount"}),
    ("dropped", [ColumnRemoved(REF, _AMOUNT, 2)], (_ID, _NAME), {"id": "id"}),
    ("the old name comes back", [ColumnAdded(REF, column("total", "string"), 3)],
     (_ID, _NAME, _AMOUNT, column("total", "string")), {"id": "id", "amount": "amount", "total": "amount"}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "columns", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_it_follows_its_table(destination: Any, changes: list[Any], columns: Any, expected: dict[str, str]) -> None:
    after = replace(ORDERS, columns=(*columns, *REST))
    destination.schema.execute(REF, [step(REF, c) for c in changes], after, Commit("run-2", 2))
    assert shown(destination) == {SHOWN: (REF, expected)}


def test_it_follows_the_table_s_name_and_goes_with_it(destination: Any) -> None:
    moved = replace(ORDERS, name="sales")
    destination.schema.execute(REF, [step(REF, TableRenamed(ORDERS, moved))], moved, Commit("run-2", 2))
    assert shown(destination)[SHOWN][0] == moved.ref
    destination.schema.execute(moved.ref, [step(moved.ref, TableRemoved(moved))], None, Commit("run-3", 3))
    assert shown(destination) == {}


def test_it_takes_no_name_and_no_table_of_another(destination: Any) -> None:
    other = replace(ORDERS, name="other", id="oid-other", columns=(ID, *REST))
    create(destination, other)
    with pytest.raises(Conflict, match="exists and is not ours"):
        destination.views.put(replace(VIEW, ref=other.ref), 1)
    destination.write.claim(REF, 9)
    with pytest.raises(Fenced):
        destination.views.put(replace(VIEW, columns=(("id", "id"),)), 8)
    destination.views.drop(other.ref)
    destination.views.drop(SHOWN)
    destination.views.drop(SHOWN)
    assert (shown(destination), destination.schema.tables()) == ({}, sorted([REF, other.ref]))
