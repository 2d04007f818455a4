"""`selection show|on|off|hash|unhash` and `changes approve --hash`, as people and scripts use them."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

SALTED = PROJECT.replace("policy: careful}", 'policy: careful, salt: "${env:SALT}", protect: names}')


@pytest.fixture
def seen(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("SALT", "pepper")
    shop.write(text=SALTED)
    shop.applied()
    return shop


def columns(shop: Shop, table: str = "customer") -> dict[str, dict[str, bool]]:
    tables = shop.json("selection", "show", "shop")["schemas"]["main"]["tables"]
    found: dict[str, dict[str, bool]] = tables[table].get("columns", {})
    return found


def test_before_a_detection_there_is_nothing_to_show(shop: Shop) -> None:
    assert shop.json("selection", "show")["schemas"] == {}
    assert "run `instep detect`" in shop.ok("selection", "show").out
    assert shop.run("selection", "off", "main.customer").code == 1


def test_the_list_says_what_is_read_why_and_since_when(seen: Shop) -> None:
    seen.ok("selection", "off", "main.customer.city")
    lines = seen.ok("selection", "show").out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["main", "on"],
        ["customer", "on"],
        ["city", "off"],
        ["order", "on"],
    ]
    assert "switched off" in lines[3]
    assert "UTC" in lines[3]
    every = seen.ok("selection", "show", "--all-columns").out
    assert "name" in every


def test_switching_says_what_follows(seen: Shop) -> None:
    said = seen.ok("selection", "off", "main.customer.city")
    assert said.out == "main.customer.city is off\n"
    assert "its values stay, new rows have NULL" in said.err
    assert columns(seen) == {"city": {"enabled": False, "hashed": False}}
    assert seen.ok("selection", "off", "main.customer.city").out == "main.customer.city is already so\n"


def test_a_dry_run_changes_nothing(seen: Shop) -> None:
    document = seen.json("selection", "hash", "--match", "main.customer.[cn]*", "--match", "*.amount", "--dry-run")
    assert document["dry_run"] is True
    assert columns(seen) == {}


def test_what_is_refused_changes_nothing(seen: Shop) -> None:
    said = seen.run("selection", "off", "main.customer.city", "main.customer.id")
    assert said.code == 3
    assert "main.customer.id is in the key of its table" in said.err
    assert columns(seen) == {}


def test_hashing_and_taking_it_back(seen: Shop) -> None:
    seen.ok("selection", "hash", "main.customer.city")
    assert columns(seen) == {"city": {"enabled": True, "hashed": True}}
    seen.ok("selection", "unhash", "main.customer.city")
    assert columns(seen) == {"city": {"enabled": True, "hashed": False}}, "touched, so it is listed"


def test_approved_with_hash_a_column_comes_in_hashed(seen: Shop) -> None:
    seen.sql("alter table customer add column email text")
    seen.ok("detect")
    [id] = seen.changes().values()
    assert columns(seen) == {"email": {"enabled": False, "hashed": False}}
    assert "--hash" in seen.ok("changes", "show", id).out
    seen.ok("changes", "approve", id, "--hash")
    assert columns(seen) == {"email": {"enabled": True, "hashed": True}}
    seen.ok("apply", "--yes")
    assert "email" in seen.ok("schema", "show").out
    assert seen.changes() == {}


def test_a_removal_cannot_be_hashed(seen: Shop) -> None:
    seen.sql("alter table customer drop column city")
    seen.ok("detect")
    [id] = seen.changes().values()
    said = seen.run("changes", "approve", id, "--hash")
    assert said.code == 1
    assert "lets no column in that could be hashed" in said.err
    assert list(seen.changes().values()) == [id], "no change was decided"


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["show", "on", "off", "hash", "unhash"])
def test_every_command_shows_an_example(shop: Shop, command: str) -> None:
    assert "Example" in shop.ok("selection", command, "--help").out
