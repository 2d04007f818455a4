"""Connections on the page: the list, how one stands, its detector, its quarantine, and its end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import govern_world
import pytest
from web_world import Site, needs_browser, served, tab

from instep.control import pauses, schedules
from instep.model import TableRun
from instep.store.work.jobs import WAITED_FOR


def rows(text: str) -> list[str]:
    """Return the rows of tables that keys move along."""
    return re.findall(r"<tr data-row.*?</tr>", text, re.DOTALL)


def test_connections_are_searched_by_name_tag_and_state(shop: Site) -> None:
    assert len(rows(shop.get("/connections"))) == 2
    for address, name in (("search=u&tag=america", "us"), ("tag=europe", "eu"), ("status=new", "us")):
        [row] = rows(shop.get(f"/connections?{address}"))
        assert f'href="/connections/{name}"' in row, address
    assert "No connection fits" in shop.get("/connections?search=nothing")
    assert "never synced" in rows(shop.get("/connections?search=us"))[0]


def test_connections_are_counted_by_state(shop: Site) -> None:
    assert tabs_of(shop.get("/connections")) == {"all": "2", "idle": "1", "new": "1"}
    pauses.pause(shop.store, "us", "a test")
    assert tabs_of(shop.get("/connections")) == {"all": "2", "paused": "1", "idle": "1"}
    assert tabs_of(shop.get("/connections?search=u&tag=europe&status=new")) == {"all": "1", "idle": "1", "new": "0"}
    shop.store.runs.claim("eu", "sync")
    assert tabs_of(shop.get("/connections")) == {"all": "2", "paused": "1", "running": "1"}


def tabs_of(text: str) -> dict[str, str]:
    """Return the numbers beside the tabs of a list."""
    found = re.findall(r'<li><a href="/connections[^>]*>(.*?) <span class="badge">([^<]*)<', text)
    return {re.sub(r"<[^>]+>", "", label): number for label, number in found}


def test_many_connections_come_in_pages(shop: Site) -> None:
    for number in range(130):
        shop.app.objects.put("connection", f"c{number:03}", {"source": "db", "destination": "lake"}, who="ann")
    text = shop.get("/connections")
    assert len(rows(text)) == 100
    [address] = re.findall(r'rel="next" href="([^"]+)"', text)
    second = shop.get(address.replace("&amp;", "&"))
    assert len(rows(second)) == 32
    assert not set(rows(text)) & set(rows(second))
    pauses.pause(shop.store, "c128", "a test")
    [row] = rows(shop.get("/connections?status=paused"))
    assert "c128" in row


def test_how_a_connection_stands(shop: Site) -> None:
    text = shop.get("/connections/eu")
    assert 'aria-label="Rows written of eu in the last 2 runs"' in text
    assert "main.item" in text
    assert "1 value or row" in text
    assert 'aria-label="Pages of eu"' in text
    assert "instep sync eu" in text, "what a button does can be copied"
    assert re.search(r"<dt>Next runs</dt><dd>detect <time [^>]*>in \d+ min</time>", text), "before a worker has begun"
    assert "No worker is running" in text
    assert 'aria-label="Bytes written of main.item in the last 2 runs"' in shop.get("/connections/eu?table=main.item")
    [row] = rows(shop.get("/connections/eu?search=PLACE"))
    assert "main.place" in row


def test_a_failed_run_and_a_failed_table_name_their_cause_and_what_is_next(shop: Site) -> None:
    run = shop.store.runs.claim("eu", "sync")
    shop.store.runs.record_tables(TableRun(run.id, ("main", "item"), "failed", "upsert", error="a <full> disk"))
    shop.store.runs.finish(run, "failed", "the source is <gone>")
    assert "the source is &lt;gone&gt;" in shop.get("/connections")
    text = shop.get("/connections/eu")
    assert "<strong>The last run failed:</strong> the source is &lt;gone&gt;</p>" in text
    assert "sync again, here or with <code>instep sync eu</code>." in text
    assert (
        "a &lt;full&gt; disk<br>Next: mend the cause, then run <code>instep sync eu --table main.item</code>." in text
    )


def test_a_column_without_values_in_older_rows_is_shown(shop: Site) -> None:
    text = shop.get("/connections/eu")
    assert "main.item.colour</span> has no values in rows that were loaded before" in text
    assert 'href="/do/backfill?connection=eu&amp;table=main.item&amp;columns=colour' in text


def test_a_connection_that_works_is_followed_until_it_has_ended(shop: Site) -> None:
    polled = {"HX-Request": "true", "HX-Target": "now"}
    assert 'hx-trigger="every 5s"' not in shop.get("/connections/eu")
    run = shop.store.runs.claim("eu", "sync")
    answer = shop.client().get("/connections/eu", headers=polled)
    assert '<div id="now" hx-get="/connections/eu" hx-trigger="every 5s"' in answer.text
    assert "HX-Refresh" not in answer.headers
    shop.store.runs.finish(run, "done")
    assert shop.client().get("/connections/eu", headers=polled).headers["HX-Refresh"] == "true"
    assert "HX-Refresh" not in shop.client().get("/connections/eu").headers


@needs_browser
@pytest.mark.server
def test_a_page_says_when_nobody_answers_and_that_it_is_over(shop: Site, browser: Any) -> None:
    run = shop.store.runs.claim("eu", "sync")
    with served(shop.app) as base, tab(browser, base, shop.token("admin")) as opened:
        shown = opened.open("/connections/eu")
        shown.context.set_offline(True)
        shown.get_by_text("The server does not answer").wait_for()
        shown.context.set_offline(False)
        shown.locator("#unreachable").wait_for(state="detached")
        shop.store.runs.finish(run, "done")
        shown.locator("#now:not([hx-trigger])").wait_for()
        lost = ("ERR_INTERNET_DISCONNECTED", "htmx:sendError", "htmx:afterRequest")
        opened.faults[:] = [one for one in opened.faults if not any(word in one for word in lost)]


def test_a_disabled_button_says_why(shop: Site) -> None:
    text = shop.get("/connections/eu", "viewer")
    assert re.search(r'<button type="button" disabled title="needs the role operator; you are viewer">Sync now', text)
    pauses.pause(shop.store, "eu", "the source moves")
    text = shop.get("/connections/eu")
    assert re.search(
        r"<button type=\"button\" disabled>Sync now</button> <span [^>]*>the connection is paused: the sou", text
    )
    assert "What resuming will do" in text


def test_a_connection_is_paused_and_resumed(shop: Site) -> None:
    assert "No sync starts until the connection is resumed" in shop.get("/connections/eu")
    shop.post("/do/pause", connection="eu", reason="a move", back="/connections/eu", button="do")
    assert [one.reason for one in shop.store.pauses.active("eu")] == ["a move"]
    shop.post("/do/resume", connection="eu", back="/connections/eu", button="do")
    assert not shop.store.pauses.active("eu")


def test_one_table_is_resumed(shop: Site) -> None:
    for name in ("item", "place"):
        pauses.pause(shop.store, "eu", "a test", ("main", name))
    text = shop.get("/connections/eu")
    forms = re.findall(r'<form[^>]*action="/do/resume">.*?</form>', text, re.DOTALL)
    [form] = [one for one in forms if "main.item" in one]
    assert "Resume this table" in form
    table = re.findall('name="table" value="([^"]*)"', form)
    shop.post("/do/resume", connection="eu", table=table, back="/connections/eu", button="do")
    assert [one.table for one in shop.store.pauses.active("eu")] == [("main", "place")]


def test_quarantined_values_are_shown_to_who_may_see_them(shop: Site) -> None:
    text = shop.get("/connections/eu/quarantine?table=main.item", "operator")
    assert "&lt;b&gt;large&lt;/b&gt;" in text
    assert "<b>large" not in text
    assert "size" in text
    shop.get("/connections/eu/quarantine", "viewer", 403)
    answer = shop.post("/do/replay_quarantine", "operator", connection="eu", tables="main.item", button="do")
    assert answer.headers["location"].startswith("/jobs/")


def test_the_detector_shows_its_counts_and_all_of_its_options(shop: Site) -> None:
    text = shop.get("/connections/us/detector")
    assert text.count("1 new, 0 deleted, 2 updated, 3 unchanged") == 3
    assert "triggered by an error" in text
    for name in (
        "enable_detect_schema_changes",
        "excluded_external_column_names_regexes",
        "auto_unsync_deleted_tables",
    ):
        assert f'name="{name}"' in text
    assert "managed by the project file" in shop.get("/connections/eu/detector")
    assert "needs the role approver" in shop.get("/connections/us/detector", "operator")


def test_options_of_the_detector_are_set(shop: Site) -> None:
    form = {
        "enable_detect_schema_changes": "true",
        "detect_schema_changes_frequency_in_seconds": "21600",
        "create_detect_schema_changes_ping_on_each_error": "true",
        "excluded_external_table_names": "main.a\nmain.b",
        "table": "",
    }
    text = shop.post("/connections/us/detector", **form, button="preview").text
    assert "What would be set" in text
    assert "app_options" not in shop.app.objects.get("connection", "us").spec
    shop.post("/connections/us/detector", **form, button="do")
    options = {
        "detect_schema_changes_frequency_in_seconds": 21600,
        "excluded_external_table_names": ["main.a", "main.b"],
    }
    assert shop.app.objects.get("connection", "us").spec["app_options"] == options
    columns = {"table": "main.*", "of_tables": "true", "auto_unsync_deleted_columns": "true"}
    shop.post("/connections/us/detector", **columns, button="do")
    assert shop.app.objects.get("connection", "us").spec["table_options"] == {
        "main.*": {"auto_unsync_deleted_columns": True}
    }
    wrong = shop.post("/connections/us/detector", **{**columns, "table": "", "button": "do"})
    assert "no pattern of tables is given" in wrong.text


def test_a_detector_that_is_off_by_itself_is_switched_on_again(shop: Site) -> None:
    shop.store.detectors.disable("us", "main.item is gone")
    assert "main.item is gone" in shop.get("/connections/us/detector")
    shop.post("/do/enable_detector", connection="us", back="/connections/us/detector", button="do")
    assert not shop.store.detectors.get("us").disabled


def test_a_connection_is_deleted_by_its_name_alone(shop: Site) -> None:
    assert "take it out of instep.yml" in shop.get("/connections/eu/delete")
    shop.get("/connections/us/delete", "approver", 403)
    for typed in ("", "u", "eu"):
        answer = shop.post("/connections/us/delete", confirm=typed, tables="keep", button="do")
        assert answer.status_code == 409, typed
        assert not shop.store.jobs.find(connection="us", kind="delete_connection")
    assert shop.post("/connections/us/delete", "approver", confirm="us", button="do").status_code == 403
    answer = shop.post("/connections/us/delete", confirm="us", tables="drop", button="do")
    [job] = shop.store.jobs.find(connection="us", kind="delete_connection")
    assert answer.headers["location"] == f"/jobs/{job.id}"
    assert job.options["tables"] == "drop"


def test_the_queue_is_shown_and_its_jobs_are_cancelled(shop: Site) -> None:
    job, _ = shop.store.jobs.enqueue("eu", "detect", priority=WAITED_FOR, why="a <b>test</b>", who="ann")
    text = shop.get("/queue?status=queued")
    assert "a &lt;b&gt;test&lt;/b&gt;" in text
    assert len(rows(text)) == 1
    assert "Cancel (needs" in re.sub(r"<[^>]+>", "", shop.get("/queue", "viewer"))
    shop.post("/do/cancel_job", job=job.id, back="/queue", button="do")
    assert shop.store.jobs.get(job.id).status == "cancelled"
    assert "No jobs here" in shop.get("/queue?status=queued")


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_connection_is_found_and_paused_in_a_browser(shop: Site, browser: object, theme: str) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("admin"), theme=theme) as opened:
        shown = opened.open("/connections")
        shown.fill("#search", "us")
        shown.wait_for_selector("tr[data-row]:only-child")
        shown.fill("#search", "eu")
        shown.click("tr[data-row] >> text=eu")
        shown.wait_for_selector("h1:has-text('eu')")
        assert not opened.violations()
        shown.click("summary:has-text('Pause')")
        shown.click("details a:has-text('Pause')")
        shown.fill("[name=reason]", "a move")
        shown.click("button:has-text('Pause')")
        shown.wait_for_selector("text=What resuming will do")
        for path in ("/connections", "/connections/eu", "/connections/us/detector", "/connections/eu/quarantine",
                     "/connections/us/delete", "/queue"):  # fmt: skip
            opened.open(path)
            assert not opened.violations(), path
        shop.store.jobs.enqueue("us", "detect", priority=WAITED_FOR)
        shown = opened.open("/connections")
        shown.wait_for_selector("#unattended >> text=1 job waits")
        assert not opened.violations()
    assert [one.reason for one in shop.store.pauses.active("eu")] == ["a move"]


def test_the_next_runs_are_those_of_the_settings(shop: Site) -> None:
    schedule = {"sync": "0 3 * * *", "timezone": "Europe/Berlin", "detect": "every 2h"}
    shop.app.objects.put("connection", "us", {"source": "db", "destination": "lake", "schedule": schedule}, who="ann")
    shop.app.refresh()
    before = shop.get("/connections/us")
    assert "(0 3 * * *, Europe/Berlin)" in before
    assert "(every 2 hours, Europe/Berlin)" in before
    schedules.reconcile(shop.store, shop.app.project, datetime.now(UTC))
    shop.store.workers.register(1)
    after = shop.get("/connections/us")
    assert times(after) == times(before), "the worker fires when the page has said it"
    assert "No worker is running" not in after
    assert "none planned" not in shop.get("/connections/us/detector")


def times(text: str) -> list[str]:
    """Return the next runs that a connection's page shows."""
    [part] = re.findall(r"<dt>Next runs</dt><dd>(.*?)</dd>", text)
    return re.findall(r'datetime="([^"]+)"', part)


def test_late_tables_are_named_with_their_targets(tmp_path: Path) -> None:
    text = govern_world.PROJECT.replace("tags: [america]}", "tags: [america], freshness: 90m}")
    with govern_world.server_site(tmp_path, text) as page:
        govern_world.job_of(page, "us", "sync")
        assert "on time" in page.get("/connections/us")
        page.store.fresh_tables.loaded("us", [("main", "item")], datetime.now(UTC) - timedelta(hours=2))
        shown = page.get("/connections/us")
        assert "1 table is late" in shown
        assert "target 90m, late since" in shown
        assert "on time" in shown, "the other table"
        assert '<span class="state bad">late</span>' in page.get("/connections")


def test_a_page_lists_the_first_of_many_and_counts_the_others(shop: Site) -> None:
    with shop.store.transaction("eu"):
        for number in range(205):
            shop.store.pauses.pause("eu", "later", table=("main", f"t{number:03}"))
            shop.store.backfills.request("eu", ("main", f"t{number:03}"), why="asked")
    text = shop.get("/connections/eu")
    assert text.count("and 155 more</li>") == 2, "50 pauses and 50 backfills of 205 each"
    assert "205 backfills that wait are taken up." in text
