"""`changes map`: what it says, and that it asks."""

from __future__ import annotations

import pytest
from cli_world import Shop

RENAMED = "alter table customer drop column city; alter table customer add column town text"
WORDS = ("changes", "map", "main.customer.city", "main.customer.town")


@pytest.fixture
def renamed(shop: Shop) -> Shop:
    shop.applied()
    shop.sql(RENAMED)
    shop.ok("detect")
    return shop


def test_a_removal_and_an_addition_become_one(renamed: Shop) -> None:
    said = renamed.ok(*WORDS)
    assert said.out.startswith("mapped: schema version ")
    assert "main.customer.city is read from town and keeps its values" in said.err
    assert renamed.changes() == {}
    columns = renamed.json("query", "select * from shop.customer")["columns"]
    assert ("town" in columns, "city" in columns) == (True, False)
    [event] = [e for e in renamed.json("history")["events"] if e["type"] == "change.mapped"]
    assert (event["data"]["old"], event["data"]["new"], bool(event["data"]["who"])) == ("city", "town", True)


def test_the_document(renamed: Shop) -> None:
    found = renamed.json(*WORDS)
    assert (found["connection"], found["empty"], found["backfill"], len(found["steps"])) == ("shop", 0, False, 1)


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("main.customer.cit", "main.customer.town", 1, "did you mean main.customer.city?"),
        ("main.customer.city", "main.customer.twon", 1, "did you mean main.customer.town?"),
        ("main.customer.name", "main.customer.town", 3, "still at the source"),
        ("main.customer.city", "main.customer.id", 3, "in the key"),
    ],
)
def test_refusals(renamed: Shop, old: str, new: str, code: int, said: str) -> None:
    found = renamed.run("changes", "map", old, new)
    assert (found.code, said in found.err) == (code, True)


def test_a_terminal_is_asked(renamed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *words, **more: False)
    said = renamed.run(*WORDS)
    assert (said.code, "no rename was declared" in said.err) == (3, True)
    assert renamed.ok("--yes", *WORDS).code == 0


def test_two_tables_become_one(shop: Shop) -> None:
    shop.applied()
    shop.sql("drop table customer; create table client (id integer primary key, name varchar(30) not null, city text)")
    shop.ok("detect")
    found = shop.json("changes", "map", "main.customer", "main.client")
    assert (found["new"], len(found["steps"]), found["backfill"]) == ("main.client", 1, True)
    assert shop.changes() == {}
    assert shop.json("query", "select * from shop.client")["columns"][:3] == ["id", "name", "city"]
    assert shop.run("query", "select * from shop.customer").code == 1
    said = shop.run("changes", "map", "main.client", "main.clients")
    assert (said.code, "did you mean main.client?" in said.err) == (1, True)
