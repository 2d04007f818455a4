# ruff: noqa: S608 - names of this file
"""An approved type that rows loaded before do not fit: their table keeps it, the others continue, and there is a
way."""

from __future__ import annotations

import pytest
from into_world import world_into

from instep.schema.catalog.types import String
from sync_world import MakeWorld, World

REMADE = (
    "CREATE TABLE fresh (id int PRIMARY KEY, a int)",
    "INSERT INTO fresh SELECT id, a FROM t",
    "DROP TABLE t",
    "ALTER TABLE fresh RENAME TO t",
)
RETYPED = {"postgres": ("ALTER TABLE t ALTER a TYPE int USING a::int",), "sqlite": REMADE}


@pytest.fixture(params=RETYPED)
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    """Row 2 is gone at the source, and its text would be no number."""
    made = make_world(request.param)
    made.run("CREATE TABLE t (id int PRIMARY KEY, a varchar(9))", "CREATE TABLE o (id int PRIMARY KEY)")
    made.run("INSERT INTO t VALUES (1, '5'), (2, 'x')")
    made.sync()
    made.run("DELETE FROM t WHERE id = 2", *RETYPED[request.param], "INSERT INTO o VALUES (1)")
    made.sync()
    assert list(made.reviews("open").values()) == ["review"]
    made.answer("approved")
    return made


def test_only_its_table_keeps_its_type(world: World) -> None:
    report = world.sync()
    assert world.statuses(report) == {"t": "done", "o": "done"}
    assert "a keeps its type: 1 value of rows loaded before would not fit int" in " ".join(report.notes)
    assert world.rows("t", deleted=True) == [(1, "5"), (2, "x")]
    assert world.rows("o") == [(1,)]


def test_read_anew_beside_a_copy_it_takes_the_type(world: World) -> None:
    from instep.sync.operations.set_key import carry_out, prepare

    path = f"{world.case.schema}.t"
    _, copy = carry_out(world.context, prepare(world.context, path, ["id"], "rebuild"), ("*",))
    world.sync()
    assert world.rows("t", deleted=True) == [(1, 5)]
    assert world.reviews("open") == {}
    assert copy is not None
    assert world.rows_at(copy, "id", "a", deleted=True) == [(1, "5"), (2, "x")]


@pytest.mark.sampled
@pytest.mark.parametrize("destination", ["iceberg", "delta", "duckdb", "postgres"])
@pytest.mark.parametrize("refused_first", [False, True])
def test_a_rebuild_takes_what_was_approved_and_no_other_table_s(
    make_world: MakeWorld, request: pytest.FixtureRequest, destination: str, refused_first: bool
) -> None:
    """An approval is for a column: rebuilding its table, or looking at another one, does not make it stale."""
    from instep.sync.operations.set_key import carry_out, prepare

    world = world_into(make_world, request, "sqlite", destination)
    names = ("t", "u")
    for name in names:
        world.run(f"CREATE TABLE {name} (id int PRIMARY KEY, a varchar(9))")
        world.run(f"INSERT INTO {name} VALUES (1, '5'), (2, 'x')")
    world.sync()
    for name in names:
        world.run(f"DELETE FROM {name} WHERE id = 2", *(s.replace(" t", f" {name}") for s in REMADE))
        world.run(f"UPDATE {name} SET a = 'live' WHERE id = 3", f"INSERT INTO {name} VALUES (3, 'live')")
    world.sync()
    world.answer("approved")
    if refused_first:
        world.sync()
        world.answer("approved")
    for name in names:
        carry_out(world.context, prepare(world.context, f"main.{name}", ["id"], "rebuild"), ("*",))
    world.sync()
    assert world.reviews("open") == {}
    for name in names:
        assert world.rows(name, "id", "a", deleted=True) == [(1, 5), (3, None)], "what lives is held if it does not fit"
    assert {n: v.held for n, v in world.verify().items()} == {"t": 1, "u": 1}


FOUR = {
    "postgres": tuple(f"ALTER TABLE t ALTER {c} TYPE int USING {c}::int" for c in "abcd"),
    "sqlite": (
        "CREATE TABLE fresh (id int PRIMARY KEY, a int, b int, c int, d int)", "INSERT INTO fresh SELECT * FROM t",
        "DROP TABLE t", "ALTER TABLE fresh RENAME TO t",
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("kind", FOUR)
def test_the_other_columns_of_its_table_take_theirs(make_world: MakeWorld, kind: str) -> None:
    """The one that keeps its type is asked again, with the reason, until it is answered otherwise."""
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a varchar(9), b varchar(9), c varchar(9), d varchar(9))")
    world.run("INSERT INTO t VALUES (1, '1', '2', '3', '4'), (2, 'x', '5', '6', '7')")
    world.sync()
    world.run("DELETE FROM t WHERE id = 2", *FOUR[kind])
    world.sync()
    world.answer("approved")
    for _ in range(2):
        report = world.sync()
        assert [c.type == String(9) for c in world.accepted("t").columns[1:]] == [True, False, False, False]
        (open_,) = world.store.reviews.find("shop", ("open",))
        assert report.waiting == (open_.id,)
        assert (open_.column, open_.action, open_.rule) == ("a", "review", "destination")
        assert "a keeps its type: 1 value of rows loaded before would not fit int" in open_.why
    assert world.rows("t", deleted=True) == [(1, "1", 2, 3, 4), (2, "x", 5, 6, 7)]
    assert world.events("change.reopened") == ["change.reopened"]
    world.detect()
    assert world.store.reviews.get(open_.id).why == open_.why
    world.answer("rejected")
    assert world.sync().waiting == ()
