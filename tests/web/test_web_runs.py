"""Runs on the page: the list, and one run with its steps, tables and log."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from web_world import WAIT, Site, needs_browser, served, tab

from instep.events import RunEnded, TableFailed, TableLoaded


def last_run(shop: Site) -> str:
    return shop.store.runs.history("eu", kind="sync")[0].id


def test_cancel_and_retry_are_copied_as_text(shop: Site) -> None:
    """On the page of the run, on that of the job, and from the row in the queue."""
    job, _ = shop.store.jobs.enqueue("eu", "sync", why="a test")
    run = shop.store.runs.claim("eu", "sync")
    taken = shop.store.jobs.claim(shop.store.workers.register(1).id)
    assert taken is not None
    shop.store.jobs.note_run(taken, run.id)
    for path in (f"/runs/{run.id}", f"/jobs/{job.id}"):
        copied = shop.get(path).partition('id="copies"')[2]
        assert f"instep queue cancel {job.id}" in copied, path
        assert f"curl -X POST http://testserver/api/v1/queue/{job.id}" in copied, path
        assert "project.perform(&#39;cancel_job&#39;" in copied, path
    assert f'href="/do/cancel_job?job={job.id}' in shop.get("/queue")


def rows(text: str) -> list[str]:
    """Return the rows of tables that keys move along."""
    return re.findall(r"<tr data-row.*?</tr>", text, re.DOTALL)


def test_runs_are_filtered(shop: Site) -> None:
    assert len(rows(shop.get("/runs"))) == len(shop.store.runs.history()) == 2
    assert len(rows(shop.get("/runs?connection=eu&kind=sync"))) == 2
    assert "No run matches" in shop.get("/runs?status=failed")
    assert "No run matches" in shop.get("/runs?connection=us")


def test_a_run_has_its_steps_tables_and_log(shop: Site) -> None:
    text = shop.get(f"/runs/{last_run(shop)}")
    for said in (
        "column eu.item.colour added",
        "load main.item",
        "main.place",
        "table.loaded",
        "run.ended",
        "engine local",
    ):
        assert said in text, said
    assert re.search(r'role="img" aria-label="load main.item: [\d.]+ s"', text)
    assert re.search(r'href="/do/undo\?connection=eu&amp;what=p-', text)
    shop.get("/runs/r-nothing", status=404)


def test_the_log_is_searched_at_the_server(shop: Site) -> None:
    run = last_run(shop)
    shop.store.events.add(TableFailed("eu", run, "main.item", "<i>away</i>"), TableFailed("eu", "r-x", "main.x", "no"))
    text = shop.get(f"/runs/{run}?level=warning")
    assert text.count('class="line"') == 1
    assert "&lt;i&gt;away&lt;/i&gt;" in text
    assert shop.get(f"/runs/{run}?search=MAIN.PLACE").count('class="line"') == 1
    assert "No line matches" in shop.get(f"/runs/{run}?search=nothing")


def test_a_run_of_a_connector_shows_what_has_come(shop: Site) -> None:
    run = shop.store.runs.claim("eu", "sync")
    received = {"": {"rows": 1500, "expected": 2000}, "a.b": {"rows": 1500, "expected": 0}}
    shop.store.runs.describe(run, received=received)
    text = shop.get(f"/runs/{run.id}")
    for shown in ("Received from the connector", "all tables", "about 2,000", "unknown", 'value="1500"'):
        assert shown in text, shown
    shop.store.runs.finish(run, "done")
    assert "Received from the connector" not in shop.get(f"/runs/{run.id}")


def test_a_run_leads_to_its_job_and_to_spark(shop: Site) -> None:
    run = shop.store.runs.claim("eu", "sync")
    shop.store.runs.describe(run, engine={"name": "spark", "where": "local[*]", "page": "http://spark.test:4040"})
    text = shop.get(f"/runs/{run.id}")
    assert 'href="http://spark.test:4040"' in text
    assert "no job of this server runs it" in text
    shop.store.runs.finish(run, "failed", "the source <b>is</b> away")
    text = shop.get(f"/runs/{run.id}")
    assert "the source &lt;b&gt;is&lt;/b&gt; away" in text
    assert "Sync again" in text


def test_the_stream_is_as_the_api_has_it_and_within_the_scope(shop: Site) -> None:
    run = last_run(shop)
    answer = shop.client("viewer").get(f"/runs/{run}/log?after=0")
    assert answer.headers["content-type"].startswith("text/event-stream")
    loads = rows(shop.get("/connections/eu/timeline?type=table.loaded"))
    assert answer.text.count("event: table.loaded") == len(loads)
    first, second = re.findall(r"^id: (\d+)$", answer.text, re.MULTILINE)[:2]
    again = shop.client("viewer").get(f"/runs/{run}/log?after=0", headers={"last-event-id": first}).text
    assert f"id: {first}\n" not in again
    assert f"id: {second}\n" in again
    assert shop.client("viewer", "another").get(f"/runs/{run}/log").status_code == 404


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_run_is_watched_until_it_has_ended(shop: Site, browser: object, theme: str) -> None:
    run = shop.store.runs.claim("eu", "sync")
    with served(shop.app) as base, tab(browser, base, shop.token("viewer"), theme=theme) as opened:
        shown = opened.open(f"/runs/{run.id}")
        shown.wait_for_selector("text=live")
        shop.store.events.add(TableLoaded("eu", run.id, "main.<item>", "upsert", 5, 4, 3, 2, 1))
        shown.wait_for_selector("#log >> text=table main.<item>")
        shop.store.events.add(TableFailed("eu", run.id, "main.place", "away"))
        shown.wait_for_selector("#log >> text=error away")
        shown.select_option("[data-log-level]", "warning")
        assert shown.locator("#log .line:visible").count() == 1
        assert not opened.violations()
        shop.store.runs.finish(run, "done")
        shop.store.events.add(RunEnded("eu", run.id, "sync", "done"))
        shown.wait_for_selector("#run .state:has-text('done')")
        assert not opened.violations()
        for path in ("/runs", f"/runs/{last_run(shop)}"):
            opened.open(path)
            assert not opened.violations(), path


@needs_browser
@pytest.mark.server
def test_a_run_is_read_without_scripts(shop: Site, browser: object) -> None:
    run = shop.store.runs.claim("eu", "sync")
    with served(shop.app) as base, tab(browser, base, shop.token("viewer"), scripts=False) as opened:
        shown = opened.open(f"/runs/{run.id}")
        shop.store.events.add(TableLoaded("eu", run.id, "main.item", "upsert", 5, 4, 3, 2, 1))
        shown.click("text=Refresh >> nth=0")
        shown.wait_for_selector("#log >> text=table.loaded")


TIMES = """() => [...document.querySelectorAll("time[datetime]")].map(
  (one) => [one.dateTime, one.title, "clock" in one.dataset ? one.textContent : ""])"""


def check_times(shown: Any, zone: str) -> int:
    """Every time on the page is that of the zone, "" for UTC; answers how many there are."""
    end = time.monotonic() + WAIT / 1000
    while shown.input_value("#times") != ("local" if zone else "UTC"):  # until a swapped page has settled
        assert time.monotonic() < end
        time.sleep(0.05)
    times = shown.evaluate(TIMES)
    for written, title, clock in times:
        at = datetime.fromisoformat(written.replace("Z", "+00:00")).astimezone(ZoneInfo(zone or "UTC"))
        offset = f"{at:%z}"
        expected = f"{at:%Y-%m-%d %H:%M:%S} UTC{f'{offset[:3]}:{offset[3:]}' if zone else ''}"
        assert (title, clock or title[11:19]) == (expected, title[11:19])
    return len(times)


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns"])
def test_times_are_those_of_the_chosen_zone_on_every_page(shop: Site, browser: object, zone: str) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("viewer"), zone=zone) as opened:
        shown = opened.open(f"/runs/{last_run(shop)}")
        assert check_times(shown, "") > 3
        shown.get_by_label("Times").select_option("local")
        assert check_times(shown, zone) > 3
        assert not opened.violations()
        for address in ("Changes", "Connections", "Runs"):  # links that swap the page
            shown.click(f"nav[aria-label=Main] a:has-text('{address}')")
            shown.wait_for_selector(f"h1:has-text('{address}')")
            check_times(shown, zone)
        shown.reload()
        assert check_times(shown, zone) > 1
        shown.get_by_label("Times").select_option("UTC")
        shown.reload()
        assert check_times(shown, "") > 1


@needs_browser
@pytest.mark.server
def test_times_that_come_while_a_run_is_watched_are_those_of_the_chosen_zone(shop: Site, browser: object) -> None:
    run = shop.store.runs.claim("eu", "sync")
    with served(shop.app) as base, tab(browser, base, shop.token("viewer"), zone="Asia/Kolkata") as opened:
        shown = opened.open(f"/runs/{run.id}")
        shown.get_by_label("Times").select_option("local")
        shown.wait_for_selector("text=live")
        before = shown.locator("#log time").count()
        shop.store.events.add(TableFailed("eu", run.id, "main.place", "away"))
        shown.wait_for_selector("#log >> text=error away")
        assert shown.locator("#log time[data-clock]").count() == before + 1
        assert check_times(shown, "Asia/Kolkata") > 1


@needs_browser
@pytest.mark.server
def test_times_are_utc_without_scripts(shop: Site, browser: object) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("viewer"), scripts=False) as opened:
        shown = opened.open("/runs")
        assert not shown.locator("#times").is_visible()
        assert shown.locator("time[title$=' UTC']").count() == shown.locator("time").count() > 0
