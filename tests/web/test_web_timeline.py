"""The timeline of a connection on the page, and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from web_world import Site, needs_browser, served, tab

from instep.events import ChangeApproved, ChangeDetected, Event, Paused, RunEnded
from instep.server.web.screens.timeline import LINKS, shown

TIMELINE = "/connections/us/timeline"


@pytest.fixture
def events(shop: Site) -> Site:
    """Some events of a connection without others."""
    shop.store.events.add(
        ChangeDetected("us", "c-1", "column.added", "<script>alert(1)</script>"),
        ChangeApproved("us", "c-1", "ann"),
        Paused("us", "=1+1"),
        RunEnded("us", "r-1", "sync", "failed", "the source is away"),
    )
    return shop


def rows(text: str) -> list[str]:
    """Return the rows of the events."""
    return re.findall(r"<tr data-row.*?</tr>", text, re.DOTALL)


def test_events_have_their_actors_and_links(events: Site) -> None:
    ended, paused, approved, detected = rows(events.get(TIMELINE))[:4]
    assert ">ann</td>" in approved
    assert ">policy</td>" in detected
    assert 'href="/runs/r-1"' in ended
    assert "the source is away" in ended
    assert 'href="/changes/c-1"' in detected
    assert "&lt;script&gt;" in detected
    assert re.search(r'id="event-(\d+)".*href="#event-\1"', paused, re.DOTALL)


@pytest.mark.parametrize(
    ("query", "number"),
    [("who=ann", 2), ("type=change.detected", 1), ("status=failed", 1), ("run=r-1", 1), ("who=nobody", 0),
     ("since=2000-01-01", 6), ("until=2000-01-01", 0), ("since=2999-01-01", 0)],
)  # fmt: skip
def test_events_are_filtered_at_the_server(events: Site, query: str, number: int) -> None:
    assert len(rows(events.get(f"{TIMELINE}?{query}"))) == number


def test_counts_of_a_detection_are_words() -> None:
    counts = {"tables": {"new": 0, "updated": 1}, "columns": {"new": 1200, "unchanged": 3}, "schemas": {"new": 0}}
    data = {"connection": "us", "counts": counts, "triggered_by_error": False, "seconds": 0.1667}
    event = {"number": 1, "at": "2026-11-29T00:00:00Z", "type": "detection.finished", "data": data}
    words = "tables: 1 updated; columns: 1,200 new, 3 unchanged; schemas: none; took 0.17 s"
    assert shown(event)["about"] == words


def kinds_of_events() -> Iterator[type[Event]]:
    left: list[type[Event]] = list(Event.__subclasses__())
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        yield kind


@pytest.mark.parametrize("kind", [*kinds_of_events()], ids=lambda one: one.type)
def test_every_event_has_a_title_and_says_all_of_its_data(kind: type[Event]) -> None:
    """In words: no name of a field and no word of the code is shown, and no field is left out."""
    samples = {"str": "some_{}", "int": 1234, "float": 0.5, "bool": True, "tuple[str, ...]": ["some_{}"]}
    data: dict[str, Any] = {}
    for at, one in enumerate(fields(kind)):
        value = samples.get(str(one.type), {"tables": {"new": 5}})
        data[one.name] = value.format(at) if isinstance(value, str) else value
    found = shown({"number": 1, "at": "2026-11-29T00:00:00Z", "type": kind.type, "data": data})
    assert found["title"] != kind.type
    assert not re.search(r"[a-z]_[a-z]|[a-z]\.[a-z]|_", found["title"])
    text = re.sub(r"some_\d+|some_\{\}", "", found["about"])
    assert "_" not in text, text
    shown_elsewhere = {"connection", "who", "status", *LINKS}
    if kind is ChangeDetected:
        shown_elsewhere.add("kind")  # its summary says it
    for name, value in data.items():
        if isinstance(value, str) and name not in shown_elsewhere:
            assert value in found["about"] or value.replace("_", " ") in found["about"], name


def test_a_date_that_is_none_is_refused(events: Site) -> None:
    assert "since is no date" in events.get(f"{TIMELINE}?since=tomorrow", status=422)


def test_all_that_fits_is_in_the_csv_and_no_formula(events: Site) -> None:
    events.store.events.add(*(ChangeApproved("us", f"c-{at}", "bob") for at in range(2100)))
    lines = list(csv.DictReader(io.StringIO(events.get(f"{TIMELINE}.csv?who=bob"))))
    assert len(lines) == len({one["number"] for one in lines}) == 2100
    [paused] = csv.DictReader(io.StringIO(events.get(f"{TIMELINE}.csv?type=connection.paused")))
    assert paused["about"] == "'=1+1"
    events.store.events.add(ChangeDetected("us", "c-2", "column.added", "=cmd()"))
    found = [one["about"] for one in csv.DictReader(io.StringIO(events.get(f"{TIMELINE}.csv?type=change.detected")))]
    assert found[0].startswith("'=cmd()")


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_events_are_filtered_in_a_browser(events: Site, browser: object, theme: str) -> None:
    with served(events.app) as base, tab(browser, base, events.token("viewer"), theme=theme) as opened:
        shown = opened.open(TIMELINE)
        assert not opened.violations()
        shown.select_option("#type", "change.approved")
        shown.click("button:has-text('Filter')")
        shown.wait_for_selector("tr[data-row]:only-child")
        with shown.expect_download() as download:
            shown.click("text=Download as CSV")
        assert download.value.suggested_filename == "timeline.csv"
