"""An approved type that rows loaded before do not fit: their table keeps it, the others go on, and there is a way."""

from __future__ import annotations

import pytest

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
    from instep.sync.changes.rekey import carry_out, prepare

    path = f"{world.case.schema}.t"
    _, copy = carry_out(world.pipe, prepare(world.pipe, path, ["id"], "rebuild"), ("*",))
    world.sync()
    world.answer("approved")
    world.sync()
    assert world.rows("t", deleted=True) == [(1, 5)]
    assert world.reviews("open") == {}
    assert copy is not None
    assert world.rows_at(copy, "id", "a", deleted=True) == [(1, "5"), (2, "x")]
