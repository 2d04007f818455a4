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
    found = re.search(
        r'<form class="inline" method="post" action="([^"]+)">((?:(?!</form>).)*?)Undo</button>', text, re.DOTALL
    )
    assert found, text
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', found[2])
    sent: dict[str, list[str]] = {}
    for name, value in fields:
        if name not in ("form_token", "button"):
            sent.setdefault(name, []).append(html.unescape(value))
    return page.post(found[1], **{"back": "/changes", **sent, "button": "do"})


def test_a_filter_that_was_saved_replaced_or_deleted_is_as_it_was(page: Site) -> None:
    def address() -> list[str]:
        return re.findall(r'<a class="chip" href="([^"]*)">late ones</a>', page.get("/changes"))

    given = {"name": "late ones", "button": "save", "tab": "blocked"}
    undone(page, page.post("/changes/filters", **given, search="colour"))
    assert not address()
    page.post("/changes/filters", **given, search="colour", kind="column.added")
    first = address()
    answer = page.post("/changes/filters", **given, search="weight")
    assert "is replaced" in _after(page, answer)
    assert address() != first
    undone(page, page.post("/changes/filters", **given, search="weight again"))
    assert [one.endswith("search=weight") for one in address()] == [True]
    page.post("/changes/filters", **given, search="colour", kind="column.added")
    answer = page.post("/changes/filters", name="late ones", button="delete")
    assert not address()
    undone(page, answer)
    assert address() == first


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


def test_assignments_are_taken_back_by_one_press(page: Site) -> None:
    ids = [one.id for one in page.store.reviews.find("eu")]
    page.post("/do/assign_change", change=ids[0], assignee="ann", button="do", back="/changes")
    answer = page.post("/do/assign_change", change=ids[0], assignee="bob", button="do", back="/changes")
    assert undone(page, answer).status_code == 303
    assert page.store.reviews.get(ids[0]).assignee == "ann"
    form = page.get(f"/changes/{ids[0]}?tab=conversation")
    etag = html.unescape(re.findall(r'name="etag" value="([^"]*)"', form)[0])
    answer = page.post(f"/changes/{ids[0]}/comments", assignee="eve", etag=etag, button="assign")
    undone(page, answer)
    assert page.store.reviews.get(ids[0]).assignee == "ann"
    many = {"answer": "assigned", "to": "carl", "ids": " ".join(ids), "back": "/changes"}
    assert "they are assigned to different people now" in page.post("/changes/answers", **many).text
    answer = page.post("/changes/answers", **many, button="do")
    assert "Undo</button>" not in _after(page, answer), "they had different assignees"
    many["to"] = "dora"
    assert "offers to undo it" in page.post("/changes/answers", **many).text
    undone(page, page.post("/changes/answers", **many, button="do"))
    assert {one.assignee for one in page.store.reviews.find("eu")} == {"carl"}


def _after(page: Site, answer: Any) -> str:
    """Return the page that a form has led to, with its notice."""
    client = page.client()
    client.cookies.update(answer.cookies)
    return str(client.get(answer.headers["location"]).text)


SPECS = {
    "source": {"type": "postgres", "host": "db.example.org", "database": "d", "user": "u"},
    "destination": {"type": "postgres", "host": "db.example.org", "database": "d", "user": "u"},
    "policy": {"preset": "stop"},
    "channel": {"type": "email", "host": "mail.example.org", "to": ["a@example.org"], "sender": "b@example.org"},
}


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("verb", ["create", "put"])
def test_what_was_made_is_deleted_by_one_press(page: Site, kind: Any, verb: str) -> None:
    form = page.get(f"/do/{verb}_{kind}?name=made")
    assert "The notice that follows offers to undo it." in form
    sent = {"name": "made", "spec": json.dumps(SPECS[kind]), "button": "do", "back": "/changes"}
    answer = page.post(f"/do/{verb}_{kind}", **sent)
    assert answer.status_code == 303, answer.text
    assert page.app.objects.find(kind, "made") is not None
    done = undone(page, answer)
    assert done.status_code == 303, done.text
    assert page.app.objects.find(kind, "made") is None
    assert page.get(done.headers["location"])


def test_a_connection_is_taken_back_before_it_has_run(page: Site) -> None:
    page.app.objects.put("source", "other", SPECS["source"], who="ann")
    page.app.refresh()
    for name in ("used", "unused"):
        given = {"name": name, "source": "other", "destination": "lake", "button": "do"}
        answer = page.post("/setup/connection", **given)
        assert answer.status_code == 303, answer.text
        page.app.refresh()
        if name == "used":
            page.store.runs.finish(page.store.runs.claim(name, "sync"), "done")
        done = undone(page, answer)
        assert done.status_code == (409 if name == "used" else 303), done.text
        assert [one.kind for one in page.store.jobs.unfinished([name])] == ["delete_connection"] * (name == "unused")


def test_changed_settings_are_taken_back_unless_a_secret_was_replaced(page: Site) -> None:
    page.app.objects.put("source", "other", {**SPECS["source"], "password": "first"}, who="ann")
    fields = {"name": "other", "button": "do", "back": "/changes"}
    answer = page.post("/do/patch_source", **fields, spec='{"user": "reader"}')
    assert page.app.objects.get("source", "other").spec["user"] == "reader"
    undone(page, answer)
    assert page.app.objects.get("source", "other").spec["user"] == "u"
    answer = page.post("/do/patch_source", **fields, spec='{"user": "reader", "password": "second"}')
    assert "Undo</button>" not in _after(page, answer), "nobody knows the first one"


@pytest.mark.parametrize("address", ["/do/delete_policy?name=x&typed=x", "/do/pause?connection=eu", "/sign-out"])
def test_a_notice_that_another_has_written_offers_nothing(page: Site, address: str) -> None:
    for text in (f"Done.\n{address}", f"{'0' * 64}\nDone.\n{address}", "é\nDone.\n/do/pause"):
        client = page.client()
        client.cookies.set("instep_notice", quote(text))
        shown = client.get("/changes").text
        assert "Done." not in shown
        assert "Undo</button>" not in shown


@pytest.mark.parametrize("operation", ["revoke_key", "delete_policy", "retry_job", "set_password"])
def test_what_cannot_be_undone_says_so_before(page: Site, operation: str) -> None:
    assert "It cannot be undone here." in page.get(f"/do/{operation}?key=k-1&name=x&job=j-1")


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
