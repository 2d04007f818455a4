"""Three shards of one table: rows, columns that come and go, and what a reader of the table sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from shard_world import Shop

from instep.errors import Blocked
from instep.sync.operations.repair import repair
from instep.sync.schema_changes.evolve import preview
from sync_world import preset

pytestmark = [pytest.mark.sampled, pytest.mark.drawn(3)]  # which destination: all of them over several commits
MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


def test_rows_of_all_shards_stand_in_one_table(shop: Shop) -> None:
    shop.run(MAKE, "INSERT INTO t VALUES (1, 'x')", "INSERT INTO t VALUES (2, 'y')")
    shop.sync()
    assert shop.rows("id", "v") == [(s, i, v) for s in "abc" for i, v in ((1, "x"), (2, "y"))]
    assert shop.differing() == {}
    shop["b"].run(
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO t VALUES (3, 'z')",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (2, 'yy')",
    )
    shop.sync()
    assert shop.rows("id", "v") == [
        ("a", 1, "x"), ("a", 2, "y"), ("b", 2, "yy"), ("b", 3, "z"), ("c", 1, "x"), ("c", 2, "y"),
    ]  # fmt: skip
    assert shop.differing() == {}
    shop["a"].sync(full=True)
    assert len(shop.rows("id")) == 6
    assert shop.differing() == {}


def test_a_shared_table_is_not_repaired_by_key(shop: Shop) -> None:
    shop.run(MAKE, "INSERT INTO t VALUES (1, 'x')")
    shop.sync()
    path = shop["a"].accepted("t").path
    with pytest.raises(Blocked, match="connections share it") as caught:
        repair(shop["a"].context, path, ["*"])
    assert f"instep backfill {path}" in caught.value.hint
    assert len(shop.rows("id")) == 3


def test_a_plan_says_what_a_new_shard_does_to_the_table_of_the_others(warehouse: Shop) -> None:
    """It joins it: which columns are added there, which are widened, and in whose rows they have no values."""
    a, b, c = warehouse["a"], warehouse["b"], warehouse["c"]
    a.run(MAKE, "INSERT INTO t VALUES (1, 'x')")
    [first] = a.preview().plan.steps
    assert first.text.startswith("table ")
    assert a.preview().plan.remarks == ()
    a.sync()
    b.run(MAKE, "ALTER TABLE t ADD COLUMN more int", "INSERT INTO t VALUES (1, 'y', 7)")
    found = b.preview().plan
    assert [s.text for s in found.steps] == ["shard b joins the table of shard a: column shop.t.more added (int32)"]
    assert found.remarks == ("shop.t.more: NULL in the rows of shard a",)
    assert b.sync().tables[0].status == "done"
    c.run(MAKE, "ALTER TABLE t ADD COLUMN more bigint", "INSERT INTO t VALUES (1, 'z', 8)")
    found = c.preview().plan
    [joins] = found.steps
    assert joins.text.startswith("shard c joins the table of shards a, b")
    assert joins.text.endswith(": column shop.t.more widened from int32 to int64"), joins.text
    assert c.sync().tables[0].status == "done"
    assert warehouse.rows("id", "more") == [("a", 1, None), ("b", 1, 7), ("c", 1, 8)]


def test_a_column_of_one_shard_is_null_in_the_others(warehouse: Shop) -> None:
    warehouse.run(MAKE, "INSERT INTO t VALUES (1, 'x')")
    warehouse.sync()
    warehouse["b"].run("ALTER TABLE t ADD COLUMN more int", "INSERT INTO t VALUES (2, 'y', 7)")
    found = warehouse["b"].preview().plan
    assert found.remarks == ("shop.t.more: NULL in the rows of shards a, c",)
    warehouse.sync()
    assert warehouse.columns() == ["id", "v", "more"]
    assert warehouse.rows("id", "more") == [("a", 1, None), ("b", 1, None), ("b", 2, 7), ("c", 1, None)]
    warehouse["a"].run(
        "INSERT INTO t VALUES (3, 'z')", "ALTER TABLE t ADD COLUMN more int", "INSERT INTO t VALUES (4, 'z', 9)"
    )
    warehouse.sync()
    assert warehouse.rows("id", "more") == [
        ("a", 1, None), ("a", 3, None), ("a", 4, 9), ("b", 1, None), ("b", 2, 7), ("c", 1, None),
    ]  # fmt: skip
    assert warehouse.differing() == {}


@pytest.mark.slow
def test_a_column_goes_with_the_last_shard_that_has_it(shop: Shop) -> None:
    for shard in "abc":
        shop[shard].policy = preset("propagate_all")
    shop.run(MAKE, "INSERT INTO t VALUES (1, 'x')")
    shop.sync()
    shop["a"].run("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (2)")
    assert shop["a"].preview().plan.remarks == ("shop.t.v: stays for the rows of shards b, c",)
    shop.sync()
    assert shop.columns() == ["id", "v"]
    assert shop.rows("id", "v") == [("a", 1, "x"), ("a", 2, None), ("b", 1, "x"), ("c", 1, "x")]
    assert "v" not in shop["a"].accepted("t").by_name
    for shard in "bc":
        shop[shard].run("ALTER TABLE t DROP COLUMN v")
    shop.sync()
    assert shop.columns() == ["id"]
    assert shop.differing() == {}


@pytest.mark.slow
def test_a_wider_type_of_one_shard_holds_for_all(shop: Shop) -> None:
    shop["a"].run("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    shop["b"].run("CREATE TABLE t (id bigint PRIMARY KEY, n bigint)", "INSERT INTO t VALUES (5000000000, 6000000000)")
    shop["c"].run("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 3)")
    shop.sync()
    shop["a"].run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (2, 2)")
    shop.sync()
    assert shop.rows("id", "n") == [("a", 2, 2), ("b", 5000000000, 6000000000), ("c", 1, 3)]
    assert shop["a"].schema("t") == "id int32!, n int32"
    assert shop.differing() == {}


@pytest.mark.slow
def test_types_without_one_that_holds_both_in_place_are_refused(warehouse: Shop) -> None:
    warehouse["a"].run("CREATE TABLE t (id int PRIMARY KEY, n date)", "INSERT INTO t VALUES (1, NULL)")
    warehouse["b"].run("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    warehouse["a"].sync()
    (why,) = warehouse["b"].preview().plan.refused.values()
    assert why.startswith("column n of table shop.t is int32 here and date in shard a, and cannot become string")
    report = warehouse["b"].sync()
    assert [t.status for t in report.tables] == ["failed"]
    assert warehouse.rows("id") == [("a", 1)]


def test_a_table_that_returns_and_is_refused_has_failed(warehouse: Shop) -> None:
    """Its rows of before stay at the destination, and are not those of the source."""
    warehouse.run(MAKE, "INSERT INTO t VALUES (1, 'x')", "CREATE TABLE other (id int PRIMARY KEY)")
    warehouse.sync()
    one = warehouse["a"]
    one.run("DROP TABLE t")
    one.sync(again=1)
    one.run("CREATE TABLE t (id text PRIMARY KEY, v text)", "INSERT INTO t VALUES ('k', 'n')")
    for _ in range(2):
        report = one.sync()
        assert {t.table[1]: t.status for t in report.tables} == {"t": "failed", "other": "done"}


@pytest.mark.slow
def test_another_key_is_refused(warehouse: Shop) -> None:
    warehouse["a"].run(MAKE)
    warehouse["b"].run("CREATE TABLE t (id int, v text, PRIMARY KEY (id, v))", "INSERT INTO t VALUES (1, 'x')")
    warehouse["a"].sync()
    (why,) = warehouse["b"].preview().plan.refused.values()
    assert why.startswith("table shop.t has the key (id, v) here and (id) in shard a")


@pytest.mark.slow
def test_a_rename_waits_and_then_moves_this_shards_values_only(shop: Shop) -> None:
    shop.run(MAKE, "INSERT INTO t VALUES (1, 'x')")
    shop.sync()
    shop["a"].run("ALTER TABLE t RENAME COLUMN v TO w", "INSERT INTO t VALUES (2, 'y')")
    shop.sync()
    assert shop.rows("id", "v") == [("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"), ("c", 1, "x")]
    shop["a"].answer("approved", "column.renamed")
    assert shop["a"].preview().plan.remarks == (
        "shop.t.w: in shards b, c it is still called v: only rows of this shard move to w",
    )
    shop.sync()
    assert shop.rows("id", "v", "w") == [
        ("a", 1, None, "x"), ("a", 2, None, "y"), ("b", 1, "x", None), ("c", 1, "x", None),
    ]  # fmt: skip
    for shard in "bc":
        shop[shard].run("ALTER TABLE t RENAME COLUMN v TO w")
        shop[shard].sync()
        shop[shard].answer("approved", "column.renamed")
    shop.sync()
    assert shop.columns() == ["id", "w"]
    assert shop.rows("id", "w") == [("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"), ("c", 1, "x")]
    assert shop.differing() == {}


@pytest.mark.slow
def test_tables_without_a_key(shop: Shop) -> None:
    shop.run("CREATE TABLE t (v int)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1)")
    shop.sync()
    shop["b"].run("DELETE FROM t WHERE v = 1", "INSERT INTO t VALUES (2)")
    shop.sync()
    assert shop.rows("v") == [("a", 1), ("a", 1), ("b", 2), ("c", 1), ("c", 1)]
    assert shop.differing() == {}


@pytest.mark.slow
def test_a_table_is_shared_or_somebodys_own(warehouse: Shop, tmp_path: Path) -> None:
    warehouse["a"].run(MAKE)
    warehouse["a"].sync()
    own = replace(warehouse["b"].context, shard="", destination=warehouse.base, name="own")
    warehouse["b"].run(MAKE)
    (why,) = preview(own).plan.refused.values()
    assert "is shared by connections with a `shard`" in why


@pytest.mark.slow
def test_a_column_that_is_called_as_ours(warehouse: Shop) -> None:
    warehouse.run("CREATE TABLE t (id int PRIMARY KEY, _instep_shard text)", "INSERT INTO t VALUES (1, 'mine')")
    warehouse.sync()
    assert warehouse.rows("src__instep_shard") == [("a", "mine"), ("b", "mine"), ("c", "mine")]
