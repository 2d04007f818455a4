"""What `--help` says: an example and a text for everything, for every command."""

from __future__ import annotations

import pytest
from cli_world import Shop

from said import every_command

ALL = every_command()
EXPECTED = {("sync",), ("changes", "map"), ("quarantine", "replay"), ("demo", "up"), ("selection", "hash")}


def test_all_are_seen() -> None:
    assert set(ALL) >= EXPECTED


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_has_an_example_of_itself_and_says_what_its_options_do(path: tuple[str, ...]) -> None:
    assert f"instep {' '.join(path)}" in (ALL[path].epilog or "")
    assert ALL[path].help
    assert [p.name for p in ALL[path].params if not p.help] == []


def test_verify_before_the_first_sync_says_that_there_is_nothing(shop: Shop) -> None:
    assert "no table has been synced yet" in shop.ok("verify").out
    assert shop.json("verify")["tables"] == []


TYPOS = [
    ("select * from shop.custmer", "did you mean shop.customer?"),
    ("select * from custmer", "did you mean customer?"),
    ("select * from zzzzzz", "the lake has shop.customer"),
    ("selec 1", "names that are reserved words"),
]


@pytest.mark.parametrize(("sql", "hint"), TYPOS)
def test_a_query_with_a_typo_is_told_what_there_is(shop: Shop, sql: str, hint: str) -> None:
    shop.applied()
    said = shop.run("query", sql)
    assert said.code == 1
    assert hint in said.err


def test_a_query_on_an_empty_lake_is_told_so(shop: Shop) -> None:
    assert "the lake is empty" in shop.run("query", "select * from customer").err
