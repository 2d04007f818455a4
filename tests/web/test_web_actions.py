"""The form of every operation: who may use it, what it shows first, what it does; with keys, without scripts."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from web_world import Site, needs_browser, served, tab

from instep.server.access import NEEDS
from instep.server.web.forms import Action, actions

ROLES = ("viewer", "operator", "approver", "admin")


def sample(action: Action) -> dict[str, str]:
    """Return values for the names in an operation's path, and for what it must be given."""
    known = {"connection": "eu", "change": "c-1", "key": "k-1", "rollout": "w-1", "delivery": "1", "job": "j-1"}
    texts = {"choice": lambda one: one.choices[0], "document": lambda _: "{}", "number": lambda _: "1"}
    return {
        one.name: known.get(one.name) or texts.get(one.control, lambda _: "x")(one)
        for one in action.fields
        if one.required or one.name in action.in_path
    }


@pytest.mark.parametrize("role", ROLES)
def test_every_form_says_who_may_use_it_and_refuses_the_others(page: Site, role: str) -> None:
    page.client(role).get("/changes")
    events = page.store.events.last_number()
    for action in actions().values():
        values = sample(action)
        allowed = ROLES.index(role) >= ROLES.index(action.role)
        text = page.get(f"/do/{action.name}?{urlencode(values)}", role)
        assert ('value="do"' in text) is allowed, action.name
        assert (f"needs the role {action.role}" in text) is not allowed, action.name
        if not allowed:
            assert page.post(f"/do/{action.name}", role, **values, button="do").status_code == 403, action.name
    assert page.store.events.last_number() == events


def test_every_operation_with_a_route_has_a_form() -> None:
    routes = {f"{one.method} {one.path}" for one in actions().values()}
    writes = {route for route in NEEDS if not route.startswith("GET ")}
    queries = {
        "POST /connections/{connection}/policy/test",
        "POST /connections/{connection}/policy/simulation",
        "POST /connections/{connection}/quarantine/matches",
    }
    assert writes - routes <= queries | {"DELETE /connections/{connection}"}


@pytest.mark.parametrize("name", [one.name for one in actions().values() if one.previews])
def test_a_preview_that_reads_is_made_by_a_worker(page: Site, name: str) -> None:
    values = sample(actions()[name])
    assert 'id="field-preview"' not in page.get(f"/do/{name}?{urlencode(values)}")
    answer = page.post(f"/do/{name}", **values, button="preview")
    if answer.status_code == 303:
        [job] = page.store.jobs.find(kind=actions()[name].name)  # type: ignore[arg-type]
        assert job.options["preview"] is True
    else:
        assert answer.status_code in (404, 409, 422), "these sample values are refused"


def test_a_preview_changes_nothing_and_says_what_would_happen(page: Site) -> None:
    change = page.store.reviews.find("eu")[0]
    answer = page.post("/do/approve_change", change=change.id, button="preview")
    assert "What would happen" in answer.text
    assert page.store.reviews.get(change.id).status == "open"


def test_what_was_done_is_told_once_with_the_way_back(page: Site) -> None:
    change, client = page.store.reviews.find("eu")[0], page.client()
    answer = page.post("/do/approve_change", change=change.id, button="do", back="/changes")
    client.cookies.update(answer.cookies)
    text = client.get("/changes").text
    assert f"Done: approve change {change.id}" in text
    assert 'action="/do/reopen_change"' in text
    assert "Done:" not in client.get("/changes").text


def undone(page: Site, answer: Any) -> Any:
    """Press Undo in the notice that a form has led to."""
    client = page.client()
    client.cookies.update(answer.cookies)
    text = client.get(answer.headers["location"]).text
    found = re.search(r'<form class="inline" method="post" action="(/do/\w+)">(.*?)Undo</button>', text, re.DOTALL)
    assert found, text
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', found[2])
    sent: dict[str, list[str]] = {}
    for name, value in fields:
        if name not in ("form_token", "back", "button"):
            sent.setdefault(name, []).append(html.unescape(value))
    return page.post(found[1], **sent, back="/changes", button="do")


@pytest.mark.parametrize("operation", ["approve_change", "reject_change", "ignore_change", "snooze_change"])
def test_an_answer_is_taken_back_by_one_press(page: Site, operation: str) -> None:
    change = page.store.reviews.find("eu")[0]
    more = {"duration": "1d"} if operation == "snooze_change" else {}
    answer = page.post(f"/do/{operation}", change=change.id, **more, button="do", back="/changes")
    assert undone(page, answer).status_code == 303
    again = page.store.reviews.get(change.id)
    assert (again.status, again.snoozed_until) == ("open", None)


def test_answers_to_many_are_taken_back_by_one_press(page: Site) -> None:
    ids = [one.id for one in page.store.reviews.find("eu")]
    answer = page.post("/changes/answers", answer="rejected", ids="\n".join(ids), button="do", back="/changes")
    assert {one.status for one in page.store.reviews.find("eu")} == {"rejected"}
    assert undone(page, answer).status_code == 303
    assert {one.status for one in page.store.reviews.find("eu")} == {"open"}


def test_a_pause_and_a_resume_take_each_other_back(page: Site) -> None:
    answer = page.post("/do/pause", connection="eu", reason="works at the source", button="do", back="/changes")
    resumed = undone(page, answer)
    assert page.store.pauses.active("eu") == []
    undone(page, resumed)
    assert [one.reason for one in page.store.pauses.active("eu")] == ["its resuming was undone"]


@pytest.mark.parametrize("address", ["/do/delete_policy?name=x", "//elsewhere/do/pause?connection=eu", "https://x/do/pause",
                                     "/sign-out"])  # fmt: skip
def test_a_notice_offers_nothing_but_what_takes_back(page: Site, address: str) -> None:
    client = page.client()
    client.cookies.set("instep_notice", quote(f"Done.\n{address}"))
    text = client.get("/changes").text
    assert "Done." in text
    assert "Undo</button>" not in text


def test_a_form_with_mistakes_comes_back_with_what_was_typed(page: Site) -> None:
    answer = page.post("/do/create_key", name="a" * 90, role="viewer", button="do")
    assert answer.status_code == 422
    assert "a" * 90 in answer.text


def test_a_change_that_moved_meanwhile_is_not_answered(page: Site) -> None:
    change = page.store.reviews.find("eu")[0]
    tag = page.client().get(f"/api/v1/changes/{change.id}", headers={"Authorization": "x"}).headers.get("etag", '"old"')
    page.post("/do/reject_change", change=change.id, button="do")
    answer = page.post("/do/approve_change", change=change.id, button="do", etag=tag)
    assert answer.status_code == 412
    assert page.store.reviews.get(change.id).status == "rejected"


@pytest.mark.parametrize(
    "fields", [{"connection": "../../keys"}, {"connection": "nowhere"}, {"connection": "eu\x00"}, {"connection": ""}]
)
def test_a_name_that_is_none_does_nothing(page: Site, fields: dict[str, str]) -> None:
    answer = page.post("/do/pause", **fields, reason="x", button="do")
    assert answer.status_code in (400, 404, 422)
    assert "Done" not in answer.text


@needs_browser
@pytest.mark.server
def test_a_change_is_approved_by_keys_alone(page: Site, browser: Any) -> None:
    with served(page.app) as base, tab(browser, base, page.token("approver")) as opened:
        shown = opened.open("/changes")
        shown.keyboard.press("j")
        shown.keyboard.press("o")
        shown.wait_for_url("**/changes/c-*")
        shown.wait_for_selector("[data-key=a]")
        shown.keyboard.press("a")
        shown.wait_for_selector("text=Done")
    assert sorted(one.status for one in page.store.reviews.find("eu")) == ["approved", "open"]


@needs_browser
@pytest.mark.server
def test_a_change_is_approved_without_scripts(page: Site, browser: Any) -> None:
    with served(page.app) as base, tab(browser, base, page.token("approver"), scripts=False) as opened:
        shown = opened.open("/changes")
        shown.click("text=main.item.colour")
        shown.click("button:has-text('Approve')")
        shown.wait_for_selector("text=Done")
    assert sorted(one.status for one in page.store.reviews.find("eu")) == ["approved", "open"]


@needs_browser
@pytest.mark.server
def test_the_palette_goes_places_and_keys_can_be_switched_off(page: Site, browser: Any) -> None:
    with served(page.app) as base, tab(browser, base, page.token("viewer")) as opened:
        shown = opened.open("/do/pause?connection=eu")
        shown.keyboard.press("Control+k")
        shown.keyboard.type("chang")
        shown.keyboard.press("Enter")
        shown.wait_for_url("**/changes")
        shown.keyboard.press("?")
        assert shown.is_visible("#keys-help")
        assert not opened.violations()
        shown.keyboard.press("Escape")
        shown.select_option("#keys", "off")
        shown.click("form[action='/appearance'] button:has-text('Set')")
        shown.keyboard.press("?")
        assert not shown.is_visible("#keys-help")


@needs_browser
@pytest.mark.server
def test_what_is_refused_is_shown_with_what_was_typed(page: Site, browser: Any) -> None:
    with served(page.app) as base, tab(browser, base, page.token("approver")) as opened:
        shown = opened.open("/do/snooze_change?change=c-none")
        shown.fill("[name=duration]", "3d")
        shown.click("button[value=do]")
        shown.wait_for_selector("[role=alert]")
        assert shown.input_value("[name=duration]") == "3d"
        opened.faults.clear()  # the browser reports the status of the answer


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forms_are_fit_for_everybody(page: Site, browser: Any, theme: str) -> None:
    with served(page.app) as base, tab(browser, base, page.token("admin"), theme=theme) as opened:
        for name in ("create_key", "create_rollout", "sync", "pause", "undo", "set_detector_options"):
            opened.open(f"/do/{name}?connection=eu")
            assert not opened.violations(), name


def test_an_import_answers_the_project_and_shows_no_export_again(page: Site) -> None:
    secret = "canary-of-an-export-1"
    export = {"sources": [{"sourceId": "s", "name": "Shop", "sourceType": "crm", "dockerImageTag": "1.0.0",
                           "configuration": {"api_key": secret}}]}  # fmt: skip
    assert "/do/import_configuration" in page.get("/setup")
    for button, title in (("preview", "What would happen"), ("do", "Done")):
        answer = page.post(
            "/do/import_configuration", product="airbyte", files=json.dumps({"a.json": export}), button=button
        )
        assert answer.status_code == 200
        assert title in answer.text
        assert "package: airbyte-source-crm==1.0.0" in answer.text
        assert secret not in answer.text
    refused = page.post(
        "/do/import_configuration", product="airbyte", files=json.dumps({"a.json": secret}), button="do"
    )
    assert refused.status_code == 422
    assert secret not in refused.text
