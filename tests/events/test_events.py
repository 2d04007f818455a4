"""Schema events, each from a real source into a real lake."""

from __future__ import annotations

import threading

import pytest

from events.shows import shows
from instep.errors import InstepError
from instep.schema.selection.selection import Selection, patterns
from sync_world import MakeWorld, World, counts, cursor, preset

SOURCES = ("postgres", "mysql", "sqlite")
PG, MY, LITE = SOURCES
T = ("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10), (2, 20)")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def kinds(world: World, *statuses: str) -> list[str]:
    """The kinds of the changes beside the first schema and tables, sorted."""
    found = world.store.reviews.find("shop", statuses or ("applied",))  # type: ignore[arg-type]
    return sorted(r.kind for r in found if r.kind not in ("schema.added", "table.added"))


@pytest.mark.sampled
@shows(event=41)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("column", ["b int", "b int DEFAULT 5", "b int NOT NULL DEFAULT 5"])
@pytest.mark.parametrize("fill", ["none", "column"])
def test_a_column_is_added(make_world: MakeWorld, kind: str, column: str, fill: str) -> None:
    """Under a cursor: old rows have its value after a backfill, and NULL without one."""
    world = make_world(kind, policy=preset("propagate_all", backfill=fill))
    world.settings["t"] = cursor("id", deletes="ignore")
    world.run(*T)
    world.sync()
    world.run(f"ALTER TABLE t ADD COLUMN {column}", "INSERT INTO t VALUES (3, 30, 7)")
    world.sync()
    default = 5 if "DEFAULT" in column else None
    old = default if fill == "column" else None
    assert world.rows("t", "id", "b")[0] == (1, old)
    assert world.rows("t", "id", "b")[-1] == (3, 7)


@pytest.mark.sampled
@shows(event=42)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("name", "columns"), [("allow_all", ["id", "a", "b"]), ("propagate_all", ["id", "b"])])
def test_a_column_is_dropped(make_world: MakeWorld, kind: str, name: str, columns: list[str]) -> None:
    world = make_world(kind, policy=preset(name))
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 10, 100)")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (2, 200)")
    world.settled()
    assert [c.alias for c in world.accepted("t").columns] == columns
    assert [row[-1] for row in world.rows("t")] == [100, 200]


@shows(event=51)
def test_a_schema_is_renamed_and_a_table_is_moved(world: World) -> None:
    world.run("CREATE SCHEMA old", *(s.replace(" t ", " old.t ") for s in T), "CREATE TABLE old.u (id int PRIMARY KEY)")
    world.sync()
    world.run("ALTER SCHEMA old RENAME TO new", "INSERT INTO new.t VALUES (3, 30)")
    world.sync()
    assert {t.path: t.alias for t in world.store.accepted.catalog("shop").tables} == {
        "new.t": "new__t",
        "new.u": "new__u",
    }
    world.run("ALTER TABLE new.t SET SCHEMA public", "INSERT INTO t VALUES (4, 40)")
    world.sync()
    assert world.tables()["t"] == "t"
    assert world.rows("t") == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert "table.removed" not in kinds(world, "applied", "open")


@pytest.mark.sampled
@shows(event=52)
@pytest.mark.parametrize("kind", [MY, LITE])
def test_only_the_order_of_columns_changes(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a varchar(9), b int)", "INSERT INTO t VALUES (1, 'x', 10)")
    world.sync()
    if kind == MY:
        world.run("ALTER TABLE t MODIFY a varchar(9) AFTER b")
    else:
        world.run(
            "CREATE TABLE n (id int PRIMARY KEY, b int, a varchar(9))", "INSERT INTO n SELECT id, b, a FROM t",
            "DROP TABLE t", "ALTER TABLE n RENAME TO t",
        )  # fmt: skip
    world.run("INSERT INTO t VALUES (2, 20, 'y')")
    world.settled()
    assert kinds(world) == ["column.reordered"]
    assert world.rows("t", "id", "a", "b") == [(1, "x", 10), (2, "y", 20)]
    assert not world.reviews("open")


QUIET = [
    (PG, "ALTER TABLE t ALTER a SET NOT NULL", ["column.nullability"]),
    (PG, "ALTER TABLE t ALTER a SET DEFAULT 5", ["column.default"]),
    (PG, "COMMENT ON COLUMN t.a IS 'more'", ["column.comment"]),
    (PG, "COMMENT ON TABLE t IS 'more'", ["table.comment"]),
    (PG, 'ALTER TABLE t ALTER n TYPE text COLLATE "C"', []),
    (MY, "ALTER TABLE t MODIFY a int NOT NULL", ["column.nullability"]),
    (MY, "ALTER TABLE t ALTER a SET DEFAULT 5", ["column.default"]),
    (MY, "ALTER TABLE t MODIFY n text CHARACTER SET latin1", []),
    (MY, "ALTER TABLE t MODIFY n text COLLATE utf8mb4_bin", []),
]


@pytest.mark.sampled
@shows(event=53)
@pytest.mark.parametrize(("kind", "statement", "told"), QUIET, ids=[q[1] for q in QUIET])
def test_what_changes_no_value(make_world: MakeWorld, kind: str, statement: str, told: list[str]) -> None:
    """Recorded, and nothing waits or is written anew."""
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, n text)", "INSERT INTO t VALUES (1, 10, 'é')")
    world.sync()
    world.run(statement)
    report = world.sync()
    assert kinds(world) == told
    assert counts(report, "t")[1:] == (0, 0, 0, 0)
    assert world.pauses() == world.reviews("open") == {}
    assert world.rows("t") == [(1, 10, "é")]


@pytest.mark.sampled
@shows(event=54)
@pytest.mark.parametrize("kind", [PG, MY])
def test_labels_of_an_enum(make_world: MakeWorld, kind: str) -> None:
    """An enum is text in the lake: labels come, change and go without a question."""
    world = make_world(kind)
    labels = "mood" if kind == PG else "enum('sad', 'ok')"
    world.run(
        *(["CREATE TYPE mood AS ENUM ('sad', 'ok')"] if kind == PG else []),
        f"CREATE TABLE t (id int PRIMARY KEY, a {labels})",
    )
    world.run("INSERT INTO t VALUES (1, 'sad')")
    world.sync()
    if kind == PG:
        world.run("ALTER TYPE mood ADD VALUE 'great'", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    else:
        world.run("ALTER TABLE t MODIFY a enum('sad', 'ok', 'great', 'blue')", "UPDATE t SET a = 'blue'")
    world.run("INSERT INTO t VALUES (2, 'great')")
    world.sync()
    assert world.rows("t") == [(1, "blue"), (2, "great")]
    if kind == MY:
        world.run("ALTER TABLE t MODIFY a enum('great', 'blue')")
        world.sync()
    assert world.reviews("open") == world.pauses() == world.differing() == {}


@pytest.mark.sampled
@shows(event=55)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_generated_column_is_read_like_others(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a * 2) STORED)")
    world.run("INSERT INTO t (id, a) VALUES (1, 10)")
    world.sync()
    world.run("UPDATE t SET a = 11", "INSERT INTO t (id, a) VALUES (2, 20)")
    if kind != LITE:
        world.run("ALTER TABLE t ADD c int GENERATED ALWAYS AS (a + 1) STORED")
    world.sync()
    assert world.rows("t", "id", "a", "b") == [(1, 11, 22), (2, 20, 40)]
    assert world.differing() == {}


@shows(event=56)
def test_partitions_come_and_go(world: World) -> None:
    """One table, whatever the order of a partition's own columns."""
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)", "INSERT INTO t VALUES (1, 10)",
    )  # fmt: skip
    world.sync()
    assert world.tables() == {"t": "t"}
    world.run(
        "CREATE TABLE t2 (a int, id int NOT NULL PRIMARY KEY)", "INSERT INTO t2 VALUES (20, 12)",
        "ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)",
    )  # fmt: skip
    world.sync()
    assert world.tables() == {"t": "t"}
    assert world.rows("t") == [(1, 10), (12, 20)]
    world.run("ALTER TABLE t DETACH PARTITION t1")
    world.sync()
    assert world.rows("t") == [(12, 20)]
    assert world.tables() == {"t": "t", "t1": "t1"}
    assert world.differing() == {}


@shows(event=57)
def test_a_column_of_a_parent_reaches_its_children(world: World) -> None:
    world.run(*T, "CREATE TABLE kid (PRIMARY KEY (id), extra int) INHERITS (t)", "INSERT INTO kid VALUES (5, 50, 500)")
    world.sync()
    world.run("ALTER TABLE t ADD b int", "UPDATE t SET b = 1")
    world.sync()
    assert world.schema("kid").endswith("extra int32, b int32")
    assert world.rows("kid") == [(5, 50, 500, 1)]


@shows(event=58)
def test_kinds_of_views_are_off_until_they_are_named(world: World) -> None:
    world.run(*T, "CREATE VIEW v AS SELECT * FROM t", "CREATE MATERIALIZED VIEW m AS SELECT id FROM t")
    world.sync()
    assert set(world.tables()) == {"t"}
    world.selection = Selection(include=patterns(["public.t", "public.m"]))
    world.sync()
    assert set(world.tables()) == {"t", "m"}
    assert world.rows("m") == [(1,), (2,)]


@shows(event=59)
def test_as_many_columns_as_postgresql_has(world: World) -> None:
    """1,600, dropped ones included."""
    columns = ", ".join(f"c{n} int" for n in range(1599))
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})", "INSERT INTO t (id, c0, c1598) VALUES (1, 5, 6)")
    world.sync()
    assert world.rows("t", "id", "c0", "c1598") == [(1, 5, 6)]
    world.run("ALTER TABLE t DROP COLUMN c0")
    with pytest.raises(Exception, match="1600 columns"):
        world.run("ALTER TABLE t ADD c0 int")
    assert set(world.statuses(world.sync()).values()) == {"done"}


@shows(event=60)
def test_as_many_columns_as_innodb_has(make_world: MakeWorld) -> None:
    world = make_world(MY)
    columns = ", ".join(f"c{n} int" for n in range(1016))
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})", "INSERT INTO t (id, c0, c1015) VALUES (1, 5, 6)")
    world.sync()
    assert world.rows("t", "id", "c0", "c1015") == [(1, 5, 6)]


@shows(event=66)
def test_an_older_schema_appears_again(world: World) -> None:
    """As after a failover to a replica that is behind: what is missing is kept, and comes back as it was."""
    world.run(*T, "ALTER TABLE t ADD b int", "UPDATE t SET b = id")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN b")
    world.sync()
    assert world.schema("t") == "id int32!, a int32, b int32~"
    world.run("ALTER TABLE t ADD b int", "UPDATE t SET b = id")
    world.sync()
    assert world.schema("t") == "id int32!, a int32, b int32"
    assert world.rows("t") == [(1, 10, 1), (2, 20, 2)]


@shows(event=70)
def test_a_detection_during_a_sync_is_refused_or_tells_nothing_twice(world: World) -> None:
    world.run(*T)
    world.sync()
    world.run("ALTER TABLE t ADD b int")
    failed: list[BaseException] = []

    def look() -> None:
        try:
            world.detect()
        except InstepError as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("run" in str(error) for error in failed)
    assert len([r for r in world.store.reviews.find("shop", ()) if r.kind == "column.added"]) == 1
