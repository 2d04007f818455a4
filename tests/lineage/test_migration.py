"""Migration scripts: what is a statement, what it does, and what is said of the rest."""

from __future__ import annotations

import pytest

from instep.lineage.migration.script import read
from instep.lineage.migration.statements import read_migration
from instep.schema.changes.edits import (
    AddColumn,
    AddKey,
    AlterDefault,
    AlterNullability,
    AlterType,
    ColumnDefinition,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropKey,
    DropSchema,
    DropTable,
    Edit,
    RedefineColumn,
    RenameColumn,
    RenameSchema,
    RenameTable,
    SetComment,
    SetPath,
    Transaction,
)

T, ST = ("t",), ("s", "t")


def column(name: str, declared: str, **said: object) -> ColumnDefinition:
    return ColumnDefinition(name, declared, **said)  # type: ignore[arg-type]


EDITS: list[tuple[str, str, list[Edit]]] = [
    ("postgres", "ALTER TABLE s.T ADD COLUMN IF NOT EXISTS a numeric(10, 2)[] DEFAULT '{}'::numeric[] NOT NULL",
     [AddColumn(ST, column("a", "numeric(10, 2)[]", nullable=False, default="'{}'::numeric[]"), or_not=True)]),
    ("postgres", 'alter table only "T" add "A b" int references x(y) on delete set null match full, drop b cascade',
     [AddColumn(("T",), column("A b", "int")), DropColumn(("T",), "b")]),
    ("postgres", "alter table t alter a type varchar(9) collate \"C\" using a::text, alter column b set not null",
     [AlterType(T, "a", "varchar(9)"), AlterNullability(T, "b", nullable=False)]),
    ("postgres", "alter table t alter a drop not null, alter a set default now(), alter a drop default",
     [AlterNullability(T, "a", nullable=True), AlterDefault(T, "a", "now()"), AlterDefault(T, "a", None)]),
    ("postgres", "alter table if exists t rename a to b", [RenameColumn(T, "a", "b")]),
    ("postgres", "alter table t rename constraint a to b", []),
    ("postgres", "alter table t alter a set generated always, alter b restart with 5, alter c set statistics 9", []),
    ("postgres", "alter table s.t rename to u", [RenameTable(ST, "u")]),
    ("postgres", "alter table s.t set schema r", [RenameTable(ST, "", "r")]),
    ("postgres", "alter table t add constraint k primary key (a, b) deferrable", [AddKey(T, ("a", "b"), "k")]),
    ("postgres", "alter table t drop constraint if exists k cascade", [DropConstraint(T, "k")]),
    ("postgres", "alter table t owner to o, enable row level security, set (fillfactor = 70)", []),
    ("postgres", "create table t (id serial, a text default 'x' check (a <> ''), primary key (id), unique (a))",
     [CreateTable(T, (column("id", "serial", nullable=False, default="nextval(id)"),
                      column("a", "text", default="'x'")), ("id",))]),
    ("postgres", "create table t (a timestamp without time zone not null, b character varying(3), c double precision)",
     [CreateTable(T, (column("a", "timestamp without time zone", nullable=False), column("b", "character varying(3)"),
                      column("c", "double precision")))]),
    ("postgres", "comment on column s.t.a is 'it''s'; comment on table t is null",
     [SetComment(ST, "a", "it's"), SetComment(T, "", None)]),
    ("postgres", "drop table if exists a, s.t cascade", [DropTable(("a",)), DropTable(ST)]),
    ("postgres", "drop schema s cascade; alter schema a rename to b", [DropSchema("s"), RenameSchema("a", "b")]),
    ("postgres", "set search_path to \"$user\", a, 'b'; set local search_path = default",
     [SetPath(("a", "b")), SetPath(())]),
    ("postgres", "select pg_catalog.set_config('search_path', 'x, y', false)", [SetPath(("x", "y"))]),
    ("postgres", "begin; insert into t values (';'); create unique index on t (a); commit; rollback",
     [Transaction("begin"), Transaction("commit"), Transaction("rollback")]),
    ("mysql", "ALTER TABLE `T` MODIFY COLUMN `a` int unsigned NOT NULL DEFAULT 0 COMMENT 'n' AFTER `b`",
     [RedefineColumn(("T",), "a", column("a", "int unsigned", nullable=False, default="0", comment="n", after="b"))]),
    ("mysql", "alter table t change a b varchar(9) character set utf8 collate utf8_bin first, drop primary key",
     [RedefineColumn(T, "a", column("b", "varchar(9)", after="")), DropKey(T)]),
    ("mysql", "alter table t add (a int, b text), add index i (a), drop foreign key f, engine=InnoDB comment='x'",
     [AddColumn(T, column("a", "int")), AddColumn(T, column("b", "text")), SetComment(T, "", "x")]),
    ("mysql", "alter table t rename as u, rename column a to b, rename index x to y",
     [RenameTable(T, "u"), RenameColumn(T, "a", "b")]),
    ("mysql", "rename table s.t to s.u, a to b", [RenameTable(ST, "u", "s"), RenameTable(("a",), "b")]),
    ("mysql", "use s; alter table t add primary key using btree (a(10) desc, b)",
     [SetPath(("s",)), AddKey(T, ("a", "b"))]),
    ("mysql", "create table t (a int auto_increment key, b timestamp on update now() default now()) comment 'x'",
     [CreateTable(T, (column("a", "int", primary=True), column("b", "timestamp", default="now()")), ("a",),
                  comment="x")]),
    ("sqlite", "alter table t add b; alter table [t] rename column \"a\" to 'c d'; pragma foreign_keys = on",
     [AddColumn(T, column("b", "")), RenameColumn(T, "a", "c d")]),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "sql", "expected"), EDITS, ids=[f"{d}: {s[:60]}" for d, s, _ in EDITS])
def test_statements_as_edits(dialect: str, sql: str, expected: list[Edit]) -> None:
    found = read_migration([("m.sql", sql)], dialect)
    assert [e for step in found.steps for e in step.edits] == expected
    assert found.unread == ()


UNREAD = [
    ("a block", "postgres", "select 1;\ndo $$ begin drop table t; end $$;", 2, "do: the statement is not understood"),
    ("a block of a language", "postgres", "do language plpgsql $x$ a; b $x$", 1, "not understood"),
    ("a function", "postgres", "create or replace function f() returns int as $$ drop table t; $$ language sql", 1,
     "a routine is not read"),
    ("a call", "postgres", "call p('it''s')", 1, "not understood"),
    ("a function that is called", "postgres", "select add_column('t', 'c')", 1,
     "the effect of add_column() is not known"),
    ("a table from a query", "postgres", "create table t as select 1", 1, "made from a query"),
    ("a table from SELECT INTO", "postgres", "select a into t from u", 1, "SELECT INTO"),
    ("a view", "postgres", "create view v as select 1", 1, "the columns of a view"),
    ("an heir", "postgres", "create table t (a int) inherits (u)", 1, "INHERITS"),
    ("what goes with it", "postgres", "drop type mood cascade", 1, "CASCADE"),
    ("a savepoint", "postgres", "rollback to savepoint a", 1, "savepoint"),
    ("a key of an index", "postgres", "alter table t add primary key using index i", 1, "made of an index"),
    ("an action of nobody's", "postgres", "alter table t frobnicate a", 1, "frobnicate is not understood"),
    ("too much", "postgres", "alter table t drop a b", 1, "'b' is not understood there"),
    ("too little", "postgres", "alter table t add", 1, "it ends too early"),
    ("a placeholder", "postgres", "alter table ${schema}.t add a int", 1, "not understood"),
    ("a partition", "postgres", "alter table t attach partition p default", 1, "not understood"),
    ("psql's own", "postgres", "\\set x 1\n\\i other.sql\nselect 1;", 2, "psql's \\i is not followed"),
    ("no SQL", "postgres", "select 'a", 1, "it does not parse"),
    ("dynamic SQL", "mysql", "prepare s from 'drop table t'", 1, "not understood"),
    ("executed comments", "mysql", "select 1;\n/*!50003 drop table t */;", 2, "executable comment"),
    ("a routine", "mysql", "create procedure p()\nbegin if a then drop table t; end if; end; select 1", 1, "routine"),
    ("between delimiters", "mysql", "delimiter //\ncreate procedure p() drop table t; //\ndelimiter ;\nselect 1;", 2,
     "create procedure p() drop ... is not understood"),
    ("a trigger", "sqlite", "create trigger g after insert on t begin delete from u; select case 1 when 1 then 2 end;"
     " end; select 1", 1, "a routine is not read"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "sql", "line", "why"), [case[1:] for case in UNREAD], ids=[case[0] for case in UNREAD]
)
def test_what_is_not_understood_is_named(dialect: str, sql: str, line: int, why: str) -> None:
    found = read_migration([("m.sql", sql)], dialect)
    assert len(found.unread) == 1, found.unread
    assert (found.unread[0].at.line, why in found.unread[0].why) == (line, True), found.unread
    assert found.steps == ()


TOOLS = [
    ("goose", "postgres", "-- +goose Up\nalter table t add a int;\n-- +goose Down\nalter table t drop a;\n", [2]),
    ("dbmate", "postgres", "-- migrate:up\ndrop table a;\n-- migrate:down\ndrop table b;\n-- migrate:up\ndrop table c",
     [2, 6]),
    ("liquibase", "mysql", "--liquibase formatted sql\n--changeset a:1\ndrop table t;\n--rollback drop x;\n", [3]),
    ("pg_dump", "postgres", "copy t (a) from stdin;\nalter table x drop y;\n\\.\ndrop table t;", [4]),
    ("comments", "mysql", "# drop table a;\n/* drop table b; */ drop table c; -- drop table d;", [2]),
    ("delimiters", "mysql", "delimiter ;\ndrop table t;", [2]),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "text", "lines"), [case[1:] for case in TOOLS], ids=[case[0] for case in TOOLS])
def test_scripts_of_tools(dialect: str, text: str, lines: list[int]) -> None:
    found = read_migration([("m.sql", text)], dialect)
    assert [step.at.line for step in found.steps] == lines
    assert found.unread == ()


def test_bodies_of_routines_end_nothing() -> None:
    body = "begin case a when 1 then b; end case; while c do d; end while; end"
    text = f"create function f() returns int {body}; drop table t"
    assert [s.head.split()[0] for s in read(text, "mysql").statements] == ["create", "drop"]
