"""What instep.yml switches on, hashes or shows after a table was loaded reaches the rows that were loaded before."""

from __future__ import annotations

from typing import Any

import pytest
from into_world import world_into

from instep.errors import ReadError
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import RunScope, sync
from sync_world import MakeWorld, World, cursor, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int NOT NULL)"
ROWS = "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)"
OFF = Selection(exclude_columns=(Pattern("*.t.name"),))
HASHED = Selection(hashed=(Pattern("*.t.name"),))
ALL = Selection()
BY = cursor("at", deletes="soft")
KINDS = pytest.mark.parametrize("kind", ["postgres", "sqlite"])


def begun(
    world: World,
    selection: Selection = ALL,
    *,
    table: str = TABLE,
    rows: str = ROWS,
    by: TableSettings = BY,
    **modifiers: Any,
) -> World:
    """A table with a cursor, loaded once."""
    world.settings["t"] = by
    world.policy, world.selection = preset("allow_all", **modifiers), selection
    world.run(table, rows)
    assert world.sync().status == "done"
    return world


def moved_while_off(world: World) -> None:
    """Row 1 gets another name while nobody reads names, and the cursor goes past it."""
    world.selection = OFF
    world.run("UPDATE t SET name = 'z', at = 7 WHERE id = 1", "UPDATE t SET at = 9 WHERE id = 2")
    world.sync()
    world.selection = ALL


def notes(world: World, about: str = "t.name") -> list[str]:
    """What a plan says, and then a sync says too."""
    planned = [n for n in world.preview().partial if about in n]
    told = world.sync().notes
    assert set(planned) <= set(told)
    return planned


def wanted(world: World) -> list[str]:
    return [b.why.replace(f"{world.case.schema}.", "") for b in world.store.backfills.waiting("shop")]


def clear(world: World, *values: str) -> list[tuple[Any, ...]]:
    """The table's current rows that hold one of these."""
    return [row for row in world.rows("t") if {str(v) for v in row} & set(values)]


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("backfill", ["column", "table"])
def test_a_column_that_is_on_again_has_what_the_source_has(make_world: MakeWorld, kind: str, backfill: str) -> None:
    world = begun(make_world(kind), backfill=backfill)
    moved_while_off(world)
    [note] = notes(world)
    assert "selected again with old values, so a sync reads the whole table" in note
    assert world.rows("t", "id", "name") == [(1, "z"), (2, "b"), (3, "c")]
    assert (wanted(world), list(world.preview().partial)) == ([], [])


def test_without_a_backfill_it_is_said_once(make_world: MakeWorld) -> None:
    world = begun(make_world(), backfill="none")
    moved_while_off(world)
    [note] = notes(world)
    assert "keep their old values until `instep backfill" in note
    assert world.rows("t", "id", "name")[0] == (1, "a")
    assert list(world.preview().partial) == []


def test_a_table_without_a_cursor_is_read_as_a_whole_anyway(make_world: MakeWorld) -> None:
    world = begun(make_world(), by=TableSettings(), backfill="column")
    moved_while_off(world)
    assert notes(world) == []
    assert world.rows("t", "id", "name") == [(1, "z"), (2, "b"), (3, "c")]


@KINDS
def test_what_is_hashed_later_is_nowhere_in_clear(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind), backfill="none")
    world.selection = HASHED
    [note] = notes(world)
    assert "hashed now, so a sync reads the whole table" in note
    assert clear(world, "a", "b", "c") == []
    assert {len(name) for (name,) in world.rows("t", "name")} == {64}
    assert (wanted(world), list(world.preview().partial)) == ([], [])


def test_what_is_shown_again(make_world: MakeWorld) -> None:
    world = begun(make_world(), HASHED, backfill="none")
    assert clear(world, "a", "b", "c") == []
    world.selection = ALL
    [note] = notes(world)
    assert "no longer hashed" in note
    assert world.rows("t", "id", "name") == [(1, "a"), (2, "b"), (3, "c")]


def test_on_again_and_hashed_at_once(make_world: MakeWorld) -> None:
    world = begun(make_world(), backfill="none")
    moved_while_off(world)
    world.selection = HASHED
    notes(world)
    assert clear(world, "a", "b", "c", "z") == []


@pytest.mark.sampled
@pytest.mark.parametrize("rules", [(), (Rule(("column.widened", "column.retyped"), "review"),)], ids=["let in", "held"])
def test_a_number_that_is_hashed_later(make_world: MakeWorld, rules: tuple[Rule, ...]) -> None:
    """Its type changes too, which policy decides: while that waits it is said, and nothing is left once it is in."""
    table = "CREATE TABLE t (id int PRIMARY KEY, name int, at int NOT NULL)"
    world = begun(make_world(), table=table, rows="INSERT INTO t VALUES (1, 41, 1), (2, 42, 2)")
    world.policy, world.selection = preset("allow_all", *rules), HASHED
    [note] = notes(world)
    assert len(world.reviews("open")) == len(rules)
    if rules:
        assert "in clear until its change of type is approved" in note
        assert (wanted(world), notes(world)) == ([], [note])
        world.run("INSERT INTO t VALUES (3, 43, 3)")
        report = world.sync()
        assert report.status == "done", report
        assert clear(world, "43") == []
        world.answer("approved")
        world.sync()
    assert clear(world, "41", "42") == []
    assert {len(name) for (name,) in world.rows("t", "name")} == {64}


KEY = (Pattern("*.t.id"),)


@pytest.mark.parametrize("selection", [Selection(hashed=KEY), Selection(exclude_columns=KEY)], ids=["hash", "exclude"])
def test_a_key_is_not_hashed_once_it_is_loaded(make_world: MakeWorld, selection: Selection) -> None:
    table = TABLE.replace("id int", "id varchar(9)")
    world = begun(make_world(), table=table, rows="INSERT INTO t VALUES ('k1', 'a', 1)")
    before, world.selection = world.rows("t"), selection
    report = world.sync()
    assert report.status == "failed"
    assert "old and new rows would have different keys" in report.tables[0].error
    assert world.rows("t") == before
    world.selection = ALL
    assert world.sync().status == "done"


class Lost(LocalEngine):
    """Reads nothing: the source goes away."""

    def extract(self, *args: Any) -> Any:
        raise ReadError("the source is gone")


@pytest.mark.sampled
@pytest.mark.parametrize("then", [ALL, OFF], ids=["on", "off again"])
def test_a_run_that_ends_early_forgets_nothing(make_world: MakeWorld, then: Selection) -> None:
    """The backfill stands from the planning on, whatever the file says meanwhile."""
    world = begun(make_world(), backfill="column")
    moved_while_off(world)
    with pytest.raises(ReadError):
        sync(world.context, RunScope(), engine=Lost())
    assert wanted(world) == ["t.name is on"]
    world.selection = then
    world.sync()
    world.selection = ALL
    world.sync()
    assert world.rows("t", "id", "name") == [(1, "z"), (2, "b"), (3, "c")]


def test_a_renamed_column_and_table_keep_what_is_known_of_them(make_world: MakeWorld) -> None:
    world = begun(make_world(), backfill="column")
    moved_while_off(world)
    world.selection = Selection(exclude_columns=(Pattern("*.name"), Pattern("*.nick")))
    world.settings["u"] = world.settings["t"]
    world.run("ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME COLUMN name TO nick")
    world.sync()
    world.selection = ALL
    world.sync()
    assert world.rows("u", "id", "nick") == [(1, "z"), (2, "b"), (3, "c")]


def dropped_at_source(world: World, *, again: int = 1) -> World:
    """The source drops the column; its loaded values stay at the destination."""
    world.run("ALTER TABLE t DROP COLUMN name")
    world.sync(again=again)
    assert "~" in world.schema("t")
    return world


STAYS = (
    "the source no longer has it, so its loaded values stay in clear; to drop them run `instep sync shop --drop-column"
)


@pytest.mark.parametrize("destination", ["iceberg", "delta", "duckdb", "postgres"])
def test_a_retained_column_that_is_hashed_later_is_told_until_it_is_dropped(
    make_world: MakeWorld, request: pytest.FixtureRequest, destination: str
) -> None:
    world = dropped_at_source(begun(world_into(make_world, request, "sqlite", destination)))
    assert notes(world) == []
    world.selection = HASHED
    for _ in range(2):
        [note] = notes(world)
        assert note == f"main.t.name: {STAYS} main.t.name`"
    assert clear(world, "a", "b", "c"), "it is there, as told"
    told = world.sync(drop_columns=frozenset({"main.t.name"})).notes
    assert not any(part in note for note in told for part in (STAYS, "is not dropped"))
    assert (notes(world), world.schema("t")) == ([], "id int64!, at int64")
    assert len(world.rows("t")) == 3


@KINDS
def test_a_column_that_was_hashed_before_the_source_dropped_it_is_not_told(make_world: MakeWorld, kind: str) -> None:
    world = dropped_at_source(begun(make_world(kind), HASHED))
    assert [notes(world) for _ in range(2)] == [[], []]
    assert {len(name) for (name,) in world.rows("t", "name")} == {64}


@KINDS
def test_hashed_in_vain_before_the_source_dropped_it(make_world: MakeWorld, kind: str) -> None:
    """No sync came between: the hashes never landed."""
    world = begun(make_world(kind))
    world.selection = HASHED
    world.run("ALTER TABLE t DROP COLUMN name")
    world.sync(again=1)
    [note] = notes(world)
    assert STAYS in note


def test_a_number_that_is_retained_is_no_hash(make_world: MakeWorld) -> None:
    world = begun(make_world(), table="CREATE TABLE t (id int PRIMARY KEY, name int, at int NOT NULL)",
                  rows="INSERT INTO t VALUES (1, 41, 1)")  # fmt: skip
    dropped_at_source(world)
    world.selection = HASHED
    [note] = notes(world)
    assert STAYS in note


def test_another_column_of_its_name_is_not_taken_for_it(make_world: MakeWorld) -> None:
    """The retained one, in clear, has another name by then."""
    world = begun(make_world())
    world.run("ALTER TABLE t DROP COLUMN name")
    world.sync(again=1)
    world.run("ALTER TABLE t ADD COLUMN name bytea")
    world.sync(again=1)
    [old] = [c.name for c in world.accepted("t").columns if c.retained]
    assert old == "name__v1"
    world.selection = HASHED
    told = notes(world)
    assert [n for n in told if STAYS in n] == [f"public.t.{old}: {STAYS} public.t.{old}`"], told


@KINDS
def test_a_table_that_the_source_has_no_more(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    world.run("DROP TABLE t", "CREATE TABLE other (id int PRIMARY KEY)")
    world.sync(again=1)
    assert [name for name, _ in world.tables().items()]
    world.selection = HASHED
    path = f"{world.case.schema}.t.name"
    [note] = notes(world)
    assert note == f"{path}: {STAYS} {path}`"
    told = world.sync(drop_columns=frozenset({path})).notes
    assert not any(part in note for note in told for part in (STAYS, "is not dropped"))
    assert (notes(world), world.accepted("t").by_name.keys()) == ([], {"id", "at"})


def test_what_is_not_dropped_is_told(make_world: MakeWorld) -> None:
    world = begun(make_world())
    named = ("main.t.id", "main.t.name", "main.t.nope")
    told = world.sync(drop_columns=frozenset(named)).notes
    assert [n for n in told if "is not dropped" in n] == [
        f"{path} is not dropped: it is read, in a key, or not in the destination" for path in named
    ]
    assert "name" in world.schema("t")
