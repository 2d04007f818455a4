"""Rollouts in the page: the preview, the matrix, what moves them on, and who may."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from govern_world import check_pages, job_of, server_site
from web_world import Site, needs_browser, served, tab

from instep.bootstrap import open_server
from instep.worker.worker import JobWorker, WorkerLimits

QUERY = "what=selection&verb=off&object=main.item&tags=europe,+america&sizes=1,+rest"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    """Two connections whose tables are known."""
    with server_site(tmp_path) as page:
        job_of(page, "eu", "detect")
        job_of(page, "us", "detect")
        yield page


def create(shop: Site) -> str:
    """Return the address of a new rollout."""
    fields = {"what": "selection", "verb": "off", "object": "main.item", "matching": "*", "sizes": "1, rest"}
    return str(shop.post("/rollouts/new", **fields).headers["location"])


def test_without_rollouts_the_page_says_how_to_begin(shop: Site) -> None:
    text = shop.get("/rollouts")
    assert "instep rollout create" in text
    assert "that are halted" in shop.get("/rollouts?status=halted")


def test_the_preview_shows_how_it_fits_and_changes_nothing(shop: Site) -> None:
    text = shop.get(f"/rollouts/new?{QUERY}&preview=1")
    assert "How it fits: main.item off" in text
    assert {"/connections/eu", "/connections/us"} <= set(re.findall(r'href="(/connections/\w+)"', text))
    assert "instep rollout create --off main.item" in text
    assert shop.store.rollouts.find() == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("what=selection&verb=off&object=main.nothing&matching=*", "main.nothing"),
        ("what=change&change=c-1&matching=*", "change"),
        ("what=preset&preset=none&matching=*", "none"),
        ("what=selection&verb=off&object=main.item&matching=nobody*", "nobody"),
    ],
)
def test_what_cannot_be_rolled_out_is_told_above_the_form(shop: Site, fields: str, why: str) -> None:
    answer = shop.client().get(f"/rollouts/new?{fields}&preview=1")
    assert answer.status_code in (404, 422)
    assert 'role="alert"' in answer.text
    assert why in answer.text


def test_the_matrix_shows_each_connection_in_words_and_signs(shop: Site) -> None:
    address = create(shop)
    text = shop.get(address)
    assert text.count('<span class="cell waiting">') >= 2
    assert '<span aria-hidden="true">…</span> pending' in text
    assert "any run fails" in text
    assert "deselect main.item" in text
    assert "No connections here" in shop.get(f"{address}?status=failed")


def test_it_is_advanced_stopped_and_skipped(shop: Site) -> None:
    address = create(shop)
    id = address.rpartition("/")[2]
    assert shop.post("/do/skip_connections", rollout=id, connections=["us"], reason="", button="do").status_code == 422
    moved = shop.post(
        "/do/skip_connections", rollout=id, connections=["us"], reason="it moves", back=address, button="do"
    )
    assert moved.headers["location"] == address
    assert "skipped" in shop.get(address)
    shop.post("/do/advance_rollout", rollout=id, back=address, button="do")
    assert "A worker carries it on" in shop.get(address)
    [job] = shop.store.jobs.find(status=("queued",))
    assert job.kind == "rollout"


def test_who_may_not_is_told_why(shop: Site) -> None:
    address = create(shop)
    text = shop.get(address, "viewer")
    assert "needs the role approver" in text
    assert "Skip selected (needs the role operator)" in text
    refused = shop.post("/rollouts/new", "viewer", what="preset", preset="approve", matching="*")
    assert refused.status_code == 403
    assert len(shop.store.rollouts.find()) == 1


def test_a_key_of_a_group_sees_no_rollout_of_others(shop: Site) -> None:
    address = create(shop)
    assert shop.client("approver", "europe").get(address).status_code == 404
    assert address not in shop.client("approver", "europe").get("/rollouts").text


@needs_browser
@pytest.mark.server
def test_a_rollout_is_made_and_begun_in_a_browser(shop: Site, browser: object) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("approver")) as opened:
        shown = opened.open("/rollouts")
        shown.click("text=New rollout…")
        shown.check("#what-selection")
        shown.select_option("#verb", "off")
        shown.fill("#object", "main.item")
        shown.fill("#matching", "eu, re:u[s,t]")
        shown.click("button:has-text('Preview')")
        shown.wait_for_selector("text=How it fits")
        assert not opened.violations()
        shown.click("button:has-text('Create the rollout')")
        shown.wait_for_selector("text=nothing has changed yet")
        shown.click("button:has-text('Advance: begin the next wave')")
        shown.wait_for_selector("text=A worker carries it on")
    assert [one.kind for one in shop.store.jobs.find(status=("queued",))] == ["rollout"]


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """A worker that does the jobs of the server meanwhile, in lanes of its own."""
    worker = JobWorker(partial(open_server, folder, insecure_dev=True), WorkerLimits(lanes=2), lambda _: None)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(300)
        assert not thread.is_alive()


@needs_browser
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_follows_a_running_rollout_to_its_end(shop: Site, tmp_path: Path, browser: object, theme: str) -> None:
    address = create(shop)
    with served(shop.app) as base, tab(browser, base, shop.token("approver"), theme=theme) as opened:
        shown = opened.open(address)
        shown.click("button:has-text('Advance all waves')")
        shown.wait_for_selector("text=A worker carries it on")
        assert not opened.violations()
        with working(tmp_path):
            shown.wait_for_selector("#rollout .state:has-text('done')", timeout=300_000)
        assert not opened.violations()
        assert shown.locator("text=A worker carries it on").count() == 0
        assert shown.locator("text=Skip selected").count() == 0
    assert {one.status for one in shop.store.rollouts.members(address.rpartition("/")[2])} == {"done"}


@needs_browser
@pytest.mark.server
def test_its_pages_are_accessible_in_both_themes(shop: Site, browser: object) -> None:
    check_pages(shop, browser, "/rollouts", create(shop), "/rollouts", f"/rollouts/new?{QUERY}&preview=1")
