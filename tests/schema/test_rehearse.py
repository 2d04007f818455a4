"""Edits on a catalog in memory: identities, names, and statements that fail as a whole."""

from __future__ import annotations

import pytest

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType, parse
from instep.schema.changes import edits as ddl
from instep.schema.changes.describe import describe
from instep.schema.changes.diff import diff
from instep.schema.changes.edits import (
    AddColumn,
    AddKey,
    ColumnDefinition,
    DropColumn,
    DropConstraint,
    DropTable,
    Edit,
    RedefineColumn,
    RenameColumn,
    RenameTable,
    SetPath,
    Transaction,
)
from instep.schema.changes.rehearse import Rehearsal, Rules

T, INT = ("t",), ColumnDefinition("n", "int32")
KEY, NOTE = Column("id", parse("int64"), False, "1", 1), Column("note", parse("string"), id="2", default="'a'::text")
BEFORE = Catalog.of([Table("public", "t", (KEY, NOTE), id="10"), Table("old", "u", (KEY,), id="11")])
WITHOUT_IDS = Catalog.of([Table("main", "t", (Column("id", parse("int64"), key=1), Column("note", parse("string"))))])


def types(text: str) -> tuple[DataType, str, str]:
    return parse(text), text, ""


def rehearse(*statements: list[Edit], before: Catalog = BEFORE, dialect: str = "postgres") -> Rehearsal:
    made = Rehearsal.of(before, Rules.of(dialect, "public" if dialect == "postgres" else "main", types))
    for number, edits in enumerate(statements):
        made.run(number, edits)
    return made


CASES: list[tuple[str, list[list[Edit]], list[str]]] = [
    ("a rename keeps the id", [[RenameColumn(T, "note", "remark")]],
     ["column public.t.note renamed to remark"]),
    ("dropped and made again is another", [[DropColumn(T, "note")], [AddColumn(T, ColumnDefinition("note", "string"))]],
     ["column public.t.note removed (string)", "column public.t.note added (string)"]),
    ("a table keeps its id and its columns", [[RenameTable(T, "v")], [AddColumn(("v",), INT)]],
     ["table public.t renamed to public.v", "column public.v.n added (int32)"]),
    ("another table in its place", [[DropTable(T)], [ddl.CreateTable(T, (INT,))]], ["table public.t replaced"]),
    ("names are looked up by the path", [[SetPath(("nowhere", "old"))], [AddColumn(("u",), INT)]],
     ["column old.u.n added (int32)"]),
    ("a new table stands in the path's first schema", [[SetPath(("old", "public"))], [ddl.CreateTable(("w",), (INT,))]],
     ["table old.w added (1 column)"]),
    ("taken back", [[Transaction("begin")], [DropTable(T), DropTable(("old", "u"))], [Transaction("rollback")]], []),
    ("the same default in other words", [[ddl.AlterDefault(T, "note", "'a'")]], []),
    ("a key of its own name", [[DropConstraint(T, "t_pkey")], [AddKey(T, ("note",), "k")], [DropConstraint(T, "k")]],
     ["primary key of public.t removed (was (id))", "column public.t.note may no longer be NULL"]),
    ("a key under the table's former name", [[RenameTable(T, "v")], [DropConstraint(("v",), "t_pkey")]],
     ["table public.t renamed to public.v", "primary key of public.v removed (was (id))"]),
    ("another constraint", [[DropConstraint(T, "t_note_key"), DropConstraint(T, "fk_note")]], []),
    ("a column of the key goes", [[DropColumn(T, "id")]],
     ["primary key of public.t removed (was (id))", "column public.t.id removed (int64)"]),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "changes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_it_leads_to(statements: list[list[Edit]], changes: list[str]) -> None:
    found = [describe(c) for c in diff(BEFORE, rehearse(*statements).catalog)]
    assert [c.partition(" by ")[0] for c in found] == changes


FAILS: list[tuple[str, list[Edit], str]] = [
    ("no such column", [RenameColumn(T, "never", "x")], "table public.t has no column never"),
    ("a column twice", [AddColumn(T, ColumnDefinition("note", "int32"))], "has a column note already"),
    ("a name twice", [RenameColumn(T, "id", "note")], "has a column note already"),
    ("a table twice", [ddl.CreateTable(T, ())], "there is a table public.t already"),
    ("a second key", [AddKey(T, ("note",))], "has a primary key already"),
    ("a constraint that may be the key", [DropConstraint(T, "t_id")], "whether t_id is the primary key"),
    ("a type of nobody's", [AddColumn(T, ColumnDefinition("m", "int7"))], "unknown type"),
    ("like nothing", [ddl.CreateTable(("v",), (), like=("w",))], "the columns of w are not known"),
]


@pytest.mark.parametrize(("edits", "why"), [case[1:] for case in FAILS], ids=[case[0] for case in FAILS])
def test_a_statement_is_carried_out_whole_or_not_at_all(edits: list[Edit], why: str) -> None:
    made = rehearse()
    with pytest.raises(SchemaError, match=why.replace(".", r"\.")):
        made.run(0, [AddColumn(T, INT), *edits])
    assert (made.catalog, made.touches) == (BEFORE, [])


def test_tables_that_nobody_knows_are_noted_and_the_others_altered() -> None:
    made = rehearse([DropTable(("never",)), AddColumn(T, INT)], [AddColumn(("x", "y"), INT)])
    assert made.unknown == {0: "never", 1: "x.y"}
    assert [t.statement for t in made.touches] == [0]


def test_touches_follow_names() -> None:
    """Whoever asks about any name that a column had finds all statements about it."""
    made = rehearse([RenameColumn(T, "note", "a")], [ddl.AlterType(T, "a", "int32")], [RenameTable(T, "v")],
                    [DropColumn(("v",), "a")])  # fmt: skip
    about = [t.statement for t in made.touches if t.columns and "note" in t.columns]
    assert about == [0, 1, 3]
    assert all(("public", "v") in t.tables for t in made.touches)


def test_mysql_and_sqlite_fold_names_and_have_no_ids() -> None:
    redefined = ColumnDefinition("Remark", "string", nullable=False, after="")
    made = rehearse([RedefineColumn(("T",), "NOTE", redefined)], before=WITHOUT_IDS, dialect="mysql")
    [table] = made.catalog.tables
    assert [(c.name, c.nullable, c.id) for c in table.columns] == [("Remark", False, None), ("id", True, None)]
    again = rehearse(
        [Transaction("begin")], [DropTable(T)], [Transaction("rollback")], before=WITHOUT_IDS, dialect="mysql"
    )
    assert again.catalog == Catalog(), "MySQL commits what is done to schemas at once"
