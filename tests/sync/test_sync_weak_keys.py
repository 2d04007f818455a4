"""Rows whose keys differ at the source and are one at the destination fail their table: merged, all but one would be
lost, and nothing would say so."""

# ruff: noqa: S608 - the test makes all names and values itself
from __future__ import annotations

import pytest

from instep.project.sections.tables import TableSettings
from sync_world import MakeWorld, World, cursor

FORMS = {
    "a text and its bytes": ("text", "'a'", "x'61'"),
    "moments": ("timestamp", "'2024-01-01 00:00:00'", "'2024-01-01T00:00:00'"),
    "a day and a moment": ("date", "'2024-01-01'", "'2024-01-01 00:00:00'"),
    "moments in zones": ("timestamptz", "'2024-01-01 00:00:00Z'", "'2024-01-01 01:00:00+01:00'"),
    "uuids": ("uuid", "'00000000-0000-0000-0000-0000000000ff'", "x'000000000000000000000000000000ff'"),
    "truth": ("boolean", "1", "'true'"),
    "no type": ("", "1", "'1'"),
}
WAYS = {"compared": TableSettings(), "cursor": cursor("v"), "history": TableSettings(history=True)}


def failure(world: World, name: str = "t") -> str:
    found = next(t for t in world.sync().tables if t.table[1] == name)
    assert found.status == "failed"
    return found.error


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_sqlite_keys_that_differ_in_form(make_world: MakeWorld, form: str, way: str) -> None:
    kind, first, second = FORMS[form]
    world = make_world("sqlite")
    world.settings["t"] = WAYS[way]
    world.run(
        f"CREATE TABLE t (k {kind}, j int NOT NULL, v int NOT NULL, PRIMARY KEY (k, j))",
        f"INSERT INTO t VALUES ({first}, 1, 1)",
    )
    world.sync()
    before = world.rows("t")
    world.run(f"INSERT INTO t VALUES ({second}, 1, 2)")
    error = failure(world)
    assert "the key k, j, whose values may differ at the source in their form alone, is not unique: 1 rows" in error
    assert world.rows("t") == before
    world.run("UPDATE t SET j = 2, v = 3 WHERE v = 2")
    report = world.sync()
    assert [(t.status, t.error) for t in report.tables] == [("done", "")]
    assert len(world.rows("t")) == 2
    assert world.differing() == {}


def test_a_merge_table_repeats_keys_of_its_parts(make_world: MakeWorld) -> None:
    world = make_world("mysql")
    world.run(
        "CREATE TABLE a (id int PRIMARY KEY, v int) ENGINE=MyISAM",
        "CREATE TABLE b (id int PRIMARY KEY, v int) ENGINE=MyISAM",
        "CREATE TABLE t (id int PRIMARY KEY, v int) ENGINE=MERGE UNION=(a, b)",
        "INSERT INTO a VALUES (1, 1)",
        "INSERT INTO b VALUES (2, 2)",
    )
    assert set(world.statuses(world.sync()).values()) == {"done"}
    world.run("INSERT INTO b VALUES (1, 10)")
    assert "the key id, which the source does not guarantee, is not unique: 1 rows share it" in failure(world)
    world.run("DELETE FROM b WHERE id = 1")
    assert set(world.statuses(world.sync()).values()) == {"done"}
    assert world.differing() == {}


@pytest.mark.parametrize(
    ("kind", "types", "first", "second"),
    [("text", {"text": "int64"}, "'1'", "'01'"), ("int[]", {}, "'{1,2}'", "'[2:3]={1,2}'")],
    ids=["texts of one number", "bounds of an array"],
)
def test_keys_that_lose_what_they_differ_in(
    make_world: MakeWorld, kind: str, types: dict[str, str], first: str, second: str
) -> None:
    """Under a type that a person has chosen, or under the only one that there is."""
    world = make_world(types=types)
    world.run(f"CREATE TABLE t (k {kind} PRIMARY KEY, v int)", f"INSERT INTO t VALUES ({first}, 1)")
    world.sync()
    world.run(f"INSERT INTO t VALUES ({second}, 2)")
    assert "the key k, whose values may differ at the source in their form alone, is not unique" in failure(world)
    assert world.rows("t", "v") == [(1,)]
