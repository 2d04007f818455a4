# ruff: noqa: E501, S608 - statements of this file
"""Tables that come, go, change their names or their keys, while others go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.shows import shows
from sync_world import MakeWorld, World, counts, preset


def table(name: str, *rows: str, columns: str = "id int PRIMARY KEY, v int") -> tuple[str, ...]:
    values = [f"INSERT INTO {name} VALUES {row}" for row in rows]
    return (f"CREATE TABLE {name} ({columns})", *values)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
@shows(event=49)
def test_tables_come_and_go(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(*table("stays", "(1, 1)"), *table("goes", "(1, 2)"), *table("x", "(1, 2)"), *table("y", "(1, 2)"))
    world.sync()
    world.run("DROP TABLE goes", *table("comes", "(5, 5)"))
    report = world.sync()
    if not world.case.table_ids:
        assert world.statuses(report)["goes"] == "missing"
        assert world.reviews() == {"table goes removed (2 columns)": "ignore", "table goes renamed to comes?": "review"}
        report = world.sync()
    assert world.statuses(report) == {"stays": "done", "comes": "done", "x": "done", "y": "done"}
    assert world.tables() == {"stays": "stays", "goes": "goes~", "comes": "comes", "x": "x", "y": "y"}
    assert world.rows("comes") == [(5, 5)]
    assert world.rows("goes") == [(1, 2)]
    world.run(*table("goes", "(1, 3), (2, 4)"))
    world.sync()
    assert world.tables()["goes"] == "goes"
    assert world.rows("goes") == [(1, 3), (2, 4)]
    assert world.differing() == {}


def test_tables_change_their_names(world: World) -> None:
    world.run(*table("a", "(1, 1)"), *table("b", "(1, 2)"), *table("c", "(1, 3)"), *table("d", "(1, 4)"))
    world.sync()
    world.run(
        "ALTER TABLE a RENAME TO x", "ALTER TABLE b RENAME TO a", "ALTER TABLE x RENAME TO b",
        "ALTER TABLE c RENAME TO e", "INSERT INTO e VALUES (2, 5)", "CREATE SCHEMA other", "ALTER TABLE d SET SCHEMA other",
    )  # fmt: skip
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}
    assert counts(report, "a") == (1, 0, 0, 0, 0)
    assert [world.rows(t) for t in ("a", "b", "e")] == [[(1, 2)], [(1, 1)], [(1, 3), (2, 5)]]
    assert world.rows_at(("shop", "other__d"), "id", "v") == [(1, 4)]
    assert sorted(world.destination.schema.tables()) == [("shop", t) for t in ("a", "b", "e", "other__d")]
    assert world.differing() == {}


def test_a_pause_follows_its_table(world: World) -> None:
    world.run(*table("a", "(1, 1)"), *table("b", "(1, 2)"))
    world.sync()
    world.store.pauses.pause("shop", "manually", table=("public", "a"))
    world.run(
        "ALTER TABLE a RENAME TO x", "ALTER TABLE b RENAME TO a", "ALTER TABLE x RENAME TO b", "UPDATE a SET v = 9",
        "UPDATE b SET v = 9",
    )  # fmt: skip
    report = world.sync()
    assert world.statuses(report) == {"a": "done", "b": "paused"}
    assert world.pauses() == {"b": "manually"}
    assert (world.rows("a"), world.rows("b")) == ([(1, 9)], [(1, 1)])


def test_a_held_rename_is_read_under_the_accepted_name(world: World) -> None:
    world.policy = preset("block_all")
    world.run(*table("t", "(1, 1)", columns="id int PRIMARY KEY, v int, w int DEFAULT 3"))
    world.sync()
    world.run(
        "ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME v TO x", "ALTER TABLE u ALTER w TYPE bigint",
        "INSERT INTO u VALUES (2, 2, 9000000000)",
    )  # fmt: skip
    report = world.sync()
    assert world.reviews() == {"table t renamed to u": "review", "column u.v renamed to x": "review"}
    assert world.statuses(report) == {"t": "done"}
    assert world.rows("t", "id", "v", "w") == [(1, 1, 3), (2, 2, 9000000000)]
    assert world.differing() == {}
    world.answer("approved")
    world.sync()
    assert world.rows("u", "id", "x", "w") == [(1, 1, 3), (2, 2, 9000000000)]


@shows(event=49)
def test_a_table_is_replaced_under_its_name(world: World) -> None:
    world.run(
        *table("t", "(1, 1), (2, 2)"), *table("k", "(1, 1)"), *table("n", "(1, 1), (1, 1)", columns="a int, b int")
    )
    world.sync()
    world.run("DROP TABLE t", *table("t", "(1, 'x'), (3, 'y')", columns="id int PRIMARY KEY, v text, w int"))
    world.run("DROP TABLE k", *table("k", "(1, 7)", columns="id int, v int PRIMARY KEY"))
    world.run("DROP TABLE n", *table("n", "(4, 1)", columns="b int, a int"))
    report = world.sync()
    assert world.statuses(report) == {"t": "done", "k": "missing", "n": "done"}
    assert world.rows("t", "id", "v", "w") == [(1, "x", None), (3, "y", None)]
    assert world.rows("n", "a", "b") == [(1, 4)]
    assert world.rows("k", "id", "v") == [(1, 1)]
    assert world.accepted("t").generation == 1
    assert set(world.differing()) == {"k"}
    world.answer("approved")
    world.sync()
    assert world.rows("k", "id", "v") == [(1, 7)]
    assert world.differing() == {}
    assert world.sync().status == "done"
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_changed_key_pauses_its_table_until_approved_and_rebuilt(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    drop = "DROP CONSTRAINT t_pkey" if kind == "postgres" else "DROP PRIMARY KEY"
    world.run(*table("t", "(1, 1, 1), (2, 1, 1), (3, 3, 3)", columns="id int PRIMARY KEY, v int NOT NULL, w int"))
    world.run(*table("other", "(1, 1)"))
    world.sync()
    world.run("DELETE FROM t WHERE id = 3")
    world.sync()
    assert world.rows("t", deleted=True) == [(1, 1, 1), (2, 1, 1), (3, 3, 3)]
    world.run(f"ALTER TABLE t {drop}", "ALTER TABLE t ADD PRIMARY KEY (id, v)", "INSERT INTO t VALUES (1, 2, 2)")
    world.run("INSERT INTO other VALUES (2, 2)")
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t": "paused", "other": "done"}
        assert world.rows("t") == [(1, 1, 1), (2, 1, 1)]
    assert world.rows("other") == [(1, 1), (2, 2)]
    assert list(world.pauses()) == ["t"]
    world.answer("approved")
    report = world.sync()
    assert world.statuses(report) == {"t": "done", "other": "done"}
    assert world.schema("t") == "id int32!, v int32!, w int32"
    assert world.rows("t", deleted=True) == [(1, 1, 1), (1, 2, 2), (2, 1, 1)]
    assert world.pauses() == {}
    assert world.store.backfills.waiting("shop") == []
    assert world.differing() == {}
    world.run("UPDATE t SET w = 5 WHERE v = 2")
    assert counts(world.sync(), "t") == (3, 0, 1, 0, 0)


def test_a_key_that_goes_and_one_that_comes(world: World) -> None:
    world.run(*table("gone", "(1, 1)"), *table("come", "(1, 1), (2, 2)", columns="id int NOT NULL, v int"))
    world.sync()
    world.run("ALTER TABLE gone DROP CONSTRAINT gone_pkey", "INSERT INTO gone VALUES (1, 1), (1, 2)")
    world.run("ALTER TABLE come ADD PRIMARY KEY (id)", "UPDATE come SET v = 3 WHERE id = 2")
    assert set(world.statuses(world.sync()).values()) == {"paused"}
    world.answer("approved")
    assert set(world.statuses(world.sync()).values()) == {"done"}
    assert world.rows("gone") == [(1, 1), (1, 1), (1, 2)]
    assert world.rows("come") == [(1, 1), (2, 3)]
    world.run("UPDATE come SET v = 4 WHERE id = 2")
    report = world.sync()
    assert counts(report, "come") == (2, 0, 1, 0, 0)
    assert world.differing() == {}


def test_a_key_that_is_reverted_lets_its_table_run_again(world: World) -> None:
    world.run(*table("t", "(1, 1)"))
    world.sync()
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey")
    assert world.statuses(world.sync()) == {"t": "paused"}
    world.run("ALTER TABLE t ADD PRIMARY KEY (id)", "INSERT INTO t VALUES (2, 2)")
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.pauses() == world.reviews() == world.differing() == {}
    assert world.events("connection.paused", "connection.resumed") == ["connection.paused", "connection.resumed"]


def test_a_rejected_key_keeps_its_table_from_mixing_keys(world: World) -> None:
    world.run(*table("t", "(1, 1)"))
    world.sync()
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "INSERT INTO t VALUES (1, 2)")
    world.sync()
    world.answer("rejected")
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t": "paused"}
        assert world.rows("t") == [(1, 1)]
    assert world.pauses() == {}


@pytest.fixture
def with_ids(make_world: MakeWorld, mariadb) -> World:  # type: ignore[no-untyped-def]
    """Over MariaDB, as a user who may see InnoDB's table ids."""
    from instep.sources.mysql.source import MySqlSource

    world = make_world("mysql")
    config = mariadb.admin.model_copy(update={"database": mariadb.config.database})
    world.case = replace(world.case, source=lambda **_: MySqlSource(config))
    return world


def test_weak_ids_prove_a_rename_and_nothing_else(with_ids: World) -> None:
    world = with_ids
    world.run(*table("a", "(1, 1)"), *table("b", "(1, 2)"), *table("c", "(1, 3)"), *table("d", "(1, 4)"))
    world.sync()
    assert all((t.id or "").startswith("~") for t in world.store.accepted.catalog("shop").tables)
    world.run("RENAME TABLE a TO x, b TO a, x TO b", "RENAME TABLE d TO e", "TRUNCATE c", "INSERT INTO c VALUES (9, 9)")
    for _ in range(2):
        world.preview()
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}
    assert {t: world.rows(t) for t in ("a", "b", "c", "e")} == {
        "a": [(1, 2)], "b": [(1, 1)], "c": [(9, 9)], "e": [(1, 4)],
    }  # fmt: skip
    assert counts(report, "a") == counts(report, "e") == (1, 0, 0, 0, 0)
    assert world.accepted("c").generation == 0
    assert world.differing() == world.reviews() == {}


def test_swapped_tables_are_seen_by_a_plan_too(with_ids: World) -> None:
    world = with_ids
    world.run(*table("a", "(1, 1)"), *table("b", "(1, 2)"))
    world.evolve()
    world.preview()
    world.run("RENAME TABLE a TO x, b TO a, x TO b")
    world.preview()
    assert set(world.reviews()) == {"table a renamed to b", "table b renamed to a"}
