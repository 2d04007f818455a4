"""What `verify` says of rows that are only in the destination: wrong, or what was asked for."""

from __future__ import annotations

import pytest

from instep.destinations.base import Commit
from instep.project.sections.tables import TableSettings
from instep.schema.planning.naming import destination_ref
from lake import stage
from sync_world import MakeWorld, World, by_key, cursor

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int NOT NULL)"
ROWS = "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)"
KEPT = [
    ("by cursor", cursor("at", deletes="ignore")),
    ("whole-table compare", TableSettings(deletes="ignore")),
    ("versions of rows", TableSettings(deletes="ignore", history=True)),
]


@pytest.mark.sampled
@pytest.mark.parametrize("settings", [k[1] for k in KEPT], ids=[k[0] for k in KEPT])
def test_rows_that_were_asked_to_stay_are_no_difference(make_world: MakeWorld, settings: TableSettings) -> None:
    world = make_world("sqlite")
    world.settings["t"] = settings
    world.run(TABLE, ROWS)
    world.sync()
    assert (world.verify()["t"].equal, world.verify()["t"].retained) == (True, 0)
    world.run("DELETE FROM t WHERE id < 3", "INSERT INTO t VALUES (4, 'd', 3)")
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.source_rows, found.destination_rows, found.retained) == (True, 2, 4, 2)
    world.run("UPDATE t SET name = 'x' WHERE id = 3", "INSERT INTO t VALUES (5, 'e', 4)")
    found = world.verify()["t"]
    assert (found.equal, found.retained) == (False, 2)
    assert found.differences == ("differs (1 rows): key 3", "missing (1 rows): key 5")


def test_others_differ_by_them(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = cursor("at", deletes="ignore")
    world.run(TABLE, ROWS)
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    world.settings["t"] = cursor("at", deletes="hard")
    found = world.verify()["t"]
    assert (found.equal, found.retained) == (False, 0)
    assert "only in the destination (1 rows): key 1" in found.differences


def twin(world: World, *rows: dict[str, object]) -> None:
    """Adds rows at the destination, as somebody else would."""
    ref = destination_ref(world.accepted("t"), world.context.naming)
    world.destination.write.append(ref, [stage(world.destination, ref, rows)], Commit("twin", 100))


TWINS = "in more rows on one side than on the other"
GONE, NEW = "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 'd', 3)"
# what happens at the source after the first load | the rows that are doubled | what is said then
DOUBLED = [
    ("beside a row that is kept", GONE, [1], (f"{TWINS} (2 rows): key 1",)),
    ("several", GONE, [1, 1, 3], (f"{TWINS} (5 rows): key 1", f"{TWINS} (5 rows): key 3")),
    ("beside a row that is missing", NEW, [1], ("missing (1 rows): key 4", f"{TWINS} (2 rows): key 1")),
    ("of a row that is kept", "DELETE FROM t WHERE id = 1", [1], ()),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("change", "doubled", "said"), [d[1:] for d in DOUBLED], ids=[d[0] for d in DOUBLED])
def test_rows_that_are_kept_hide_no_row_that_stands_twice(
    make_world: MakeWorld, change: str, doubled: list[int], said: tuple[str, ...]
) -> None:
    world = make_world("sqlite")
    world.settings["t"] = cursor("at", deletes="ignore")
    world.run(TABLE, ROWS)
    world.sync()
    world.run(change)
    rows = {1: {"id": 1, "name": "a", "at": 1}, 3: {"id": 3, "name": "c", "at": 2}}
    twin(world, *(rows[id] for id in doubled))
    found = world.verify()["t"]
    lines = tuple(line for line in found.differences if not line.startswith("columns that differ"))
    assert (found.equal, lines) == (not said, said)


def test_other_rows_twice_on_either_side_are_not_the_same_rows(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = by_key("id", cursor="at", deletes="ignore")
    world.run(TABLE.replace(" PRIMARY KEY", " NOT NULL"), ROWS)
    world.sync()
    world.run("DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (1, 'a', 1)")
    twin(world, {"id": 2, "name": "b", "at": 1})
    found = world.verify()["t"]
    assert (found.equal, found.source_rows, found.destination_rows, found.retained) == (False, 3, 4, 1)
    assert found.differences == (f"{TWINS} (4 rows): key 1", f"{TWINS} (4 rows): key 2")


def test_a_column_may_be_called_as_anything_in_the_comparison(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = TableSettings(deletes="ignore")
    world.run("CREATE TABLE t (id int PRIMARY KEY, there int, s int, d int)", "INSERT INTO t (id) VALUES (1), (2)")
    world.sync()
    world.run("DELETE FROM t WHERE id = 2", "INSERT INTO t (id) VALUES (3)", "UPDATE t SET there = 1 WHERE id = 1")
    found = world.verify()["t"]
    assert (found.equal, found.retained) == (False, 1)
    assert found.differences == ("differs (1 rows): key 1", "missing (1 rows): key 3")


RETYPED = {
    "postgres": ("ALTER TABLE t ALTER name TYPE varchar(20) USING CASE id WHEN 2 THEN 'x' ELSE name::text END",),
    "mysql": ("ALTER TABLE t MODIFY name varchar(20)", "UPDATE t SET name = 'x' WHERE id = 2"),
    "sqlite": ("UPDATE t SET name = 'x' WHERE id = 2",),
}
UNFIT = [
    ("whole-table compare", TableSettings()),
    ("by cursor", cursor("at")),
    ("versions", TableSettings(history=True)),
]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", RETYPED)
@pytest.mark.parametrize("settings", [u[1] for u in UNFIT], ids=[u[0] for u in UNFIT])
def test_values_that_are_held_are_counted(make_world: MakeWorld, kind: str, settings: TableSettings) -> None:
    world = make_world(kind)
    world.settings["t"] = settings
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, name int, at int NOT NULL)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 1)"
    )
    world.sync()
    world.run(*RETYPED[kind], "UPDATE t SET at = 5")
    assert not world.verify()["t"].equal
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.held, found.waits, found.source_rows, found.differences) == (True, 1, True, 2, ())
    world.run("UPDATE t SET name = 'y', at = 6 WHERE id = 2")
    found = world.verify()["t"]
    assert (found.equal, found.held, found.stale) == (False, 0, 1)
    assert "nor in quarantine (1)" in found.differences[-1]


def test_a_renamed_table_column_and_key_are_found_in_quarantine(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, name int)", "INSERT INTO t VALUES (1, 1)")
    world.sync()
    world.run("ALTER TABLE t ALTER name TYPE varchar(9) USING 'x'")
    world.sync()
    for rename in ("TABLE t RENAME TO u", "TABLE u RENAME name TO label", "TABLE u RENAME id TO number"):
        world.run(f"ALTER {rename}")
    world.sync()
    found = world.verify()["u"]
    assert (found.equal, found.held, found.differences) == (True, 1, ())


def test_what_a_person_has_let_go_is_no_equality(make_world: MakeWorld) -> None:
    from instep.sync.quarantine.quarantine import discard

    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY, name int)", "INSERT INTO t VALUES (1, 'x')")
    world.sync()
    assert world.verify()["t"].held == 1
    discard(world.context, [world.accepted("t").path])
    found = world.verify()["t"]
    assert (found.equal, found.held, found.discarded, found.waits) == (True, 0, 1, True)


def test_rows_that_are_refused_are_rows_of_the_source(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = by_key("id")
    world.run("CREATE TABLE t (id int, name text)", "INSERT INTO t VALUES (1, 'a'), (NULL, 'b')")
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.source_rows, found.destination_rows, found.held_rows) == (True, 2, 1, 1)


def test_keyless_rows_are_told_by_their_ids(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), ('x'), ('x')")
    world.sync()
    found = world.verify()["t"]
    assert (found.equal, found.held) == (True, 2)


def test_a_table_that_waits_is_skipped(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE o (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    world.sync()
    world.run("ALTER TABLE t ALTER id TYPE uuid USING gen_random_uuid()")
    assert world.verify()["t"].skipped.startswith("pending change: primary key")
    (id,) = world.sync().waiting
    found = world.verify()
    assert (found["o"].equal, found["t"].equal, found["t"].compared, found["t"].waits) == (True, False, False, True)
    assert found["t"].skipped.startswith(f"pending change {id}: primary key of public.t has values of another type")
