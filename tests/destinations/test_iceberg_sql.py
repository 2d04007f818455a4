"""Steps as Spark SQL: what a reviewer reads, and that Spark would run it."""

from __future__ import annotations

from typing import Any

import pytest

from instep.destinations.iceberg.evolve.spark_sql import spark_type, statements
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnComment,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnWidened,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
)
from instep.schema.planning.step import RecordIdentity, RewriteColumn, UndropColumn, step

REF = ("shop", "or`der")
A, WIDE, TEXT = (Column("a", parse(t)) for t in ("int32", "int64", "string"))
T = "ALTER TABLE `shop`.`or``der`"
CASES: list[tuple[str, Any, list[str]]] = [
    ("add", ColumnAdded(REF, Column("x y", parse("decimal(10,2)"), comment="it's"), 1),
     [f"{T} ADD COLUMN `x y` DECIMAL(10,2) COMMENT 'it\\'s';"]),
    ("drop", ColumnRemoved(REF, A, 0), [f"{T} DROP COLUMN `a`;"]),
    ("rename", ColumnRenamed(REF, A, Column("b", A.type)), [f"{T} RENAME COLUMN `a` TO `b`;"]),
    ("widen", ColumnWidened(REF, A, WIDE), [f"{T} ALTER COLUMN `a` TYPE BIGINT;"]),
    ("same for Spark", ColumnWidened(REF, Column("a", parse("int8")), A), []),
    ("nullable", ColumnNullability(REF, Column("a", A.type, nullable=False), A),
     [f"{T} ALTER COLUMN `a` DROP NOT NULL;"]),
    ("comment", ColumnComment(REF, A, Column("a", A.type, comment="x")), [f"{T} ALTER COLUMN `a` COMMENT 'x';"]),
    ("rewrite", RewriteColumn(REF, A, TEXT),
     [f"{T} ADD COLUMN `a__new` STRING;", "UPDATE `shop`.`or``der` SET `a__new` = CAST(`a` AS STRING);",
      f"{T} DROP COLUMN `a`;", f"{T} RENAME COLUMN `a__new` TO `a`;"]),
    ("undrop", UndropColumn(REF, A, A),
     [f"-- {T} ADD COLUMN `a` INT would lack the old values: they come back by field id"]),
    ("record", RecordIdentity(REF, A, A), []),
    ("new table", TableAdded(Table(*REF, (A, TEXT.__class__("b", TEXT.type)), comment="c")),
     ["CREATE TABLE `shop`.`or``der` (\n  `a` INT,\n  `b` STRING\n) USING iceberg\nCOMMENT 'c';"]),
    ("table gone", TableRemoved(Table(*REF, (A,))),
     ["DROP TABLE `shop`.`or``der`; -- kept out of sight until the undo window ends"]),
    ("table renamed", TableRenamed(Table(*REF, (A,)), Table("shop", "n", (A,))), [f"{T} RENAME TO `shop`.`n`;"]),
    ("table comment", TableComment(REF, None, "a\nb"), ["COMMENT ON TABLE `shop`.`or``der` IS 'a\\nb';"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "expected"), CASES, ids=[c[0] for c in CASES])
def test_a_step_in_sql(name: str, change: Any, expected: list[str]) -> None:
    assert statements([step(REF, change)]) == expected


TYPES = [
    ("boolean", "BOOLEAN"), ("int16", "INT"), ("float64", "DOUBLE"), ("timestamp", "TIMESTAMP_NTZ"),
    ("timestamptz", "TIMESTAMP"), ("json", "STRING"), ("array(int32)", "ARRAY<INT>"), ("binary", "BINARY"),
    ('struct("a b" int32, "c" string)', "STRUCT<`a b`: INT, `c`: STRING>"), ("time", "STRING"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), TYPES)
def test_a_type_in_sql(kind: str, expected: str) -> None:
    assert spark_type(parse(kind)) == expected
