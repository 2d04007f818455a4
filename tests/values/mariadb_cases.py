"""MariaDB's types and edge values."""

from __future__ import annotations

from value_cases import Case, q

_NO_DATE = "outside the years 0001 to 9999"
_NOT = "not an ISO date and time"
_NUL = {"'a\\0b'": "a NUL in the text"}
_FLOATS = ("0", "-0e0", "0.1", "-1.5", "1e15", "123456789")
_DATES = {"'0000-00-00'": _NO_DATE, "'0000-01-01'": _NO_DATE, "'2020-00-10'": _NOT, "'2021-02-30'": _NOT,
          "'2024-02-00'": _NOT}  # fmt: skip
_TEXTS = (*q("", "NULL", "\\\\N", "\\n\\t", "🫖 é \u200b", "e\u0301"), *_NUL)
_LAX = dict.fromkeys(("'1.'", "'\"\\\\x\"'"), "not JSON")
_HEX = "CONCAT('\\\\x', LOWER(HEX({})))"
_GEO = "CONCAT('SRID=', ST_SRID({}), ';', ST_AsText({}))"


def _ints(name: str, bits: int) -> tuple[Case, Case]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return Case(name, (str(low), str(high), "0")), Case(f"{name} unsigned", (str(2**bits - 1), "0"))


CASES = (
    *_ints("tinyint", 8), *_ints("smallint", 16), *_ints("mediumint", 24), *_ints("int", 32), *_ints("bigint", 64),
    Case("int(9) unsigned zerofill", ("42",), shown="{} + 0"),
    Case("tinyint(1)", ("0", "1", "2", "-1", "127"), dict.fromkeys(("2", "-1", "127"), "not true or false")),
    Case("bit(1)", ("b'0'", "b'1'"), shown="{} + 0"), Case("bit(9)", ("b'111111111'", "b'0'"), shown="{} + 0"),
    Case("bit(64)", ("~0", "0"), shown="{} + 0"),
    Case("decimal(12,2)", ("1234.50", "-0.01", "0")),
    Case("decimal(12,2) zerofill", ("1.5",)),
    Case("decimal(38,10)", ("-" + "9" * 28 + "." + "9" * 10, "0")), Case("decimal(38,38)", ("0." + "0" * 37 + "1",)),
    Case("decimal(39,2)", ("9" * 37 + ".99", "0.1")), Case("decimal(65,30)", ("9" * 35 + "." + "9" * 30, "-0.1")),
    Case("float", (*_FLOATS, "1e-45", "3.4028234e38", "16777217", "1.17549435e-38"), shown="{} * 1e0"),
    Case("float(7,3)", ("1.2345",), shown="{} * 1e0"),
    Case("double", (*_FLOATS, "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "0.30000000000000004")),
    Case("double(10,2)", ("0.126", "99999999.99"), shown="{} * 1e0"),
    Case("year", ("1901", "2155", "0")),
    Case("date", (*q("0001-01-01", "1582-10-10", "2024-02-29", "9999-12-31"), *_DATES), _DATES),
    Case("datetime", (*q("0001-01-01 00:00:00", "9999-12-31 23:59:59"), *_DATES), _DATES),
    Case("datetime(6)", (*q("0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"), "'0000-00-00'"),
         {"'0000-00-00'": _NO_DATE}),
    Case("timestamp(6) null", (*q("1970-01-01 00:00:01.000001", "2024-03-31 02:30:00", "2038-01-19 03:14:07.999999"),
                               "'0000-00-00'"), {"'0000-00-00'": _NO_DATE}),
    Case("time(6)", q("838:59:59.999999", "-838:59:59.999999", "00:00:00")), Case("time", q("24:00:00")),
    Case("char(5)", q("ab ", "")), Case("varchar(20)", _TEXTS, held_at={"postgres": _NUL}),
    Case("varchar(20) character set latin1", q("café", "€", "")),
    Case("varchar(20) character set utf16", q("🫖")), Case("text character set ucs2", q("é")),
    Case("varchar(20) character set binary", ("x'00FF'",), shown=_HEX),
    Case("tinytext", q("")), Case("text", _TEXTS, held_at={"postgres": _NUL}), Case("mediumtext", q("a")),
    Case("longtext", ("REPEAT('é🫖', 500000)",)),
    Case("enum('a','it''s','🫖','')", (*q("a", "it''s", "🫖", ""), "0")),
    Case("set('a','b','c d')", q("", "b,a", "c d")),
    Case("binary(4)", ("x'00FF'",), shown=_HEX), Case("varbinary(5)", ("x''", "x'00'", "x'C328FF0A00'"), shown=_HEX),
    Case("tinyblob", ("x''",), shown=_HEX), Case("blob", ("x'00FFFB'", "x''"), shown=_HEX),
    Case("longblob", ("REPEAT(x'00FE', 1000000)",), shown=_HEX),
    Case("json", (*q("null", "1.00", "1e400", "123456789012345678901234567890", '{"a":  1, "a": 2, "A": 3}', '"🫖"'),
                  "'[]'", "'\"\\\\u0000\"'", *_LAX),
         held_at={"postgres": _LAX, "duckdb": _LAX}),
    Case("uuid", q("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000")),
    Case("inet4", q("255.255.255.255")), Case("inet6", q("::1", "::ffff:1.2.3.4")),
    Case("point", ("ST_GeomFromText('POINT(1.5 -2)', 4326)", "POINT(0.1, 1e300)"), shown=_GEO),
    Case("geometry", ("ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')",), shown=_GEO),
    Case("polygon", ("ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')",), shown=_GEO),
)  # fmt: skip
