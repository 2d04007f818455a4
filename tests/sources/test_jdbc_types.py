"""JDBC's types as ours, how columns cross, the texts of drivers, and the SQL that is sent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from instep.errors import ReadError
from instep.lineage.parse import filter_error
from instep.project.sections.jdbc_address import JdbcDialect, dialect_of
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Boolean, DataType, Date, Int, String, Timestamp, TimestampTz, parse
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.jdbc.read import JdbcQuery, JdbcReader, normalized_texts
from instep.sources.jdbc.sql import Sql, filter_fault
from instep.sources.jdbc.types import JdbcType, column_type, form_of, query_type
from instep.spark.jdbc import Login
from instep.stage.spec import Chunk, SourceLimits

MAPPED = [
    ("a flag", JdbcType(-7, "bool", 1), "boolean", ""),
    ("bits", JdbcType(-7, "bit", 8), "string", "bits as text"),
    ("a number without a size", JdbcType(2, "NUMBER", 0, -127), "string", "without a declared precision"),
    ("a number without digits", JdbcType(2, "NUMBER", 10), "string", "without a declared precision"),
    ("whole", JdbcType(2, "NUMBER", 10, 0), "decimal(10,0)", ""),
    ("38 digits", JdbcType(3, "DECIMAL", 38, 38), "decimal(38,38)", ""),
    ("39 digits", JdbcType(3, "DECIMAL", 39, 2), "string", "beyond 38 digits"),
    ("negative scale", JdbcType(2, "NUMBER", 5, -2), "string", "its own scale"),
    ("PostgreSQL without a size", JdbcType(2, "numeric", 131089, 0), "string", "of any size"),
    ("text", JdbcType(12, "text", 2147483647), "string", ""),
    ("text of a length", JdbcType(12, "varchar", 40), "string(40)", ""),
    ("a clob has no length", JdbcType(2005, "CLOB", 4000), "string", ""),
    ("unsigned", JdbcType(4, "INT UNSIGNED", 10), "int64", ""),
    ("unsigned, 64 bits", JdbcType(-5, "BIGINT UNSIGNED", 20), "decimal(20,0)", ""),
    ("SQL Server's tinyint", JdbcType(-6, "tinyint", 3), "int16", ""),
    ("a moment with a zone, by its name", JdbcType(93, "timestamptz", 35, 6), "timestamptz", ""),
    ("with a size in its name", JdbcType(93, "TIMESTAMP(6) WITH TIME ZONE", 13), "timestamptz", ""),
    ("local to the session", JdbcType(-102, "TIMESTAMP(6) WITH LOCAL TIME ZONE", 11), "string", "no zone"),
    ("datetimeoffset", JdbcType(-155, "datetimeoffset", 34, 7), "timestamptz", ""),
    ("SQL Server's old rowversion", JdbcType(-2, "timestamp", 8), "binary(8)", ""),
    ("a time with a zone", JdbcType(92, "timetz", 21, 6), "string", "a time with its zone"),
    ("uuid", JdbcType(1111, "uuid", 2147483647), "uuid", ""),
    ("uniqueidentifier", JdbcType(1, "uniqueidentifier", 36), "uuid", ""),
    ("json", JdbcType(1111, "jsonb"), "json", ""),
    ("an array", JdbcType(2003, "_int4", 10), "string", "_int4 as the driver prints it"),
    ("what nobody knows", JdbcType(4711, "GEOM"), "string", "GEOM as the driver prints it"),
]


@pytest.mark.parametrize(("native", "kind", "note"), [m[1:] for m in MAPPED], ids=[m[0] for m in MAPPED])
def test_types(native: JdbcType, kind: str, note: str) -> None:
    found, said = column_type(native)
    assert str(found) == kind
    assert note in said
    assert bool(note) == bool(said)


UNTYPED = [
    (JdbcType(6, "DECIMAL", 14, 2), "decimal(12,2)"),
    (JdbcType(4, "INT", 2_000_000_000, 0), "int64"),
    (JdbcType(12, "VARCHAR", 40, 0), "string(40)"),
    (JdbcType(12, "", 2_000_000_000, 10), "string"),
]


@pytest.mark.parametrize(("native", "kind"), UNTYPED)
def test_declarations_of_sqlite_as_its_driver_tells_them(native: JdbcType, kind: str) -> None:
    assert str(column_type(native, untyped=True)[0]) == kind


FORMS = [
    ("int16", "long", "int64"),
    ("int64", "long", "int64"),
    ("float32", "float", "float32"),
    ("float64", "double", "float64"),
    ("binary(8)", "binary", "binary(8)"),
    ("decimal(12,2)", "string", "string"),
    ("timestamp", "string", "string"),
    ("date", "string", "string"),
    ("boolean", "string", "string"),
    ("json", "string", "json"),
    ("uuid", "string", "string"),
]


@pytest.mark.parametrize(("kind", "form", "yielded"), FORMS)
def test_numbers_and_bytes_cross_as_they_are_all_else_as_text(kind: str, form: str, yielded: str) -> None:
    assert (form_of(parse(kind)), str(query_type(parse(kind)))) == (form, yielded)
    assert form_of(parse(kind), untyped=True) == ("binary" if kind.startswith("binary") else "string")


TEXTS: list[tuple[DataType, str, object]] = [
    (Boolean(), "t", "true"),
    (Boolean(), "0", "false"),
    (Boolean(), "TRUE", "true"),
    (Boolean(), "2", "2"),
    (TimestampTz(), "2024-02-29 10:00:00.5+00", "2024-02-29 10:00:00.5+00"),
    (TimestampTz(), "2024-02-29 10:00:00.0000000 +01:00", "2024-02-29 10:00:00.0000000+01:00"),
    (TimestampTz(), "2024-02-29 10:00:00.0 -5:30", "2024-02-29 10:00:00.0-05:30"),
    (TimestampTz(), "2024-02-29 10:00:00.5 +0130", "2024-02-29 10:00:00.5+01:30"),
    (TimestampTz(), "2024-02-29 10:00:00.5 UTC", "2024-02-29 10:00:00.5+00:00"),
    (TimestampTz(), "2024-02-29 10:00:00 Europe/Berlin", "2024-02-29 10:00:00 Europe/Berlin"),
    (Timestamp(), "2024-02-29 10:00:00 +01:00", "2024-02-29 10:00:00 +01:00"),
    (String(), "t", "t"),
    (Int(64), "-12", -12),
    (Int(64), "12x", "12x"),
]


@pytest.mark.parametrize(("kind", "text", "settles"), TEXTS)
def test_texts_of_drivers(kind: DataType, text: str, settles: object) -> None:
    chunk = Chunk("t", 0, JdbcQuery("SELECT", "", (kind,)).to_text())
    batch = pa.RecordBatch.from_arrays([pa.array([text, None])], ["c0"])
    assert normalized_texts(chunk, batch).column(0).to_pylist() == [settles, None]


LITERALS = [
    ("postgresql", "int64", "12", "12"),
    ("postgresql", "int64", "1 OR 1=1", "'1 OR 1=1'"),
    ("postgresql", "timestamp", "2024-01-01 00:00:00", "'2024-01-01 00:00:00'"),
    ("oracle", "timestamp", "2024-01-01 00:00:00", "TIMESTAMP '2024-01-01 00:00:00'"),
    ("oracle", "date", "2024-01-01", "DATE '2024-01-01'"),
    ("nosuch", "date", "2024-01-01", "{d '2024-01-01'}"),
    ("nosuch", "timestamp", "2024'}", "{ts '2024''}'}"),
    ("postgresql", "string", r"a'\b", r"'a''\b'"),
    ("mysql", "string", r"a'\b", r"'a''\\b'"),
]


@pytest.mark.parametrize(("database", "kind", "text", "sql"), LITERALS)
def test_literals(database: str, kind: str, text: str, sql: str) -> None:
    assert Sql(dialect_of(database)).literal(parse(kind), text) == sql


ID, AT = Column("id", Int(64), key=1), Column('a"t', Timestamp())
TABLE = Table("s", "t", (ID, AT))
READ = TableRead(TABLE, TABLE, (ColumnRead(ID, ID), ColumnRead(AT, AT)), "id > 1 OR id < 0")


def test_queries() -> None:
    sql = Sql(dialect_of("oracle"))
    within = sql.range_conditions(READ, CursorRange('a"t', "2024-01-01 00:00:00", None))
    assert within == ['"a""t" >= TIMESTAMP \'2024-01-01 00:00:00\'']
    assert sql.range_conditions(READ, CursorRange('a"t')) == sql.range_conditions(READ, CursorRange()) == []
    selected = sql.select(READ, [AT], ID, within)
    assert selected.partition(" WHERE ")[::2] == ('SELECT "a""t" AS "c0", "id" AS "p" FROM "s"."t"', within[0])
    assert sql.count(READ) == 'SELECT count(*) FROM "s"."t" WHERE (id > 1 OR id < 0)'
    assert sql.none(READ) == 'SELECT 1 FROM "s"."t" WHERE 1 = 0 AND (id > 1 OR id < 0)'
    assert Sql(dialect_of("mysql"), "`").name("a`b") == "`a``b`"
    assert Sql(dialect_of("sqlite")).table(TABLE) == '"t"'


def test_a_name_that_cannot_be_quoted_is_refused() -> None:
    assert Sql(JdbcDialect(), " ").name("orders_1") == "orders_1"
    with pytest.raises(ReadError, match="quotes no names"):
        Sql(JdbcDialect(), " ").name('x" --')


@pytest.mark.parametrize("kind", ["binary", "json"])
def test_cursors_have_an_order(kind: str) -> None:
    column = Column("c", parse(kind))
    table = Table("s", "t", (column,))
    with pytest.raises(ReadError, match="cannot be a cursor"):
        Sql(JdbcDialect()).range_conditions(
            TableRead(table, table, (ColumnRead(column, column),)), CursorRange("c", "1")
        )


def test_chunks_of_a_table_are_one_scan() -> None:
    reader = JdbcReader(Login("jdbc:x:y", "d"), '"', 100, 7, SourceLimits())
    queries = [JdbcQuery("SELECT 1", part, (Date(), Int(32))) for part in ("p < 1", "p >= 1")]
    scan = reader.scan([Chunk("t", n, q.to_text()) for n, q in enumerate(queries)])
    assert (scan.parts, scan.forms, scan.fetch, scan.timeout) == (("p < 1", "p >= 1"), ("string", "long"), 100, 7)


def test_a_filter_has_no_text_whose_end_the_server_s_settings_decide() -> None:
    r"""MySQL with NO_BACKSLASH_ESCAPES ends the first text at `a\`."""
    where = r"name = 'a\' OR id IN (SELECT id FROM other) OR name = '"
    assert filter_error(where, "mysql") == "", "it is one text"
    assert "backslash" in filter_fault(where)
    assert filter_fault("name = 'a''b' AND id > 1") == ""
