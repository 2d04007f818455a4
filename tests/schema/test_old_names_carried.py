"""A view of old names goes on through a plan: its columns follow, and no name stands in it twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnRenamed, TableAdded, TableRemoved, TableRenamed
from instep.schema.planning.aliases import View, carried
from instep.schema.planning.step import Step, step

AT = ("shop", "t")
VIEW = View(("shop", "t__compat"), AT, (("a", "a"), ("b", "b"), ("old", "a")), "shop")


def col(name: str, id: str) -> Column:
    return Column(name, parse("int64"), id=id)


def table(name: str) -> Table:
    return Table("shop", name, (col("a", "1"), col("b", "2")))


def rename(a: str, b: str, id: str) -> Step:
    return step(AT, ColumnRenamed(AT, col(a, id), col(b, id)))


def test_a_column_goes_by_its_new_name_and_an_old_name_stays() -> None:
    assert carried(VIEW, []) == VIEW
    found = carried(VIEW, [rename("a", "c", "1")])
    assert found is not None
    assert found.columns == (("c", "c"), ("b", "b"), ("old", "c"))


def test_a_column_that_takes_an_old_name_is_the_one_that_is_shown() -> None:
    found = carried(VIEW, [rename("b", "old", "2")])
    assert found is not None
    assert found.columns == (("a", "a"), ("old", "old"))


def test_a_view_ends_with_its_table_or_where_its_name_is_used() -> None:
    moved = step(AT, TableRenamed(table("t"), table("u")))
    found = carried(VIEW, [moved])
    assert found is not None
    assert (found.ref, found.table) == (VIEW.ref, ("shop", "u"))
    assert carried(View(("shop", "u"), AT, VIEW.columns, "shop"), [moved]) is None
    assert carried(VIEW, [step(AT, TableRemoved(table("t")))]) is None
    assert carried(VIEW, [step(AT, TableAdded(table("t")))]) is None


@given(st.permutations(["a", "b", "c"]), st.booleans())
def test_columns_that_change_places_keep_what_they_show(names: list[str], both: bool) -> None:
    """`old` shows the column with the id 1 throughout, whatever that is called by now."""
    first, second = names[0], names[1]
    steps = [rename("a", first, "1")] * (first != "a") + [rename("b", second, "2")] * (both and second != "b")
    found = carried(VIEW, steps)
    assert found is not None
    shown = [name for name, _ in found.columns]
    assert len(set(shown)) == len(shown)
    assert dict(found.columns)["old"] == first
    assert dict(found.columns)[first] == first
