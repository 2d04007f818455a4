"""A row filter: the destination has the source's rows that match, whatever happened to them in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.project.sections.tables import TableSettings
from instep.redaction import HIDDEN
from instep.schema.selection.selection import Selection, patterns
from sync_world import MakeWorld, World, counts, cursor

TABLE = "CREATE TABLE t (id int PRIMARY KEY, state varchar(20), at int NOT NULL)"
ROWS = "INSERT INTO t VALUES (1, 'open', 1), (2, 'shut', 1), (3, 'open', 2), (4, NULL, 2)"
OPEN = "state = 'open'"
PLAIN = TableSettings()
KINDS = pytest.mark.parametrize("kind", ["postgres", "sqlite"])
WAYS = pytest.mark.parametrize(
    ("kind", "by"), [("postgres", cursor("at")), ("sqlite", cursor("at", deletes="hard")), ("sqlite", PLAIN)]
)


def begun(world: World, where: str | None = OPEN, by: TableSettings = PLAIN, *more: str) -> World:
    world.settings["t"] = by.model_copy(update={"filter": where})
    world.run(TABLE, ROWS, *more)
    report = world.sync()
    assert report.status == "done", report.tables
    return world


def ids(world: World, name: str = "t") -> list[Any]:
    return [row[0] for row in world.rows(name, "id")]


def said(world: World) -> list[str]:
    """What a plan says of filters; the same is said by a sync."""
    return [n for n in world.preview().partial if "filter" in n]


@WAYS
def test_rows_that_leave_are_deleted_and_rows_that_enter_come(
    make_world: MakeWorld, kind: str, by: TableSettings
) -> None:
    world = begun(make_world(kind), by=by)
    assert (ids(world), world.differing()) == ([1, 3], {})
    world.run(
        "UPDATE t SET state = 'shut', at = 5 WHERE id = 1",
        "UPDATE t SET state = 'open', at = 5 WHERE id = 2",
        "INSERT INTO t VALUES (5, 'open', 6), (6, 'shut', 6)",
    )
    report = world.sync()
    assert (ids(world), counts(report, "t")[3]) == ([2, 3, 5], 1)
    assert world.differing() == {}


@pytest.mark.sampled
@WAYS
@pytest.mark.parametrize(("where", "rows"), [("state = 'shut'", [2]), (None, [1, 2, 3, 4])])
def test_another_filter_reads_the_whole_table(
    make_world: MakeWorld, kind: str, by: TableSettings, where: str | None, rows: list[int]
) -> None:
    world = begun(make_world(kind), by=by)
    world.settings["t"] = by.model_copy(update={"filter": where})
    [note] = said(world)
    assert "so a sync reads the whole table" in note
    assert world.sync().status == "done"
    assert (ids(world), said(world), world.store.backfills.waiting("shop")) == (rows, [], [])
    assert world.differing() == {}


def test_a_first_filter_of_a_loaded_table_reads_it_again(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"), None, cursor("at"))
    assert ids(world) == [1, 2, 3, 4]
    world.settings["t"] = cursor("at", filter=OPEN)
    world.sync()
    assert ids(world) == [1, 3]


def test_rows_stay_where_deletes_are_ignored(make_world: MakeWorld) -> None:
    by = cursor("at", deletes="ignore")
    world = begun(make_world("sqlite"), None, by)
    world.settings["t"] = by.model_copy(update={"filter": OPEN})
    assert "stay, as `deletes: ignore` says" in said(world)[0]
    world.sync()
    assert ids(world) == [1, 2, 3, 4]


def test_rows_outside_it_without_a_cursor_value_do_no_harm(make_world: MakeWorld) -> None:
    world = make_world()
    world.settings["t"] = cursor("at", filter="state IS NOT NULL")
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, state text, at int)", "INSERT INTO t VALUES (1, 'a', 1), (2, NULL, NULL)"
    )
    world.sync()
    world.run("INSERT INTO t VALUES (3, 'b', 9)")
    report = world.sync()
    assert ids(world) == [1, 3]
    assert not [n for n in report.notes if "have no at" in n]


FAULTS: list[tuple[str, str]] = [
    ("state = ", "it is not a condition"),
    ("state = 'a'; DROP TABLE t", "it is not one condition"),
    ("state = 'a') OR (1 = 1", "it is not a condition"),
    ("state = 'a' -- all", "it has a comment"),
    ("state /* x */ = 'a'", "it has a comment"),
    ("id IN (SELECT id FROM other)", "it has a query in it"),
    ("t.state = 'a'", "names a table: write state"),
    ("nope = 1", "nope"),
    ('"nope" = 1', "nope"),
    ("count(*) > 1", "says nothing of one row"),
    ("DELETE FROM t", "it is not a condition but delete"),
    ("pg_sleep(9) IS NULL", "may do more than look at a row"),
    ("load_extension('x') IS NULL", "may do more than look at a row"),
]


@KINDS
def test_what_is_refused_fails_its_table_alone(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.settings["t"] = TableSettings(filter="nope = 1")
    world.run(TABLE, ROWS, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "other": "done"}
    assert "nope" in next(t.error for t in report.tables if t.table[1] == "t")
    assert not world.verify()["t"].equal
    world.settings["t"] = TableSettings(filter=OPEN)
    assert (world.sync().status, ids(world)) == ("done", [1, 3])


@KINDS
def test_what_is_refused_is_said_by_a_plan(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(TABLE)
    for where, why in FAULTS:
        world.settings["t"] = TableSettings(filter=where)
        [note] = world.preview().partial
        assert ("the filter of table" in note, why in note) == (True, True), note


@pytest.mark.slow
def test_mariadb_has_filters_too(make_world: MakeWorld) -> None:
    world = begun(make_world("mysql"), "state = 'open' OR id MOD 2 = 0", cursor("at"))
    assert ids(world) == [1, 2, 3, 4]
    world.run("UPDATE t SET state = 'shut', at = 5 WHERE id = 1", "INSERT INTO t VALUES (5, 'it''s', 6)")
    world.sync()
    assert (ids(world), world.differing()) == ([2, 3, 4], {})
    for where, why in (
        ("nope = 1", "cannot be used: Unknown column 'nope'"),
        ("state = 'a' # b", "comment"),
        ("sleep(9)", "may do more"),
    ):
        world.settings["t"] = cursor("at", filter=where)
        [note] = [n for n in world.preview().partial if "cannot be used" in n]
        assert why in note


def test_a_filter_that_fails_on_a_row_leaves_the_others_alone(world: World) -> None:
    world.settings["u"] = cursor("at")
    u = "CREATE TABLE u (id int PRIMARY KEY, at int)", "INSERT INTO u VALUES (1, 1)"
    begun(world, "10 / (id - 9) < 0", cursor("at"), *u)
    world.run("INSERT INTO t VALUES (9, 'open', 9)", "INSERT INTO u VALUES (2, 2)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "done"}
    assert "division by zero" in next(t.error for t in report.tables if t.table[1] == "t")
    assert (ids(world), ids(world, "u")) == ([1, 2, 3, 4], [1, 2])


def test_a_filter_does_not_get_lost_with_its_tables_name(world: World) -> None:
    begun(world, OPEN, cursor("at"))
    world.run("ALTER TABLE t RENAME TO s", "INSERT INTO s VALUES (9, 'shut', 9)")
    world.settings["s"] = cursor("at")
    report = world.sync()
    assert [(t.status, "which is its former name" in t.error) for t in report.tables] == [("failed", True)]
    assert "the table is not synced" in said(world)[0]
    world.settings["s"] = cursor("at", filter="")
    world.sync()
    assert ids(world, "s") == [1, 2, 3, 4, 9]


def test_a_fill_and_a_count_of_keys_see_the_same_rows(world: World) -> None:
    begun(world, OPEN, cursor("at"))
    world.run("ALTER TABLE t ADD COLUMN n int", "UPDATE t SET n = id")
    world.sync()
    world.store.backfills.request("shop", (world.case.schema, "t"), column="n", why="asked")
    assert world.sync().status == "done"
    assert world.rows("t", "id", "n") == [(1, 1), (3, 3)]


AT = "(SELECT coalesce(max(at), 0) + 1 FROM t)"
Change = tuple[int, str]
CHANGES = st.lists(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["open", "shut", "gone"])), max_size=5),
    min_size=1,
    max_size=3,
)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=CHANGES)
def test_a_filters_rows_are_the_sources_rows_that_match(filtered: World, rounds: list[list[Change]]) -> None:
    there = {row[0] for row in filtered.rows("t", "id")}
    for changes in rounds:
        for id, state in changes:
            there -= {id}
            filtered.run(f"DELETE FROM t WHERE id = {id:d}")  # noqa: S608
            if state != "gone":
                filtered.run(f"INSERT INTO t VALUES ({id}, '{state}', {AT})")  # noqa: S608
            there |= {id} if state == "open" else set()
        assert filtered.sync().status == "done"
        assert ids(filtered) == sorted(there)


@pytest.fixture
def filtered(make_world: MakeWorld) -> World:
    """Its `at` grows with every change, as a cursor must."""
    return begun(make_world("sqlite"), OPEN, cursor("at"))


@pytest.mark.parametrize("selection", [Selection(), Selection(hashed=patterns(["t.state"]))], ids=["read", "hashed"])
@pytest.mark.parametrize("where", ["state::int > 0", "state::date > now()", "(state || 'x')::uuid IS NULL"])
def test_a_filter_that_fails_on_a_value_does_not_tell_it(
    make_world: MakeWorld, where: str, selection: Selection
) -> None:
    """In no error, event or run: the column may be hashed or left out."""
    world = begun(make_world("postgres"), None)
    world.selection = selection
    world.run("UPDATE t SET state = 'canary-4d'")
    world.settings["t"] = TableSettings(filter=where)
    report = world.sync()
    assert report.status == "failed"
    events = [str(event) for event in world.store.events.after()]
    told = [str(report), *events, str(world.store.runs.latest("shop")), str(world.store.runs.latest_tables("shop"))]
    assert HIDDEN in told[0], [t.error for t in report.tables]
    assert [text for text in told if "canary" in text] == []
