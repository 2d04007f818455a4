from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.types import parse
from instep.sources.mysql.types import MySqlType, column_type, expression, literal, query_type, quoted
from instep.sources.mysql.wire import _columns

NATIVE = [
    ("tinyint(1)", None, "boolean", "string", False),
    ("tinyint(1) unsigned", None, "int16", "int16", False),
    ("tinyint(4)", None, "int8", "int8", False),
    ("tinyint unsigned", None, "int16", "int16", False),
    ("smallint(6)", None, "int16", "int16", False),
    ("smallint unsigned", None, "int32", "int32", False),
    ("mediumint(9)", None, "int32", "int32", False),
    ("mediumint unsigned", None, "int32", "int32", False),
    ("int(11)", None, "int32", "int32", False),
    ("int(10) unsigned zerofill", None, "int64", "int64", False),
    ("bigint", None, "int64", "int64", False),
    ("bigint(20) unsigned", None, "decimal(20,0)", "decimal(20,0)", False),
    ("decimal(12,2)", None, "decimal(12,2)", "decimal(12,2)", False),
    ("decimal(38,10) unsigned", None, "decimal(38,10)", "decimal(38,10)", False),
    ("decimal(39,2)", None, "string", "string", True),
    ("float", None, "float32", "float32", False),
    ("float(7,3)", None, "float32", "float32", False),
    ("double", None, "float64", "float64", False),
    ("bit(1)", None, "boolean", "boolean", False),
    ("bit(9)", None, "int64", "int64", False),
    ("bit(64)", None, "decimal(20,0)", "decimal(20,0)", False),
    ("char(3)", 3, "string(3)", "string", False),
    ("varchar(200)", 200, "string(200)", "string", False),
    ("longtext", 4294967295, "string", "string", False),
    ("enum('a','b')", 1, "string", "string", False),
    ("set('a','b')", 3, "string", "string", False),
    ("json", None, "json", "json", False),
    ("binary(16)", 16, "binary(16)", "binary(16)", False),
    ("varbinary(5)", 5, "binary(5)", "binary(5)", False),
    ("mediumblob", 16777215, "binary", "binary", False),
    ("date", None, "date", "string", False),
    ("datetime(6)", None, "timestamp", "string", False),
    ("timestamp", None, "timestamptz", "string", False),
    ("time(3)", None, "string", "string", True),
    ("year(4)", None, "int16", "int16", False),
    ("uuid", None, "uuid", "string", False),
    ("inet6", None, "string", "string", False),
    ("point", None, "string", "string", True),
    ("something new", None, "string", "string", True),
]


@pytest.mark.parametrize(("full", "length", "kind", "read", "noted"), NATIVE)
def test_native_types(full: str, length: int | None, kind: str, read: str, noted: bool) -> None:
    base = full.partition("(")[0].partition(" ")[0]
    found, note = column_type(MySqlType(base, full, length))
    assert (found, query_type(found, full), bool(note)) == (parse(kind), parse(read), noted)


def test_a_longtext_that_mariadb_checks_is_json() -> None:
    assert column_type(MySqlType("longtext", "longtext", None, checked=True)) == (parse("json"), "")


EXPRESSIONS = [
    ("int(11)", "`a`"), ("double", "`a`"), ("double(10,2)", "`a` * 1e0"), ("float", "`a` * 1e0"), ("bit(3)", "`a` + 0"),
    ("polygon", "COALESCE(CONCAT('SRID=', ST_SRID(`a`), ';', ST_AsText(`a`)), CONCAT(x'FF', `a`), `a`)"),
]  # fmt: skip


@pytest.mark.parametrize(("native", "expected"), EXPRESSIONS)
def test_columns_without_an_exact_text_are_selected_through_one(native: str, expected: str) -> None:
    assert expression("`a`", native) == expected


def test_quoting() -> None:
    assert quoted("a`b") == "`a``b`"
    assert literal("it's \\ so") == "'it''s \\\\ so'"


def encode(value: bytes | None) -> bytes:
    """A length-encoded string, in the shortest form."""
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 0xFB:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    return b"\xfd" + size.to_bytes(3, "little") + value


SIZES = st.one_of(st.integers(0, 20), st.sampled_from([249, 250, 251, 252, 255, 256, 65_535, 65_536]))
VALUES = st.one_of(st.none(), st.binary(max_size=20), SIZES.map(lambda n: b"\xfb" * n))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(VALUES, min_size=n, max_size=n), min_size=1, max_size=12)))
def test_rows_are_cut_out_of_the_stream_as_they_were_put_in(rows: list[list[bytes | None]]) -> None:
    data, starts = b"", []
    for row in rows:
        body = b"".join(map(encode, row))
        starts.append(len(data) + 4)
        data += len(body).to_bytes(3, "little") + b"\x00" + body
    columns = _columns(data, starts, len(rows[0]))
    assert [list(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)] == rows
    for column in columns:
        column.validate(full=True)


@given(st.binary(min_size=1, max_size=40), st.integers(1, 3))
def test_a_broken_stream_is_refused_or_read_within_its_bounds(body: bytes, width: int) -> None:
    from instep.errors import ReadError

    try:
        columns = _columns(b"\0\0\0\0" + body, [4], width)
    except (ReadError, IndexError):
        return
    assert sum(len(v or b"") for c in columns for v in c.to_pylist()) <= len(body)


@pytest.mark.parametrize("size", [2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_of_more_than_arrow_holds_is_refused(size: int) -> None:
    from instep.errors import ReadError

    with pytest.raises(ReadError, match="not in MySQL's text protocol"):
        _columns(b"\0\0\0\0\xfe" + size.to_bytes(8, "little") + b"z" * 9, [4], 2)
