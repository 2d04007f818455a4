"""`instep undo` as people and scripts use it."""

from __future__ import annotations

import pytest
from cli_world import Shop

ADDED = "column main.order.note added (string)"


@pytest.fixture
def grown(shop: Shop) -> str:
    """The id of an applied addition."""
    shop.applied()
    shop.sql('alter table "order" add column note text')
    shop.ok("apply", "--yes")
    return str(shop.changes("--all")[ADDED])


def test_it_says_first_what_it_would_do(shop: Shop, grown: str) -> None:
    said = shop.ok("undo", grown, "--dry-run")
    assert "This undoes" in said.out
    assert grown in said.out
    assert "note removed" in said.out
    data = shop.json("undo", grown, "--dry-run")
    assert data["changes"] == [grown]
    assert data["version"] is None
    assert data["drops"] == []


def test_without_a_yes_nothing_happens(shop: Shop, grown: str) -> None:
    said = shop.run("undo", grown, "--no-input")
    assert said.code == 3
    assert "nothing was undone" in said.err
    assert shop.run("detect", "--exit-code").code == 0


def test_the_next_plan_does_not_bring_it_back(shop: Shop, grown: str) -> None:
    assert shop.json("undo", grown, "--yes")["version"] == 3
    assert shop.run("plan", "--exit-code").code == 0
    again = shop.run("undo", grown, "--yes")
    assert again.code == 5
    assert "was undone before, with schema version 3" in again.err


def test_a_drop_is_named_first(shop: Shop) -> None:
    shop.write(preset="propagate_all")
    shop.applied()
    shop.sql('alter table "order" add column note text')
    shop.ok("apply", "--yes")
    id = shop.changes("--all")[ADDED]
    said = shop.run("undo", id, "--yes")
    assert said.code == 3
    assert "--allow-destructive 'shop.order.note'" in said.err
    assert shop.ok("undo", id, "--yes", "--allow-destructive", "*.note")


def test_a_whole_run(shop: Shop, grown: str) -> None:
    with shop.store() as store:
        run = store.runs.latest("shop", "apply")
    assert run is not None
    assert shop.json("undo", run.id, "--dry-run")["changes"] == [grown]


CASES = (
    ("c-nothing", 1, "no change"),
    ("r-20000101-000000-000000", 1, "no run"),
    ("p-none", 1, "no plan"),
)


@pytest.mark.parametrize(("what", "code", "said"), CASES, ids=[c[0] for c in CASES])
def test_what_is_not_there(shop: Shop, grown: str, what: str, code: int, said: str) -> None:
    found = shop.run("undo", what, "--yes")
    assert found.code == code
    assert said in found.err


def test_what_was_not_applied(shop: Shop, grown: str) -> None:
    shop.sql("alter table customer drop column city")
    shop.ok("detect")
    [id] = shop.changes().values()
    said = shop.run("undo", id, "--yes")
    assert said.code == 5
    assert "is open, not applied" in said.err


def test_help_has_an_example(shop: Shop) -> None:
    assert "instep undo c-7f3a2b" in shop.ok("undo", "--help").out
