"""Steps as SQL: what is shown does, in DuckDB, what the destination does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_world import Warehouse

from instep.schema.catalog.catalog import Column
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
    TableReplaced,
)
from instep.schema.planning.step import RewriteColumn, UndropColumn, step
from lake import ID, ORDERS, REF, column

AMOUNT = ORDERS.columns[2]
STRICT = column("amount", "decimal(10,2)", nullable=False)
MOVED = replace(ORDERS, schema="other")
NAMED = replace(ORDERS, name="sales")

CASES: list[tuple[str, Any, list[str]]] = [
    ("add", ColumnAdded(REF, column('a"b', "array(uuid)"), 3),
     ['ALTER TABLE "shop"."orders" ADD COLUMN "a""b" UUID[];']),
    ("drop", ColumnRemoved(REF, AMOUNT, 2),
     ['ALTER TABLE "shop"."orders" DROP COLUMN "amount"; -- kept under another name until the undo window ends']),
    ("rename", ColumnRenamed(REF, AMOUNT, column("price", "decimal(10,2)")),
     ['ALTER TABLE "shop"."orders" RENAME COLUMN "amount" TO "price";']),
    ("widen", ColumnWidened(REF, AMOUNT, column("amount", "decimal(12,4)")),
     ['ALTER TABLE "shop"."orders" ALTER COLUMN "amount" SET DATA TYPE DECIMAL(12,4);']),
    ("longer", ColumnWidened(REF, ORDERS.columns[1], column("name", "string")), []),
    ("relaxed", ColumnNullability(REF, STRICT, AMOUNT),
     ['ALTER TABLE "shop"."orders" ALTER COLUMN "amount" DROP NOT NULL;']),
    ("stricter", ColumnNullability(REF, AMOUNT, STRICT), []),
    ("comments", ColumnComment(REF, AMOUNT, replace(AMOUNT, comment="it's")),
     ['COMMENT ON COLUMN "shop"."orders"."amount" IS \'it\'\'s\';']),
    ("no comment", TableComment(REF, "old", None), ['COMMENT ON TABLE "shop"."orders" IS NULL;']),
    ("renamed table", TableRenamed(ORDERS, NAMED), ['ALTER TABLE "shop"."orders" RENAME TO "sales";']),
    ("moved table", TableRenamed(ORDERS, MOVED),
     ['CREATE TABLE "other"."orders" AS SELECT * FROM "shop"."orders";', 'DROP TABLE "shop"."orders";']),
    ("dropped table", TableRemoved(ORDERS),
     ['DROP TABLE "shop"."orders"; -- kept under another name until the undo window ends']),
    ("undrop", UndropColumn(REF, AMOUNT, AMOUNT),
     ['-- "amount" of "shop"."orders" comes back from the name that it is kept under']),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("change", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_step(tmp_path: Path, change: Any, expected: list[str]) -> None:
    to = Warehouse(tmp_path).to
    assert to.schema.render_ddl([step(REF, change)]) == expected


def test_what_is_shown_can_be_run(tmp_path: Path) -> None:
    to = Warehouse(tmp_path).to
    wanted = replace(
        ORDERS, comment="all", columns=(*ORDERS.columns, Column("s", column("s", "json").type, comment="c"))
    )
    steps = [step(REF, c) for c in (
        TableAdded(wanted), RewriteColumn(REF, AMOUNT, column("amount", "string")), ColumnRemoved(REF, AMOUNT, 2),
        ColumnAdded(REF, column("x", 'struct("a b" int32)'), 2), TableRenamed(ORDERS, NAMED),
    )]  # fmt: skip
    with duckdb.connect() as db:
        db.execute("CREATE SCHEMA shop")
        for statement in to.schema.render_ddl(steps):
            db.execute(statement)
        names = [n for (n,) in db.execute("SELECT column_name FROM (DESCRIBE shop.sales)").fetchall()]
    assert names == ["id", "name", *(c.name for c in ORDERS.columns[3:]), "s", "x"]


def test_a_replaced_table_is_made_by_its_next_load(tmp_path: Path) -> None:
    to = Warehouse(tmp_path).to
    found = to.schema.render_ddl([step(REF, TableReplaced(ORDERS, replace(ORDERS, columns=(ID,))))])
    assert found[0].startswith("-- the next load swaps in")
    assert found[1] == 'CREATE TABLE "shop"."orders" (\n  "id" BIGINT\n);'
