"""`instep repair` as people and scripts use it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from cli_world import Shop

from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import sync

ORDER = "main.order"
ALLOWED = ("--allow-destructive", ORDER)


@pytest.fixture
def differing(shop: Shop) -> Shop:
    """Synced, then one order is changed, one deleted, and one added."""
    with open_project(shop.folder) as app:
        sync(app.sync_context("shop"), engine=LocalEngine())
    shop.sql('update "order" set amount = 77 where id = 1')
    shop.sql('delete from "order" where id = 2')
    shop.sql('insert into "order" (id, amount) values (3, 5)')
    return shop


def orders(shop: Shop) -> list[list[object]]:
    """What the destination has."""
    found = shop.json("query", 'select id, amount from shop."order" where not _instep_deleted order by id')["rows"]
    return [list(row.values()) if isinstance(row, dict) else row for row in found]


def test_it_says_first_what_it_would_do(differing: Shop) -> None:
    before = orders(differing)
    said = differing.ok("repair", ORDER, "--dry-run").out
    for text in ("1 row missing", "1 row with other values", "marked as deleted", "key 3", "instep restore main.order"):
        assert text in said, said
    data = differing.json("repair", ORDER, "--dry-run")
    assert (data["missing"], data["differing"], data["extra"], data["run"]) == (1, 1, 1, None)
    assert data["examples"] == {"differs": ["1"], "missing": ["3"], "only in the destination": ["2"]}
    assert orders(differing) == before


def test_it_is_named_and_confirmed_where_rows_go(differing: Shop) -> None:
    before = orders(differing)
    blocked = differing.run("repair", ORDER, "--yes")
    assert (blocked.code, f"--allow-destructive '{ORDER}'" in blocked.err) == (3, True)
    assert "nothing was repaired" in differing.run("repair", ORDER, *ALLOWED, "--no-input").err
    assert orders(differing) == before
    done = differing.json("repair", ORDER, *ALLOWED, "--yes")
    assert (done["inserted"], done["updated"], done["deleted"], done["verdict"]["equal"]) == (1, 1, 1, True)
    assert done["run"].startswith("r-")
    with closing(sqlite3.connect(differing.folder / "shop.db")) as source:
        assert len(orders(differing)) == len(source.execute('select id from "order"').fetchall())
    assert "repair" in differing.ok("history").out
    assert differing.run("verify").code == 0


def test_nothing_is_asked_where_no_row_goes(shop: Shop) -> None:
    with open_project(shop.folder) as app:
        sync(app.sync_context("shop"), engine=LocalEngine())
    assert "there is nothing to repair" in shop.ok("repair", ORDER, "--no-input").out
    assert shop.json("repair", ORDER)["run"] is None
    shop.sql('update "order" set amount = 77 where id = 1')
    said = shop.ok("repair", ORDER, "--no-input").out
    assert "0 inserted, 1 updated, 0 deleted; it equals its source now" in said


def test_a_table_that_still_differs_ends_as_verify_does(differing: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes again before the table is compared once more."""
    from instep.sync.operations.repair import RepairFindings

    monkeypatch.setattr(RepairFindings, "counts", lambda self: {"missing": 1})
    ended = differing.run("repair", ORDER, *ALLOWED, "--yes")
    assert ended.code == 1
    assert "it still differs" in ended.out
    assert "instep backfill main.order" in ended.out


def test_what_is_not_there_or_cannot_be_repaired(shop: Shop) -> None:
    with open_project(shop.folder) as app:
        sync(app.sync_context("shop"), engine=LocalEngine())
    assert f"did you mean {ORDER}" in shop.run("repair", "main.orders").err
