"""Which old names a plan leaves, what becomes of those that are there, and what the views show."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnRenamed, TableRenamed
from instep.schema.planning.aliases import OldName, current_names, renames, views, why_over
from instep.schema.planning.plan import StepGroup
from instep.schema.planning.step import step

AT = datetime(2026, 3, 1, tzinfo=UTC)
LATER = AT + timedelta(days=30)
INT = parse("int64")


def col(name: str, id: str = "") -> Column:
    return Column(name, INT, id=id or name, alias=id or name)


def table(name: str, *columns: str) -> Table:
    return Table("shop", name, tuple(map(col, columns)))


def renamed(ref: str, *pairs: tuple[Column, Column]) -> StepGroup:
    at = ("shop", ref)
    return StepGroup(at, tuple(step(at, ColumnRenamed(at, a, b)) for a, b in pairs), table(ref))


def moved(old: str, new: str) -> StepGroup:
    at = ("shop", old)
    return StepGroup(at, (step(at, TableRenamed(table(old), table(new))),), table(new))


PARKED = col("parked_1", "a")


def bare(name: str) -> Column:
    """Without an id: equal to any other of its name."""
    return Column(name, INT)


PLANS = [
    ("nothing", [], {}, {}),
    ("one column", [renamed("t", (col("a"), col("b")))], {}, {("t", "a"): "b"}),
    ("two at once", [renamed("t", (col("a"), col("b", "a")), (col("b"), col("c", "b")))], {},
     {("t", "a"): "b", ("t", "b"): "c"}),
    ("swapped at once", [renamed("t", (col("a"), col("b", "a")), (col("b"), col("a", "b")))], {},
     {("t", "a"): "b", ("t", "b"): "a"}),
    ("two at once, without ids", [renamed("t", (bare("a"), bare("b")), (bare("b"), bare("c")))], {},
     {("t", "a"): "b", ("t", "b"): "c"}),
    ("swapped at once, without ids", [renamed("t", (bare("a"), bare("b")), (bare("b"), bare("a")))], {},
     {("t", "a"): "b", ("t", "b"): "a"}),
    ("swapped by a detour", [renamed("t", (col("a"), PARKED), (col("b"), col("a", "b")), (PARKED, col("b", "a")))], {},
     {("t", "a"): "b", ("t", "b"): "a"}),
    ("a table", [moved("t", "u")], {"t": "u"}, {}),
    ("a table and its column", [renamed("t", (col("a"), col("b"))), moved("t", "u")], {"t": "u"}, {("u", "a"): "b"}),
    ("tables swapped by a detour", [moved("t", "x"), moved("u", "t"), moved("x", "u")], {"t": "u", "u": "t"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("groups", "tables", "columns"), [p[1:] for p in PLANS], ids=[p[0] for p in PLANS])
def test_what_a_plan_renames_in_all(
    groups: list[StepGroup], tables: dict[str, str], columns: dict[tuple[str, str], str]
) -> None:
    found = renames(groups)
    assert {a[1]: b[1] for a, b in found.tables.items()} == tables
    assert {(t[1], a): b for (t, a), b in found.columns.items()} == columns


def old(name: str, column: str = "", at: str = "t", batch: str = "", number: int = 0) -> OldName:
    return OldName(("shop", at), column, name, LATER, AT, number, batch)


FOLLOWED = [
    ("renamed again", [old("a", "b"), old("b", "c", batch="1")], [table("t", "c")], {"a": "t.c", "b": "t.c"}),
    ("never came about", [old("a", "b"), old("b", "c", batch="1")], [table("t", "b")], {"a": "t.b"}),
    ("swapped", [old("a", "b"), old("b", "c", batch="1"), old("c", "b", batch="1")], [table("t", "b", "c")],
     {"a": "t.c", "b": "t.c", "c": "t.b"}),
    ("its table renamed", [old("a", "b"), old("t", at="u", batch="1")], [table("u", "b")], {"a": "u.b", "t": "u."}),
    ("its table's name taken at once", [old("a", "b"), old("t", at="u", batch="1")], [table("t", "b"), table("u", "b")],
     {"a": "u.b", "t": "u."}),
    ("of two tables in turn", [old("x", at="t"), old("x", at="u", batch="1")], [table("t"), table("u")], {"x": "u."}),
    ("planned twice", [old("a", "b", batch="1"), old("a", "b", batch="2")], [table("t", "b")], {"a": "t.b"}),
]  # fmt: skip


@pytest.mark.parametrize(("names", "tables", "expected"), [f[1:] for f in FOLLOWED], ids=[f[0] for f in FOLLOWED])
def test_what_becomes_of_old_names(names: list[OldName], tables: list[Table], expected: dict[str, str]) -> None:
    found = current_names(names, Catalog.of(tables), str.lower)
    assert {n.old: f"{n.table[1]}.{n.column}" for n in found} == expected
    assert {n.batch for n in found} == {""}


ENDS = [
    ("alive", old("a", "b"), AT, ""),
    ("over", old("a", "b"), LATER, "its time is over"),
    ("another column", old("C", "b"), AT, "another column is called so"),
    ("another table", old("u"), AT, "another table is called so"),
    ("the column is gone", old("a", "z"), AT, "the object it stood for is gone"),
    ("the table is gone", old("a", "b", at="z"), AT, "the object it stood for is gone"),
]


@pytest.mark.parametrize(("name", "now", "why"), [e[1:] for e in ENDS], ids=[e[0] for e in ENDS])
def test_when_they_end(name: OldName, now: datetime, why: str) -> None:
    assert why_over(name, Catalog.of([table("t", "b", "c"), table("U")]), now, str.lower) == why


def test_one_view_a_name_of_a_table() -> None:
    names = [old("a", "b"), old("was"), replace(old("late", "c"), at=LATER)]
    found = views(names, Catalog.of([table("t", "b", "c"), table("other", "a")]), "shop")
    assert sorted(name for _, name in found) == ["t__compat", "was", "was__compat"]
    body = (("b", "b"), ("c", "c"), ("a", "b"), ("late", "c"))
    assert {v.columns for v in found.values()} == {body}
    assert {v.table for v in found.values()} == {("shop", "t")}
