"""Undo over real databases and a real lake: what readers see then, and what the next syncs make of it."""

from __future__ import annotations

import pytest

from events.shows import shows
from instep.errors import Blocked, Conflict, IllegalChange, InstepError, StalePlan
from instep.schema.maintenance import BackfillLimits
from instep.schema.selection.selection import Selection, patterns
from instep.sync.schema_changes.undo import UndoPlan, apply_undo, find, prepare
from sync_world import MakeWorld, World, counts, cursor, preset

SETUP = ("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 10, 20), (2, 11, 21)")
DROPS = preset("allow_all", removed="drop")


def change(world: World, summary: str) -> str:
    """The id of the change that was applied last under this summary."""
    found = [r for r in world.store.reviews.find("shop", ("applied",)) if r.summary == f"{summary}"]
    assert found, [r.summary for r in world.store.reviews.find("shop", ("applied",))]
    return str(found[0].id)


def looked_at(world: World, *ids: str) -> UndoPlan:
    return prepare(world.context, [r for one in ids for r in find(world.context, one)])


def undone(world: World, *summaries: str, allowed: tuple[str, ...] = ()) -> UndoPlan:
    made = looked_at(world, *(change(world, s) for s in summaries))
    apply_undo(world.context, made, allowed)
    return made


@shows(trap=5)
def test_a_rename_keeps_old_rows_and_new(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN a TO z", "INSERT INTO t VALUES (3, 12, 22)")
    world.sync()
    assert world.schema("t") == "id int32!, z int32, b int32"
    undone(world, "column public.t.a renamed to z")
    assert world.schema("t") == "id int32!, a int32, b int32"
    assert world.rows("t", "id", "a") == [(1, 10), (2, 11), (3, 12)]
    world.run("INSERT INTO t VALUES (4, 13, 23)", "UPDATE t SET z = 99 WHERE id = 1")
    for _ in range(2):
        world.sync()
        assert world.schema("t") == "id int32!, a int32, b int32"
        assert world.rows("t", "id", "a") == [(1, 99), (2, 11), (3, 12), (4, 13)]
    assert world.reviews() == {"column t.a renamed to z": "ignore"}
    assert world.events("change.undone") == ["change.undone"]


@pytest.mark.sampled
@pytest.mark.parametrize("moved", [False, True], ids=["in its table", "in a renamed table"])
def test_a_column_that_waits_for_its_values_is_called_as_before(world: World, moved: bool) -> None:
    """What is known of a column goes back with its name: what its older rows lack, and the backfill that brings it."""
    world.policy, world.limits = preset("allow_all", backfill="column"), BackfillLimits(max_bytes=1)
    world.settings = {"t": cursor("b"), "u": cursor("b")}
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN size int DEFAULT 7", "INSERT INTO t VALUES (3, 12, 22, 8)")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN size TO weight", *(["ALTER TABLE t RENAME TO u"] if moved else []))
    world.sync()
    now = "u" if moved else "t"
    undone(world, f"column public.{now}.size renamed to weight",
           *(["table public.t renamed to public.u"] if moved else []))  # fmt: skip
    assert [(b.table[1], b.column) for b in world.store.backfills.waiting("shop")] == [("t", "size")]
    assert [c.name for c in world.store.loaded.of("shop")["public", "t"] if c.partial] == ["size"]
    assert world.rows("t", "id", "size") == [(1, None), (2, 7), (3, 8)]
    world.limits = BackfillLimits()
    world.sync()
    assert world.rows("t", "id", "size") == [(1, 7), (2, 7), (3, 8)]
    assert world.store.backfills.waiting("shop") == []


def test_a_dropped_column_comes_back_with_its_values(world: World) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (3, 12)")
    world.sync()
    assert world.schema("t") == "id int32!, a int32"
    made = undone(world, "column public.t.b removed (int32)")
    assert any("come back by key" in text for text in made.limits), made.limits
    assert world.schema("t") == "id int32!, a int32, b int32~"
    assert world.rows("t", "id", "b") == [(1, 20), (2, 21), (3, None)]
    world.run("INSERT INTO t VALUES (4, 13)")
    world.sync()
    assert world.rows("t", "id", "b") == [(1, 20), (2, 21), (3, None), (4, None)]
    assert world.reviews() == {}


@pytest.mark.parametrize(("drop", "summary"), [
    ("ALTER TABLE t DROP COLUMN b", "column public.t.b removed (int32)"),
    ("DROP TABLE t", "table public.t removed (3 columns)"),
])  # fmt: skip
def test_what_was_hashed_since_the_drop_is_told_before_it_comes_back(world: World, drop: str, summary: str) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run(drop)
    world.sync()
    assert not any("is hashed" in text for text in looked_at(world, change(world, summary)).limits)
    world.selection = Selection(hashed=patterns(["public.t.b"]))
    [told] = [text for text in looked_at(world, change(world, summary)).limits if "is hashed" in text]
    assert told.startswith("public.t.b is hashed: its values come back as they were")


def test_rows_that_were_updated_since_get_their_values_back(world: World) -> None:
    """By key, from the snapshot before the drop; the cursor and the rows' other values stay."""
    world.policy = DROPS
    world.settings = {"t": cursor("v")}
    world.run("CREATE TABLE t (id int PRIMARY KEY, b text, v int NOT NULL)",
              "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, NULL, 3)")  # fmt: skip
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN b", "UPDATE t SET v = 9 WHERE id = 1", "INSERT INTO t VALUES (4, 10)")
    world.sync()
    undone(world, "column public.t.b removed (string)")
    assert world.rows("t", "id", "b", "v") == [(1, "one", 9), (2, "two", 2), (3, None, 3), (4, None, 10)]
    report = world.sync()
    assert counts(report, "t")[1:] == (0, 0, 0, 0)
    world.run("UPDATE t SET v = 11 WHERE id = 2")
    world.sync()
    assert world.rows("t", "id", "b", "v") == [(1, "one", 9), (2, "two", 11), (3, None, 3), (4, None, 10)]


def test_a_column_that_was_added_since_is_in_the_way(world: World) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN b")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN b text")
    world.sync()
    with pytest.raises(Conflict, match="a column b has been added to"):
        looked_at(world, change(world, "column public.t.b removed (int32)"))


def test_a_dropped_table_comes_back_with_its_rows(world: World) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run("DROP TABLE t")
    world.sync()
    assert world.tables() == {}
    undone(world, "table public.t removed (3 columns)")
    assert world.tables() == {"t": "t~"}
    assert world.rows("t") == [(1, 10, 20), (2, 11, 21)]
    world.sync()
    assert world.tables() == {"t": "t~"}
    world.run(*SETUP, "INSERT INTO t VALUES (3, 12, 22)")
    world.sync()
    assert world.rows("t") == [(1, 10, 20), (2, 11, 21), (3, 12, 22)]


def test_a_dropped_table_whose_name_is_used_again(world: World) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run("DROP TABLE t")
    world.sync()
    world.run(*SETUP)
    world.sync()
    with pytest.raises(Conflict, match="has been used again since"):
        looked_at(world, change(world, "table public.t removed (3 columns)"))


def test_a_kept_addition_keeps_its_values(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
    world.sync()
    made = undone(world, "column public.t.c added (int32)")
    assert made.drops == ()
    world.run("INSERT INTO t VALUES (3, 12, 22, 8)")
    world.sync()
    assert world.schema("t") == "id int32!, a int32, b int32, c int32~"
    assert world.rows("t", "id", "c") == [(1, 7), (2, 7), (3, None)]
    assert world.reviews() == {"column t.c added (int32)": "ignore"}


def test_an_addition_is_dropped_only_by_name(world: World) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN c int DEFAULT 7", "CREATE TABLE u (id int PRIMARY KEY)")
    world.sync()
    added = ("column public.t.c added (int32)", "table public.u added (1 column)")
    made = looked_at(world, *(change(world, s) for s in added))
    assert sorted(s.object for s in made.drops) == ["shop.t.c", "shop.u"]
    with pytest.raises(Blocked, match="drops shop"):
        apply_undo(world.context, made, ("shop.t.c",))
    apply_undo(world.context, made, ("shop.*",))
    for _ in range(2):
        assert world.tables() == {"t": "t"}
        assert world.schema("t") == "id int32!, a int32, b int32"
        world.sync()


def test_a_widening_goes_back_while_every_value_fits(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ALTER COLUMN a TYPE bigint", "INSERT INTO t VALUES (3, 12, 22)")
    world.sync()
    undone(world, "column public.t.a widened from int32 to int64")
    assert str(world.destination.schema.inspect([("shop", "t")]).tables[0].by_name["a"].type) == "int32"
    assert world.rows("t") == [(1, 10, 20), (2, 11, 21), (3, 12, 22)]
    world.run("INSERT INTO t VALUES (4, 5000000000, 23)", "UPDATE t SET b = 0 WHERE id = 1")
    for _ in range(2):
        world.sync()
        assert world.schema("t") == "id int32!, a int32, b int32"
        assert world.rows("t") == [(1, 10, 0), (2, 11, 21), (3, 12, 22), (4, None, 23)]


def test_a_widening_with_wider_values_is_refused(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ALTER COLUMN a TYPE bigint", "INSERT INTO t VALUES (3, 5000000000, 22)")
    world.sync()
    with pytest.raises(IllegalChange, match=r"1 does not fit int32, such as 5000000000"):
        looked_at(world, change(world, "column public.t.a widened from int32 to int64"))
    assert world.schema("t") == "id int32!, a int64, b int32"


def test_of_several_what_cannot_go_back_stays(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run(
        "ALTER TABLE t ALTER COLUMN a TYPE bigint", "ALTER TABLE t RENAME COLUMN b TO z",
        "INSERT INTO t VALUES (3, 5000000000, 22)",
    )  # fmt: skip
    run = world.sync().run
    made = prepare(world.context, find(world.context, run))
    assert [r.kind for r in made.reviews] == ["column.renamed"]
    assert [why for why in made.left.values() if "does not fit" in why]
    apply_undo(world.context, made)
    assert world.schema("t") == "id int32!, a int64, b int32"


def test_facts_and_names_of_tables(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run(
        "ALTER TABLE t RENAME TO u", "COMMENT ON TABLE u IS 'new'", "COMMENT ON COLUMN u.a IS 'first'",
        "ALTER TABLE u ALTER COLUMN a SET NOT NULL", "ALTER TABLE u ALTER COLUMN b SET DEFAULT 4",
    )  # fmt: skip
    run = world.sync().run
    apply_undo(world.context, prepare(world.context, find(world.context, run)))
    world.run("INSERT INTO u VALUES (3, 12, 22)")
    for _ in range(2):
        table = world.accepted("t")
        assert (table.alias, table.comment) == ("t", None)
        assert (table.by_name["a"].comment, table.by_name["a"].nullable) == (None, True)
        assert table.by_name["b"].default is None
        world.sync()
    assert world.rows("t") == [(1, 10, 20), (2, 11, 21), (3, 12, 22)]
    assert set(world.reviews().values()) == {"ignore"}


def test_without_ids_an_undone_addition_is_listed_off(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD c int DEFAULT 7")
    world.sync()
    undone(world, "column main.t.c added (int64)")
    world.sync()
    assert world.schema("t") == "id int64!, a int64, b int64, c int64~"


def test_an_approval_lets_it_in_once_more(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN a TO z")
    world.sync()
    undone(world, "column public.t.a renamed to z")
    [standing] = world.store.reviews.find("shop", ("rejected",))
    world.store.reviews.decide(standing.id, "approved", "test")
    world.sync()
    assert world.schema("t") == "id int32!, z int32, b int32"


def test_it_is_a_run_and_its_story_is_told(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN a TO z")
    world.sync()
    id = change(world, "column public.t.a renamed to z")
    made = looked_at(world, id)
    version = apply_undo(world.context, made)
    last = world.store.runs.latest("shop")
    assert last is not None
    assert (last.kind, last.status) == ("undo", "done")
    newest = world.store.accepted.history("shop")[0]
    assert (newest.version, newest.why) == (version, f"undo of {id}")
    with pytest.raises(Conflict, match="was undone before"):
        looked_at(world, id)
    with pytest.raises(InstepError, match="has applied no change"):
        find(world.context, last.id)


def test_a_look_that_is_out_of_date_is_refused(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN a TO z")
    world.sync()
    made = looked_at(world, change(world, "column public.t.a renamed to z"))
    world.run("ALTER TABLE t ADD COLUMN c int")
    world.sync()
    with pytest.raises(StalePlan, match="have changed"):
        apply_undo(world.context, made)
    assert world.schema("t") == "id int32!, z int32, b int32, c int32"
