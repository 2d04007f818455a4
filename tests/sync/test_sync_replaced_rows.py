"""Rows that were replaced as a whole by rows with the same keys and no newer cursors: a cursor does not find them, so
the table is read again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from instep.sources.postgres.source import PostgresSource
from postgres_server import Database
from source_reads import accept
from sync_world import MakeWorld, World, counts, cursor, preset

ROWS = "INSERT INTO t VALUES (1, 1, 5), (2, 2, 6)"
AGAIN = "INSERT INTO t VALUES (1, 1, 50), (2, 2, 60)"
PARTS = (
    "CREATE TABLE t (id int PRIMARY KEY, at int, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (2)",
    "CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (2) TO (4)",
)
OTHER = "CREATE TABLE o (LIKE t INCLUDING ALL)", "INSERT INTO o VALUES (1, 1, 50)"
ATTACH = "ALTER TABLE t ATTACH PARTITION o FOR VALUES FROM (0) TO (2)"
PLAIN = ("CREATE TABLE t (id int PRIMARY KEY, at int, v int)",)
CHILD = (*PLAIN, "CREATE TABLE t_1 (PRIMARY KEY (id)) INHERITS (t)", "INSERT INTO t_1 VALUES (3, 0, 7)")
REPLACED = {
    "table": (PLAIN, ("TRUNCATE t", AGAIN)),
    "table in one transaction": (PLAIN, (f"BEGIN; TRUNCATE t; {AGAIN}; COMMIT",)),
    "table that is rewritten then": (PLAIN, ("TRUNCATE t", AGAIN, "VACUUM FULL t")),
    "table with a newer row": (PLAIN, ("TRUNCATE t", AGAIN, "INSERT INTO t VALUES (3, 3, 70)")),
    "child": (CHILD, ("TRUNCATE t_1", "INSERT INTO t_1 VALUES (3, 0, 70)")),
    "partition": (PARTS, ("TRUNCATE t_1", "INSERT INTO t VALUES (1, 1, 50)")),
    "exchanged partition": (PARTS, ("ALTER TABLE t DETACH PARTITION t_1", *OTHER, ATTACH)),
    "partition that was away": (
        PARTS,
        (
            "ALTER TABLE t DETACH PARTITION t_1",
            "UPDATE t_1 SET v = 50",
            "ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES FROM (0) TO (2)",
        ),
    ),
}
HASHED = "CREATE TABLE t (id int PRIMARY KEY, at int, v int) PARTITION BY HASH (id) PARTITIONS 2"
INNODB = {
    "table": (PLAIN, ("TRUNCATE t", AGAIN)),
    "partition": ((HASHED,), ("ALTER TABLE t TRUNCATE PARTITION p1", "INSERT INTO t VALUES (1, 1, 50)")),
    "exchanged partition": (
        (HASHED,),
        (
            "CREATE TABLE o (id int PRIMARY KEY, at int, v int)",
            "INSERT INTO o VALUES (1, 1, 50)",
            "ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE o",
        ),
    ),
}
KEPT = {
    "vacuum": (PLAIN, ("VACUUM t",)),
    "freeze": (PLAIN, ("VACUUM (FREEZE, FULL) t",)),
    "cluster": (PLAIN, ("CLUSTER t USING t_pkey",)),
    "reindex": (PLAIN, ("REINDEX TABLE t",)),
    "update": (PLAIN, ("UPDATE t SET at = 4 WHERE id = 2", "VACUUM FULL t")),
    "retyped": (PLAIN, ("ALTER TABLE t ALTER v TYPE bigint",)),
    "partitions": (PARTS, ("VACUUM FULL t_1", "VACUUM FULL t_2")),
    "new partition": (
        PARTS,
        ("CREATE TABLE t_3 PARTITION OF t FOR VALUES FROM (8) TO (9)", "INSERT INTO t VALUES (8, 8, 8)"),
    ),
    "attached empty": (
        PARTS,
        (
            "CREATE TABLE o (LIKE t INCLUDING ALL)",
            "ALTER TABLE t ATTACH PARTITION o FOR VALUES FROM (8) TO (9)",
            "INSERT INTO t VALUES (8, 8, 8)",
        ),
    ),
}


def loaded(make_world: MakeWorld, tables: tuple[str, ...], deletes: str = "soft", kind: str = "postgres") -> World:
    world = make_world(kind, policy=preset("allow_all"), settings={"t": cursor("at", deletes=deletes)})
    if kind == "mysql":
        world.run(f"GRANT PROCESS ON *.* TO {world.case.schema}_owner")
    world.run(*tables, ROWS)
    world.sync()
    return world


@pytest.mark.parametrize("case", REPLACED.values(), ids=REPLACED)
def test_replaced_rows_are_read(make_world: MakeWorld, case: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    world = loaded(make_world, case[0])
    world.run(*case[1])
    report = world.sync()
    assert world.differing() == {}
    assert any("so the whole table is read" in note for note in report.notes)
    assert counts(world.sync(), "t")[0] <= 1, "only what the cursor finds from then on"


@pytest.mark.parametrize("case", INNODB.values(), ids=INNODB)
def test_replaced_rows_of_innodb_are_read(make_world: MakeWorld, case: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    world = loaded(make_world, case[0], kind="mysql")
    world.run(*case[1])
    world.sync()
    assert world.differing() == {}
    assert counts(world.sync(), "t")[0] <= 1, "only what the cursor finds from then on"


@pytest.mark.parametrize("statement", ["ANALYZE TABLE t", "ALTER TABLE t ADD INDEX (v)", "ALTER TABLE t COMMENT 'a'"])
def test_kept_rows_of_innodb_are_not_read_again(make_world: MakeWorld, statement: str) -> None:
    world = loaded(make_world, PLAIN, kind="mysql")
    world.run(statement)
    assert not any("so the whole table is read" in note for note in world.sync().notes)


@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT)
def test_kept_rows_are_not_read_again(make_world: MakeWorld, case: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    world = loaded(make_world, case[0])
    world.run(*case[1])
    report = world.sync()
    assert not any("so the whole table is read" in note for note in report.notes)
    assert world.differing() == {}


def test_rows_that_come_to_an_emptied_table_later_are_read(make_world: MakeWorld) -> None:
    world = loaded(make_world, PLAIN, deletes="ignore")
    world.run("TRUNCATE t")
    world.sync()
    world.run(AGAIN)
    world.sync()
    assert sorted(world.rows("t", "id", "v")) == [(1, 50), (2, 60)]


@pytest.mark.parametrize("columns", ["", " (id, at, v)"], ids=["of the whole table", "of its columns"])
def test_rights_on_the_partitioned_table_alone(postgres: Database, columns: str) -> None:
    """A reader of the whole table sees what its rows are. One of its columns does not, so that a rewrite has the table
    read again."""
    for statement in (
        *PARTS,
        ROWS,
        "REVOKE SELECT ON t, t_1, t_2 FROM reader",
        f"GRANT SELECT{columns} ON t TO reader",
    ):
        postgres.execute(statement)
    found = definition(postgres)
    postgres.execute("VACUUM FULL t_1")
    assert (definition(postgres, found)["rows"] == found["rows"]) is not bool(columns)
    postgres.execute("TRUNCATE t_1")
    postgres.execute("INSERT INTO t VALUES (1, 1, 50)")
    assert definition(postgres, found)["rows"] != found["rows"]


def definition(database: Database, before: Mapping[str, str] | None = None) -> Mapping[str, str]:
    ref = ("public", "t")
    with PostgresSource(database.reader).snapshot() as snapshot:
        [read] = [accept(t) for t in snapshot.discover().catalog.tables if t.ref == ref]
        return snapshot.definitions([read], {ref: before} if before else {})[ref]
