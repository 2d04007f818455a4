"""The inbox: views with counts, search, saved filters, and one answer to many changes with a preview first."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hostile import HOSTILE, MARK
from test_web_crawl import Parsed
from web_world import Site, needs_browser, served, tab

from instep.schema.changes.version import BREAKING
from instep.store.catalogs.reviews import DetectedChange
from instep.store.work.jobs import WAITED_FOR
from many_changes import fill


def tabs(text: str) -> dict[str, str]:
    """Return the number beside each tab."""
    return dict(re.findall(r"tab=(\w+)[^>]*>[^<]*<span class=\"badge\">([^<]*)<", text))


def rows(text: str) -> list[str]:
    return re.findall(r"<tr data-row>", text)


def test_changes_stand_by_connection_and_detection_in_their_view(page: Site) -> None:
    text = page.get("/changes")
    assert tabs(text)["review"] == "2"
    assert len(rows(text)) == 2
    assert text.count('<tr class="group">') == 1, "one detection"
    assert "preset approve" in text
    one = page.store.reviews.find("eu")[0]
    page.store.reviews.decide(one.id, "rejected", "ann")
    assert (tabs(page.get("/changes"))["review"], tabs(page.get("/changes"))["rejected"]) == ("1", "1")
    assert one.id in page.get("/changes?tab=rejected")


@pytest.mark.parametrize(
    ("asked", "found"),
    [("search=COLOUR", 1), ("search=re:main%5C.item%5C.w.*", 1), ("search=nothing", 0), ("kind=column.added", 2),
     ("kind=table.added", 0), ("tag=europe", 2), ("tag=america", 0), ("connection=eu", 2), ("assignee=ann", 0)],
)  # fmt: skip
def test_a_filter_finds_by_name_kind_tag_and_connection(page: Site, asked: str, found: int) -> None:
    text = page.get(f"/changes?{asked}")
    assert len(rows(text)) == found
    assert ("No change of this view matches" in text) == (not found)


@pytest.mark.parametrize("asked", ["search=re:(a%2B)%2B", "search=re:%5B", "connection=none", "tab=none"])
def test_a_filter_that_is_wrong_says_so_in_place(page: Site, asked: str) -> None:
    text = page.get(f"/changes?{asked}")
    assert ('role="alert"' in text) == (asked != "tab=none")


def test_a_breaking_change_has_a_word_and_a_sign(page: Site) -> None:
    fill(page.store, 8, 2)
    text = page.get("/changes")
    broken = [one for one in page.store.reviews.find() if one.kind in BREAKING]
    assert broken
    assert text.count('<span aria-hidden="true">⚠</span> breaking</span></td>') == len(broken)


def test_the_same_change_in_other_connections_is_counted_and_linked(page: Site) -> None:
    fill(page.store, 40, 40, column_name="x", summary="column public.table_0.x is new", kind="column.added")
    assert "same in 39 other connections" in page.get("/changes")


def test_each_page_shows_how_many_changes_need_a_review(page: Site) -> None:
    assert 'hx-get="/changes/waiting"' in page.get("/runs")
    assert page.get("/changes/waiting", "viewer").startswith('<span class="need">2<')
    for change in page.store.reviews.find("eu"):
        page.post("/do/approve_change", change=change.id, button="do")
    assert 'class="need"' not in page.get("/changes/waiting")


def test_each_page_says_that_jobs_wait_without_a_worker(page: Site) -> None:
    assert '<div id="unattended" role="status"></div>' in page.get("/runs")
    assert '<div id="unattended" role="status"></div>' in page.get("/changes/waiting")
    page.store.jobs.enqueue("eu", "detect", priority=WAITED_FOR)
    assert "1 job waits, and no worker is running: nothing starts." in page.get("/changes/waiting", "viewer")
    worker = page.store.workers.register(2)
    assert "no worker is running" not in page.get("/changes/waiting")
    page.store.workers.leave(worker)
    page.store.jobs.enqueue("us", "detect", priority=WAITED_FOR)
    assert "2 jobs wait, and no worker is running" in page.get("/changes/waiting")


def test_a_filter_is_saved_for_its_key_and_deleted(page: Site) -> None:
    back = "/changes?tab=review&search=colour"
    chosen = {"tab": "review", "search": "colour", "kind": "column.added", "back": back}
    saved = page.post("/changes/filters", "approver", name="mine & yours", button="save", **chosen)
    assert (saved.status_code, saved.headers["location"]) == (303, back)
    text = page.get("/changes", "approver")
    address = re.search(r'href="([^"]+)">mine &amp; yours<', text)[1].replace("&amp;", "&")  # type: ignore[index]
    assert len(rows(page.get(address, "approver"))) == 1
    assert "mine &amp; yours" not in page.get("/changes", "admin"), "another key's"
    assert page.post("/changes/filters", "approver", name="mine & yours", button="delete").status_code == 303
    assert "mine &amp; yours" not in page.get("/changes", "approver")
    assert page.post("/changes/filters", name="a/b", button="save").status_code == 422
    assert page.post("/changes/filters", name="a", search="re:(a+)+", button="save").status_code == 422


def preview(page: Site, role: str = "approver", **fields: Any) -> str:
    answer = page.post("/changes/answers", role, **{"tab": "review", "scope": "all", "answer": "approved", **fields})
    assert answer.status_code == 200, answer.text[:500]
    return answer.text


def ids_in(text: str) -> list[str]:
    return re.search(r'name="ids" value="([^"]*)"', text)[1].split()  # type: ignore[index]


@pytest.mark.parametrize(
    ("answer", "status"), [("approved", "approved"), ("rejected", "rejected"), ("ignored", "rejected")]
)
def test_a_thousand_changes_are_answered_after_a_preview(page: Site, answer: str, status: str) -> None:
    fill(page.store, 1_284, 50)
    text = preview(page, answer=answer, search="table_")
    assert "1,284 changes?" in text
    assert text.count("<tr") < 200
    assert not page.store.reviews.find(statuses=(status,)), "nothing has happened"  # type: ignore[arg-type]
    ids = ids_in(text)
    assert len(ids) == 1_284
    done = page.post("/changes/answers", "approver", answer=answer, ids=" ".join(ids), button="do", back="/changes")
    assert done.status_code == 303
    assert len(page.store.reviews.find(statuses=(status,))) == 1_284  # type: ignore[arg-type]
    assert {one.status for one in page.store.reviews.find("eu")} == {"open"}, "they do not match"
    [entry] = [one for one in page.store.audit.page() if one.action == f"changes.{answer}"]
    assert len(entry.detail["changes"]) == 1_284


def test_what_is_found_after_the_preview_is_not_answered(page: Site) -> None:
    fill(page.store, 10, 2)
    ids = ids_in(preview(page, search="table_"))
    page.store.reviews.decide(ids[0], "rejected", "ann")
    page.post("/changes/answers", "approver", answer="approved", ids=" ".join(ids[1:]), button="do")
    by_status = {one.id: one.status for one in page.store.reviews.find()}
    assert by_status[ids[0]] == "rejected"
    assert all(by_status[one] == "approved" for one in ids[1:])
    assert sum(status == "open" for status in by_status.values()) == 2


def test_selected_changes_are_snoozed(page: Site) -> None:
    [one, other] = page.store.reviews.find("eu")
    text = preview(page, answer="snoozed", scope="selected", ids=one.id, duration="3d")
    assert ids_in(text) == [one.id]
    page.post("/changes/answers", "approver", answer="snoozed", ids=one.id, duration="3d", button="do")
    assert page.store.reviews.get(one.id).snoozed_until is not None
    assert page.store.reviews.get(other.id).snoozed_until is None
    assert tabs(page.get("/changes"))["snoozed"] == "1"


def test_changes_are_assigned_by_filter_after_a_preview(page: Site) -> None:
    fill(page.store, 40, 8)
    text = preview(page, "operator", answer="assigned", search="table_", to="ann <b>")
    assert "40 changes to ann &lt;b&gt;?" in text
    ids = ids_in(text)
    assert len(ids) == 40
    assert not any(one.assignee for one in page.store.reviews.find()), "nothing has happened"
    done = page.post("/changes/answers", "operator", answer="assigned", ids=" ".join(ids), to="ann", button="do")
    assert done.status_code == 303
    assert {one.assignee for one in page.store.reviews.find() if one.id in ids} == {"ann"}
    assert {one.assignee for one in page.store.reviews.find("eu")} == {""}, "they do not match"
    freed = preview(page, "operator", answer="assigned", assignee="ann", kind="column.added", to="")
    now = page.store.reviews.find()
    assert set(ids_in(freed)) == {one.id for one in now if (one.assignee, one.kind) == ("ann", "column.added")}
    assert page.post("/changes/answers", "viewer", answer="assigned", ids=ids[0], to="ann").status_code == 403


def test_all_that_match_are_those_of_the_assignee(page: Site) -> None:
    [one, _] = page.store.reviews.find("eu")
    page.store.reviews.assign(one.id, "ann")
    assert ids_in(preview(page, answer="rejected", assignee="ann")) == [one.id]


def test_suspected_renames_are_left_open_by_an_approval_of_many(page: Site) -> None:
    fill(page.store, 3, 1, rule="rename proposal")
    text = preview(page)
    assert len(ids_in(text)) == 2
    assert "3 suspected renames are left open" in text


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"answer": "applied", "scope": "all"}, 422), ({"answer": "approved", "scope": "selected"}, 303),
     ({"answer": "approved", "ids": "c-none"}, 404), ({"answer": "snoozed", "scope": "all", "duration": "soon"}, 422),
     ({"answer": "approved", "scope": "all", "search": "nothing"}, 422)],
)  # fmt: skip
def test_an_answer_that_cannot_be_given_changes_nothing(page: Site, fields: dict[str, str], status: int) -> None:
    assert page.post("/changes/answers", "approver", button="do", **fields).status_code == status
    assert {one.status for one in page.store.reviews.find("eu")} == {"open"}


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_not_answer_is_told_and_refused(page: Site, role: str) -> None:
    assert "Answers need the role approver" in page.get("/changes", role)
    answer = page.post("/changes/answers", role, answer="approved", scope="all", tab="review")
    assert answer.status_code == 403


def test_a_page_is_short_however_many_there_are(page: Site) -> None:
    fill(page.store, 3_000, 100)
    first = page.get("/changes")
    assert len(rows(first)) == 100
    [more] = set(re.findall(r'rel="next" href="([^"]+)"', first))
    second = page.get(more.replace("&amp;", "&"))
    shown = [set(re.findall(r'name="ids" value="(c-\w+)"', text)) for text in (first, second)]
    assert len(shown[0] | shown[1]) == 200


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_thousand_changes_take_five_clicks(page: Site, browser: Any, theme: str) -> None:
    fill(page.store, 1_000, 20)
    with served(page.app) as base, tab(browser, base, page.token("approver"), theme=theme) as opened:
        shown = opened.open("/changes")
        assert not opened.violations()
        shown.fill("#search", "table_")
        shown.wait_for_selector("text=all 1,000 matching")
        shown.check("input[name=scope][value=all]")
        shown.click("button:has-text('Approve…')")
        shown.wait_for_selector("h1:has-text('Approve 1,000 changes?')")
        assert not opened.violations()
        shown.click("button:has-text('Approve 1,000 changes')")
        shown.wait_for_selector("text=1,000 changes are approved")
    assert len(page.store.reviews.find(statuses=("approved",))) == 1_000


@needs_browser
@pytest.mark.server
def test_many_changes_are_assigned_in_a_browser(page: Site, browser: Any) -> None:
    fill(page.store, 300, 20)
    with served(page.app) as base, tab(browser, base, page.token("operator")) as opened:
        shown = opened.open("/changes")
        assert not opened.violations()
        shown.fill("#search", "table_")
        shown.wait_for_selector("text=all 300 matching")
        shown.check("input[name=scope][value=all]")
        shown.fill("#to", "ann")
        shown.click("button:has-text('Assign…')")
        shown.wait_for_selector("h1:has-text('Assign 300 changes to ann?')")
        assert not opened.violations()
        shown.click("button:has-text('Assign 300 changes')")
        shown.wait_for_selector("text=300 changes are assigned to ann")
    assert sum(one.assignee == "ann" for one in page.store.reviews.find()) == 300


@needs_browser
@pytest.mark.server
def test_the_inbox_is_used_by_keys_alone(page: Site, browser: Any) -> None:
    with served(page.app) as base, tab(browser, base, page.token("approver")) as opened:
        shown = opened.open("/changes")
        shown.keyboard.press("j")
        shown.keyboard.press("x")
        shown.wait_for_selector("text=(1)")
        shown.keyboard.press("r")
        shown.wait_for_selector("h1:has-text('Reject 1 change?')")
        shown.locator("button:has-text('Reject 1 change')").press("Enter")
        shown.wait_for_selector("text=1 change is rejected")
    assert [one.status for one in page.store.reviews.find("eu", ("rejected",))] == ["rejected"]


@needs_browser
@pytest.mark.server
def test_approving_works_without_scripts(page: Site, browser: Any) -> None:
    with (
        served(page.app) as base,
        tab(browser, base, page.token("approver"), scripts=False) as opened,
    ):
        shown = opened.open("/changes")
        shown.fill("#search", "colour")
        shown.click("button:has-text('Filter')")
        shown.click("a.mono:has-text('colour')")
        shown.click("button:has-text('Approve') >> nth=0")
        shown.wait_for_selector("text=Done: approve change")
    assert {one.column: one.status for one in page.store.reviews.find("eu")} == {"colour": "approved", "weight": "open"}


def test_hostile_texts_are_shown_as_text(page: Site) -> None:
    key = _key(page)
    for text in HOSTILE:
        detail = {"kind": "column.added", "table": [text, text], "after": {"name": text, "type": "string"}}
        detail |= {"position": 1}
        change = DetectedChange(text, "column.added", (text, text), text, text, detail, "review", text, text)
        [review] = page.store.reviews.record("eu", [change], "f", unseen={(one, one) for one in HOSTILE})
        page.store.comments.add(review, text, text)
        page.store.reviews.assign(review.id, text)
        page.store.filters.save(key, text, {"search": text})
    reviews = [one for one in page.store.reviews.find("eu") if one.key in HOSTILE]
    assert len(reviews) == len(set(HOSTILE))
    addresses = [f"/changes/{one.id}?tab={name}" for one in reviews for name in ("table", "lineage", "conversation")]
    shown = 0
    for address in ["/changes", *addresses]:
        text = page.get(address)
        assert not Parsed(text).wrong, address
        shown += MARK in text
    assert shown > len(addresses) // 2
    assert not Parsed(preview(page, "admin")).wrong


def _key(page: Site) -> str:
    page.client()  # which makes the key
    return next(one.id for one in page.store.api_keys.page() if one.name == "admin")
