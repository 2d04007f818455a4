"""Every PostgreSQL type: what it maps to, and that its values arrive as they are, read by ADBC."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal as Number
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.lineage.parse import filter_error
from instep.schema.catalog.types import DataType, Decimal, String, parse
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.schema.selection.selection import Pattern
from instep.sources.base import CursorRange
from instep.sources.postgres.source import PostgresSource
from instep.sources.postgres.types import DATE_INFINITY, TIMESTAMP_INFINITY, literal, map_type, matches, quote, yielded
from postgres_server import Database

# column type, accepted type, whether a note says that it is looser, a value as SQL, what Arrow then holds
TYPES: list[tuple[str, str, bool, str, Any]] = [
    ("boolean", "boolean", False, "true", True),
    ("smallint", "int16", False, "-32768", -32768),
    ("integer", "int32", False, "-2147483648", -(2**31)),
    ("bigint", "int64", False, "9223372036854775807", 2**63 - 1),
    ("real", "float32", False, "0.5", 0.5),
    ("double precision", "float64", False, "0.1", 0.1),
    ("numeric(12,2)", "decimal(12,2)", False, "1234.50", "1234.50"),
    ("numeric(38,10)", "decimal(38,10)", False, "-0.0000000001", "-0.0000000001"),
    ("numeric(5)", "decimal(5,0)", False, "12345", "12345"),
    ("numeric(12,2)", "decimal(12,2)", False, "'NaN'", "NaN"),
    ("numeric", "string", True, "1e-20", "0.00000000000000000001"),
    ("numeric(50,2)", "string", True, "1.5", "1.50"),
    ("numeric(5,-2)", "string", True, "12345", "12300"),
    ("numeric(2,4)", "decimal(4,4)", False, "0.0012", "0.0012"),
    ("money", "string", True, "12.5", "12.50"),
    ("text", "string", False, "'Æ🫖'", "Æ🫖"),
    ("character varying(20)", "string(20)", False, "'a'", "a"),
    ("character varying", "string", False, "'a'", "a"),
    ("character(4)", "string(4)", False, "'a'", "a   "),
    ("name", "string", False, "'a'", "a"),
    ('"char"', "string", False, "'a'", "a"),
    ("bytea", "binary", False, r"'\x00ff'", b"\x00\xff"),
    ("uuid", "uuid", False, "'00000000-0000-0000-0000-0000000000ff'", b"\x00" * 15 + b"\xff"),
    ("json", "json", False, """'{"a":  1}'""", '{"a":  1}'),
    ("jsonb", "json", False, """'{"a":  1}'""", '{"a": 1}'),
    ("date", "date", False, "'2024-02-29'", date(2024, 2, 29)),
    ("time", "time", False, "'10:00:00.000001'", "10:00:00.000001"),
    ("time(3)", "time", False, "'24:00'", "24:00:00"),
    ("time with time zone", "string", True, "'10:00+02'", "10:00:00+02"),
    ("interval", "string", True, "'1 year 2 days 3 hours'", "P1Y2DT3H"),
    ("interval day to second(3)", "string", True, "'2 days'", "P2D"),
    ("oid", "int64", False, "4294967295", 2**32 - 1),
    ("regclass", "string", True, "'pg_class'", "pg_class"),
    ("bit(3)", "string", True, "'101'", "101"),
    ("bit varying", "string", True, "'1'", "1"),
    ("inet", "string", True, "'10.0.0.1/8'", "10.0.0.1/8"),
    ("cidr", "string", True, "'10.0.0.0/8'", "10.0.0.0/8"),
    ("macaddr", "string", True, "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("point", "string", True, "'(1,2)'", "(1,2)"),
    ("tsvector", "string", True, "'cat rat'", "'cat' 'rat'"),
    ("int4range", "string", True, "'[1,3)'", "[1,3)"),
    ("int4multirange", "string", True, "'{[1,3)}'", "{[1,3)}"),
    ("pg_lsn", "string", True, "'1/2'", "1/2"),
    ("mood", "string", True, "'so so'", "so so"),
    ("price", "decimal(9,2)", True, "1.5", "1.50"),
    ("discount", "decimal(9,2)", True, "1.5", "1.50"),
    ("pair", "json", True, "row(1, 'x')", '{"a":1,"b":"x"}'),
    ("integer[]", "array(int32)", False, "'{1,NULL}'", [1, None]),
    ("integer[]", "array(int32)", False, "'[5:6]={1,2}'", [1, 2]),
    ("integer[]", "array(int32)", False, "'{}'", []),
    ("oid[]", "array(int64)", False, "'{4294967295}'", [2**32 - 1]),
    ("text[]", "array(string)", False, "'{a,NULL}'", ["a", None]),
    ("character varying(3)[]", "array(string)", False, "'{a}'", ["a"]),
    ("boolean[]", "array(boolean)", False, "'{t}'", [True]),
    ("numeric(9,2)[]", "array(string)", True, "'{1.5}'", ["1.50"]),
    ("uuid[]", "array(string)", True, "'{00000000-0000-0000-0000-000000000000}'", [str(UUID(int=0))]),
    ("mood[]", "array(string)", True, "'{so so}'", ["so so"]),
    ("price[]", "array(string)", True, "'{1.5}'", ["1.50"]),
    ("jsonb[]", "json", True, """array['{"a":1}'::jsonb]""", '[{"a": 1}]'),
    ("pair[]", "json", True, "array[row(1, 'x')::pair]", '[{"a":1,"b":"x"}]'),
    ("integer[][]", "json", True, "'{{1,2},{3,4}}'", "[[1,2],[3,4]]"),
]  # fmt: skip
OWN = """
CREATE TYPE mood AS ENUM ('so so', 'fine'); CREATE DOMAIN price AS numeric(9,2) CHECK (value > 0);
CREATE DOMAIN discount AS price; CREATE TYPE pair AS (a int, b text)
"""


@pytest.fixture
def typed(postgres: Database) -> Database:
    postgres.execute(OWN)
    return postgres


def read_table(database: Database, name: str = "t") -> tuple[TableRead, pa.Table, dict[str, DataType]]:
    """The table read through a snapshot, and what was said to be yielded."""
    with PostgresSource(database.config).snapshot() as snapshot:
        table = snapshot.discover().catalog.by_ref["public", name]
        read = TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))
        with snapshot.reader.open() as session:
            batches = [b for c in snapshot.chunks(read, "k", CursorRange()) for b in session.read(c)]
        return read, pa.Table.from_batches(batches), dict(snapshot.query_types(read))


@pytest.mark.parametrize("setting", ["on", "off"])
def test_a_text_in_a_filter_ends_where_it_was_judged_to_end(postgres: Database, setting: str) -> None:
    """Whoever may set a filter reads no other table by it, whatever the server takes a backslash for."""
    postgres.execute("CREATE TABLE t (id int, note text); CREATE TABLE other (id int); INSERT INTO other VALUES (1)")
    postgres.execute("INSERT INTO t VALUES (1, 'a')")
    postgres.execute(f'ALTER DATABASE "{postgres.config.database}" SET standard_conforming_strings = {setting}')
    with PostgresSource(postgres.config).snapshot() as snapshot:
        table = snapshot.discover().catalog.by_ref["public", "t"]
        where = r"note = 'a\' || ' OR id IN (SELECT id FROM public.other)) -- '"
        assert filter_error(where, snapshot.dialect) == "", "it is two texts"
        read = TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns), where=where)
        assert snapshot.filter_error(read) == ""
        assert snapshot.count(read) == 0


def test_each_type_maps_and_reads(typed: Database) -> None:
    typed.execute("CREATE TABLE t (" + ", ".join(f"c{i} {t[0]}" for i, t in enumerate(TYPES)) + ")")
    typed.execute("INSERT INTO t VALUES (" + ", ".join(t[3] for t in TYPES) + ")")  # noqa: S608 - from the table above
    typed.execute("INSERT INTO t SELECT")
    read, found, yields = read_table(typed)
    values = {k: v[0] for k, v in zip(yields, found.to_pydict().values(), strict=True)}
    for number, (native, accepted, noted, _, expected) in enumerate(TYPES):
        column = read.source.columns[number]
        assert (str(column.type), bool(column.note)) == (accepted, noted), native
        assert (native, values[column.name]) == (native, expected)
        assert found.column(number).null_count == 1, native
        assert _fits(yields[column.name], found.schema.field(number).type), native


def _fits(kind: DataType, arrow: pa.DataType) -> bool:
    names = {
        "string": "string", "json": "string", "binary": "binary", "uuid": "fixed_size_binary[16]", "boolean": "bool",
        "float32": "float", "float64": "double", "date": "date32[day]", "timestamp": "timestamp[us]",
        "timestamptz": "timestamp[us, tz=UTC]",
    }  # fmt: skip
    text = str(kind)
    if text.startswith("array("):
        return pa.types.is_list(arrow) and _fits(parse(text[6:-1]), arrow.value_type)
    return str(arrow) == names.get(text, text)


EXTREMES = [
    ("timestamp", "infinity", TIMESTAMP_INFINITY),
    ("timestamp", "-infinity", TIMESTAMP_INFINITY + 1),
    ("timestamptz", "infinity", TIMESTAMP_INFINITY),
    ("timestamp", "294276-12-31 23:59:59", -9222426057710551616),
    ("timestamp", "12000-01-01", 316516204800000000),
    ("timestamp", "0044-03-15 BC", -63517824000000000),
    ("timestamp", "4713-01-01 BC", -210863520000000000),
    ("date", "infinity", DATE_INFINITY),
    ("date", "-infinity", DATE_INFINITY + 1),
    ("date", "12000-01-01", 3663382),
    ("date", "0044-03-15 BC", -735160),
    ("date", "5874897-12-31", 2145042905),
]
_YEAR_1, _YEAR_10000 = -62135596800, 253402300800


@pytest.mark.sampled
@pytest.mark.parametrize(("native", "value", "expected"), EXTREMES)
def test_values_outside_the_years_1_to_9999_stay_outside(
    postgres: Database, native: str, value: str, expected: int
) -> None:
    postgres.execute(f"CREATE TABLE t (c {native})")
    postgres.execute(f"INSERT INTO t VALUES ('{value}')")  # noqa: S608 - from the table above
    _, found, _ = read_table(postgres)
    held = found.column(0).cast(pa.int32() if native == "date" else pa.int64())[0].as_py()
    unit = 86400 if native == "date" else 1 / 1_000_000
    assert held == expected
    assert not _YEAR_1 <= held * unit < _YEAR_10000


def test_an_array_of_more_dimensions_is_never_flattened(postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int, tags int[])")
    postgres.execute("INSERT INTO t VALUES (1, '{1}'), (2, '{{1,2},{3,4}}')")
    with pytest.raises(ReadError, match="column tags holds an array of more than one dimension"):
        read_table(postgres)


def test_numbers_keep_every_digit(postgres: Database) -> None:
    chosen = random.Random(7)
    numbers = [Number(chosen.randrange(-(10**k), 10**k)).scaleb(-6) for k in range(1, 38) for _ in range(5)]
    postgres.execute("CREATE TABLE t (n numeric(38,6))")
    postgres.execute("INSERT INTO t SELECT unnest(%s::numeric[])", numbers)
    _, found, _ = read_table(postgres)
    assert sorted(map(Number, found.column(0).to_pylist())) == sorted(numbers)


@given(st.integers(1, 1000), st.integers(-1000, 1000))
def test_numeric_maps_to_a_decimal_that_holds_it_or_to_text(precision: int, scale: int) -> None:
    mapped = map_type(f"numeric({precision},{scale})", "b", 0)
    if isinstance(mapped.type, Decimal):
        assert mapped.type.scale == scale
        assert mapped.type.precision - mapped.type.scale >= precision - scale
        assert not mapped.note
    else:
        assert (mapped.type, bool(mapped.note)) == (String(), True)
    assert yielded(mapped.type) == String()


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_quoting_ends_where_the_text_ends(text: str) -> None:
    assert quote(text)[1:-1].replace('""', "") == text.replace('"', "")
    body = literal(text).strip().removeprefix("E")[1:-1]
    assert body.replace("''", "").count("'") == 0


TEXTS = ("it's", "back\\slash", "\\'", "a%b_c", "line\nbreak", "🫖", "E'x'", "x[1]", "a^b", "]-[", "tmp_1")


def test_literals_are_what_the_server_understands(postgres: Database) -> None:
    for text in TEXTS:
        assert postgres.execute(f"SELECT {literal(text)}") == [(text,)]


GLOBS = ("*", "?", "s.*", "*.t*_?", "s.[!z]*", "s.[a-eE]*", "*[]]*", "s.x[[]1]", "tmp_?", "s.a^b", "S.*", "re:s[.]tmp_")
GLOBS += ("re:s[.]tmp_.*", "re:.*\\d", "re:tmp|s[.]a.*", "s.[^a]*", "re:(?i)S[.]TMP_.|x[.]y")


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", [*GLOBS, *TEXTS])
def test_patterns_match_as_selections_do(postgres: Database, pattern: str) -> None:
    conditions = ", ".join(matches("'s'::text", f"{literal(t)}::text", (pattern,), ()) for t in TEXTS)
    expected = [Pattern(pattern).matches(f"s.{t}") for t in TEXTS]
    if "." not in pattern:
        expected = [e or Pattern(pattern).matches(t) for e, t in zip(expected, TEXTS, strict=True)]
    assert list(postgres.execute(f"SELECT {conditions}")[0]) == expected
