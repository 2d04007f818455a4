"""JDBC's types as ours, how columns cross, the texts of drivers, and the SQL that is sent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from instep.errors import ReadError
from instep.project.sections.jdbc_dialects import Dialect, dialect_of
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Boolean, DataType, Date, Int, String, Timestamp, TimestampTz, parse
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.jdbc.read import JdbcReader, Query, settled
from instep.sources.jdbc.sql import Sql
from instep.sources.jdbc.types import Native, column_type, form_of, query_type
from instep.spark.jdbc import Login
from instep.stage.spec import Chunk, Limits

MAPPED = [
    ("a flag", Native(-7, "bool", 1), "boolean", ""),
    ("bits", Native(-7, "bit", 8), "string", "bits as text"),
    ("a number without a size", Native(2, "NUMBER", 0, -127), "string", "without a declared precision"),
    ("a number without digits", Native(2, "NUMBER", 10), "string", "without a declared precision"),
    ("whole", Native(2, "NUMBER", 10, 0), "decimal(10,0)", ""),
    ("38 digits", Native(3, "DECIMAL", 38, 38), "decimal(38,38)", ""),
    ("39 digits", Native(3, "DECIMAL", 39, 2), "string", "beyond 38 digits"),
    ("negative scale", Native(2, "NUMBER", 5, -2), "string", "a scale of its own"),
    ("PostgreSQL without a size", Native(2, "numeric", 131089, 0), "string", "of any size"),
    ("text", Native(12, "text", 2147483647), "string", ""),
    ("text of a length", Native(12, "varchar", 40), "string(40)", ""),
    ("a clob has no length", Native(2005, "CLOB", 4000), "string", ""),
    ("unsigned", Native(4, "INT UNSIGNED", 10), "int64", ""),
    ("unsigned, 64 bits", Native(-5, "BIGINT UNSIGNED", 20), "decimal(20,0)", ""),
    ("SQL Server's tinyint", Native(-6, "tinyint", 3), "int16", ""),
    ("a moment with a zone, by its name", Native(93, "timestamptz", 35, 6), "timestamptz", ""),
    ("with a size in its name", Native(93, "TIMESTAMP(6) WITH TIME ZONE", 13), "timestamptz", ""),
    ("local to the session", Native(-102, "TIMESTAMP(6) WITH LOCAL TIME ZONE", 11), "string", "no zone"),
    ("datetimeoffset", Native(-155, "datetimeoffset", 34, 7), "timestamptz", ""),
    ("SQL Server's old rowversion", Native(-2, "timestamp", 8), "binary(8)", ""),
    ("a time with a zone", Native(92, "timetz", 21, 6), "string", "a time with its zone"),
    ("uuid", Native(1111, "uuid", 2147483647), "uuid", ""),
    ("uniqueidentifier", Native(1, "uniqueidentifier", 36), "uuid", ""),
    ("json", Native(1111, "jsonb"), "json", ""),
    ("an array", Native(2003, "_int4", 10), "string", "_int4 as the driver prints it"),
    ("what nobody knows", Native(4711, "GEOM"), "string", "GEOM as the driver prints it"),
]


@pytest.mark.parametrize(("native", "kind", "note"), [m[1:] for m in MAPPED], ids=[m[0] for m in MAPPED])
def test_types(native: Native, kind: str, note: str) -> None:
    found, said = column_type(native)
    assert str(found) == kind
    assert note in said
    assert bool(note) == bool(said)


UNTYPED = [
    (Native(6, "DECIMAL", 14, 2), "decimal(12,2)"),
    (Native(4, "INT", 2_000_000_000, 0), "int64"),
    (Native(12, "VARCHAR", 40, 0), "string(40)"),
    (Native(12, "", 2_000_000_000, 10), "string"),
]


@pytest.mark.parametrize(("native", "kind"), UNTYPED)
def test_declarations_of_sqlite_as_its_driver_tells_them(native: Native, kind: str) -> None:
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
    chunk = Chunk("t", 0, Query("SELECT", "", (kind,)).to_text())
    batch = pa.RecordBatch.from_arrays([pa.array([text, None])], ["c0"])
    assert settled(chunk, batch).column(0).to_pylist() == [settles, None]


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
    within = sql.within(READ, CursorRange('a"t', "2024-01-01 00:00:00", None))
    assert within == ['"a""t" >= TIMESTAMP \'2024-01-01 00:00:00\'']
    assert sql.within(READ, CursorRange('a"t')) == sql.within(READ, CursorRange()) == []
    selected = sql.select(READ, [AT], ID, within)
    assert selected.partition(" WHERE ")[::2] == ('SELECT "a""t" AS "c0", "id" AS "p" FROM "s"."t"', within[0])
    assert sql.count(READ) == 'SELECT count(*) FROM "s"."t" WHERE (id > 1 OR id < 0)'
    assert sql.none(READ) == 'SELECT 1 FROM "s"."t" WHERE 1 = 0 AND (id > 1 OR id < 0)'
    assert Sql(dialect_of("mysql"), "`").name("a`b") == "`a``b`"
    assert Sql(dialect_of("sqlite")).table(TABLE) == '"t"'


def test_a_name_that_cannot_be_quoted_is_refused() -> None:
    assert Sql(Dialect(), " ").name("orders_1") == "orders_1"
    with pytest.raises(ReadError, match="quotes no names"):
        Sql(Dialect(), " ").name('x" --')


@pytest.mark.parametrize("kind", ["binary", "json"])
def test_cursors_have_an_order(kind: str) -> None:
    column = Column("c", parse(kind))
    table = Table("s", "t", (column,))
    with pytest.raises(ReadError, match="cannot be a cursor"):
        Sql(Dialect()).within(TableRead(table, table, (ColumnRead(column, column),)), CursorRange("c", "1"))


def test_chunks_of_a_table_are_one_scan() -> None:
    reader = JdbcReader(Login("jdbc:x:y", "d"), '"', 100, 7, Limits())
    queries = [Query("SELECT 1", part, (Date(), Int(32))) for part in ("p < 1", "p >= 1")]
    scan = reader.scan([Chunk("t", n, q.to_text()) for n, q in enumerate(queries)])
    assert (scan.parts, scan.forms, scan.fetch, scan.timeout) == (("p < 1", "p >= 1"), ("string", "long"), 100, 7)
