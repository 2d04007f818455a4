"""The commands over a PostgreSQL database: what needs no rows runs without a JVM, and no secret is told."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import RunScope, sync
from postgres_server import Database

PLACE = "{{type: postgres, host: 127.0.0.1, port: {c.port}, database: {c.database}, user: {c.user}, {more}}}"
RULES = "    rules:\n      - {on: [column.removed], decide: review}\n"


def project(database: Database, more: str = "password: '${env:PG_PASSWORD}'") -> str:
    place = PLACE.format(c=database.config, more=more)
    return PROJECT.replace("{type: iceberg, warehouse: lake}", place).replace(RULES, "")


@pytest.fixture
def placed(shop: Shop, postgres: Database) -> Shop:
    shop.write(preset="propagate_all", text=project(postgres))
    shop.folder.joinpath(".env").write_text(f"PG_PASSWORD={postgres.config.password}\n")
    return shop


def synced(shop: Shop) -> None:
    with open_project(shop.folder) as app:
        assert sync(app.sync_context("shop"), RunScope(), engine=LocalEngine(threads=1)).status == "done"


def test_from_a_plan_to_an_undo(placed: Shop, postgres: Database) -> None:
    checks = placed.json("destination", "test", "lake")["checks"]
    assert [c["name"] for c in checks if not c["ok"]] == []
    assert 'CREATE TABLE "shop"."customer"' in placed.ok("plan", "--ddl").out
    placed.ok("apply", "--yes")
    assert placed.run("plan").out.startswith("nothing to do")
    synced(placed)
    assert "equal" in placed.ok("verify").out
    rows = placed.json("query", 'select id, amount from shop."order" order by id')["rows"]
    assert [(r["id"], str(r["amount"])) for r in rows] == [(1, "10.50"), (2, "3.00")]
    placed.sql('alter table "order" add column note text')
    placed.ok("apply", "--yes")
    plan = next(w for w in placed.ok("history", "--plans").out.split() if w.startswith("p-"))
    placed.ok("undo", plan, "--yes", "--allow-destructive", "*.note")
    kept = "SELECT attname FROM pg_attribute WHERE attrelid = 'shop.order'::regclass AND attname LIKE '%drop%'"
    assert len(postgres.execute(kept)) == 1, "it waits in its table"


WRONG: list[tuple[str, str, str]] = [
    ("password: wrong", "must not be in the file", "a password in clear"),
    ("password: '${env:PG_PASSWORD}', lock_timeout: -1", "lock_timeout", "a negative time"),
    ("password: '${env:PG_PASSWORD}', tls: {ca: x, mode: require}", "verify-full", "an authority that is not asked"),
]


@pytest.mark.parametrize(("more", "told"), [c[:2] for c in WRONG], ids=[c[2] for c in WRONG])
def test_a_wrong_section_is_told(shop: Shop, postgres: Database, more: str, told: str) -> None:
    shop.write(text=project(postgres, more))
    said = shop.run("validate")
    assert said.code != 0
    assert told in said.out + said.err


def test_a_wrong_password_is_not_shown(placed: Shop) -> None:
    placed.folder.joinpath(".env").write_text("PG_PASSWORD=canary-4711\n")
    said = placed.run("plan")
    assert said.code == 4
    assert "check the destination's user and password" in said.err
    assert "canary" not in said.out + said.err
