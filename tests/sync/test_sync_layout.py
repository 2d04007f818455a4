"""Tables that somebody has partitioned, sorted or given identifier fields: what stands on a column is not broken."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform

from sync_world import MakeWorld, World, preset


@pytest.fixture
def laid(make_world: MakeWorld) -> World:
    """A loaded table of a source where a new table of the old name is the old one."""
    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", "INSERT INTO t VALUES (1, 1, 'x'), (2, 1, 'y')")
    world.sync()
    return world


def table(world: World) -> Any:
    return world.destination.lake.catalog.load_table(("shop", "t"))


def partition(world: World, transform: Any = None, column: str = "a") -> None:
    with table(world).update_spec() as update:
        update.add_field(column, transform or IdentityTransform(), "part")


def sort(world: World, column: str = "a") -> None:
    with table(world).update_sort_order() as update:
        update.asc(column, IdentityTransform())


def anew(world: World, columns: str) -> None:
    world.run(f"CREATE TABLE n ({columns})", "DROP TABLE t", "ALTER TABLE n RENAME TO t")


KEPT = "column a of shop.t is kept instead of dropped: "
DROPS = [
    ("partitioned", partition, "the partition spec (a) uses it"),
    ("bucketed", lambda w: partition(w, BucketTransform(8)), "the partition spec (bucket(8, a)) uses it"),
    ("sorted", sort, "the sort order (a) uses it"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "edit", "why"), DROPS, ids=[d[0] for d in DROPS])
def test_what_policy_would_drop_is_kept(laid: World, name: str, edit: Any, why: str) -> None:
    edit(laid)
    laid.policy = preset("propagate_all")
    laid.run("ALTER TABLE t DROP COLUMN a")
    laid.detect()
    laid.detect()
    found = laid.preview()
    assert [n.detail for n in found.plan.notes] == [f"{KEPT}{why}"]
    laid.evolve(found)
    assert laid.schema("t") == "id int64!, a int64~, b string"
    assert "a" in table(laid).schema().column_names
    assert not laid.preview().plan.steps


def test_a_column_on_which_nothing_stands_is_dropped(laid: World) -> None:
    partition(laid, column="b")
    laid.policy = preset("propagate_all")
    laid.run("ALTER TABLE t DROP COLUMN a")
    laid.detect()
    laid.detect()
    laid.evolve()
    assert laid.schema("t") == "id int64!, b string"


@pytest.mark.parametrize(("edit", "why"), [(partition, "the partition spec (a)"), (sort, "the sort order (a)")])
def test_a_rewrite_is_refused_and_others_go_on(laid: World, edit: Any, why: str) -> None:
    edit(laid)
    anew(laid, "id int PRIMARY KEY, a text, b text")
    laid.run("CREATE TABLE u (id int PRIMARY KEY)")
    laid.preview()
    laid.answer("approved")
    found = laid.preview()
    (held,) = (d for d in found.plan.decisions if not d.applied)
    assert (held.action, held.rule, why in held.why) == ("review", "destination", True)
    laid.evolve(found)
    assert laid.schema("t") == "id int64!, a int64, b string"
    assert laid.tables() == {"t": "t", "u": "u"}


def test_a_table_that_somebody_partitioned_is_loaded_in_its_partitions(laid: World) -> None:
    partition(laid)
    laid.run("INSERT INTO t VALUES (3, 2, 'z')", "UPDATE t SET a = 5 WHERE id = 1")
    assert laid.statuses(laid.sync()) == {"t": "done"}
    places = {t.file.partition[0] for t in table(laid).scan().plan_files() if t.file.spec_id}
    assert (places, laid.differing()) == ({2, 5}, {})


def test_a_table_in_partitions_that_cannot_be_made_is_not_loaded(laid: World) -> None:
    laid.run("ALTER TABLE t ADD COLUMN f double")
    laid.sync()
    partition(laid, column="f")
    laid.run("INSERT INTO t VALUES (3, 2, 'z', 1.5)", "CREATE TABLE u (id int PRIMARY KEY)")
    report = laid.sync()
    assert laid.statuses(report) == {"t": "failed", "u": "done"}
    [error] = [t.error for t in report.tables if t.error]
    assert "cannot be loaded: it is partitioned by f" in error
    assert "update_spec().remove_field" in error
    assert laid.rows("t", "id") == [(1,), (2,)]
    with table(laid).update_spec() as update:
        update.remove_field("part")
    assert laid.statuses(laid.sync()) == {"t": "done", "u": "done"}
    assert laid.rows("t", "id") == [(1,), (2,), (3,)]
    assert laid.differing() == {}
