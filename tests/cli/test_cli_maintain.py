"""`instep maintain` as people and scripts use it, and where its traces are shown."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import sync

ORDER = "main.order"


def synced(shop: Shop) -> None:
    """By this process, without Spark."""
    with open_project(shop.folder) as app:
        sync(app.sync_context("shop"), engine=LocalEngine())


def configure(shop: Shop, settings: str) -> None:
    shop.write(text=PROJECT.replace("policy: careful}", f"policy: careful, maintain: {{{settings}}}}}"))


@pytest.fixture
def grown(shop: Shop) -> Shop:
    """Two files of orders; two are enough to be put together, but not by a sync."""
    configure(shop, "min_files: 2, after_sync: false, max_snapshot_age: 0, keep_snapshots: 1")
    synced(shop)
    shop.sql('update "order" set amount = 7 where id = 1')
    synced(shop)
    return shop


def test_it_says_first_what_it_would_do(grown: Shop) -> None:
    said = grown.ok("maintain", "--dry-run").out
    assert "main.order: 2 files (" in said
    assert "would be compacted: 2 -> 1 files" in said
    assert "main.customer: nothing to do: 1 files" in said
    assert grown.json("table", "show", ORDER)["layout"]["files"] == 2


def test_it_does_it_and_shows_when(grown: Shop) -> None:
    assert "never maintained" in grown.ok("table", "show", ORDER).out
    data = grown.json("maintain", "--table", "*.order")
    [table] = data["tables"]
    assert (table["table"], table["files_before"], table["files"], table["error"]) == (ORDER, 2, 1, "")
    assert table["snapshots"] == 2
    shown = grown.ok("table", "show", ORDER).out
    assert "1 (" in shown
    assert "maintained at 20" in shown
    assert "maintained: 1 table(s), last main.order" in grown.ok("status").out
    [one] = grown.json("status")["connections"]
    assert [(m["table"], m["files"]) for m in one["maintained"]] == [(ORDER, 1)]
    assert "nothing to do" in grown.ok("maintain").out
    assert "maintain" in grown.ok("history").out
    rows = grown.json("query", 'select id, amount from shop."order" order by id')["rows"]
    assert [row["id"] for row in rows] == [1, 2]


def test_a_pattern_without_a_table(shop: Shop) -> None:
    said = shop.run("maintain", "--table", "nix*")
    assert said.code != 0
    assert "no table nix*" in said.err


WRONG = [
    ("target_file_size: 10", "target_file_size"),
    ("delete_ratio: 0", "delete_ratio"),
    ("orphan_age: 0.5", "orphan_age"),
    ("keep_snapshots: 0", "keep_snapshots"),
    ("often: true", "often"),
]


@pytest.mark.parametrize(("setting", "named"), WRONG)
def test_a_wrong_setting_is_named_with_its_line(shop: Shop, setting: str, named: str) -> None:
    configure(shop, setting)
    said = shop.run("status")
    assert said.code != 0
    assert named in said.err
    assert "instep.yml:" in said.err
