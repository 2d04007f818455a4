# ruff: noqa: S608 - the names are those of this file
"""The first sync of tables that are awkward, over each source, then proven equal."""

from __future__ import annotations

import pytest

from events.shows import shows
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Selection, patterns
from lake import SPARK
from sync_world import MakeWorld, World, by_key, counts, preset

pytestmark = [*SPARK]
KINDS = ("postgres", "mysql", "sqlite")
LONG = "l" * 63
MEET = preset("allow_all", Rule(("name.collided",), "apply"))


def awkward(world: World) -> list[str]:
    q = world.case.quote
    statements = [
        "CREATE TABLE plain (id int PRIMARY KEY, a varchar(20), n decimal(10,2), d date)",
        "INSERT INTO plain VALUES (1, 'x', 1.50, '2024-02-29'), (2, NULL, NULL, NULL), (3, '', -0.01, '0001-01-01')",
        f"CREATE TABLE {q('its.a b')} ({q('the key')} int PRIMARY KEY, {q('a.b')} int, {q('select')} int)",
        f"INSERT INTO {q('its.a b')} VALUES (1, 2, 3)",
        f"CREATE TABLE {q(LONG)} ({q('c' * 63)} int PRIMARY KEY)",
        f"INSERT INTO {q(LONG)} VALUES (7)",
        "CREATE TABLE keyless (a int, b varchar(9))",
        "INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL), (2, 'y')",
        "CREATE TABLE composite (a int, b varchar(9), v int, PRIMARY KEY (b, a))",
        "INSERT INTO composite VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3)",
        "CREATE TABLE nobody (id int PRIMARY KEY, v int)",
        "CREATE TABLE void (v int)",
        "CREATE VIEW seen AS SELECT a FROM plain",
        "CREATE TABLE system (id int PRIMARY KEY, _instep_id int, _instep_synced int, _instep_deleted int)",
        "INSERT INTO system VALUES (1, 2, 3, 4)",
    ]
    if world.case.case_sensitive:
        statements += [
            f"CREATE TABLE {q('Plain')} (id int PRIMARY KEY, {q('a')} int)",
            f"INSERT INTO {q('Plain')} VALUES (5, 6)",
        ]
    if world.case.kind == "postgres":
        statements += [
            'CREATE TABLE twins (id int PRIMARY KEY, a int, "A" int)',
            "INSERT INTO twins VALUES (1, 2, 3)",
            'CREATE TABLE "🦀 crab" ("🔑" int PRIMARY KEY, "ünï" text)',
            "INSERT INTO \"🦀 crab\" VALUES (1, '🦀')",
            "CREATE TABLE nocolumns ()",
            "CREATE SCHEMA other",
            "CREATE TABLE other.plain (id int PRIMARY KEY)",
            "INSERT INTO other.plain VALUES (9)",
        ]
    return statements


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@shows(trap=10)
def test_the_first_and_the_second_sync_leave_everything_equal(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind, policy=MEET, engine="spark")
    world.run(*awkward(world))
    for _ in range(2):
        report = world.sync()
        assert {t: s for t, s in world.statuses(report).items() if s != "done"} == {}, report
        assert world.differing() == {}
        assert world.rows("keyless") == [(1, "x"), (1, "x"), (1, "x"), (2, "y"), (None, None), (None, None)]
    assert world.schema("composite").endswith("v int32") or kind == "sqlite"
    assert world.accepted("composite").key == ("b", "a")
    assert "seen" not in world.tables()
    assert world.rows("nobody") == world.rows("void") == []
    assert world.rows("system", "src__instep_id") == [(2,)]
    assert counts(report, "composite")[1:] == (0, 0, 0, 0)


def test_case_twins_and_schemas_get_names_of_their_own(world: World) -> None:
    world.policy = MEET
    world.run(*awkward(world))
    world.sync()
    tables = {t.path: t.alias for t in world.store.accepted.catalog("shop").tables}
    assert tables["public.Plain"] == "Plain"
    assert tables["public.plain"].startswith("plain_")
    assert tables["other.plain"] == "other__plain"
    names = [c.alias for c in world.accepted("twins").columns]
    assert names[:2] == ["id", "a"]
    assert names[2].startswith("A_")


@shows(event=58)
def test_what_is_off_is_not_read_and_a_named_view_is(world: World) -> None:
    world.run(
        "CREATE TABLE a (id int PRIMARY KEY, secret text, mail text)", "INSERT INTO a VALUES (1, 's', 'm@x')",
        "CREATE TABLE b (id int PRIMARY KEY)", "CREATE VIEW v AS SELECT id, mail FROM a",
    )  # fmt: skip
    world.selection = Selection(
        include=patterns(["public.a", "public.v"]), exclude_columns=patterns(["*.secret"]), hashed=patterns(["*.mail"])
    )
    world.settings["v"] = by_key("id")
    world.sync()
    assert world.tables() == {"a": "a", "v": "v"}
    [(key, mail)] = world.rows("a")
    assert (key, len(mail)) == (1, 64)
    assert world.rows("v") == [(1, mail)]
    assert world.accepted("v").key == ("id",)
    assert world.differing() == {}


def test_switching_off_drops_nothing_and_switching_on_loads(world: World) -> None:
    world.run("CREATE TABLE a (id int PRIMARY KEY, v int)", "CREATE TABLE b (id int PRIMARY KEY)")
    world.run("INSERT INTO a VALUES (1, 2)", "INSERT INTO b VALUES (1)")
    world.sync()
    world.selection = Selection(exclude_tables=patterns(["public.b"]), exclude_columns=patterns(["public.a.v"]))
    world.run("INSERT INTO a VALUES (2, 3)", "INSERT INTO b VALUES (2)")
    report = world.sync()
    assert world.statuses(report) == {"a": "done"}
    assert world.rows("b") == [(1,)]
    assert world.rows("a") == [(1, 2), (2, None)]
    assert world.reviews() == {}
    world.selection = Selection()
    world.sync()
    assert world.rows("b") == [(1,), (2,)]
    assert world.differing() == {}
