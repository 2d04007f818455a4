"""The picture of a change: what reads the column, laid out, with a word beside each colour."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from review_world import build, change, work
from web_world import Site, needs_browser, served, site, tab

from instep.bootstrap import open_project
from instep.server.web.screens.lineage import MOST, picture_of

CHANGE = {"id": "c-1", "table": ["main", "customer"], "column": "phone", "kind": "column.removed", "summary": "s"}


def model(name: str, *reads: str, level: str = "") -> dict[str, Any]:
    findings = [{"change": "c-1", "level": level, "why": "w", "line": 1, "output": ""}] if level else []
    return {"name": name, "reads": list(reads), "findings": findings}


def impact(*models: dict[str, Any]) -> dict[str, Any]:
    return {"changes": [{"id": "c-1"}], "models": list(models)}


def test_readers_of_readers_stand_further_right() -> None:
    found = picture_of(
        CHANGE,
        impact(
            model("list", "shop.customer", level="breaks"), model("top", "list", level="breaks"), model("x", "shop.y")
        ),
        "shop.customer.phone",
    )
    places = {node.name: (node.layer, node.level) for node in found.nodes}
    assert places == {
        "main.customer.phone": (0, "none"),
        "shop.customer.phone": (1, "none"),
        "list": (2, "breaks"),
        "top": (3, "breaks"),
    }
    assert [edge.level for edge in found.edges] == ["breaks"] * 3
    assert found.text.endswith("breaks: list, top.")
    assert "breaks" in {node.word for node in found.nodes if node.level == "breaks"}.pop()


def test_boxes_do_not_overlap_and_stay_inside() -> None:
    found = picture_of(CHANGE, impact(*(model(f"m{n}", "shop.customer") for n in range(60))), "shop.customer.phone")
    assert (len(found.nodes), found.left) == (MOST + 2, 60 - MOST)
    for layer in {node.layer for node in found.nodes}:
        tops = sorted(node.y for node in found.nodes if node.layer == layer)
        assert all(b - a >= found.nodes[0].height for a, b in itertools.pairwise(tops))
    assert all(node.x + node.width <= found.width and node.y + node.height <= found.height for node in found.nodes)


def test_models_that_read_each_other_end() -> None:
    models = impact(
        model("a", "shop.customer", "b", level="silent"),
        model("b", "a", level="unknown"),
        model("c", "c", level="silent"),
    )
    assert len(picture_of(CHANGE, models, "shop.customer.phone").nodes) == 5


def test_a_change_that_was_not_judged_says_so() -> None:
    for found in ({}, {"changes": [{"id": "c-2"}], "models": [model("a", "shop.customer")]}):
        picture = picture_of(CHANGE, found, "shop.customer.phone")
        assert len(picture.nodes) == 2
        assert "not checked yet" in picture.text
    assert "is not at the destination" in picture_of(CHANGE, {}, "").text


@pytest.fixture
def shop(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path / "project"
    folder.mkdir()
    build(folder)
    with open_project(folder) as app:
        yield site(app)
    shutil.rmtree(folder)


@needs_browser
@pytest.mark.server
def test_what_breaks_is_drawn(shop: Site, browser: Any) -> None:
    gone = change(shop.app, "phone", "column.removed")
    for theme in ("light", "dark"):
        with served(shop.app) as base, tab(browser, base, shop.token("operator"), theme=theme) as opened:
            shown = opened.open(f"/changes/{gone.id}/lineage")
            shown.click("text=/Check (the models|again)/")
            shown.wait_for_selector("text=is queued")
            work(shop.app)
            shown.wait_for_selector(".node.breaks .name:has-text('call_list')")
            shown.wait_for_selector(".node.breaks .name:has-text('contacts')")
            shown.wait_for_selector(".node.breaks .word:has-text('✕ breaks')")
            assert not opened.violations()
    text = shop.get(f"/changes/{gone.id}?tab=impact")
    assert "✕ breaks" in text
    assert "views" in text
