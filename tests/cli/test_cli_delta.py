"""The commands over Delta tables: no JVM, rows by SQL, plans, undo and restore."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import RunScope, sync

TABLES = PROJECT.replace("{type: iceberg, warehouse: lake}", "{type: delta, warehouse: lake}")
RULES = "    rules:\n      - {on: [column.removed], decide: review}\n"


@pytest.fixture
def lake(shop: Shop) -> Shop:
    shop.write(preset="propagate_all", text=TABLES.replace(RULES, ""))
    return shop


def synced(shop: Shop) -> None:
    with open_project(shop.folder) as app:
        assert sync(app.sync_context("shop"), RunScope(), engine=LocalEngine(threads=1)).status == "done"


def test_a_plan_and_its_rows(lake: Shop) -> None:
    checks = lake.json("destination", "test", "lake")["checks"]
    assert [c["name"] for c in checks if not c["ok"]] == []
    said = lake.ok("plan", "--ddl").out
    assert "table shop.customer added" in said
    assert "USING delta" in said
    lake.ok("apply", "--yes")
    assert lake.run("plan").out.startswith("nothing to do")
    synced(lake)
    assert "equal" in lake.ok("verify").out
    rows = lake.json("query", 'select id, amount from shop."order" order by id')["rows"]
    assert [(r["id"], str(r["amount"])) for r in rows] == [(1, "10.50"), (2, "3.00")]
    assert "last sync done" in lake.ok("status").out
    assert sorted(p.name for p in lake.folder.joinpath("lake/shop").iterdir()) == ["customer", "order"]


def test_a_change_is_applied_and_taken_back(lake: Shop) -> None:
    lake.ok("apply", "--yes")
    synced(lake)
    lake.sql('alter table "order" add column note text')
    lake.ok("apply", "--yes")
    assert "note" in lake.ok("query", 'select * from "order"').out
    plan = next(w for w in lake.ok("history", "--plans").out.split() if w.startswith("p-"))
    assert lake.run("undo", plan, "--yes").code == 3, "it drops a column"
    lake.ok("undo", plan, "--yes", "--allow-destructive", "*.note")
    assert "note" not in lake.ok("query", 'select * from "order"').out


def test_rows_are_put_back(lake: Shop) -> None:
    synced(lake)
    lake.sql('update "order" set amount = 99')
    synced(lake)
    points = lake.json("restore", "main.order", "--list")["snapshots"]
    assert len(points) == 2
    words = ("restore", "main.order", "--snapshot", str(points[1]["id"]), "--yes")
    lake.ok(*words, "--allow-destructive", "*.order")
    rows = lake.json("query", 'select id, amount from shop."order" order by id')["rows"]
    assert [str(r["amount"]) for r in rows] == ["10.50", "3.00"]


def test_a_wrong_place_is_named(lake: Shop) -> None:
    lake.write(text=TABLES.replace("warehouse: lake", "warehouse: hdfs://bucket/lake"))
    said = lake.run("destination", "test", "lake")
    assert said.code == 4
    assert "hdfs://bucket/lake is neither a folder nor in an object store" in said.err
