"""Keys and cursors that change at the source: every way pauses the table, and only ways that change a meaning do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from events.shows import shows
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.sync.operations import set_cursor
from sync_world import MakeWorld, World, by_key, cursor, preset

IDS = ("postgres", "mysql")
DROP = {"postgres": "ALTER TABLE t DROP CONSTRAINT t_pkey", "mysql": "ALTER TABLE t DROP PRIMARY KEY"}
PAIR = "CREATE TABLE t (a int NOT NULL, b int NOT NULL, c int, PRIMARY KEY (a, b))"
SINGLE = "CREATE TABLE t (a int NOT NULL PRIMARY KEY, b int NOT NULL, c int)"
NONE = "CREATE TABLE t (a int NOT NULL, b int NOT NULL, c int)"


@dataclass(frozen=True)
class Way:
    """`status` is that of the table in the sync after the change; `open` a part of what waits."""

    name: str
    before: str
    after: tuple[str, ...]
    status: str
    open: str = ""
    kinds: tuple[str, ...] = IDS
    settings: TableSettings = field(default_factory=TableSettings)


WAYS = [
    Way("removed", SINGLE, ("{drop}",), "paused", "removed (was (a))"),
    Way("changed", SINGLE, ("{drop}", "ALTER TABLE t ADD PRIMARY KEY (b)"), "paused", "changed from (a) to (b)"),
    Way("reordered", PAIR, ("{drop}", "ALTER TABLE t ADD PRIMARY KEY (b, a)"), "done"),
    Way("a new column in the key", SINGLE,
        ("{drop}", "ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 1", "ALTER TABLE t ADD PRIMARY KEY (a, n)"),
        "paused", "changed from (a) to (a, n)"),
    Way("a key where none was", NONE, ("ALTER TABLE t ADD PRIMARY KEY (a)",), "paused", "set to (a)"),
    Way("a column of the key is dropped", PAIR, ("{drop}", "ALTER TABLE t DROP COLUMN a"), "paused", "removed (was"),
    Way("replaced with another key", SINGLE, ("DROP TABLE t", PAIR), "missing", "replaced by another",
        kinds=("postgres",)),
    Way("replaced with another key, by name only", SINGLE, ("DROP TABLE t", PAIR), "paused", "changed from (a) to",
        kinds=("sqlite",)),
    Way("the cursor is dropped", SINGLE, ("ALTER TABLE t DROP COLUMN c",), "paused", "cursor of t removed",
        (*IDS, "sqlite"), cursor("c")),
    Way("the cursor is renamed, without ids", SINGLE, ("ALTER TABLE t RENAME COLUMN c TO d",), "paused",
        "cursor of t removed", ("mysql", "sqlite"), cursor("c")),
    Way("the cursor is renamed, with ids", SINGLE, ("ALTER TABLE t RENAME COLUMN c TO d",), "done", "",
        ("postgres",), cursor("c")),
    Way("the cursor is text now", SINGLE, ("ALTER TABLE t ALTER c TYPE text",), "paused",
        "has another type: c orders its values otherwise", ("postgres",), cursor("c")),
    Way("the cursor is wider now", SINGLE, ("ALTER TABLE t ALTER c TYPE bigint",), "done", "", ("postgres",),
        cursor("c")),
    Way("a declared key loses a column", NONE, ("ALTER TABLE t DROP COLUMN a",), "paused", "removed (was (a))",
        (*IDS, "sqlite"), by_key("a")),
]  # fmt: skip
CASES = [(kind, way) for way in WAYS for kind in way.kinds]


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "way"), CASES, ids=[f"{kind}: {way.name}" for kind, way in CASES])
@shows(trap=(8, 9), event=48)
def test_what_a_key_or_cursor_does(make_world: MakeWorld, kind: str, way: Way) -> None:
    world = make_world(kind)
    world.settings["t"] = way.settings
    world.run(way.before, "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    assert world.statuses(world.sync()) == {"t": "done"}
    rows = world.rows("t", "b")
    world.run(*(statement.format(drop=DROP.get(kind, "")) for statement in way.after))
    assert world.statuses(world.sync()) == {"t": way.status}
    waiting = " ".join(world.reviews("open"))
    assert way.open in waiting
    paused = ["t"] if way.status == "paused" or "replaced" in way.open else []
    assert (list(world.pauses()), world.events("connection.paused")) == (paused, ["connection.paused"] * len(paused))
    assert world.rows("t", "b") == rows


@shows(event=48)
def test_a_reordered_key_reads_nothing_anew(make_world: MakeWorld) -> None:
    world = make_world()
    world.run(PAIR, "INSERT INTO t VALUES (1, 1, 1)")
    world.sync()
    world.run(DROP["postgres"], "ALTER TABLE t ADD PRIMARY KEY (b, a)")
    world.sync()
    assert (world.accepted("t").key, world.store.backfills.waiting("shop")) == (("b", "a"), [])
    assert world.differing() == {}
    assert world.events("connection.paused") == []


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["allow_all", "allow_columns", "block_all", "propagate_all", "propagate_columns",
                                  "approve", "stop"])  # fmt: skip
def test_a_reverted_key_resumes_only_under_our_own_policies(make_world: MakeWorld, name: str) -> None:
    world = make_world()
    world.run(SINGLE, "INSERT INTO t VALUES (1, 1, 1)")
    world.sync()
    world.policy = preset(name)
    world.run(DROP["postgres"])
    world.detect()
    assert len(world.pauses()) == 1
    world.run("ALTER TABLE t ADD PRIMARY KEY (a)")
    world.detect()
    own = name in ("allow_all", "allow_columns", "block_all", "approve")
    assert (world.pauses() == {}, world.reviews("open")) == (own, {})
    assert world.events("connection.resumed") == ["connection.resumed"] * own


@pytest.fixture
def cursored(make_world: MakeWorld) -> World:
    """A table that is read by a cursor which a person chose."""
    world = make_world()
    world.run("CREATE TABLE t (a int PRIMARY KEY, c int NOT NULL, d int NOT NULL)")
    world.run("INSERT INTO t VALUES (1, 1, 10), (2, 2, 20), (3, 3, 30)")
    world.sync()
    set_cursor.carry_out(world.context, set_cursor.prepare(world.context, "public.t", "c"))
    return world


def read(world: World) -> int:
    [table] = world.sync().tables
    assert table.status == "done"
    return table.read


def test_a_chosen_cursor_reads_whole_once_then_what_is_newer(cursored: World) -> None:
    assert read(cursored) == 3
    cursored.run("UPDATE t SET c = 4 WHERE a = 1", "INSERT INTO t VALUES (5, 5, 50)")
    assert read(cursored) == 3  # the newest value that was read, and what is above it
    assert cursored.differing() == {}
    assert cursored.preview().detection.decisions == ()


def test_a_chosen_cursor_begins_where_it_is_told(cursored: World) -> None:
    set_cursor.carry_out(cursored.context, set_cursor.prepare(cursored.context, "public.t", "d", "20"))
    assert read(cursored) == 2
    cursored.run("UPDATE t SET d = 40 WHERE a = 1")
    assert read(cursored) == 2
    assert cursored.differing() == {}


def test_a_chosen_cursor_that_goes_pauses_and_is_settled_by_another(cursored: World) -> None:
    cursored.sync()
    cursored.run("ALTER TABLE t RENAME c TO e")
    assert read(cursored) == 3  # what was recorded names the old column
    cursored.run("ALTER TABLE t DROP COLUMN e")
    assert cursored.statuses(cursored.sync()) == {"t": "paused"}
    made = set_cursor.prepare(cursored.context, "public.t", "d")
    assert [r.kind for r in made.settles] == ["cursor.removed"]
    set_cursor.carry_out(cursored.context, made)
    assert (cursored.pauses(), list(cursored.reviews("open"))) == ({}, ["column t.e removed (int32)"])
    assert read(cursored) == 3
    assert cursored.differing() == {}
    set_cursor.carry_out(cursored.context, set_cursor.prepare(cursored.context, "public.t", None))
    assert (cursored.accepted("t").cursor, cursored.store.choices.of("shop")) == (None, {})
    assert cursored.preview().detection.decisions == ()


@pytest.mark.sampled
@pytest.mark.parametrize("taken", [False, True], ids=["a new name", "a name that another table takes"])
@pytest.mark.parametrize("action", ["pause_table", "ignore"])
def test_a_table_that_is_renamed_and_has_lost_its_key(make_world: MakeWorld, taken: bool, action: Any) -> None:
    """It waits under its new name, and the table that takes its old one is loaded."""
    world = make_world()
    world.policy = preset("allow_all", Rule(("key",), action))
    world.run(
        SINGLE, "CREATE TABLE u (a int PRIMARY KEY)", "INSERT INTO t VALUES (1, 1, 1)", "INSERT INTO u VALUES (1)"
    )
    world.sync()
    world.run(DROP["postgres"], "ALTER TABLE t RENAME TO v", "INSERT INTO v VALUES (1, 2, 2)")
    if taken:
        world.run("ALTER TABLE u RENAME TO t")
    world.run(f"INSERT INTO {'t' if taken else 'u'} VALUES (2)")  # noqa: S608
    other = "t" if taken else "u"
    assert world.statuses(world.sync()) == {"v": "paused", other: "done"}
    assert world.rows(other, "a") == [(1,), (2,)]
    assert world.rows("v", "a", "b") == [(1, 1)]
