"""`instep backfill`: what it takes, what it is held up by, and what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_world import PROJECT, Shop

from lake import SPARK

CURSOR = PROJECT.replace("policy: careful}", "policy: careful, tables: {main.order: {cursor: at}}LIMITS}")
TABLES = """
    create table "order" (id integer primary key, amount decimal(10,2), at integer not null);
    insert into "order" values (1, '10.50', 1), (2, '3.00', 2), (3, '1.00', 3);
    create table log (word text);
"""


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    made = Shop(tmp_path, capsys)
    made.write(text=CURSOR.replace("LIMITS", ""))
    made.sql(TABLES)
    return made


def limited(shop: Shop, limits: str) -> None:
    shop.write(text=CURSOR.replace("LIMITS", f", backfill_limits: {limits}"))


def dry(shop: Shop, *words: str) -> Any:
    return shop.json("backfill", "main.order", *words, "--dry-run")


def test_an_estimate_without_a_load(shop: Shop) -> None:
    shop.ok("apply", "--yes")
    found = dry(shop, "--column", "amount")["estimate"]
    assert (found["columns"], found["files"], found["why_not"]) == (["amount"], 0, "it has not been loaded yet")
    assert "not possible" in shop.ok("backfill", "main.order", "--column", "amount", "--dry-run").out
    assert dry(shop)["estimate"]["columns"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("main.ordr", "--column", "amount"), "did you mean main.order?"),
        (("main.order", "--column", "amont"), "did you mean amount?"),
        (("main.order", "--column", "id"), "part of its key"),
        (("main.log", "--column", "word"), "it has no key"),
    ],
)
def test_what_cannot_be_filled(shop: Shop, words: tuple[str, ...], said: str) -> None:
    shop.ok("apply", "--yes")
    found = shop.run("backfill", *words)
    assert found.code == 1
    assert said in found.err


def test_a_window_is_asked_about(shop: Shop) -> None:
    shop.ok("apply", "--yes")
    limited(shop, '{window: "00:00-00:01", max_bytes: 5}')
    waits = dry(shop, "--column", "amount")["waits"]
    assert "window" in waits or not waits, "unless it is midnight"
    if waits:
        refused = shop.run("--no-input", "backfill", "main.order", "--column", "amount")
        assert refused.code == 3
        assert "--now" in refused.err


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ('{window: "late"}', "such as 22:00-06:00"),
        ("{max_bytes: -1}", "max_bytes"),
        ("{timezone: Mars}", "unknown time zone"),
        ("{minutes: 5}", "minutes"),
    ],
)
def test_wrong_limits(shop: Shop, limits: str, said: str) -> None:
    limited(shop, limits)
    found = shop.run("validate")
    assert found.code == 1
    assert said in found.err


@pytest.mark.parametrize("mark", [pytest.param(None, marks=SPARK)])
def test_a_column_is_filled(shop: Shop, mark: None) -> None:
    """The budget holds up the sync and `status` says so; a person may do it now."""
    shop.write(text=CURSOR.replace("LIMITS", ", backfill: column, backfill_limits: {max_bytes: 1}"))
    shop.ok("sync")
    shop.sql("alter table \"order\" add column note text default 'none'")
    assert "the budget is 1" in " ".join(shop.json("plan")["notes"])
    assert "the budget is 1" in shop.ok("sync").out
    [waiting] = shop.json("status")["connections"][0]["backfills"]
    assert (waiting["column"], waiting["scope"]) == ("note", "column")
    assert "the budget is 1" in waiting["waits"]
    assert "main.order.note" in shop.ok("status").out
    found = dry(shop, "--column", "note")
    assert (found["estimate"]["files"], found["estimate"]["of"]) == (1, 2)
    assert found["estimate"]["rewritten"] > 0
    report = shop.json("backfill", "main.order", "--column", "note", "--now")
    assert [(t["mode"], t["read"], t["updated"]) for t in report["tables"]] == [("column", 3, 2)]
    rows = shop.json("query", 'select id, note from shop."order" order by id')["rows"]
    assert [r["note"] for r in rows] == ["none"] * 3
    assert shop.json("status")["connections"][0]["backfills"] == []
