"""Pictures of the page for the documentation: with INSTEP_SCREENSHOTS=1 they are made anew there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from rich_world import Words, build
from web_world import SCREENSHOTS, needs_browser, served, site, tab

from instep.bootstrap import open_project

PLACES = {
    "changes": "/changes",
    "connections": "/connections",
    "connection": "/connections/shop",
    "schema": "/connections/shop/schema?open=main.item",
    "history": "/connections/shop/schema/history",
    "runs": "/runs",
    "policies": "/policies",
    "settings": "/settings",
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "web-page.md"


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen_has_a_picture(tmp_path: Path, browser: Any, theme: str) -> None:
    folder = SCREENSHOTS if os.environ.get("INSTEP_SCREENSHOTS") else tmp_path
    folder.mkdir(exist_ok=True)
    project = tmp_path / "project"
    project.mkdir()
    build(project)
    with open_project(project) as app:
        change = next(one for one in app.store.reviews.find("shop", ("open",)) if one.kind == "column.added")
        opened = site(app)
        with served(app) as base, tab(browser, base, opened.token("admin"), theme=theme) as shown:
            shown.page.set_viewport_size({"width": 1120, "height": 700})
            for name, address in {**PLACES, "change": f"/changes/{change.id}"}.items():
                shown.open(address)
                shown.page.locator(".need").wait_for()
                made = folder / f"{name}-{theme}.png"
                shown.page.screenshot(path=str(made))
                assert made.stat().st_size > 5_000, name


@needs_browser
@pytest.mark.server
def test_pages_fit_a_phone_and_paper(tmp_path: Path, browser: Any) -> None:
    long = "a_name_that_is_long_because_it_was_generated_by_a_program_in_2026"
    build(tmp_path, Words(column=long, table=long))
    with open_project(tmp_path) as app:
        change = app.store.reviews.find("shop", ("open",))[0]
        opened = site(app)
        with served(app) as base, tab(browser, base, opened.token("admin")) as shown:
            shown.page.set_viewport_size({"width": 390, "height": 800})
            more = (
                "/connections/shop/detector",
                f"/changes/{change.id}",
                "/rollouts/new",
                "/connections/shop/timeline",
                f"/connections/shop/quarantine?table=main.{long}",
                f"/connections/shop/schema/object?of=main.{long}",
                "/do/create_key",
            )
            for address in (*PLACES.values(), *more):
                shown.open(address.replace("main.item", f"main.{long}"))
                wide = shown.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= 390, f"{address} is {wide} px wide"
            shown.page.emulate_media(media="print")
            shown.open("/changes")
            assert shown.page.locator("table.changes").is_visible(), "a list of changes can be printed"
            assert not shown.page.locator(".bulk").is_visible()


def test_the_page_shows_pictures_that_are_there() -> None:
    named = set(re.findall(r"\(\.\./assets/page/([\w-]+\.png)\)", PAGE.read_text(encoding="utf-8")))
    assert {"changes-light.png", "change-dark.png"} <= named
    assert named <= {one.name for one in SCREENSHOTS.iterdir()}
