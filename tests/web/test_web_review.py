"""The review of one change: the three sides of its table, answers, plans, comments; over a project that has changed."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from review_world import build, change, sql, work
from sqlalchemy import update
from web_world import Site, needs_browser, served, site, tab

import instep
from instep.bootstrap import open_project
from instep.server.web.screens.review import TABS, checks_of
from instep.store.tables.queue import jobs


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, made once."""
    folder = tmp_path_factory.mktemp("review")
    build(folder)
    return folder


@pytest.fixture
def shop(template: Path, tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "project"
    shutil.copytree(template, folder)
    with open_project(folder) as app:
        yield site(app)


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def ask(shop: Site, path: str, role: str = "approver", **fields: str) -> str:
    """Press a button that queues a job; do the job, and return the page that it led to."""
    answer = shop.post(path, role, **fields)
    assert answer.status_code == 303, answer.text[:1500]
    work(shop.app)
    return shop.get(answer.headers["location"], role)


@pytest.mark.parametrize("name", [name for _, name in TABS])
def test_each_part_has_an_address(shop: Site, name: str) -> None:
    for one in shop.store.reviews.find("shop", ("open",)):
        assert shop.get(f"/changes/{one.id}?tab={name}")


def test_a_table_stands_before_now_and_afterwards(shop: Site) -> None:
    gone = change(shop.app, "phone", "column.removed")
    text = text_of(shop.get(f"/changes/{gone.id}"))
    assert "− removed" in text
    assert "phone string none none" in text, "the policy drops it: the destination will not have it"
    assert re.search(r"\+ added its review \(added\) of score none score float64 score float64 new", text)
    assert "unchanged column" in text
    assert all(f"instep changes {word} {gone.id}" in text for word in ("approve", "reject", "ignore")), "to copy"
    assert "Detected" in text
    assert "preset approve" in text


def test_a_review_begins_with_what_approving_does_and_which_models_break(shop: Site) -> None:
    gone, added = change(shop.app, "phone", "column.removed"), change(shop.app, "score", "column.added")
    text = text_of(shop.get(f"/changes/{gone.id}"))
    assert "Once approved: source column dropped; the destination column is dropped too." in text
    assert "Until then: new rows have NULL in it." in text
    assert "Models: not checked yet." in text
    assert "Once approved: the column is added; rows loaded before have NULL in it." in text_of(
        shop.get(f"/changes/{added.id}")
    )
    ask(shop, f"/changes/{gone.id}/impact")
    assert "2 would break (call_list, contacts)" in text_of(shop.get(f"/changes/{gone.id}"))
    assert "none would break by the last check" in text_of(shop.get(f"/changes/{added.id}"))
    shop.post("/do/reject_change", change=gone.id, button="do")
    shop.store.reviews.obsolete([added.id])
    assert "Once approved" not in shop.get(f"/changes/{added.id}")


def test_a_rejected_change_leaves_the_destination_as_it_is(shop: Site) -> None:
    gone = change(shop.app, "phone", "column.removed")
    shop.store.reviews.decide(gone.id, "rejected", "ann")
    assert "phone string none phone string kept, gets no new values" in text_of(shop.get(f"/changes/{gone.id}"))
    new = change(shop.app, "score", "column.added")
    shop.store.reviews.decide(new.id, "rejected", "ann")
    assert "none score float64 none" in text_of(shop.get(f"/changes/{new.id}"))


def test_a_suspected_rename_shows_its_evidence_and_is_mapped(shop: Site) -> None:
    renamed = change(shop.app, "remark", "column.renamed")
    page = shop.get(f"/changes/{renamed.id}", "approver")
    assert "Looks like one rename" in page
    assert "main.customer.note" in page
    assert all(line in text_of(page) for line in renamed.evidence["evidence"])
    assert "declare_rename" in page
    assert "Values side by side" in page
    removed = change(shop.app, "phone", "column.removed")
    page = shop.get(f"/changes/{removed.id}", "approver")
    assert "Values side by side" not in page
    assert '<option value="main.customer.score">' in page, "a person may know better"


def test_values_of_a_suspected_rename_stand_side_by_side(shop: Site) -> None:
    sql(shop.app.project.root, "update customer set remark = '<b>c</b>' where id = 2")
    renamed = change(shop.app, "remark", "column.renamed")
    page = ask(shop, f"/changes/{renamed.id}/samples", "operator")
    assert "&lt;b&gt;c&lt;/b&gt;" in page
    assert "2 b <b>c</b> ≠ differs 1 a a = same" in text_of(page).replace("&lt;", "<").replace("&gt;", ">")
    seen = shop.get(f"/changes/{renamed.id}", "viewer")
    assert "&lt;b&gt;c" not in seen
    assert "shown to the role operator" in seen
    [job] = shop.store.jobs.find(kind="sample_rename")
    assert "&lt;b&gt;c" not in shop.get(f"/jobs/{job.id}", "viewer")
    assert "&lt;b&gt;c" in shop.get(f"/jobs/{job.id}", "operator")
    assert shop.post(f"/changes/{renamed.id}/samples", "viewer").status_code == 403


def test_an_answer_to_a_change_that_was_answered_meanwhile_is_refused(shop: Site) -> None:
    new = change(shop.app, "score", "column.added")
    etag = re.search(r'name="etag" value="([^"]*)"', shop.get(f"/changes/{new.id}"))[1]  # type: ignore[index]
    shop.store.reviews.decide(new.id, "rejected", "somebody else")
    fields = {"change": new.id, "etag": etag.replace("&#34;", '"'), "button": "do"}
    assert shop.post("/do/approve_change", "approver", **fields).status_code == 412
    assert shop.store.reviews.get(new.id).status == "rejected"


def test_a_plan_is_made_by_a_worker_shown_and_applied(shop: Site) -> None:
    new = change(shop.app, "score", "column.added")
    shop.store.reviews.decide(new.id, "approved", "ann")
    page = ask(shop, f"/changes/{new.id}/plan")
    assert "ADD COLUMN `score` DOUBLE" in page
    plan = re.search(r'name="plan" value="([^"]+)"', page)[1]  # type: ignore[index]
    assert "✓ passed" in shop.get(f"/changes/{new.id}?tab=checks")
    assert "By the dry run of" in shop.get(f"/changes/{new.id}?tab=impact")
    page = ask(shop, f"/changes/{new.id}/apply", plan=plan)
    assert "done" in text_of(page)
    assert shop.store.reviews.get(new.id).status == "applied"
    text = text_of(shop.get(f"/changes/{new.id}?tab=backfill"))
    assert "Applied schema version" in text
    assert "Fill score where rows have NULL" in text


def test_a_stale_plan_is_refused_and_planning_again_is_offered(shop: Site) -> None:
    new = change(shop.app, "score", "column.added")
    shop.store.reviews.decide(new.id, "approved", "ann")
    page = ask(shop, f"/changes/{new.id}/plan")
    plan = re.search(r'name="plan" value="([^"]+)"', page)[1]  # type: ignore[index]
    shop.store.reviews.decide(new.id, "rejected", "bob")
    answer = shop.post(f"/changes/{new.id}/apply", "approver", plan=plan)
    assert answer.status_code == 409
    assert "stale" in answer.text
    assert "Plan again" in answer.text
    assert not [one for one in shop.store.jobs.find(connection="shop") if one.kind == "apply"]


def without_consent(shop: Site, plan: str, name: str) -> None:
    """Make the plan of a job one whose drop no policy allows."""
    found = shop.store.jobs.get(plan)
    with shop.store._db.write() as transaction:
        result = {**found.result, "drops": [name]}
        transaction.execute(update(jobs).where(jobs.c.id == plan).values(result=result))


def test_a_drop_is_applied_only_by_its_name(shop: Site) -> None:
    gone = change(shop.app, "phone", "column.removed")
    shop.store.reviews.decide(gone.id, "approved", "ann")
    page = ask(shop, f"/changes/{gone.id}/plan")
    plan = re.search(r'name="plan" value="([^"]+)"', page)[1]  # type: ignore[index]
    assert 'name="allow"' not in page, "the policy has named it"
    without_consent(shop, plan, "shop.customer.phone")
    page = shop.get(f"/changes/{gone.id}?plan={plan}", "approver")
    assert 'name="allow"' in page
    assert "Apply (needs the role approver)" in shop.get(f"/changes/{gone.id}?plan={plan}", "operator")
    for typed in ("", "customer.phone", "*"):
        answer = shop.post(f"/changes/{gone.id}/apply", "approver", plan=plan, allow=typed)
        assert answer.status_code == 409, typed
        assert "was not named" in answer.text
    assert shop.post(f"/changes/{gone.id}/apply", "operator", plan=plan, allow="shop.customer.phone").status_code == 403
    ask(shop, f"/changes/{gone.id}/apply", plan=plan, allow="shop.customer.phone")
    assert shop.store.reviews.get(gone.id).status == "applied"


def test_a_column_comes_in_as_a_hash(shop: Site) -> None:
    new = change(shop.app, "score", "column.added")
    assert "Approve as hash" in shop.get(f"/changes/{new.id}", "approver")
    fields = {"answer": "approved", "hash": "true", "ids": new.id, "button": "do", "back": f"/changes/{new.id}"}
    answer = shop.post("/do/answer_changes", "approver", **fields)
    assert answer.status_code == 303, text_of(answer.text)
    assert shop.store.reviews.get(new.id).status == "approved"
    assert [one for one in shop.store.audit.page() if one.detail.get("hash")]


def test_people_talk_about_a_change_and_somebody_looks_after_it(shop: Site) -> None:
    one = change(shop.app, "score", "column.added")
    path = f"/changes/{one.id}/comments"
    assert shop.post(path, "operator", button="comment", text="wait for\n<b>Monday</b>").status_code == 303
    page = shop.get(f"/changes/{one.id}?tab=conversation")
    assert "&lt;b&gt;Monday&lt;/b&gt;" in page
    etag = re.search(r'name="etag" value="([^"]*)"', page)[1].replace("&#34;", '"')  # type: ignore[index]
    assert shop.post(path, "operator", button="assign", assignee="ann", etag=etag).status_code == 303
    assert "assigned to ann" in shop.get(f"/changes/{one.id}")
    assert shop.post(path, "operator", button="assign", assignee="bob", etag=etag).status_code == 412, "ann has it"
    assert len(re.findall(r"<tr data-row>", shop.get("/changes?assignee=ann"))) == 1
    assert shop.post(path, "viewer", button="comment", text="x").status_code == 403
    assert shop.post(path, "operator", button="comment", text=" ").status_code == 303
    assert [it.text for it in shop.store.comments.find(one.id)] == ["wait for\n<b>Monday</b>"]


def test_python_talks_about_a_change_as_well(shop: Site) -> None:
    one = change(shop.app, "score", "column.added")
    with instep.open(shop.app.project.root) as project:
        project.comment(one.id, "from a notebook")
        project.assign(one, "ann")
        assert [it.text for it in project.comments(one.id)] == ["from a notebook"]
        assert [it.id for it in project.changes(assignee="ann")] == [one.id]
        assert {it.column for it in project.changes(search="re:main.customer.s.*")} == {"score"}


@pytest.mark.parametrize("path", ["plan", "impact", "samples"])
def test_a_viewer_may_not_queue_work(shop: Site, path: str) -> None:
    one = change(shop.app, "score", "column.added")
    assert shop.post(f"/changes/{one.id}/{path}", "viewer").status_code == 403
    assert "Dry run (needs the role operator)" in shop.get(f"/changes/{one.id}", "viewer")


def test_a_change_of_a_table_that_is_new_shows_its_columns(shop: Site) -> None:
    sql(shop.app.project.root, "create table voucher (id integer primary key, code text)")
    with instep.open(shop.app.project.root) as project:
        project.connection("shop").detect()
    [new] = [one for one in shop.store.reviews.find("shop") if one.kind == "table.added" and one.status == "open"]
    text = text_of(shop.get(f"/changes/{new.id}"))
    assert "code string" in text


def test_checks_are_sorted_by_gravity() -> None:
    step = {"text": "t", "hazards": [{"text": "rows have NULL"}]}
    plan = {"steps": [step], "refused": [{"table": ["a", "b"], "why": "it cannot"}]}
    found = checks_of({"plan": plan, "drops": ["a.c"], "costs": {"lossy": [{"text": "3 values", "invalid_values": 3}]}})
    assert [level for level, _ in found] == ["blocks", "warning", "warning", "warning"]
    assert checks_of({}) == []


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_change_is_reviewed_planned_and_applied(shop: Site, browser: Any, theme: str) -> None:
    new = change(shop.app, "score", "column.added")
    with served(shop.app) as base, tab(browser, base, shop.token("approver"), theme=theme) as opened:
        shown = opened.open(f"/changes/{new.id}")
        for label, _ in TABS:
            shown.click(f"nav[aria-label='Parts of the review'] >> text={label}")
            shown.wait_for_selector(f"nav[aria-label='Parts of the review'] a[aria-current]:has-text('{label}')")
            assert not opened.violations(), label
        shown.click("button[data-key=a]")
        shown.wait_for_selector("text=Done: approve change")
        shown.click("button:has-text('Dry run')")
        shown.wait_for_selector("text=is queued")
        worker = threading.Thread(target=work, args=(shop.app,))
        worker.start()
        shown.wait_for_selector("pre:has-text('ADD COLUMN')")
        worker.join()
        shown.click("button:has-text('Apply')")
        shown.wait_for_selector("text=is queued to be applied")
        work(shop.app)
        shown.wait_for_selector("text=done")
        shown = opened.open(f"/changes/{new.id}")
        shown.wait_for_selector("text=schema version")
        assert not opened.violations()
    assert shop.store.reviews.get(new.id).status == "applied"


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_values_are_looked_at_in_a_browser(shop: Site, browser: Any, theme: str) -> None:
    renamed = change(shop.app, "remark", "column.renamed")
    with served(shop.app) as base, tab(browser, base, shop.token("operator"), theme=theme) as opened:
        shown = opened.open(f"/changes/{renamed.id}")
        shown.click("button:has-text('Show values side by side')")
        shown.wait_for_selector("text=A worker reads some rows")
        worker = threading.Thread(target=work, args=(shop.app,))
        worker.start()
        shown.wait_for_selector("table.samples >> text== same")
        worker.join()
        assert not opened.violations()
