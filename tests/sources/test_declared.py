"""Types as SQL declares them, in the words of the catalogs."""

from __future__ import annotations

import pytest

from instep.sources.declared import declared_type

CASES = [
    ("postgres", "VARCHAR(5)[]", "character varying(5)[]", "array(string)"),
    ("postgres", "numeric ( 10 , 2 )", "numeric(10,2)", "decimal(10,2)"),
    ("postgres", "numeric(5)", "numeric(5,0)", "decimal(5,0)"),
    ("postgres", "pg_catalog.int4", "integer", "int32"),
    ("postgres", "bigserial", "bigint", "int64"),
    ("postgres", "timestamp (3) with time zone", "timestamp(3) with time zone", "timestamptz"),
    ("postgres", "timestamptz(3)", "timestamp(3) with time zone", "timestamptz"),
    ("postgres", "float(24)", "real", "float32"),
    ("postgres", "char", "character(1)", "string(1)"),
    ("postgres", "national character varying(3)", "character varying(3)", "string(3)"),
    ("postgres", "int[3][3]", "integer[]", "json"),
    ("postgres", "text ARRAY", "text[]", "array(string)"),
    ("postgres", '"My Type"', '"My Type"', "string"),
    ("mysql", "INT(11) UNSIGNED ZEROFILL", "int(11) unsigned zerofill", "int64"),
    ("mysql", "bool", "tinyint(1)", "boolean"),
    ("mysql", "numeric(7,3)", "decimal(7,3)", "decimal(7,3)"),
    ("mysql", "char", "char", "string(1)"),
    ("mysql", "varchar(20) binary", "varchar(20)", "string(20)"),
    ("mysql", "serial", "bigint unsigned", "decimal(20,0)"),
    ("sqlite", "VARCHAR(30)", "VARCHAR(30)", "string(30)"),
    ("sqlite", "", "", "string"),
]


@pytest.mark.parametrize(("dialect", "text", "native", "kind"), CASES, ids=[f"{d} {t}" for d, t, *_ in CASES])
def test_types(dialect: str, text: str, native: str, kind: str) -> None:
    found = declared_type(dialect, text)
    assert (found[1], str(found[0])) == (native, kind)
