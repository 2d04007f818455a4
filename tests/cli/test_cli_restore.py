"""`instep restore` as people and scripts use it."""

from __future__ import annotations

import pytest
from cli_world import Shop

from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import sync

ORDER = "main.order"


def synced(shop: Shop) -> None:
    """By this process, without Spark."""
    with open_project(shop.folder) as app:
        sync(app.sync_context("shop"), engine=LocalEngine())


@pytest.fixture
def loaded(shop: Shop) -> Shop:
    """Synced twice; the second time one order of two is gone."""
    synced(shop)
    shop.sql('delete from "order" where id = 1')
    synced(shop)
    return shop


def test_what_there_is(loaded: Shop) -> None:
    found = loaded.json("restore", ORDER, "--list")["snapshots"]
    assert [s["current"] for s in found][:2] == [True, False]
    assert found[1]["run"].startswith("r-")
    said = loaded.ok("restore", ORDER, "--list").out
    assert found[1]["id"] in said
    assert "2 rows" in said


def snapshot(shop: Shop) -> str:
    return str(shop.json("restore", ORDER, "--list")["snapshots"][1]["id"])


def test_it_says_first_what_it_would_do(loaded: Shop) -> None:
    id = snapshot(loaded)
    said = loaded.ok("restore", ORDER, "--snapshot", id, "--dry-run").out
    assert "reads the whole table again" in said
    data = loaded.json("restore", ORDER, "--snapshot", id, "--dry-run")
    assert (data["rows_then"], data["commits_since"], data["run"]) == (2, 1, None)


def test_it_is_named_and_confirmed(loaded: Shop) -> None:
    words = ("restore", ORDER, "--snapshot", snapshot(loaded))
    assert "nothing was restored" in loaded.run(*words, "--no-input").err
    blocked = loaded.run(*words, "--yes")
    assert (blocked.code, f"--allow-destructive '{ORDER}'" in blocked.err) == (3, True)
    done = loaded.json(*words, "--yes", "--allow-destructive", ORDER)
    assert done["run"].startswith("r-")
    rows = loaded.json("query", 'select id from shop."order" where not _instep_deleted')["rows"]
    assert len(rows) == 2
    assert "restore" in loaded.ok("history").out


WRONG = (
    (("restore", ORDER), 64, "--list shows"),
    (("restore", ORDER, "--snapshot", "1", "--at", "2026-11-21"), 64, "pass --snapshot"),
    (("restore", ORDER, "--at", "yesterday"), 64, "is not a time"),
    (("restore", ORDER, "--snapshot", "1"), 1, "has no snapshot 1"),
    (("restore", "main.orders", "--list"), 1, f"did you mean {ORDER}"),
)


@pytest.mark.parametrize(("words", "code", "said"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_what_is_wrong(shop: Shop, words: tuple[str, ...], code: int, said: str) -> None:
    shop.applied()
    found = shop.run(*words)
    assert found.code == code
    assert said in " ".join(found.err.split())


def test_a_table_without_rows(shop: Shop) -> None:
    shop.applied()
    assert "never loaded" in shop.ok("restore", ORDER, "--list").out


def test_help_has_an_example(shop: Shop) -> None:
    assert "instep restore public.order" in shop.ok("restore", "--help").out
