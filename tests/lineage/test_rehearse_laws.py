"""Any script that SQLite carries out leads, rehearsed, to the catalog that SQLite has then, and to the same diff."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instep.errors import SchemaError
from instep.lineage.migration.statements import read_migration
from instep.project.sections.sources import SqliteSourceSection
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType, parse
from instep.schema.changes.describe import describe
from instep.schema.changes.diff import diff
from instep.schema.changes.rehearse import Rehearsal, Rules
from instep.sources.declared import declared_type
from instep.sources.sqlite.catalog import contents

BEGIN = [
    "create table t (id integer primary key, a text not null default 'x', b decimal(5,1))",
    "create table u (id int, b text, primary key (id, b))",
]
TABLES, NAMES = st.sampled_from(["t", "u", "v", "T", "[odd-one]"]), st.sampled_from(["id", "a", "b", "c", "A", "[d-e]"])
KINDS = st.sampled_from(["int", "text", "varchar(9)", "decimal(8, 2)", "", "real not null default 1", "int default 7"])
STATEMENTS = st.one_of(
    st.builds("alter table {} add column {} {}".format, TABLES, NAMES, KINDS),
    st.builds("alter table {} drop column {}".format, TABLES, NAMES),
    st.builds("alter table {} rename column {} to {}".format, TABLES, NAMES, NAMES),
    st.builds("alter table {} rename to {}".format, TABLES, TABLES),
    st.builds("drop table {}".format, TABLES),
    st.builds("create table {} ({} int primary key, {} {})".format, TABLES, NAMES, NAMES, KINDS),
    st.builds("create table if not exists {} ({} {}, {} text)".format, TABLES, NAMES, KINDS, NAMES),
    st.builds("create table {0} ({1} {2}, {3} text, primary key ({3}, {1}))".format, TABLES, NAMES, KINDS, NAMES),
    st.sampled_from(["begin", "commit", "rollback", "insert into t (a) values ('drop table t;')"]),
)


def is_same(one: Catalog, two: Catalog) -> bool:
    """But for the order of tables, and the letters that types are written in."""
    return _plain(one) == _plain(two)


def _plain(catalog: Catalog) -> dict[tuple[str, str], Table]:
    return {
        t.ref: replace(t, columns=tuple(replace(c, native=c.native.upper()) for c in t.columns)) for t in catalog.tables
    }


def is_refused(made: Rehearsal, number: int, statement: str) -> bool:
    """And changes nothing. A table or column that gets its own name is let through: that harms nobody."""
    words, now = statement.casefold().split(), made.catalog
    if "rename" in words and words[-1] == (words[2] if "column" not in words else words[-3]):
        return True
    if not statement.startswith(("alter", "create")):
        return True
    try:
        for step in read_migration([("m.sql", statement)], "sqlite").steps:
            made.run(number, step.edits)
    except SchemaError:
        return made.catalog == now
    return number in made.unknown


@settings(max_examples=100)
@given(st.lists(STATEMENTS, max_size=12))
@example(["begin", "drop table t", "rollback", "alter table t rename to T"])
@example(["alter table t rename to U"])
@example(["alter table u drop column b"])
@example(["create table v (a int, A text)"])
@example(["begin", "alter table t drop column b", "begin", "drop table t", "rollback", "alter table t drop column b"])
def test_rehearsed_and_done_are_the_same(script: list[str]) -> None:
    """What SQLite refuses does nothing there, and is not rehearsed: nothing but what it refuses may be."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in BEGIN:
            connection.execute(statement)
        before = Catalog.of(contents(connection, SqliteSourceSection.resolved(type="sqlite", path="")).tables)
        made = Rehearsal.of(before, Rules.of("sqlite", "main", lambda text: declared_type("sqlite", text)))
        for number, statement in enumerate(script):
            read = read_migration([("m.sql", statement)], "sqlite")
            assert read.unread == (), statement
            try:
                connection.execute(statement)
            except sqlite3.Error:
                assert is_refused(made, number, statement), statement
                continue
            for step in read.steps:
                made.run(number, step.edits)
            after = Catalog.of(contents(connection, SqliteSourceSection.resolved(type="sqlite", path="")).tables)
            assert is_same(made.catalog, after), statement
        done = Catalog.of(contents(connection, SqliteSourceSection.resolved(type="sqlite", path="")).tables)
        found, expected = diff(before, made.catalog), diff(before, done)
        assert sorted(map(describe, found)) == sorted(map(describe, expected))


ID, NOTE = Column("id", parse("int64"), False, "1", 1), Column("note", parse("string"), id="2", default="'a'")
SHOP = Catalog.of([Table("public", "t", (ID, NOTE), id="10"), Table("old", "u", (ID,), id="11")])


def types(text: str) -> tuple[DataType, str, str]:
    return parse({"int": "int64", "text": "string"}[text]), text, ""


def rehearse(sql: str, dialect: str = "postgres") -> Rehearsal:
    made = Rehearsal.of(SHOP, Rules.of(dialect, "public", types))
    for number, step in enumerate(read_migration([("m.sql", sql)], dialect).steps):
        made.run(number, step.edits)
    return made


SCRIPTS = [
    ("a second begin begins nothing", "begin; drop table t; begin; rollback; alter table t drop note",
     ["column public.t.note removed (string)"]),
    ("a rollback takes back the path", "begin; set search_path to old; rollback; alter table t drop note",
     ["column public.t.note removed (string)"]),
    ("a commit keeps the path", "begin; set search_path to old; commit; alter table u add b int",
     ["column old.u.b added (int64)"]),
    ("a rollback without a begin", "alter table t drop note; rollback", ["column public.t.note removed (string)"]),
    ("two transactions", "begin; drop table t; rollback; begin; alter table t drop note; commit; rollback",
     ["column public.t.note removed (string)"]),
    ("there and back", "alter table t rename to x; alter table x rename to t; alter table t rename note to n;"
     " alter table t rename n to note", []),
    ("names that change places", "alter table t rename note to x; alter table t rename id to note;"
     " alter table t rename x to id", ["column public.t.id renamed to note", "column public.t.note renamed to id"]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "changes"), [s[1:] for s in SCRIPTS], ids=[s[0] for s in SCRIPTS])
def test_what_scripts_lead_to(sql: str, changes: list[str]) -> None:
    found = sorted(describe(c).partition(" by ")[0] for c in diff(SHOP, rehearse(sql).catalog))
    assert found == changes


def test_a_table_like_another_has_neither_its_key_nor_its_defaults() -> None:
    """PostgreSQL copies those only where it is told to."""
    twin = rehearse("create table w (like t)").catalog.get(("public", "w"))
    assert twin is not None
    assert [(c.name, c.key, c.nullable, c.default) for c in twin.columns] == [
        ("id", 0, False, None), ("note", 0, True, None),
    ]  # fmt: skip
    whole = rehearse("create table w (like t including all)").catalog.get(("public", "w"))
    assert whole is not None
    assert [(c.key, c.default) for c in whole.columns] == [(1, None), (0, "'a'")]


REFUSED = [
    ("NULL in the key", "postgres", "alter table t alter id drop not null", "public.t.id is in the primary key"),
    ("a second key", "postgres", "alter table t add x int primary key", "has a primary key already"),
    ("a second key of MySQL", "mysql", "alter table t modify note text primary key", "has a primary key already"),
    ("a column of the key twice", "postgres", "create table w (a int, primary key (a, a))", "has a column twice"),
    ("a column twice", "postgres", "create table w (a int, a text)", "has a column a already"),
    ("after itself", "mysql", "alter table t modify note text after note", "cannot come after itself"),
    ("after nothing", "mysql", "alter table t modify note text after x", "has no column x"),
    ("the last column", "mysql", "alter table old.u drop id", "is the last column"),
    ("a name in other letters", "sqlite", "create table w (a int); alter table t rename to W", "there is a table"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "sql", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_the_database_would_refuse(dialect: str, sql: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why.replace(".", r"\.")):
        rehearse(sql, dialect)
