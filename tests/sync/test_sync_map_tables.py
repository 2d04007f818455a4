"""`changes map` for tables: a removal and an addition become one rename, and the rows stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.errors import InstepError
from instep.schema.policy.policy import Rule
from instep.sync.claim import claimed
from instep.sync.schema_changes import declare_table_rename, undo
from instep.sync.schema_changes.declare_column_rename import resume_mappings
from sync_world import MakeWorld, World, preset

OLD = (
    "CREATE TABLE old (id int PRIMARY KEY, a int, b varchar(20))",
    "INSERT INTO old VALUES (1, 10, 'x'), (2, 20, 'y')",
)
NEW = ("DROP TABLE old", "CREATE TABLE fresh (id int PRIMARY KEY, a int, c int)",
       "INSERT INTO fresh VALUES (1, 10, 1), (3, 30, 3)")  # fmt: skip
HOLD = preset("allow_all", Rule(on=("table.removed", "table.added"), decide="review"))
KINDS = ["postgres", "sqlite"]


def begun(make_world: MakeWorld, kind: str, *, let_in: bool, new: tuple[str, ...] = NEW) -> World:
    world = make_world(kind)
    world.run(*OLD)
    world.sync()
    world.policy = world.policy if let_in else HOLD
    world.run(*new)
    world.settled()
    return world


def mapped(world: World) -> declare_table_rename.MappedTable:
    schema = world.case.schema
    return declare_table_rename.prepare(world.context, f"{schema}.old", f"{schema}.fresh")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("let_in", [False, True], ids=["pending", "let in"])
def test_rows_stay_under_the_new_name(make_world: MakeWorld, kind: str, let_in: bool) -> None:
    world = begun(make_world, kind, let_in=let_in)
    found = mapped(world)
    assert (found.interim is not None, found.gone, found.fresh) == (let_in, ("b",), ("c",))
    declare_table_rename.carry_out(world.context, found)
    assert world.rows("fresh", "id", "a") == [(1, 10), (2, 20)]
    names = {"fresh": "fresh", **({"fresh__v1": "fresh__v1~"} if let_in else {})}
    assert world.tables() == names
    assert world.events("change.mapped") == ["change.mapped"]
    assert all("table" not in summary for summary in world.reviews("open"))
    world.settled()
    assert world.rows("fresh", "id", "a", "c") == [(1, 10, 1), (3, 30, 3)]
    assert world.rows("fresh", "id", "b", deleted=True) == [(1, "x"), (2, "y"), (3, None)]
    assert world.differing() == {}
    assert (world.tables(), world.preview().plan.steps) == (names, ())
    if let_in:
        assert world.rows_at(("shop", "fresh__v1"), "id") == [(1,), (3,)]


REFUSED = [
    ("still there", ("CREATE TABLE fresh (id int PRIMARY KEY)",), "still at the source"),
    ("another key", ("DROP TABLE old", "CREATE TABLE fresh (id int, a int PRIMARY KEY)"), "never mix"),
    ("other types", ("DROP TABLE old", "CREATE TABLE fresh (id int PRIMARY KEY, a date)"), "types are not compatible"),
    ("no new one", ("DROP TABLE old",), "no table .*fresh at the source"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("statements", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused(make_world: MakeWorld, statements: tuple[str, ...], why: str) -> None:
    world = begun(make_world, "postgres", let_in=False, new=statements)
    before = world.store.accepted.latest("shop")
    with pytest.raises(InstepError, match=why) as error:
        mapped(world)
    assert error.value.hint
    assert world.store.accepted.latest("shop") == before


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.sampled
@pytest.mark.parametrize("let_in", [False, True], ids=["pending", "let in"])
@pytest.mark.parametrize("point", ["apply.table.before", "apply.table.after", "apply.accepted"])
def test_an_interrupted_mapping_is_finished_by_the_next_run(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, point: str, let_in: bool
) -> None:
    world = begun(make_world, "postgres", let_in=let_in)
    found = mapped(world)

    def crash(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("instep.sync.schema_changes.apply.crashpoint", crash)
        with pytest.raises(Killed):
            declare_table_rename.carry_out(world.context, found)
    with claimed(world.context, "apply") as run:
        resume_mappings(replace(world.context, run=run), run)
    assert world.store.mappings.waiting("shop") == []
    assert world.events("change.mapped") == ["change.mapped"]
    assert world.rows("fresh", "id", "a") == [(1, 10), (2, 20)]
    world.sync()
    assert world.rows("fresh", "id") == [(1,), (3,)]
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("let_in", [False, True], ids=["pending", "let in"])
def test_a_wrong_pair_is_taken_back(make_world: MakeWorld, let_in: bool) -> None:
    world = begun(lambda kind: make_world(kind, engine="local"), "sqlite", let_in=let_in)
    declare_table_rename.carry_out(world.context, mapped(world))
    (review,) = [r for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "table.renamed"]
    undo.apply_undo(world.context, undo.prepare(world.context, [review]))
    assert world.rows("old", "id", "a", "b") == [(1, 10, "x"), (2, 20, "y")]
    assert [r for r in world.store.reviews.find("shop", ("open",)) if r.kind == "table.renamed"] == []
    world.settled()
    assert world.rows("old", "id", "a", "b") == [(1, 10, "x"), (2, 20, "y")]
