"""The main flows by keyboard alone: what has the focus is seen, and no swap of a part loses it. And how few clicks the
answer to a thousand changes takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich_world import build
from web_world import WAIT, Site, Tab, needs_browser, served, site, tab

from instep.bootstrap import open_project
from many_changes import fill

pytestmark = [needs_browser, pytest.mark.server]
MOST_TABS = 250
FOCUSED = """() => {
  const at = document.activeElement;
  const style = getComputedStyle(at);
  const text = at.getAttribute("aria-label") || at.textContent || at.value || "";
  return {
    tag: at.tagName.toLowerCase(), id: at.id, name: at.name || "", text: text.trim().replace(/\\s+/g, " "),
    value: at.value || "",
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0, shown: at.offsetParent !== null,
  };
}"""


class Keyboard:
    """A person without a mouse."""

    def __init__(self, shown: Any) -> None:
        self.shown = shown

    @property
    def at(self) -> dict[str, Any]:
        """What has the focus."""
        found: dict[str, Any] = self.shown.evaluate(FOCUSED)
        return found

    def wait_for(self, **expected: str) -> None:
        """Wait until the focus is there. The page's policy lets no function of ours wait inside it."""
        end = time.monotonic() + WAIT / 1000
        while not self.at.items() >= expected.items():
            assert time.monotonic() < end, self.at
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.shown.keyboard.press(key)

    def write(self, text: str) -> None:
        self.shown.keyboard.type(text)

    def go_to(self, text: str, tag: str = "") -> dict[str, Any]:
        """Press Tab until the focus is on what begins with this text, has this id, or this value; it has to be seen."""
        for _ in range(MOST_TABS):
            self.press("Tab")
            at = self.at
            if at["tag"] == "body":
                continue
            assert at["seen"], f"the focus is not seen on {at}"
            if (at["text"].startswith(text) or text in (at["id"], at["value"])) and tag in ("", at["tag"]):
                return at
        raise AssertionError(f"Tab does not reach {text!r}")


@contextmanager
def keyed(page: Site, browser: Any, path: str, role: str = "admin") -> Iterator[tuple[Keyboard, Tab]]:
    with served(page.app) as base, tab(browser, base, page.token(role)) as opened:
        yield Keyboard(opened.open(path)), opened


@pytest.fixture
def rich(tmp_path: Any) -> Iterator[Site]:
    build(tmp_path)
    with open_project(tmp_path) as app:
        yield site(app)


def test_a_thousand_like_changes_are_approved_in_five_clicks_after_a_preview(page: Site, browser: Any) -> None:
    """The same column is new in a thousand connections, beside other changes, which stay open."""
    change = {"kind": "column.added", "table": ["public", "table_0"], "after": {"name": "note", "type": "string"}}
    text = "column public.table_0.note is new"
    fill(page.store, 1000, 1000, kind="column.added", column_name="note", summary=text, change=change | {"position": 1})
    clicks = 0
    with served(page.app) as base, tab(browser, base, page.token("approver")) as opened:
        shown = opened.open("/changes")

        def click(selector: str) -> None:
            nonlocal clicks
            clicks += 1
            shown.click(selector)

        click("text=same in 999 other connections >> nth=0")
        shown.wait_for_selector("text=all 1,000 matching")
        click("text=all 1,000 matching")
        click("button:has-text('Approve…')")
        shown.wait_for_selector("h1:has-text('Approve 1,000 changes?')")
        assert "Nothing has happened yet" in shown.inner_text("main")
        assert len(page.store.reviews.find(statuses=("open",))) == 1002
        click("button:has-text('Approve 1,000 changes')")
        shown.wait_for_selector("text=1,000 changes are approved")
    assert clicks <= 5
    assert len(page.store.reviews.find(statuses=("approved",))) == 1000
    assert {one.connection for one in page.store.reviews.find(statuses=("open",))} == {"eu"}


def test_many_changes_are_answered(page: Site, browser: Any) -> None:
    """Rows are ticked, the answer is previewed, and given."""
    with keyed(page, browser, "/changes", "approver") as (keys, opened):
        keys.press("j", "x", "j", "x")
        assert keys.at["seen"]
        assert opened.page.inner_text("#selected-count") == "(2)"
        keys.press("a")
        opened.page.wait_for_selector("h1:has-text('Approve 2 changes?')")
        keys.wait_for(id="content")
        keys.go_to("Approve 2 changes", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=2 changes are approved")
    assert {one.status for one in page.store.reviews.find("eu")} == {"approved"}


def test_a_search_keeps_the_focus_and_its_results_are_reached(page: Site, browser: Any) -> None:
    with keyed(page, browser, "/changes") as (keys, opened):
        keys.press("/")
        keys.write("weight")
        opened.page.wait_for_url("**search=weight**")
        assert keys.at["id"] == "search"
        keys.go_to("main.item.weight", "a")
        keys.press("Enter")
        opened.page.wait_for_url("**/changes/c-*")


def test_a_change_is_read_discussed_and_answered(page: Site, browser: Any) -> None:
    change = page.store.reviews.find("eu")[0]
    with keyed(page, browser, f"/changes/{change.id}") as (keys, opened):
        keys.press("d")
        opened.page.wait_for_url("**tab=ddl**")
        keys.press("c")
        opened.page.wait_for_url("**tab=conversation**")
        keys.go_to("", "textarea")
        keys.write("fine by me")
        keys.go_to("Comment", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=fine by me")
        keys.press("i")
        opened.page.wait_for_selector("text=Done: ignore change")
        keys.go_to("Undo", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=Done: reopen change")
    assert page.store.reviews.get(change.id).status == "open"
    assert page.store.comments.find(change.id)[0].text == "fine by me"


def test_a_table_is_switched_off(shop: Site, browser: Any) -> None:
    with keyed(shop, browser, "/connections/eu/schema") as (keys, opened):
        keys.go_to("main.place", "a")
        keys.press("Enter")
        opened.page.wait_for_selector("tr.column")
        assert keys.at["id"] == "main.place"
        keys.press("Shift+Tab")
        assert keys.at["text"].startswith("Replicate main.place")
        keys.press("Space")
        keys.go_to("Preview the switches", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("button:has-text('Switch 1 objects')")
        keys.go_to("Switch 1 objects", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=Done: 1 switches")
    [switch] = shop.store.switches.of("eu")
    assert (switch.path, switch.enabled) == ("main.place", False)


def test_a_page_that_follows_a_run_does_not_take_the_focus(shop: Site, browser: Any) -> None:
    run = shop.store.runs.claim("eu", "sync")
    job, _ = shop.store.jobs.enqueue("eu", "sync", why="a test")
    taken = shop.store.jobs.claim(shop.store.workers.register(1).id)
    assert taken is not None
    shop.store.jobs.note_run(taken, run.id)
    with keyed(shop, browser, f"/runs/{run.id}") as (keys, opened):
        keys.go_to("Cancel", "button")
        for _ in range(2):
            with opened.page.expect_response(lambda one: f"/runs/{run.id}" in one.url and one.status == 200):
                pass
        keys.wait_for(text="Cancel")
        keys.press("Enter")
        opened.page.wait_for_selector("text=Done: cancel job")
    assert shop.store.jobs.get(job.id).stop


def test_a_connection_is_paused_and_resumed(shop: Site, browser: Any) -> None:
    with keyed(shop, browser, "/connections/eu") as (keys, opened):
        keys.go_to("Pause eu", "summary")
        keys.press("Enter")
        keys.go_to("Pause…", "a")
        keys.press("Enter")
        opened.page.wait_for_url("**/do/pause**")
        keys.wait_for(id="content")
        keys.go_to("field-reason")
        keys.write("a holiday")
        keys.go_to("Pause", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=Done: pause eu")
        keys.go_to("Resume", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=Done: resume eu")


def test_a_policy_is_made_after_its_preview(page: Site, browser: Any) -> None:
    with keyed(page, browser, "/policies", "approver") as (keys, opened):
        keys.go_to("New policy", "a")
        keys.press("Enter")
        opened.page.wait_for_url("**/policies/~new")
        keys.wait_for(id="content")
        keys.go_to("name", "input")
        keys.write("careful")
        keys.go_to("+ Add a rule", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("#on-1")
        keys.go_to("on-1")
        keys.write("column.removed")
        keys.go_to("Preview on recorded changes", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("text=What it changes")
        keys.go_to("Save", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("h1:has-text('careful')")
    assert page.app.objects.get("policy", "careful").spec["rules"][0]["on"] == ["column.removed"]


def test_a_source_is_set_up(page: Site, browser: Any) -> None:
    with keyed(page, browser, "/setup") as (keys, opened):
        keys.go_to("postgres", "a")
        keys.press("Enter")
        opened.page.wait_for_url("**/setup/sources/~new**")
        keys.wait_for(id="content")
        known = (
            ("name", "till"),
            ("field-host", "db.example.org"),
            ("field-database", "till"),
            ("field-user", "reader"),
        )
        for name, text in known:
            keys.go_to(name, "input")
            keys.write(text)
        keys.go_to("Save and go on", "button")
        keys.press("Enter")
        opened.page.wait_for_url("**/setup/sources/till**")
    assert page.app.objects.get("source", "till").spec["host"] == "db.example.org"


def test_a_channel_is_made_and_its_test_is_shown_first(page: Site, browser: Any) -> None:
    with keyed(page, browser, "/notifications/channels") as (keys, opened):
        keys.go_to("New channel", "a")
        keys.press("Enter")
        opened.page.wait_for_url("**/channels/~new")
        keys.wait_for(id="content")
        keys.go_to("name", "input")
        keys.write("team")
        keys.go_to("field-to")
        keys.write("team@example.org")
        keys.go_to("field-sender")
        keys.write("instep@example.org")
        keys.go_to("Save", "button")
        keys.press("Enter")
        opened.page.wait_for_selector("h1:has-text('team')")
        keys.go_to("Test", "a")
        keys.press("Enter")
        opened.page.wait_for_selector("text=Send it to team")
        keys.go_to("Send it to team", "button")
    assert page.app.objects.get("channel", "team").spec["to"] == ["team@example.org"]


def test_dialogs_open_close_and_give_the_focus_back(page: Site, browser: Any) -> None:
    with keyed(page, browser, "/connections", "viewer") as (keys, opened):
        keys.go_to("eu", "a")
        keys.press("?")
        assert opened.page.is_visible("#keys-help")
        keys.press("Escape")
        assert keys.at["text"] == "eu"
        keys.press("Control+k")
        keys.write("runs")
        keys.press("Enter")
        opened.page.wait_for_url("**/runs")


@pytest.mark.parametrize(
    "path", ["/policies/strict", "/notifications/channels", "/settings/keys", "/setup", "/rollouts"]
)
def test_everything_of_a_page_is_reached_and_seen(rich: Site, browser: Any, path: str) -> None:
    """Tab goes through all links, buttons and fields that are shown, each once, and comes back."""
    with keyed(rich, browser, path if path != "/policies/strict" else "/policies") as (keys, opened):
        places = "a[href], button:not([disabled]), input:not([type=hidden]):not([disabled]), select, textarea, summary"
        expected = opened.page.evaluate(
            "(places) => [...document.querySelectorAll(places)].filter((one) => one.checkVisibility()).length", places
        )
        seen = 0
        for _ in range(expected + 60):
            keys.press("Tab")
            at = keys.at
            if at["tag"] == "body":
                break
            assert at["seen"], at
            seen += at["tag"] in ("a", "button", "input", "select", "textarea", "summary")
        assert seen >= expected
