# ruff: noqa: S608 - names and values are those of this file
"""Traps that pipelines walk into, each from a real source into a real lake."""

from __future__ import annotations

from typing import Any

import pytest

from events.shows import shows
from instep.project.sections.tables import TableSettings
from sync_world import MakeWorld, World, counts, preset

SOURCES = ("postgres", "mysql", "sqlite")
PG, MY = "postgres", "mysql"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def altered(world: World, column: str, kind: str) -> str:
    """The statement that gives a column of t another type, values included."""
    if world.case.kind == PG:
        return f"ALTER TABLE t ALTER {column} TYPE {kind} USING {column}::{kind}"
    return f"ALTER TABLE t MODIFY {column} {kind}"


LOSSY = [
    (PG, "numeric(9,2)", "double precision", "7.25"),
    (PG, "double precision", "int", "2.5"),
    (PG, "bigint", "int", "5000000000"),
    (PG, "numeric(12,4)", "numeric(9,2)", "1.2345"),
    (PG, "timestamp", "date", "'2026-11-21 10:20:30'"),
    (MY, "double", "int", "2.5"),
    (MY, "bigint", "int", "5000000000"),
    (MY, "datetime", "date", "'2026-11-21 10:20:30'"),
]


@pytest.mark.sampled
@shows(trap=1, event=47)
@pytest.mark.parametrize(("kind", "old", "new", "value"), LOSSY, ids=[f"{k}-{o}-{n}" for k, o, n, _ in LOSSY])
def test_the_lake_keeps_what_a_narrower_type_loses_until_that_is_decided(
    make_world: MakeWorld, kind: str, old: str, new: str, value: str
) -> None:
    """Until somebody has decided, what the source has cut is cut at the source alone; then values are the source's."""
    world = make_world(kind, policy=preset("approve"))
    world.run(
        f"CREATE TABLE t (id int PRIMARY KEY, a {old}, b int)", f"INSERT INTO t VALUES (1, {value}, 1), (2, NULL, 2)"
    )
    world.settings["t"] = TableSettings(cursor="id", deletes="ignore")
    world.sync()
    before, schema = world.rows("t", "id", "a"), world.schema("t")
    if old == "bigint":
        world.run("UPDATE t SET a = 7 WHERE id = 1")
    world.run(altered(world, "a", new), "INSERT INTO t VALUES (3, NULL, 3)")
    world.sync()
    assert world.schema("t") == schema
    assert world.rows("t", "id", "a") == [*before, (3, None)]
    assert world.reviews("open")
    world.answer("rejected")
    world.sync()
    assert world.differing() == {}, "the accepted type stays; the values are the source's, now that nothing is open"


@shows(trap=2)
def test_no_table_takes_any_schema(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    world.sync()
    table = world.destination.lake.load(("shop", "t"))
    assert not [name for name in table.properties if "accept-any-schema" in name]
    world.policy = preset("approve")
    world.run("ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 20)")
    world.sync()
    assert "a" not in [f.name for f in world.destination.lake.load(("shop", "t")).schema().fields]
    assert world.rows("t") == [(1,), (2,)]
    world.answer("approved")
    world.sync()
    assert world.rows("t") == [(1, None), (2, 20)]


@pytest.mark.sampled
@shows(trap=(4, 5), event=(41, 44))
@pytest.mark.parametrize("kind", SOURCES)
def test_a_not_null_column_and_a_rename_under_upserts(make_world: MakeWorld, kind: str) -> None:
    """The new column is nullable in the lake whatever the source says; nothing under the old name becomes NULL."""
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10), (2, 20)")
    world.sync()
    world.run("ALTER TABLE t ADD b int NOT NULL DEFAULT 7", "UPDATE t SET a = 21 WHERE id = 2")
    world.sync()
    lake = world.destination.lake.load(("shop", "t")).schema()
    assert not lake.find_field("b").required
    assert not world.accepted("t").by_name["b"].nullable
    assert world.rows("t") == [(1, 10, 7), (2, 21, 7)]
    if kind == PG:
        world.run("ALTER TABLE t RENAME a TO z", "UPDATE t SET z = 22 WHERE id = 2")
        world.sync()
        assert world.schema("t") == "id int32!, z int32, b int32"
        assert world.rows("t") == [(1, 10, 7), (2, 22, 7)]


@shows(trap=6)
def test_a_load_that_fails_leaves_no_newer_schema_than_the_destination_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10)")
    world.sync()
    world.run("ALTER TABLE t ADD b int", "UPDATE t SET b = 1")

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the device is full")

    with monkeypatch.context() as patched:
        patched.setattr(type(world.destination.schema), "execute", broken)
        with pytest.raises(OSError, match="full"):
            world.sync()
    assert world.schema("t") == "id int32!, a int32"
    assert [f.name for f in world.destination.lake.load(("shop", "t")).schema().fields][:3] != ["id", "a", "b"]
    world.sync()
    assert world.differing() == {}
    assert world.rows("t") == [(1, 10, 1)]


WORDS = ("select", "order", "user", "group", "table", "values", "from")


@pytest.mark.sampled
@shows(trap=7)
@pytest.mark.parametrize("kind", SOURCES)
def test_reserved_words_are_names_like_others(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    quote = world.case.quote
    for word in WORDS:
        columns = ", ".join(f"{quote(w)} int" for w in WORDS)
        world.run(f"CREATE TABLE {quote(word)} (id int PRIMARY KEY, {columns})")
        world.run(f"INSERT INTO {quote(word)} (id, {quote(word)}) VALUES (1, 5)")
    for _ in range(2):
        assert set(world.statuses(world.sync()).values()) == {"done"}
        assert world.differing() == {}
    assert all(world.rows(word, word) == [(5,)] for word in WORDS)


CURSORS = [
    ("dropped", "ALTER TABLE t DROP COLUMN c", "cursor.removed"),
    ("renamed", "ALTER TABLE t RENAME COLUMN c TO d", ""),
    ("retyped", "", "cursor.changed"),
]


@pytest.mark.sampled
@shows(trap=8)
@pytest.mark.parametrize("kind", [PG, MY])
@pytest.mark.parametrize(("what", "statement", "event"), CURSORS, ids=[c[0] for c in CURSORS])
def test_a_cursor_that_goes_is_named_and_pauses_its_table_alone(
    make_world: MakeWorld, kind: str, what: str, statement: str, event: str
) -> None:
    """Where ids prove the rename, the cursor follows it."""
    world = make_world(kind, settings={"t": TableSettings(cursor="c")})
    world.run("CREATE TABLE t (id int PRIMARY KEY, c int)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.run("INSERT INTO t VALUES (1, 1)")
    world.sync()
    world.run(
        statement or altered(world, "c", "varchar(9)"), "INSERT INTO t (id) VALUES (2)", "INSERT INTO u VALUES (1)"
    )
    if what == "renamed" and kind == PG:
        world.settings["t"] = TableSettings(cursor="d")
        world.sync()
        assert world.accepted("t").cursor == "d"
        assert world.pauses() == {}
        return
    assert world.statuses(world.sync())["u"] == "done"
    assert "t" in world.pauses()
    found = {r.kind for r in world.store.reviews.find("shop", ("open",)) if r.action == "pause_table"}
    assert found == {event or "cursor.removed"}


@pytest.mark.sampled
@shows(trap=10)
@pytest.mark.parametrize("kind", SOURCES)
def test_an_empty_new_table_is_created(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.sync()
    world.run("CREATE TABLE u (id int PRIMARY KEY, a varchar(9))")
    report = world.sync()
    assert counts(report, "u") == (0, 0, 0, 0, 0)
    names = [f.name for f in world.destination.lake.load(("shop", "u")).schema().fields]
    assert names[:2] == ["id", "a"]
    assert world.rows("u") == []


POLLS: list[tuple[str, list[str], str]] = [
    ("added and dropped", ["ADD b int", "DROP COLUMN b"], "id int32!, a int32"),
    ("renamed there and back", ["RENAME COLUMN a TO b", "RENAME COLUMN b TO a"], "id int32!, a int32"),
    ("added, renamed", ["ADD b int", "RENAME COLUMN b TO c"], "id int32!, a int32, c int32"),
]


@pytest.mark.sampled
@shows(trap=13)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("what", "steps", "schema"), POLLS, ids=[p[0] for p in POLLS])
def test_several_changes_between_two_looks(
    make_world: MakeWorld, kind: str, what: str, steps: list[str], schema: str
) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10)")
    world.sync()
    for number, step in enumerate(steps, 2):
        world.run(f"ALTER TABLE t {step}", f"INSERT INTO t (id) VALUES ({number})")
    world.settled()
    assert world.schema("t").replace("int64", "int32") == schema
    assert world.differing() == {}


NESTED = [
    ("elements widened", "int[]", "bigint[]", "'{1,2}'", "array(int32)", "array(int64)"),
    ("a list that becomes one value", "int[]", "int", "NULL", "array(int32)", "array(int32)"),
    ("one value that becomes a list", "int", "int[]", "NULL", "int32", "int32"),
]


@pytest.mark.sampled
@shows(trap=18)
@pytest.mark.parametrize(("what", "old", "new", "value", "before", "after"), NESTED, ids=[n[0] for n in NESTED])
def test_nested_values_change_their_type(
    world: World, what: str, old: str, new: str, value: str, before: str, after: str
) -> None:
    """Widened with their whole type, or asked about as a retyped column: never read as something else."""
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, a {old})", f"INSERT INTO t VALUES (1, {value})")
    world.sync()
    assert before in world.schema("t")
    using = f"ALTER TABLE t ALTER a TYPE {new} USING NULL" if before == after else altered(world, "a", new)
    world.run(using, "INSERT INTO t VALUES (2, NULL)")
    world.sync()
    assert after in world.schema("t")
    assert ("review" in world.reviews("open").values()) == (before == after)
    assert len(world.rows("t")) == 2
