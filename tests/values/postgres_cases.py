"""PostgreSQL's types and edge values."""

from __future__ import annotations

from value_cases import Case, out, q

OWN = (
    "CREATE TYPE mood AS ENUM ('so so', 'it''s', '🫖', '')",
    "CREATE DOMAIN price AS numeric(9,2)",
    "CREATE DOMAIN label AS varchar(5)",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE deep AS (p pair, l int[], j json, n numeric, f float8, at timestamptz, raw bytea)",
    "CREATE TYPE span AS RANGE (subtype = float8)",
)
_NINES, _FRACTION = "9" * 38, "0." + "0" * 37 + "1"
_FAR = ("infinity", "-infinity")
_DATES = ("0001-01-01 BC", "0044-03-15 BC", "4713-01-01 BC", "10000-01-01", "12000-01-01", "5874897-12-31", *_FAR)
_MOMENTS = (
    "0001-12-31 23:59:59.999999 BC", "4713-01-01 00:00:00 BC", "10000-01-01", "32768-01-01", "100000-02-29 01:02:03.4",
    "294246-12-31 23:59:59.999999", "294276-12-31 23:59:59.999999", *_FAR,
)  # fmt: skip
_IN_RANGE = ("0001-01-01", "1582-10-10", "1899-12-31 23:59:59.999999", "1970-01-01", "2024-03-31 02:30:00.000001",
             "9999-12-31 23:59:59.999999")  # fmt: skip
_NAN = {"'NaN'": "NaN is not a finite number"}
_FLOATS = ("0", "'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "0.1", "-1.5", "1e15", "1e16", "123456789")
_TEXTS = (*q("", " ", "NULL", "null", r"\N", '"', ",", "\t\r\n", "🫖 é \u200b\u202e", "e\u0301", "\ufeff\uffff"),
          "chr(1)", "E'it''s \\\\'")  # fmt: skip
_JSONS = q(
    "null", '""', "{}", "[]", "1.00", "-0", "0.1", "1e400", "9223372036854775808", "123456789012345678901234567890.5",
    '{"a": 1, "A": 2, "": 3}', '"🫖"', '"null"', '{"n": {"n": [1, [2, {"x": null}]]}}',
)  # fmt: skip
_HALF = r"""'"x\ud83e"'"""
NUMBERS = (
    Case("boolean", ("true", "false")),
    Case("smallint", ("-32768", "32767", "0")),
    Case("integer", ("-2147483648", "2147483647", "0")),
    Case("bigint", ("-9223372036854775808", "9223372036854775807", "0")),
    Case("oid", ("4294967295", "0")),
    Case("real", (*_FLOATS, "1.4e-45", "1.1754944e-38", "3.4028235e38", "16777217")),
    Case("double precision", (*_FLOATS, "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "1e-7")),
    Case("numeric(12,2)", ("1234.50", "-0.01", "0", "9999999999.99", "'NaN'"), _NAN),
    Case("numeric(38,0)", (_NINES, f"-{_NINES}", "0", "10000000000000000")),
    Case("numeric(38,38)", (_FRACTION, f"-{_FRACTION}", "0")),
    Case("numeric(38,10)", ("9999999999999999999999999999.9999999999", "-0.0000000001", "1e16")),
    Case("numeric(2,4)", ("0.0012", "-0.0099")),
    Case("numeric(5,-2)", ("12345", "9999900", "0")),
    Case("numeric(39,1)", ("9" * 38 + ".9", "0.1")),
    Case("numeric(1000,500)", ("9" * 500 + "." + "9" * 500, "0." + "0" * 499 + "1", "0")),
    Case("numeric", ("1e-20", "1.500", "-0.0", "1e130000", "1e39", "'NaN'", "'Infinity'", "'-Infinity'")),
    Case("money", q("12.5", "-92233720368547758.08", "92233720368547758.07"), shown="{}::numeric::text"),
)  # fmt: skip
TEXTS = (
    Case("text", _TEXTS),
    Case("character varying(20)", _TEXTS),
    Case("character varying", q("", "a ")),
    Case("character(4)", q("a", "", "🫖"), shown="rpad({}::text, 4)"),
    Case("bpchar", q("a  ", "")),
    Case("name", q("a", "é")),
    Case('"char"', (*q("a", ""), "'\\377'")),
    Case("bytea", (*q("", r"\x00", r"\x00ff5c27", r"\xc328"), "decode(repeat('00ff', 500000), 'hex')")),
    Case("uuid", q("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")),
    Case("json", (*_JSONS, *q('{"a":  1, "a": 2}', "  [1 ]", r'"\u0000"', "9" * 400), _HALF),
         held_at={"duckdb": {_HALF: "half of a surrogate pair"}}),
    Case("jsonb", (*_JSONS, *q('{"a":  1, "a": 2}'), r"""'"\ud83e\uded6"'""")),
    Case("mood", q("so so", "it''s", "🫖", "")),
    Case("price", ("1.50", "'NaN'"), _NAN),
    Case("label", q("", "🫖🫖🫖🫖🫖")),
    Case("pair", ("row(1, 'x')", "row(NULL, NULL)", "row(-1, '\"🫖\\')"), shown="to_json({})::text"),
    Case(
        "deep",
        (
            """row(row(1, 'x'), '{1,NULL}', '{"a":1.0,"a":2}', 1e40, 'NaN', '2024-01-01Z', '\\x00ff')""",
            "row(NULL, '{{1},{2}}', '\"\\u0000\"', 'NaN', '-0', 'infinity', '')",
        ),
        shown="to_json({})::text",
    ),
)  # fmt: skip
TIMES = (
    Case("date", (*q("0001-01-01", "1582-10-10", "1970-01-01", "2024-02-29", "9999-12-31"), *out(*_DATES)),
         out(*_DATES)),
    Case("timestamp", (*q(*_IN_RANGE), *out(*_MOMENTS)), out(*_MOMENTS)),
    Case("timestamptz", (*q(*(f"{v}+00" for v in _IN_RANGE), "2024-03-31 02:30:00+05:45", "2016-12-31 23:59:60+00"),
                         *out(*_MOMENTS), *out("9999-12-31 23:59:59-12")),
         {**out(*_MOMENTS), **out("9999-12-31 23:59:59-12")}),
    Case("timestamp(3)", q("2024-01-01 00:00:00.1235")),
    Case("time", q("00:00:00", "24:00:00", "23:59:59.999999")),
    Case("time(0)", q("12:00:00")),
    Case("timetz", q("10:00:00.000001+02", "24:00:00-15:59")),
    Case("interval", q("0", "1 mon -1 day 00:00:00.000001", "-178000000 years", "178000000 years", "1000000 hours",
                       "infinity", "-infinity")),
    Case("interval year to month", q("1-2")),
)  # fmt: skip
ARRAYS = (
    Case("integer[]", q("{}", "{NULL}", "{1,NULL,-2147483648}", "[5:6]={1,2}")),
    Case("smallint[]", q("{32767}")),
    Case("bigint[]", q("{9223372036854775807,NULL}")),
    Case("boolean[]", q("{t,f,NULL}")),
    Case("real[]", q("{0.1,-0,NaN,Infinity,1e-45,NULL}")),
    Case("double precision[]", q("{0.1,-0,NaN,-Infinity,5e-324}")),
    Case("text[]", q('{"",NULL,"NULL","\\"{,}🫖"}', "{}")),
    Case("varchar(3)[]", q("{a,NULL}")),
    Case("bytea[]", (r"""'{"\\x00ff",NULL,""}'""",)),
    Case("date[]", q("{2024-02-29,NULL,0001-01-01}", "{infinity}", "{2024-01-01,12000-01-01}", "{0044-03-15 BC}"),
         dict.fromkeys(q("{infinity}", "{2024-01-01,12000-01-01}", "{0044-03-15 BC}"), "element")),
    Case("timestamptz[]", q("{2024-02-29 00:00:00.000001+00,NULL}", "{infinity}", "{294276-12-31 23:59:59+00}"),
         dict.fromkeys(q("{infinity}", "{294276-12-31 23:59:59+00}"), "element")),
    Case("timestamp[]", q("{0001-01-01,9999-12-31 23:59:59.999999}")),
    Case("numeric(9,2)[]", q("{1.5,NaN,NULL}")),
    Case("uuid[]", q("{00000000-0000-0000-0000-000000000000}")),
    Case("interval[]", q("{1 day,NULL}")),
    Case("inet[]", q("{10.0.0.1/8}")),
    Case("mood[]", q('{"so so",NULL}')),
    Case("price[]", q("{1.5}")),
    Case("oid[]", q("{4294967295}")),
    Case("json[]", ("""ARRAY['{"a":1.0,"a":2}', NULL, '"\\u0000"']::json[]""",), shown="to_json({})::text"),
    Case("jsonb[]", ("""ARRAY['{"a":1}', 'null', NULL]::jsonb[]""", "'{}'"), shown="to_json({})::text"),
    Case("pair[]", ("ARRAY[row(1,'x'), NULL]::pair[]",), shown="to_json({})::text"),
    Case("integer[][]", q("{{1,2},{3,NULL}}", "{}", "{1}"), shown="to_json({})::text"),
    Case("text[][][]", q('{{{a,NULL},{"",NULL}}}'), shown="to_json({})::text"),
)  # fmt: skip
OTHERS = (
    Case("bit(3)", ("B'101'",)), Case("bit varying", ("B''", "B'" + "01" * 100 + "'")),
    Case("inet", q("10.0.0.1", "10.0.0.1/8", "::1/128", "fe80::1/64")), Case("cidr", q("10.0.0.0/8", "::/0")),
    Case("macaddr", q("08:00:2b:01:02:03")), Case("macaddr8", q("08:00:2b:01:02:03:04:05")),
    Case("point", q("(0.1,-0)", "(NaN,Infinity)")), Case("line", q("{1,2,3}")), Case("lseg", q("[(0,0),(1,1)]")),
    Case("box", q("(1,1),(0,0)")), Case("path", q("((0,0),(1,1))")), Case("polygon", q("((0,0),(1,1),(1,0))")),
    Case("circle", q("<(0,0),0.1>")), Case("tsvector", q("cat:1A rat", "")), Case("tsquery", q("a & !b")),
    Case("int4range", q("[1,3)", "empty", "(,)")), Case("numrange", q("[1.50,)", "[-Infinity,1]")),
    Case("tstzrange", q("[2024-01-01Z,infinity)")), Case("daterange", q("[0044-03-15 BC,)")),
    Case("span", q("[0.1,NaN)")),
    Case("int4multirange", q("{[1,3),[5,)}", "{}")), Case("regclass", q("pg_class")),
    Case("pg_lsn", q("FFFFFFFF/FFFFFFFF")),
    Case("xid", q("4294967295")), Case("xid8", q("18446744073709551615")), Case("tid", q("(4294967295,65535)")),
    Case("jsonpath", q("$.a[*]")), Case("pg_snapshot", q("1:3:2")), Case("int2vector", q("1 2")),
    Case("oidvector", q("1 2")), Case("aclitem", q("postgres=r/postgres")), Case("regtype", q("integer[]")),
)  # fmt: skip
BY_EXTENSION = {
    "hstore": Case("hstore", q('a=>1, b=>NULL, ""=>"x\\"y"', "")),
    "citext": Case("citext", q("aA")), "ltree": Case("ltree", q("a.b")), "cube": Case("cube", q("(1,2)")),
    "vector": Case("vector(2)", q("[0.1,-1]")), "xml": Case("xml", q("<a>x</a>", "")),
    "postgis": Case("geometry", q("SRID=4326;POINT(1 2)")),
}  # fmt: skip
LARGE = (
    Case("text", ("repeat('é🫖', 500000)",)),
    Case("json", ("to_json(repeat('x\"', 1000000))", "(repeat('[', 3000) || repeat(']', 3000))::json")),
    Case("text[]", ("array_fill(repeat('y', 1000), ARRAY[2000])",)),
)
CASES = (*NUMBERS, *TEXTS, *TIMES, *ARRAYS, *OTHERS, *LARGE)
