"""Catalogs as SQL that DuckDB runs, as Markdown, and as the document of a lock file."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from hypothesis import assume, given, settings
from strategies import catalogs
from world import catalog, column, table

from instep.schema.catalog.catalog import Catalog, Column
from instep.schema.catalog.types import parse
from instep.schema.contracts.contract import lock_document, without_retained
from instep.schema.planning.explain import sql_type, to_markdown, to_sql

TYPES = [
    ("boolean", "BOOLEAN"), ("int8", "TINYINT"), ("int16", "SMALLINT"), ("int32", "INTEGER"), ("int64", "BIGINT"),
    ("decimal(12,2)", "DECIMAL(12,2)"), ("float32", "FLOAT"), ("float64", "DOUBLE"), ("string", "VARCHAR"),
    ("string(30)", "VARCHAR"), ("binary", "BLOB"), ("date", "DATE"), ("time", "TIME"), ("timestamp", "TIMESTAMP"),
    ("timestamptz", "TIMESTAMPTZ"), ("uuid", "UUID"), ("json", "JSON"), ("unknown", "VARCHAR"),
    ("array(int32)", "INTEGER[]"), ('struct("a" int32, "b c" string)', 'STRUCT("a" INTEGER, "b c" VARCHAR)'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TYPES, ids=[t[0] for t in TYPES])
def test_types(text: str, expected: str) -> None:
    assert sql_type(parse(text)) == expected


def test_sql_makes_the_tables() -> None:
    odd = table("or\"der; --'", column("id:int64!", nullable=False), column("né:decimal(9,2)"), column('a"b:json'))
    kept = replace(odd, name="kept", retained=True, columns=(*odd.columns, column("old:date", retained=True)))
    text = to_sql(catalog(odd, kept, replace(odd, schema="", name="bare")))
    with duckdb.connect() as engine:
        engine.execute(text)
        found = engine.execute(
            "select schema_name, table_name, column_name, data_type, is_nullable from duckdb_columns()"
            " where not internal"
        ).fetchall()
    assert {row[:2] for row in found} == {("s", odd.name), ("s", "kept"), ("main", "bare")}
    assert [r[2:] for r in found if r[1] == "kept"] == [
        ("id", "BIGINT", False), ("né", "DECIMAL(9,2)", True), ('a"b', "JSON", True), ("old", "DATE", True),
    ]  # fmt: skip
    assert text.count("-- kept after its removal") == 2


@settings(deadline=None)
@given(catalogs())
def test_every_catalog_is_sql(found: Catalog) -> None:
    """As long as names differ by more than their case: DuckDB's do not."""
    for names in ([t.path for t in found.tables], *([c.name for c in t.columns] for t in found.tables)):
        assume(len({n.casefold() for n in names}) == len(names))
    with duckdb.connect() as engine:
        engine.execute(to_sql(found) or "select 1")
        [(tables,)] = engine.execute("select count(*) from duckdb_tables()").fetchall()
    assert tables == len(found.tables)


def test_markdown_escapes_what_names_hold() -> None:
    hard = Column("a|b\n*c*", parse("int32"), key=1, nullable=False, alias="a_b", note="was numeric", comment="hers")
    text = to_markdown(
        catalog(replace(table("t"), columns=(hard, column("gone", retained=True)), comment="the <b>t</b>"))
    )
    assert text.splitlines() == [
        "## s.t", "", "the \\<b\\>t\\</b\\>", "",
        "| column | type | key | null | at the destination | notes |", "| --- | --- | --- | --- | --- | --- |",
        "| a\\|b \\*c\\* | int32 | 1 | no | a\\_b | was numeric; hers |",
        "| gone | int32 |  | yes |  | kept after its removal |",
    ]  # fmt: skip
    assert to_markdown(Catalog()) == to_sql(Catalog()) == ""


def test_the_lock_document() -> None:
    one = table("t", column("id!", alias="id", nullable=False), column("A", alias="a"),
                column("old:date", alias="old", retained=True), kind="view", cursor="A", alias="t_2")  # fmt: skip
    gone = table("u", column("id", alias="id"), retained=True, alias="u")
    document = lock_document("c", catalog(gone, one))
    assert document == {
        "format_version": 1,
        "connection": "c",
        "tables": [
            {
                "schema": "s", "name": "t", "destination": "t_2", "kind": "view", "key": ["id"], "cursor": "A",
                "columns": [
                    {"name": "id", "type": "int32", "nullable": False},
                    {"name": "A", "type": "int32", "destination": "a"},
                    {"name": "old", "type": "date", "retained": True},
                ],
            },
            {
                "schema": "s", "name": "u", "destination": "u", "retained": True,
                "columns": [{"name": "id", "type": "int32"}],
            },
        ],
    }  # fmt: skip
    [only] = without_retained(document)["tables"]
    assert [c["name"] for c in only["columns"]] == ["id", "A"]


@given(catalogs())
def test_the_document_does_not_depend_on_order_ids_or_comments(found: Catalog) -> None:
    plain = [replace(t, id=None, comment="x", columns=tuple(replace(c, id=None, native="n") for c in t.columns))
             for t in reversed(found.tables)]  # fmt: skip
    assert lock_document("c", Catalog(tuple(plain))) == lock_document("c", found)
