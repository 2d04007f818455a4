"""Partitions of tables that follow the log: what becomes of them is in no log, and lands all the same."""

from __future__ import annotations

import pytest
from log_world import LogWorld

from instep.project.sections.tables import TableSettings
from sync_world import counts

pytestmark = pytest.mark.server

T = (
    "CREATE TABLE t (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
    "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1)",
    "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2)",
    "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 2, 'c')",
)
BESIDE = ("CREATE TABLE t_3 (LIKE t INCLUDING ALL)", "INSERT INTO t_3 VALUES (9, 3, 'x')")
ATTACH = "ALTER TABLE t ATTACH PARTITION t_3 FOR VALUES IN (3)"
CASES: list[tuple[str, tuple[str, ...], int]] = [
    ("attached", (*BESIDE, ATTACH), 4),
    ("made, filled and attached by one transaction", (f"DO $$BEGIN {'; '.join((*BESIDE, ATTACH))}; END$$",), 4),
    ("detached", ("ALTER TABLE t DETACH PARTITION t_1",), 2),
    ("dropped", ("DROP TABLE t_2",), 1),
    ("truncated alone", ("TRUNCATE t_2", "INSERT INTO t VALUES (4, 2, 'd')"), 2),
    ("detached, changed and attached again", ("ALTER TABLE t DETACH PARTITION t_1", "UPDATE t_1 SET v = 'new'",
     "ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES IN (1)"), 3),
    ("attached with a partition below it", ("CREATE TABLE t_4 (LIKE t INCLUDING ALL) PARTITION BY LIST (k)",
     "CREATE TABLE t_5 PARTITION OF t_4 FOR VALUES IN (5)", "INSERT INTO t_4 VALUES (5, 5, 'e')",
     "ALTER TABLE t ATTACH PARTITION t_4 FOR VALUES IN (4, 5)"), 4),
    ("made as a partition", ("CREATE TABLE t_3 PARTITION OF t FOR VALUES IN (3)",
     "INSERT INTO t VALUES (4, 3, 'd')"), 1),
    ("made as a partition with one below it", (
     "CREATE TABLE t_3 PARTITION OF t FOR VALUES IN (3) PARTITION BY LIST (k)",
     "CREATE TABLE t_4 PARTITION OF t_3 FOR VALUES IN (3)", "INSERT INTO t VALUES (4, 3, 'd')"), 1),
    ("made as a partition, and unlogged while it was filled", (
     "CREATE UNLOGGED TABLE t_3 PARTITION OF t FOR VALUES IN (3)", "INSERT INTO t VALUES (4, 3, 'd')",
     "ALTER TABLE t_3 SET LOGGED"), 4),
    ("its rows were named otherwise while keys changed", (
     "ALTER TABLE t_2 ALTER v SET NOT NULL", "CREATE UNIQUE INDEX t_2_v ON t_2 (v, k)",
     "ALTER TABLE t_2 REPLICA IDENTITY USING INDEX t_2_v", "UPDATE t SET id = 8 WHERE id = 2",
     "ALTER TABLE t_2 REPLICA IDENTITY DEFAULT"), 3),
    ("its rows were named otherwise, and no key changed", (
     "ALTER TABLE t_1 REPLICA IDENTITY FULL", "UPDATE t SET v = 'n' WHERE id = 1",
     "ALTER TABLE t_1 REPLICA IDENTITY DEFAULT"), 1),
    ("nothing", (), 0),
]  # fmt: skip


def numbered(statement: str, number: int) -> str:
    """For a table of its own."""
    return statement.replace(" t ", f" p{number} ").replace("t_", f"p{number}_")


def test_what_no_log_tells_of_partitions(world: LogWorld) -> None:
    """All cases in one database; the last column is how many rows are read."""
    for number in range(len(CASES)):
        world.run(*(numbered(s, number) for s in T))
    world.sync()
    for number, (_, changes, _) in enumerate(CASES):
        world.run(*(numbered(s, number) for s in changes))
    report = world.sync()
    assert world.differing() == {}, report
    assert {name: counts(report, f"p{n}")[0] for n, (name, *_) in enumerate(CASES)} == {c[0]: c[2] for c in CASES}
    assert {n for t in world.sync().tables if (n := t.read)} == set(), "it is found once"


def test_a_partition_that_comes_empty_is_remembered_for_when_it_goes(world: LogWorld) -> None:
    world.run(*T)
    world.sync()
    world.run("CREATE TABLE t_3 PARTITION OF t FOR VALUES IN (3)")
    assert counts(world.sync(), "t")[0] == 0
    world.run("INSERT INTO t VALUES (4, 3, 'd')")
    assert counts(world.sync(), "t")[0] == 1
    world.run("DROP TABLE t_3")
    report = world.sync()
    assert "dropped" in " ".join(report.notes), report
    assert world.rows("t", "id") == [(1,), (2,), (3,)]


def test_a_table_that_is_a_partition_of_another_one_for_a_while(world: LogWorld) -> None:
    """What changes meanwhile is logged as rows of that one."""
    world.run(*T, "CREATE TABLE s (LIKE t INCLUDING ALL)", "INSERT INTO s VALUES (9, 3, 'x'), (10, 3, 'y')")
    world.sync()
    world.run(
        "ALTER TABLE t ATTACH PARTITION s FOR VALUES IN (3)", "UPDATE t SET v = 'new' WHERE id = 9",
        "DELETE FROM t WHERE id = 10", "ALTER TABLE t DETACH PARTITION s",
    )  # fmt: skip
    report = world.sync()
    assert world.differing() == {}, report
    assert world.rows("s", "id", "v") == [(9, "new")]
    world.run("ALTER TABLE s RENAME v TO w", "UPDATE s SET w = 'z'")
    assert counts(world.sync(), "s")[0] == 1
    assert world.differing() == {}


UNLOGGED = "ALTER TABLE t_2 SET UNLOGGED"
NOTHING = "ALTER TABLE t_2 REPLICA IDENTITY NOTHING"
INDEX = ("CREATE UNIQUE INDEX u ON t_2 (v, k)", "ALTER TABLE t_2 ALTER v SET NOT NULL",
         "ALTER TABLE t_2 REPLICA IDENTITY USING INDEX u")  # fmt: skip
NOT_FOLLOWED = [
    ("a partition that is not logged", T, (UNLOGGED,), "its partition public.t_2 is not logged"),
    ("a partition whose rows nothing names", T, (NOTHING,), 'ALTER TABLE "public"."t_2" REPLICA IDENTITY DEFAULT;'),
    ("a partition that names them otherwise", T, INDEX, "partition public.t_2 the log names its rows by an index"),
    ("only the table is logged in full", (T[0].replace(", PRIMARY KEY (id, k)", ""), *T[1:]),
     ("ALTER TABLE t REPLICA IDENTITY FULL",), 'ALTER TABLE "public"."t_1" REPLICA IDENTITY FULL;'),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("before", "alter", "note"), [c[1:] for c in NOT_FOLLOWED], ids=[c[0] for c in NOT_FOLLOWED])
def test_partitions_that_are_not_logged_as_their_table_is(
    world: LogWorld, before: tuple[str, ...], alter: tuple[str, ...], note: str
) -> None:
    """The table is read as a whole, and statements at the source go on to work."""
    world.settings["t"] = TableSettings(mode="cdc", key=("id", "k"))
    world.run(*before, *alter)
    world.sync()
    world.run("UPDATE t SET id = 8, v = v WHERE id = 2", "DELETE FROM t WHERE id = 3")
    report = world.sync()
    assert note in " ".join(report.notes), report
    assert world.differing() == {}
