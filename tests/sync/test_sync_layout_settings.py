"""Properties and sort orders of Iceberg tables that the settings say: set with the table, kept in step, let go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.sorting import SortOrder

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.project.sections.tables import TableSettings
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import step_from_dict, step_to_dict
from instep.schema.policy.policy import Rule
from instep.sync.operations.maintain import maintain
from instep.sync.progress import Silent
from instep.sync.schema_changes.table_layout import with_layouts
from sync_world import MakeWorld, World, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int)"
ROWS = "INSERT INTO t VALUES (1, 'a', 3), (2, 'b', 1), (3, NULL, 2)"
SAID = TableSettings(properties={"owner": "sales", "history.expire.min-snapshots-to-keep": "5"}, sort=("at desc", "id"))
NOTHING = TableSettings()


def begun(world: World, said: TableSettings = SAID) -> World:
    world.settings["t"] = said
    world.run(TABLE, ROWS)
    assert world.sync().status == "done"
    return world


def table(world: World) -> Any:
    return world.destination.lake.load(("shop", "t"))


def properties(world: World, *names: str) -> Mapping[str, str]:
    found = table(world).properties
    return {n: found[n] for n in names or SAID.properties if n in found}


def order(world: World) -> list[tuple[str, str]]:
    loaded = table(world)
    said: SortOrder = loaded.sort_order()
    return [(loaded.schema().find_column_name(f.source_id), f.direction.value) for f in said.fields]


def steps(world: World) -> list[str]:
    return [s.text for s in world.preview().plan.steps]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_new_table_has_them_from_its_first_commit(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    assert (properties(world), order(world)) == (SAID.properties, [("at", "desc"), ("id", "asc")])
    assert (steps(world), world.differing()) == ([], {})


def test_they_follow_the_settings(world: World) -> None:
    begun(world, NOTHING)
    world.settings["t"] = SAID
    assert steps(world) == [
        "set history.expire.min-snapshots-to-keep = 5; set owner = sales; sort rows by at desc, id asc"
    ]
    world.sync()
    assert (properties(world), order(world)) == (SAID.properties, [("at", "desc"), ("id", "asc")])
    world.settings["t"] = TableSettings(properties={"owner": "us"}, sort=("id",))
    [text] = steps(world)
    assert text == "set owner = us; reset history.expire.min-snapshots-to-keep; sort rows by id asc"
    world.sync()
    assert (properties(world), order(world)) == ({"owner": "us"}, [("id", "asc")])
    world.settings["t"] = NOTHING
    assert steps(world) == ["reset owner; stop sorting rows"]
    world.sync()
    assert (properties(world), order(world), steps(world)) == ({}, [], [])
    assert world.differing() == {}


def test_what_is_changed_by_hand_is_put_back_and_what_is_not_theirs_is_left(world: World) -> None:
    begun(world)
    with table(world).transaction() as by_hand:
        by_hand.set_properties({"owner": "me", "theirs": "x"})
    assert steps(world) == ["set owner = sales"]
    world.sync()
    assert properties(world, "owner", "theirs") == {"owner": "sales", "theirs": "x"}


def test_our_own_defaults_come_back(world: World) -> None:
    name = "write.metadata.previous-versions-max"
    begun(world, TableSettings(properties={name: "7"}))
    assert properties(world, name) == {name: "7"}
    world.settings["t"] = NOTHING
    world.sync()
    assert properties(world, name) == {name: "20"}


FAULTS = [
    (TableSettings(properties={"instep.fence": "1", "owner": "x"}), "the property instep.fence is kept by instep"),
    (TableSettings(properties={"write.merge.mode": "copy-on-write", "owner": "x"}), "write.merge.mode is kept by"),
    (TableSettings(properties={"write.data.path": "/tmp", "owner": "x"}), "write.data.path is kept by"),
    (TableSettings(properties={"owner": "x"}, sort=("nope",)), "cannot be sorted by nope: there is no such column"),
]


def test_what_cannot_be_set_is_noted_and_the_rest_done(world: World) -> None:
    begun(world, NOTHING)
    for said, why in FAULTS:
        world.settings["t"] = said
        report = world.sync()
        assert (report.status, why in "; ".join(report.notes)) == ("done", True), (why, report.notes)
        assert properties(world, "owner", "write.merge.mode") == {"owner": "x", "write.merge.mode": "merge-on-read"}


def test_columns_of_the_order_are_renamed_retyped_and_dropped(world: World) -> None:
    begun(world)
    world.policy = preset("allow_all", Rule(("column.retyped",), "apply"), removed="drop")
    world.run("ALTER TABLE t RENAME COLUMN at TO since")
    world.settings["t"] = TableSettings(properties=SAID.properties, sort=("since desc", "id"))
    assert world.sync().status == "done"
    assert order(world) == [("since", "desc"), ("id", "asc")]
    assert steps(world) == []
    world.run("ALTER TABLE t DROP COLUMN since")
    report = world.sync()
    assert (report.status, order(world), properties(world)) == ("done", [], SAID.properties)
    assert "cannot be sorted by since" in "; ".join(report.notes)
    assert world.differing() == {}


def test_a_new_generation_is_sorted_again(world: World) -> None:
    begun(world)
    world.policy = preset("allow_all", Rule(("table.replaced",), "apply"))
    world.run("DROP TABLE t", TABLE, "INSERT INTO t VALUES (7, 'z', 7)")
    assert world.sync().status == "done"
    world.sync()
    assert (world.rows("t"), order(world), steps(world)) == ([(7, "z", 7)], [("at", "desc"), ("id", "asc")], [])


def test_maintenance_sorts_what_it_puts_together(world: World) -> None:
    begun(world)
    for number in (4, 5):
        world.run(f"INSERT INTO t VALUES ({number}, 'x', {10 * number})")  # noqa: S608
        world.sync()
    context = replace(world.context, maintenance=Maintenance(min_files=3))
    [done] = maintain(context, "", Silent(), lambda: None).tables
    assert (done.done.files_before, done.done.files) == (3, 1)
    assert world.destination.write.read(("shop", "t"), ["at"]).read_all().column("at").to_pylist() == [50, 40, 3, 2, 1]


def test_another_destination_says_that_it_has_none(world: World, tmp_path: Path) -> None:
    begun(world, NOTHING)
    other = DuckDbDestination(DuckDbConfig.resolved(name="file", path=str(tmp_path / "x.duckdb")))
    context = replace(world.context, destination=other, settings=lambda t: SAID)
    made = with_layouts(context, world.preview().plan)
    why = "`properties` and `sort` are for Iceberg, `partition` for Iceberg and Delta, and its destination is duckdb"
    assert (made.steps, made.remarks) == ((), (f"public.t: {why}",))


def test_a_step_is_written_down_and_read_again(world: World) -> None:
    begun(world, NOTHING)
    world.settings["t"] = SAID
    [one] = world.preview().plan.steps
    assert step_from_dict(step_to_dict(one)) == one
    assert world.destination.schema.render_ddl([one]) == [
        "ALTER TABLE `shop`.`t` SET TBLPROPERTIES ('history.expire.min-snapshots-to-keep'='5', 'owner'='sales');",
        "ALTER TABLE `shop`.`t` WRITE LOCALLY ORDERED BY `at` DESC, `id` ASC;",
    ]
