"""What the destination cannot take is asked again, alone; a replaced table and a key of another type load anew."""

from __future__ import annotations

import pytest

from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from sync_world import MakeWorld, World, by_key, cursor, preset

RETYPE = {
    "postgres": ("ALTER TABLE t ALTER id TYPE varchar(9) USING 'k' || id",),
    "mysql": ("ALTER TABLE t MODIFY id varchar(9)", "UPDATE t SET id = concat('k', id)"),
    "sqlite": (
        "CREATE TABLE fresh (id varchar(9) PRIMARY KEY, a int, at int NOT NULL DEFAULT 1)",
        "INSERT INTO fresh SELECT 'k' || id, a, at FROM t", "DROP TABLE t", "ALTER TABLE fresh RENAME TO t",
    ),
}  # fmt: skip
TABLE = "CREATE TABLE t (id int PRIMARY KEY, a int, at int NOT NULL DEFAULT 1)"
ROWS = "INSERT INTO t (id, a) VALUES (1, 10), (2, 20)"
OLD, NEW = [(1, 10), (2, 20)], [("k1", 10), ("k2", 20)]


def keyed(make_world: MakeWorld, kind: str, settings: TableSettings | None = None) -> World:
    world = make_world(kind)
    if settings is not None:
        world.settings["t"] = settings
    world.run(TABLE, ROWS, "CREATE TABLE o (id int PRIMARY KEY)")
    world.sync()
    world.run(*RETYPE[kind], "INSERT INTO o VALUES (1)")
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("kind", RETYPE)
@pytest.mark.parametrize("settings", [None, cursor("at")], ids=["whole table", "cursor"])
def test_a_key_of_another_type_pauses_its_table(make_world: MakeWorld, kind: str, settings: TableSettings) -> None:
    world = keyed(make_world, kind, settings)
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t": "paused", "o": "done"}
        assert len(report.waiting) == 1
        assert report.waiting[0] in report.tables[0].error + report.tables[1].error
        assert world.rows("t", "id", "a", deleted=True) == OLD
    world.answer("approved")
    assert world.statuses(world.sync()) == {"t": "done", "o": "done"}
    assert world.rows("t", "id", "a", deleted=True) == NEW
    assert (world.reviews("open"), world.differing()) == ({}, {})


@pytest.mark.parametrize("name", ["propagate_columns", "approve"])
def test_presets_that_stop_for_keys_stop(make_world: MakeWorld, name: str) -> None:
    from instep.errors import Blocked

    world = keyed(make_world, "sqlite")
    world.policy = preset(name)
    with pytest.raises(Blocked, match="is paused"):
        world.sync()
    assert world.rows("t", "id", "a") == OLD


def test_a_key_that_a_rule_lets_in_is_read_anew_at_once(make_world: MakeWorld) -> None:
    world = keyed(make_world, "sqlite")
    world.policy = preset("allow_all", Rule(("key.changed",), "apply"))
    assert world.statuses(world.sync()) == {"t": "done", "o": "done"}
    assert world.rows("t", "id", "a", deleted=True) == NEW


@pytest.mark.sampled
@pytest.mark.parametrize("decide", ["rejected", "ignore"])
def test_a_key_that_stays_out_leaves_its_rows_alone(make_world: MakeWorld, decide: str) -> None:
    world = keyed(make_world, "sqlite")
    if decide == "ignore":
        world.policy = preset("allow_all", Rule(("key.changed",), "ignore"))
    world.sync()
    if decide == "rejected":
        world.answer("rejected")
    report = world.sync()
    why = next(t.error for t in report.tables if t.status == "paused")
    assert ("was rejected, `instep changes approve c-" if decide == "rejected" else "is left out by rule 1") in why
    assert world.rows("t", "id", "a", deleted=True) == OLD


@pytest.mark.sampled
@pytest.mark.parametrize("settings", [TableSettings(), cursor("at")], ids=["whole table", "cursor"])
def test_a_wider_key_that_is_held_stops_its_table_with_the_first_value_that_does_not_fit(
    world: World, settings: TableSettings
) -> None:
    world.settings["t"] = settings
    world.run(TABLE, ROWS)
    world.sync()
    world.policy = preset("approve")
    world.run("ALTER TABLE t ALTER id TYPE text USING id::text", "UPDATE t SET a = 11, at = 2 WHERE id = '1'")
    assert world.statuses(world.sync()) == {"t": "done"}
    world.run("UPDATE t SET id = 'k' || id, at = 3")
    report = world.sync()
    assert world.statuses(report) == {"t": "paused"}
    assert report.waiting[0] in report.tables[0].error
    assert world.rows("t", "id", "a", deleted=True) == [(1, 11), (2, 20)]
    world.answer("approved")
    assert world.statuses(world.sync()) == {"t": "done"}
    assert (world.rows("t", "id", "a"), world.differing()) == ([("k1", 11), ("k2", 20)], {})


def test_versions_of_the_old_key_stay(make_world: MakeWorld) -> None:
    """What keeps its history cannot take it: it is asked again, with the command that can."""
    world = keyed(make_world, "sqlite", TableSettings(history=True))
    world.sync()
    world.answer("approved")
    report = world.sync()
    assert world.statuses(report) == {"t": "paused", "o": "done"}
    assert len(report.waiting) == 1
    assert "--rebuild" in world.store.reviews.get(report.waiting[0]).why
    assert world.rows("t", "id", "a") == OLD


def test_a_declared_key_is_one_too(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = by_key("id")
    world.run(TABLE.replace(" PRIMARY KEY", ""), ROWS)
    world.sync()
    world.run(*(s.replace(" PRIMARY KEY", "") for s in RETYPE["sqlite"]))
    assert world.statuses(world.sync()) == {"t": "paused"}
    world.answer("approved")
    world.sync()
    assert world.rows("t", "id", "a", deleted=True) == NEW


# columns and a row of the table, then of the one in its place
REPLACED = [
    ("id int PRIMARY KEY, c date", "1, '2024-01-01'", "id int PRIMARY KEY, c integer[]", "2, '{1,2}'"),
    ("id int PRIMARY KEY, c text", "1, 'x'", "id int PRIMARY KEY, c integer", "2, 7"),
    ("id int PRIMARY KEY, c uuid", "1, gen_random_uuid()", "id int PRIMARY KEY, c bytea", "2, 'a'"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("old", "row", "new", "other"), REPLACED, ids=["array", "number", "bytes"])
def test_a_table_replaced_by_one_with_another_type_loads(
    world: World, old: str, row: str, new: str, other: str
) -> None:
    world.run(f"CREATE TABLE t ({old})", f"INSERT INTO t VALUES ({row})")  # noqa: S608 - of this test
    world.sync()
    world.run("DROP TABLE t", f"CREATE TABLE t ({new})", f"INSERT INTO t VALUES ({other})")  # noqa: S608 - of this test
    assert world.statuses(world.sync()) == {"t": "done"}
    assert [found[0] for found in world.rows("t", deleted=True)] == [2]
    assert (world.reviews("open"), world.differing()) == ({}, {})


def test_a_replaced_table_says_how_it_stands(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.sync()
    world.policy = preset("block_all")
    world.run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    report = world.sync()
    assert world.statuses(report) == {"t": "missing"}
    assert report.tables[0].error.endswith(f"of that name: review it ({report.waiting[0]})")
    world.answer("rejected")
    report = world.sync()
    assert report.tables[0].error.endswith("was rejected, `instep changes approve " + _only(world) + "` accepts it")


def _only(world: World) -> str:
    (one,) = (r.id for r in world.store.reviews.find("shop", ("rejected",)))
    return one


def test_a_table_that_is_set_up_wrongly_stops_no_other(make_world: MakeWorld) -> None:
    """Also while values of its own do not fit the new type of a column."""
    world = make_world("sqlite", policy=preset("allow_all", Rule(("column.retyped",), "apply")))
    world.settings["t"] = TableSettings(mode="full_refresh")
    world.run("CREATE TABLE t (a integer, b text)", "INSERT INTO t VALUES (5, 'b')")
    world.run("CREATE TABLE other (id integer PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    world.sync()
    world.run("DROP TABLE t", "CREATE TABLE t (a date, b text)", "INSERT INTO t VALUES ('2020-01-01', 'b')")
    world.run("INSERT INTO other VALUES (2)")
    world.settings["t"] = TableSettings(mode="upsert")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "other": "done"}
    assert "no primary key" in next(t.error for t in report.tables if t.error)
    assert world.rows("other") == [(1,), (2,)]
    world.settings["t"] = TableSettings(mode="full_refresh")
    world.sync()
    assert world.statuses(world.sync()) == {"t": "done", "other": "done"}
