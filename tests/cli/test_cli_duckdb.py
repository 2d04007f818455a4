"""The commands over a DuckDB file: what needs no rows runs without a JVM, and what it cannot do is said."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from cli_world import PROJECT, Shop

from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import RunScope, sync

FILE = PROJECT.replace("{type: iceberg, warehouse: lake}", "{type: duckdb, path: shop.duckdb, lock_timeout: 0}")

RULES = "    rules:\n      - {on: [column.removed], decide: review}\n"


@pytest.fixture
def filed(shop: Shop) -> Shop:
    shop.write(text=FILE)
    return shop


def synced(shop: Shop) -> None:
    with open_project(shop.folder) as app:
        assert sync(app.sync_context("shop"), RunScope(), engine=LocalEngine(threads=1)).status == "done"


def test_a_destination_that_works(filed: Shop) -> None:
    checks = filed.json("destination", "test", "lake")["checks"]
    assert [c["name"] for c in checks if not c["ok"]] == []
    assert filed.json("status")["connections"][0]["tables"] == []


def test_a_plan_and_its_rows(filed: Shop) -> None:
    assert "table shop.customer added" in filed.ok("plan").out
    filed.ok("apply", "--yes")
    assert filed.run("plan").out.startswith("nothing to do")
    synced(filed)
    assert "equal" in filed.ok("verify").out
    rows = filed.json("query", 'select id, amount from shop."order" order by id')["rows"]
    assert [(r["id"], str(r["amount"])) for r in rows] == [(1, "10.50"), (2, "3.00")]
    assert "last sync done" in filed.ok("status").out


def test_a_change_is_applied_and_taken_back(filed: Shop) -> None:
    filed.write(preset="propagate_all", text=FILE.replace(RULES, ""))
    filed.ok("apply", "--yes")
    synced(filed)
    filed.sql('alter table "order" add column note text')
    filed.ok("apply", "--yes")
    assert "note" in filed.ok("query", 'select * from "order"').out
    plan = next(w for w in filed.ok("history", "--plans").out.split() if w.startswith("p-"))
    assert filed.run("undo", plan, "--yes").code == 3, "it drops a column"
    filed.ok("undo", plan, "--yes", "--allow-destructive", "*.note")
    assert "note" not in filed.ok("query", 'select * from "order"').out


def test_what_somebody_else_has_open(filed: Shop) -> None:
    filed.ok("apply", "--yes")
    with duckdb.connect(str(filed.folder / "shop.duckdb")):
        said = filed.run("query", "select * from customer")
    assert said.code == 5
    assert "shop.duckdb is open in this process, in another way" in said.err
    assert "one process at a time may write a DuckDB file" in said.err


def test_what_a_file_without_snapshots_cannot_do(filed: Shop) -> None:
    filed.ok("apply", "--yes")
    said = filed.run("restore", "main.order", "--list")
    assert said.code != 0
    assert "a destination of type duckdb keeps no snapshots" in said.err


WRONG = [
    ("{type: duckdb}", "path"),
    ("{type: duckdb, path: x.duckdb, warehouse: lake}", "warehouse"),
    ("{type: duckdb, path: x.duckdb, lock_timeout: -1}", "lock_timeout"),
    ("{type: ducks, path: x.duckdb}", "did you mean 'duckdb'"),
]


@pytest.mark.parametrize(("section", "key"), WRONG)
def test_a_wrong_section_is_named(filed: Shop, section: str, key: str) -> None:
    filed.write(text=FILE.replace("{type: duckdb, path: shop.duckdb, lock_timeout: 0}", section))
    said = filed.run("validate")
    assert said.code == 1
    assert key in said.err + said.out
    assert not Path(filed.folder, "x.duckdb").exists()


def test_status_tells_of_the_tables_that_are_read(filed: Shop) -> None:
    filed.write(text=FILE.replace(", lock_timeout: 0", ""))
    filed.ok("apply", "--yes")
    synced(filed)
    filed.sql('alter table "order" rename to purchase')
    synced(filed)
    synced(filed)
    found = filed.json("status")["connections"][0]["tables"]
    assert [t["table"][1] for t in found] == ["customer", "purchase"]


def test_verify_says_how_many_rows_were_asked_to_stay(filed: Shop) -> None:
    filed.write(text=FILE.replace("policy: careful}", "policy: careful, tables: {main.customer: {deletes: ignore}}}"))
    synced(filed)
    filed.sql("delete from customer where id = 1")
    synced(filed)
    lines = filed.ok("verify").out.splitlines()
    assert "equal" in lines[0]
    assert lines[1].strip() == "1 of them only in the destination: retained by `deletes: ignore`"
    assert [t["retained"] for t in filed.json("verify")["tables"]] == [1, 0]


def test_verify_says_what_it_could_not_compare(filed: Shop) -> None:
    synced(filed)
    settings = 'policy: careful, tables: {main.customer: {filter: "nope = 1"}}}'
    filed.write(text=FILE.replace("policy: careful}", settings))
    said = filed.run("verify")
    assert said.code == 1
    first, *rest = said.out.splitlines()
    assert first == "DIFFERS main.customer: could not be compared"
    assert "nope" in rest[0]
    assert rest[1].strip().startswith("correct it in instep.yml")


def test_a_query_is_bounded_and_says_how_to_get_all(filed: Shop, tmp_path: Path) -> None:
    said = filed.ok("query", "select * from range(150) t(x)", "-n", "3")
    assert (len(said.out.splitlines()), "there are more than these 3 rows" in said.err) == (4, True)
    found = filed.json("query", "select * from range(10001) t(x)")
    assert (len(found["rows"]), found["more"]) == (10_000, True)
    assert not filed.json("query", "select 1 as x")["more"]
    file = tmp_path / "all.parquet"
    assert filed.json("query", "select * from range(10001) t(x)", "--out", str(file))["rows"] == 10_001
    assert "end the name so" in filed.run("query", "select 1 as x", "--out", str(tmp_path / "all.txt")).err
