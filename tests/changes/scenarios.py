# ruff: noqa: E501, S608 - a scenario reads best on few lines; its SQL is its own
"""Each kind of change as the statements that make it, source by source.

A scenario begins with table `t` and three rows. The change is made; then row 2 is updated, row 3 is deleted and row 4
inserted, as far as the change leaves the table there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PG, MY, LITE = "postgres", "mysql", "sqlite"
SOURCES = (PG, MY, LITE)
TITLES = {PG: "PostgreSQL", MY: "MariaDB", LITE: "SQLite"}
T = "CREATE TABLE t (id int PRIMARY KEY, a int, b int)"
ROWS = "INSERT INTO t VALUES (1, 10, 100), (2, 20, 200), (3, 30, 300)"
START = (T, ROWS)
USED = ("UPDATE t SET b = 201 WHERE id = 2", "DELETE FROM t WHERE id = 3")
MORE = (*USED, "INSERT INTO t VALUES (4, 40, 400)")


def remade(columns: str, taken: str, rows: str = "") -> tuple[str, ...]:
    """How tables change in SQLite: made anew, filled from the old one, and called as it."""
    return (
        f"CREATE TABLE fresh ({columns})",
        f"INSERT INTO fresh SELECT {taken} FROM t{rows}",
        "DROP TABLE t",
        "ALTER TABLE fresh RENAME TO t",
    )


@dataclass(frozen=True)
class Scenario:
    """`kinds`: the kinds of change that are looked for, by source where sources see the same step differently; `change`
    by source: a source without one cannot make it. `cursor`: the table is read by this column. `denied`: after the
    first sync the user may not read this table any more. `lake`: an edit manually, by pyiceberg's name for it."""

    name: str
    kinds: Mapping[str, tuple[str, ...]]
    change: Mapping[str, tuple[str, ...]]
    more: tuple[str, ...] = MORE
    start: tuple[str, ...] = START
    table: str = "t"
    cursor: str = ""
    denied: str = ""
    lake: str = ""
    note: str = ""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def starts(self, source: str) -> tuple[str, ...]:
        return self.sources.get(source, self.start)


def all_of(*kinds: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(SOURCES, kinds)


def everywhere(*statements: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(SOURCES, statements)


SEEN_AS_TWO = {
    PG: ("column.renamed",),
    MY: ("column.removed", "column.added"),
    LITE: ("column.removed", "column.added"),
}
SCENARIOS = (
    Scenario("column added", all_of("column.added"), everywhere("ALTER TABLE t ADD c int"), (*USED, "INSERT INTO t VALUES (4, 40, 400, 4)", "UPDATE t SET c = 2 WHERE id = 2")),
    Scenario("column removed", all_of("column.removed"), everywhere("ALTER TABLE t DROP COLUMN a"), (*USED, "INSERT INTO t VALUES (4, 400)")),
    Scenario("column renamed", SEEN_AS_TWO, everywhere("ALTER TABLE t RENAME COLUMN a TO z")),
    Scenario("column widened", all_of("column.widened"),
             {PG: ("ALTER TABLE t ALTER a TYPE bigint",), MY: ("ALTER TABLE t MODIFY a bigint",), LITE: remade("id int PRIMARY KEY, a decimal(18,4), b int", "id, a, b")},
             (*USED, "INSERT INTO t VALUES (4, 9000000000, 400)"),
             sources={LITE: ("CREATE TABLE t (id int PRIMARY KEY, a decimal(9,2), b int)", ROWS)}),
    Scenario("column narrowed", all_of("column.narrowed"),
             {PG: ("ALTER TABLE t ALTER a TYPE int",), MY: ("ALTER TABLE t MODIFY a int",), LITE: remade("id int PRIMARY KEY, a decimal(9,2), b int", "id, a, b")},
             start=("CREATE TABLE t (id int PRIMARY KEY, a bigint, b int)", ROWS),
             sources={LITE: ("CREATE TABLE t (id int PRIMARY KEY, a decimal(18,4), b int)", ROWS)}),
    Scenario("column retyped", all_of("column.retyped"),
             {PG: ("ALTER TABLE t ALTER a TYPE varchar(9)",), MY: ("ALTER TABLE t MODIFY a varchar(9)",), LITE: remade("id int PRIMARY KEY, a boolean, b int", "id, a, b")},
             (*USED, "UPDATE t SET a = 'x' WHERE id = 2", "INSERT INTO t VALUES (4, '40', 400)"),
             note="row 2 gets a text that is no number"),
    Scenario("nullability", all_of("column.nullability"),
             {PG: ("ALTER TABLE t ALTER a DROP NOT NULL",), MY: ("ALTER TABLE t MODIFY a int",), LITE: remade("id int PRIMARY KEY, a int, b int", "id, a, b")},
             (*USED, "INSERT INTO t VALUES (4, NULL, 400)"), start=("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int)", ROWS)),
    Scenario("default", all_of("column.default"),
             {PG: ("ALTER TABLE t ALTER a SET DEFAULT 5",), MY: ("ALTER TABLE t ALTER a SET DEFAULT 5",), LITE: remade("id int PRIMARY KEY, a int DEFAULT 5, b int", "id, a, b")}),
    Scenario("comment", {PG: ("column.comment",)}, {PG: ("COMMENT ON COLUMN t.a IS 'the first'",)}),
    Scenario("comment of the table", {PG: ("table.comment",)}, {PG: ("COMMENT ON TABLE t IS 'all'",)}),
    Scenario("order of columns", all_of("column.reordered"), {MY: ("ALTER TABLE t MODIFY a int AFTER b",), LITE: remade("id int PRIMARY KEY, b int, a int", "id, b, a")},
             (*USED, "INSERT INTO t VALUES (4, 400, 40)")),
    Scenario("key changed", all_of("key.changed"),
             {PG: ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (a)"), MY: ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)",), LITE: remade("id int, a int PRIMARY KEY, b int", "id, a, b")},
             start=("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int)", ROWS)),
    Scenario("key removed", all_of("key.removed"),
             {PG: ("ALTER TABLE t DROP CONSTRAINT t_pkey",), MY: ("ALTER TABLE t DROP PRIMARY KEY",), LITE: remade("id int, a int, b int", "id, a, b")},
             start=("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, b int)", ROWS)),
    Scenario("column of the key removed", all_of("key.removed"),
             {PG: ("ALTER TABLE t DROP COLUMN id",), MY: ("ALTER TABLE t DROP PRIMARY KEY, DROP COLUMN id",), LITE: remade("a int, b int", "a, b")},
             ("UPDATE t SET b = 201 WHERE a = 20", "INSERT INTO t VALUES (40, 400)")),
    Scenario("cursor removed", all_of("cursor.removed"), everywhere("ALTER TABLE t DROP COLUMN a"), ("INSERT INTO t VALUES (4, 400)",), cursor="a"),
    Scenario("cursor changed", all_of("cursor.changed"),
             {PG: ("ALTER TABLE t ALTER a TYPE varchar(9)",), MY: ("ALTER TABLE t MODIFY a varchar(9)",), LITE: remade("id int PRIMARY KEY, a varchar(9), b int", "id, a, b")},
             ("INSERT INTO t VALUES (4, '40', 400)",), cursor="a", note="the cursor is a text now"),
    Scenario("table added", all_of("table.added"), everywhere("CREATE TABLE u (id int PRIMARY KEY, a int)"), ("INSERT INTO u VALUES (1, 10), (2, 20)",), table="u"),
    Scenario("table removed", all_of("table.removed"), everywhere("DROP TABLE t"), ()),
    Scenario("table renamed", {PG: ("table.renamed",), MY: ("table.renamed",), LITE: ("table.removed", "table.added")}, everywhere("ALTER TABLE t RENAME TO u"),
             ("INSERT INTO u VALUES (4, 40, 400)",), table="u", note="only row 4 is new here, so that the rows prove the rename where there are no ids"),
    Scenario("table replaced", {PG: ("table.replaced",), MY: ()}, {PG: ("DROP TABLE t", T), MY: ("DROP TABLE t", T)}, ("INSERT INTO t VALUES (4, 40, 400)",), note="MariaDB gives a table another id in many ways (TRUNCATE, OPTIMIZE), so that a new id under an old name proves nothing there"),
    Scenario("schema added", {PG: ("schema.added",)}, {PG: ("CREATE SCHEMA sales", "CREATE TABLE sales.u (id int PRIMARY KEY, a int)")}, ("INSERT INTO sales.u VALUES (1, 10)",), table="sales.u"),
    Scenario("schema removed", {PG: ("schema.removed",)}, {PG: ("DROP SCHEMA sales CASCADE",)}, (),
             start=("CREATE SCHEMA sales", "CREATE TABLE sales.t (id int PRIMARY KEY, a int, b int)", "INSERT INTO sales.t VALUES (1, 10, 100)", "CREATE TABLE o (id int PRIMARY KEY)", "CREATE TABLE o1 (id int PRIMARY KEY)"), table="sales.t"),
    Scenario("access lost", {PG: ("access.lost",)}, {PG: ()}, MORE, denied="t", start=(*START, "CREATE TABLE o (id int PRIMARY KEY)")),
    Scenario("names collide", {PG: ("name.collided",)}, {PG: ('ALTER TABLE t RENAME b TO "A"',)},
             ('UPDATE t SET "A" = 201 WHERE id = 2', "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (4, 40, 400)"),
             note="names that differ by case only are one name at the destination"),
    Scenario("destination edited", all_of("destination.drifted"), everywhere(), MORE, lake="drop a"),
)  # fmt: skip
