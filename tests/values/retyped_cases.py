"""Types of PostgreSQL that columns are retyped from and to, and the values at the edges of all of them."""

from __future__ import annotations

import random

OWN = ("CREATE TYPE mood AS ENUM ('so so', 'abc', '')",)
TYPES = (
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric(5,0)", "numeric(12,2)",
    "numeric(38,0)", "numeric(38,38)", "numeric", "money", "text", "character varying(40)", "character(4)", "bytea",
    "date", "timestamp", "timestamptz", "time", "timetz", "interval", "uuid", "json", "jsonb", "integer[]",
    "double precision[]", "real[]", "text[]", "date[]", "bytea[]", "inet", "mood", "int4range", "bit varying",
)  # fmt: skip
POOL = (
    "0", "1", "-1", "-0", "127", "128", "32767", "32768", "-32768", "-32769", "99999", "100000", "2147483647",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "0.1", "0.01",
    "1.5", "-99999.5", "9999999999.99", "10000000000", "16777217", "9007199254740993", "1e16", "1e23",
    "3.4028234663852886e38", "1.7e38", "170141183460469231731687303715884105728", "9" * 38, "9" * 39, "1e38", "-1e300",
    "5e-324", "1e-38", "0." + "0" * 37 + "1", "1e-39", "NaN", "Infinity", "-Infinity", "20240229",
    "12345678901234567890123456789012", "true", "f", "", " ", "abc", "é🫖", "null", '"x"', 'a"b', r"\x00ff", r"\xff",
    r"\x616263", r"\x", r"\x000102030405060708090a0b0c0d0e0f", " 5", "0001-01-01", "9999-12-31", "2024-02-29",
    "0044-03-15 BC", "10000-01-01", "2024-02-29 10:00:00.000001", "2024-02-29 00:00:00", "2024-02-29 00:00:00+00",
    "2024-02-29T23:30:00+05:45", "9999-12-31 23:59:59.999999+00", "24:00:00", "10:00:00", "10:00:00.000001+02",
    "1 day", "1 year 2 mons 3 days 04:05:06.5", "P1D", "00000000-0000-0000-0000-0000000000ff",
    "ffffffff-ffff-ffff-ffff-ffffffffffff", "{}", "[]", "[1,2]", "[1.5, null]", "[0.123456789]", '["a", null]',
    '{"a": 1, "a": 2}', '"5"', "[1e400]", "[true]", "[16777217]", '["2024-02-29"]', '["\\\\x00"]',
    "{1,NULL,-2147483648}",
    "{NULL}", "{0.1,1.5}", '{a,"b c",NULL}', "{NaN,-Infinity}", "{2024-02-29}", "{infinity}", r'{"\\x00ff",NULL}',
    "{3e9}", "10.0.0.1/8", "::1", "so so", "[1,3)", "empty", "101",
)  # fmt: skip

Pairs = dict[str, tuple[str, ...]]
"""New types by the accepted one."""


def all_pairs() -> Pairs:
    return {old: tuple(new for new in TYPES if new != old) for old in TYPES}


ALWAYS: Pairs = {"json": ("real[]",), "jsonb": ("double precision[]",)}
"""Pairs that every run has at every destination: each has failed once."""


def some_pairs(seed: int, part: int, of: int) -> Pairs:
    """One of so many parts of a sample in which each type is accepted once and is new once, and `ALWAYS`."""
    order = random.Random(seed).sample(TYPES, len(TYPES))
    pairs = list(zip(order, [*order[1:], order[0]], strict=True))
    some = {old: (new,) for old, new in pairs[part::of]}
    return some | {old: tuple(dict.fromkeys((*some.get(old, ()), *news))) for old, news in ALWAYS.items()}
