"""A publication that is another one for a while: the log lacks what came to pass meanwhile, so rows are read again."""

from __future__ import annotations

import pytest
from followed import notes
from log_world import LogWorld

from sync_world import counts

pytestmark = pytest.mark.server

PUB = "instep_shop"
ALL = "insert, update, delete, truncate"
CHANGES = ("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2")
OPTIONS = f"WITH (publish = '{ALL}', publish_via_partition_root = true)"
SCOPES = {
    "tables by name": "",
    "all tables": f"CREATE PUBLICATION {PUB} FOR ALL TABLES {OPTIONS}",
    "tables of a schema": f"CREATE PUBLICATION {PUB} FOR TABLES IN SCHEMA public {OPTIONS}",
}
WHILES = [
    ("an option", *SCOPES, f"ALTER PUBLICATION {PUB} SET (publish = 'insert')",
     f"ALTER PUBLICATION {PUB} SET (publish = '{ALL}')"),
    ("a filter", "tables by name", f"ALTER PUBLICATION {PUB} SET TABLE t WHERE (id > 100), u",
     f"ALTER PUBLICATION {PUB} SET TABLE t, u"),
    ("a list of columns", "tables by name", f"ALTER PUBLICATION {PUB} SET TABLE t (id), u",
     f"ALTER PUBLICATION {PUB} SET TABLE t, u"),
    ("the table is out of it", "tables by name", f"ALTER PUBLICATION {PUB} DROP TABLE t",
     f"ALTER PUBLICATION {PUB} ADD TABLE t"),
    ("the schema is out of it", "tables of a schema", f"ALTER PUBLICATION {PUB} DROP TABLES IN SCHEMA public",
     f"ALTER PUBLICATION {PUB} ADD TABLES IN SCHEMA public"),
]  # fmt: skip
CASES = [
    pytest.param(scope, before, after, id=f"{name}, {scope}")
    for name, *scopes, before, after in WHILES
    for scope in scopes
]


@pytest.mark.sampled
@pytest.mark.parametrize(("scope", "before", "after"), CASES)
def test_what_a_publication_left_out_for_a_while_is_read(world: LogWorld, scope: str, before: str, after: str) -> None:
    if SCOPES[scope]:
        world.run(SCOPES[scope])
    world.loaded().sync()
    world.run(before, *CHANGES, after)
    report = world.sync()
    assert (report.status, world.differing()) == ("done", {}), report
    assert "t: read as a whole: its key, a column's type or its place in the publication is another one" in notes(
        report
    )
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    report = world.sync()
    assert [counts(report, name)[0] for name in ("t", "u")] == [1, 0]
    assert world.differing() == {}


def test_a_table_that_leaves_a_published_schema_for_a_while(world: LogWorld) -> None:
    world.run(SCOPES["tables of a schema"], "CREATE SCHEMA aside")
    world.loaded().sync()
    changes = (change.replace(" t ", " aside.t ") for change in (*CHANGES, "INSERT INTO t VALUES (9, 9)"))
    world.run("ALTER TABLE t SET SCHEMA aside", *changes, "ALTER TABLE aside.t SET SCHEMA public")
    report = world.sync()
    assert world.differing() == {}, report
    assert [counts(report, name)[0] for name in ("t", "u")] == [5, 0]


@pytest.mark.sampled
@pytest.mark.parametrize("scope", SCOPES)
def test_what_the_product_and_the_server_do_by_themselves_costs_no_read(world: LogWorld, scope: str) -> None:
    """Tables that come, are taken in and go; and the catalog written anew, with rows that are old enough to freeze."""
    if SCOPES[scope]:
        world.run(SCOPES[scope])
    world.loaded().sync()
    world.run("CREATE TABLE w (id int PRIMARY KEY, v int)", "INSERT INTO w VALUES (1, 1)", "UPDATE t SET v = 7")
    report = world.sync()
    assert [counts(report, name)[0] for name in ("t", "u", "w")] == [5, 0, 1]
    world.run("DROP TABLE w")
    world.sync()
    for catalog in ("pg_publication", "pg_publication_rel", *["pg_publication_namespace"] * (SCOPES[scope] != "")):
        world.run(f"VACUUM (FULL, FREEZE) {catalog}", f"VACUUM (FREEZE) {catalog}")
    world.run("ANALYZE", "UPDATE t SET v = 8 WHERE id = 3")
    report = world.sync()
    assert [counts(report, name)[0] for name in ("t", "u")] == [1, 0]
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
def test_columns_that_are_computed_otherwise(world: LogWorld, kind: str) -> None:
    """Values of a virtual one are other ones without any row, or any file, being written; the server forbids that in a
    table that the publication names."""
    version = int(world.sql("SHOW server_version_num"))
    if version < (180_000 if kind == "VIRTUAL" else 170_000):
        pytest.skip("the server has no such statement")
    world.run(
        SCOPES["all tables"],
        f"CREATE TABLE g (id int PRIMARY KEY, v int, n int GENERATED ALWAYS AS (v * 2) {kind})",
        "INSERT INTO g (id, v) VALUES (1, 1), (2, 2)",
    )
    world.sync()
    world.sync()
    world.run("ALTER TABLE g ALTER n SET EXPRESSION AS (v * 3)")
    report = world.sync()
    assert (counts(report, "g")[0], world.differing()) == (2, {}), report
    world.run("ALTER TABLE g ALTER v SET STATISTICS 10", "UPDATE g SET v = 7 WHERE id = 1")
    assert counts(world.sync(), "g")[0] == 1
    assert world.differing() == {}


def test_fields_of_types_that_come_and_go(world: LogWorld) -> None:
    """In columns, in lists of them, in domains and within other types; and enums in there."""
    world.run(
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TYPE inner_one AS (a int, m mood)",
        "CREATE TYPE outer_one AS (i inner_one, b int)",
        "CREATE DOMAIN own AS outer_one",
        "CREATE TABLE plain (id int PRIMARY KEY, v inner_one)",
        "CREATE TABLE listed (id int PRIMARY KEY, v inner_one[])",
        "CREATE TABLE nested (id int PRIMARY KEY, v own)",
        "CREATE TABLE other (id int PRIMARY KEY, v point)",
        "INSERT INTO plain VALUES (1, '(1,sad)')",
        "INSERT INTO listed VALUES (1, ARRAY['(1,sad)'::inner_one])",
        "INSERT INTO nested VALUES (1, ROW(ROW(1, 'sad'), 2)::outer_one)",
        "INSERT INTO other VALUES (1, '(1,2)')",
    )
    world.sync()
    for change in ("ADD ATTRIBUTE d int", "RENAME ATTRIBUTE a TO aa", "DROP ATTRIBUTE aa"):
        world.run(f"ALTER TYPE inner_one {change}")
        report = world.sync()
        assert world.differing() == {}, (change, report)
        assert [counts(report, name)[0] for name in ("plain", "listed", "nested", "other")] == [1, 1, 1, 0]
    world.run("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    world.sync()
    assert world.differing() == {}
    assert {t.read for t in world.sync().tables} == {0}
