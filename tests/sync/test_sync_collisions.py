"""Names that meet at the destination: what would get another name waits alone, whatever the source."""

from __future__ import annotations

import pytest

from events.shows import shows
from instep.errors import Blocked
from instep.schema.policy.policy import Rule
from sync_world import MakeWorld, World, preset

T = ("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10)")
TWIN = ('ALTER TABLE t ADD "A" int', 'UPDATE t SET "A" = 20')
TAKE = Rule(("name.collided",), "apply")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def alias(world: World, table: str, column: str) -> str:
    return world.accepted(table).by_name[column].alias


@shows(trap=7)
def test_a_new_column_waits_alone_and_is_taken_under_its_alias(world: World) -> None:
    world.run(*T)
    world.sync()
    world.run(*TWIN, "ALTER TABLE t ADD b int", "INSERT INTO t VALUES (2, 11, 21, 31)")
    report = world.sync()
    assert world.statuses(report) == {"t": "done"}
    assert world.schema("t") == "id int32!, a int32, b int32"
    [asked] = [s for s, action in world.reviews().items() if action == "review"]
    assert asked.startswith("names in t collide: A, a (A would be stored as A_")
    assert report.waiting
    world.answer("approved", "name.collided")
    world.sync()
    assert world.schema("t") == "id int32!, a int32, A int32, b int32"
    assert alias(world, "t", "A") in asked
    assert world.rows("t", "id", alias(world, "t", "A"))[1] == (2, 21)
    assert world.reviews() == {}
    assert world.differing() == {}


def test_a_rejected_one_is_left_out_for_good(world: World) -> None:
    world.run(*T)
    world.sync()
    world.run(*TWIN)
    world.sync()
    world.answer("rejected", "name.collided")
    for _ in range(2):
        assert not world.sync().waiting
        assert world.schema("t") == "id int32!, a int32"


def test_a_rule_takes_the_alias_at_once_and_it_stays(world: World) -> None:
    world.policy = preset("propagate_all", TAKE)
    world.run(*T)
    world.sync()
    world.run(*TWIN)
    world.sync()
    given = alias(world, "t", "A")
    assert given.startswith("A_")
    world.run("ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (2, 22)")
    world.sync()
    world.run("ALTER TABLE t ADD a int")
    world.sync()
    assert (alias(world, "t", "A"), alias(world, "t", "a")) == (given, "a")
    assert world.rows("t", "id", given) == [(1, 20), (2, 22)]


def test_stop_pauses_the_connection(world: World) -> None:
    world.run(*T)
    world.sync()
    world.policy = preset("stop", Rule(("column",), "apply"))
    world.run(*TWIN)
    with pytest.raises(Blocked, match=r"names in public\.t collide"):
        world.sync()
    assert "collide" in world.pauses()[""]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["allow_all", "block_all", "approve"])
def test_a_first_load_leaves_the_second_of_two_out(world: World, name: str) -> None:
    """Of a table whose own columns meet; the question stays open even where new columns are listed off."""
    world.policy = preset(name)
    world.run('CREATE TABLE t (id int PRIMARY KEY, "A" int, a int)', "INSERT INTO t VALUES (1, 20, 10)")
    for _ in range(2):
        report = world.sync()
        assert world.schema("t") == "id int32!, A int32"
        assert report.waiting
        assert world.rows("t") == [(1, 20)]
    world.answer("approved", "name.collided")
    world.sync()
    assert world.schema("t") == "id int32!, A int32, a int32"
    world.sync(full=True)
    assert world.rows("t") == [(1, 20, 10)]


def test_an_answer_before_the_first_load_counts(world: World) -> None:
    world.run('CREATE TABLE t (id int PRIMARY KEY, a int, "A" int)', "INSERT INTO t VALUES (1, 10, 20)")
    world.detect()
    world.answer("approved", "name.collided")
    world.sync()
    assert world.rows("t") == [(1, 10, 20)]


def test_a_table_that_is_found_by_the_column_waits_as_a_whole(world: World) -> None:
    world.run('CREATE TABLE t (a int, "A" int PRIMARY KEY)', "CREATE TABLE u (id int PRIMARY KEY)")
    world.sync()
    assert world.tables() == {"u": "u"}
    world.answer("approved", "name.collided")
    world.sync()
    assert world.tables() == {"t": "t", "u": "u"}
    assert world.accepted("t").key == ("A",)


def test_a_renamed_column_keeps_its_name_meanwhile(world: World) -> None:
    world.run(*T, "ALTER TABLE t ADD b int")
    world.sync()
    world.run('ALTER TABLE t RENAME b TO "A"', 'UPDATE t SET a = 11, "A" = 31')
    world.sync()
    assert world.schema("t") == "id int32!, a int32, b int32"
    assert world.rows("t") == [(1, 11, 31)]
    world.answer("approved", "name.collided")
    world.sync()
    assert world.schema("t") == "id int32!, a int32, A int32"
    assert world.rows("t") == [(1, 11, 31)]


def test_names_that_only_change_their_case_or_change_places_meet_nobody(world: World) -> None:
    world.run(*T, "ALTER TABLE t ADD b int", "UPDATE t SET b = 20")
    world.sync()
    world.run('ALTER TABLE t RENAME a TO "A"')
    world.sync()
    assert world.reviews() == {}
    for statement in ('ALTER TABLE t RENAME "A" TO c', 'ALTER TABLE t RENAME b TO "A"', "ALTER TABLE t RENAME c TO b"):
        world.run(statement)
    world.sync()
    assert world.reviews() == {}
    assert world.rows("t", "id", "A", "b") == [(1, 20, 10)]


def test_a_system_column_s_name_is_prefixed_without_a_question(world: World) -> None:
    world.run(*T)
    world.sync()
    world.run("ALTER TABLE t ADD _instep_id int", "INSERT INTO t VALUES (2, 11, 7)")
    world.sync()
    assert world.reviews() == {}
    assert world.rows("t", "id", "src__instep_id") == [(1, None), (2, 7)]
    told = [r.summary for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "name.collided"]
    assert told == ["names in public.t collide: _instep_id, _instep_id (_instep_id is stored as src__instep_id)"]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
@shows(trap=7)
def test_tables_that_meet(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    quote = world.case.quote
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.sync()
    world.run(f"CREATE TABLE {quote('T')} (id int PRIMARY KEY)", f"INSERT INTO {quote('T')} VALUES (5)")  # noqa: S608
    assert world.statuses(world.sync()) == {"t": "done", "u": "done"}
    world.answer("approved", "name.collided")
    world.sync()
    assert world.tables()["T"].startswith("T_")
    assert world.rows("T") == [(5,)]
