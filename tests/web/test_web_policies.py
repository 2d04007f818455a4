"""Policies in the page: rules in their order, edited without scripts, simulated before they are saved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from govern_world import check_pages, job_of, run_sql, server_site
from web_world import Site, needs_browser, served, tab

from instep.schema.policy.presets import PRESET_TEXTS, PRESETS
from instep.server.problems import ApiProblem
from instep.server.web.policy_drafts import PolicyDraft

RULES = [
    {"on": ["column.removed"], "decide": "review", "match": ["*.secret"]},
    {"on": ["column"], "decide": "apply", "removed": "drop", "rename_threshold": 0.5},
]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    """A connection `own` under a policy that the server keeps, whose source has changed since its first sync."""
    with server_site(tmp_path) as page:
        page.app.objects.put("policy", "kept", {"preset": "approve", "rules": RULES[:1]}, who="ann")
        spec = {"source": "db", "destination": "lake", "policy": "kept", "namespace": "own"}
        page.app.objects.put("connection", "own", spec, who="ann")
        page.app.refresh()
        job_of(page, "own", "sync")
        run_sql(tmp_path, "alter table item add column size integer", "alter table person add column note text")
        job_of(page, "own", "detect")
        yield page


def fields_of(text: str) -> dict[str, list[str]]:
    """Return the fields of the form of a policy as a browser would send them."""
    form = text.partition('<form method="post" action="/policies')[2].partition("</form>")[0]
    found: dict[str, list[str]] = {}
    for tag in re.findall(r"<(?:input [^>]*>|select .*?</select>|textarea .*?</textarea>)", form, re.DOTALL):
        name = re.search(r' name="([^"]+)"', tag)
        value = re.search(r' value="([^"]*)"', tag) if tag.startswith("<input") else None
        if tag.startswith("<select"):
            value = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', tag)
        if tag.startswith("<textarea"):
            value = re.search(r">(.*?)</textarea>", tag, re.DOTALL)
        if name:
            texts = [one for one in value.groups() if one is not None] if value else [""]
            found.setdefault(name[1], []).append(unescape(texts[0] if texts else ""))
    return found


def press(shop: Site, path: str, text: str, button: str, **changed: Any) -> Any:
    """Send the form of a page, with another value here and there."""
    return shop.post(path, **{**fields_of(text), "button": button, **changed})


def test_every_preset_has_a_line() -> None:
    assert tuple(PRESET_TEXTS) == PRESETS


def test_the_list_names_who_manages_each(shop: Site) -> None:
    text = shop.get("/policies")
    assert re.search(r"strict.*?instep\.yml", text, re.DOTALL)
    assert re.search(r"kept.*?the server", text, re.DOTALL)
    assert all(about in text for about in PRESET_TEXTS.values())
    assert "kept" not in shop.get("/policies?search=stri")


def test_a_policy_of_the_file_is_read_only(shop: Site) -> None:
    text = shop.get("/policies/strict?tab=yaml")
    assert "Managed by instep.yml" in text
    assert "Try a change" in text
    assert "/do/delete_policy" not in text
    assert "policies:\n  strict:\n    preset: approve" in text
    tried = shop.post("/policies/strict/edit", yaml="preset: stop", button="preview")
    assert tried.status_code == 200
    assert "policy strict is managed by instep.yml" in tried.text
    assert "policies:\n  strict: {preset: stop}" in unescape(tried.text)
    assert 'value="save"' not in tried.text
    saved = press(shop, "/policies/strict/edit", tried.text, "save")
    assert saved.status_code == 409
    assert "write it there" in saved.text


def test_rules_are_added_moved_and_removed_without_scripts(shop: Site) -> None:
    path = "/policies/kept/edit"
    text = press(shop, path, shop.get(path), "add").text
    fields = fields_of(text)
    fields["rule-on"][1], fields["rule-decide"][1] = "column.added, column.renamed", "ignore"
    text = shop.post(path, **{**fields, "button": "up-1"}).text
    assert fields_of(text)["rule-on"] == ["column.added, column.renamed", "column.removed"]
    assert fields_of(text)["rule-match"] == ["", "*.secret"]
    assert fields_of(press(shop, path, text, "remove-1").text)["rule-on"] == ["column.added, column.renamed"]
    assert shop.app.objects.get("policy", "kept").version == 1, "nothing is saved yet"


def test_nothing_is_saved_that_was_not_previewed(shop: Site) -> None:
    path = "/policies/kept/edit"
    early = press(shop, path, shop.get(path), "save", preset="stop")
    assert "What it changes" in early.text
    assert shop.app.objects.get("policy", "kept").version == 1
    other = press(shop, path, early.text, "save", preset="allow_all")
    assert "What it changes" in other.text, "another draft than was previewed"
    assert shop.app.objects.get("policy", "kept").version == 1
    saved = press(shop, path, other.text, "save")
    assert saved.headers["location"] == "/policies/kept"
    assert shop.app.objects.get("policy", "kept").spec["preset"] == "allow_all"


def test_the_preview_shows_what_would_have_been_decided_otherwise(shop: Site) -> None:
    path = "/policies/kept/edit"
    text = press(shop, path, shop.get(path), "preview", preset="block_all").text
    assert "<strong>2 would have been decided otherwise</strong>" in text
    assert "main.item.size" in text
    assert '<span class="minus">- preset: approve' in text
    assert "<strong>0 would have been decided otherwise" in press(shop, path, shop.get(path), "preview").text


def test_a_stale_form_is_refused(shop: Site) -> None:
    path = "/policies/kept/edit"
    text = press(shop, path, shop.get(path), "preview", preset="stop").text
    shop.app.objects.put("policy", "kept", {"preset": "block_all"}, who="bob", expected=1)
    answer = press(shop, path, text, "save")
    assert answer.status_code == 412
    assert "has changed since it was read" in answer.text
    assert shop.app.objects.get("policy", "kept").spec == {"preset": "block_all"}


def test_yaml_that_is_wrong_is_told_with_its_place(shop: Site) -> None:
    path = "/policies/kept/edit"
    for text, why in (
        ("preset: [", "not YAML"),
        ("- a", "a policy is a mapping"),
        ("preset: none", "none"),
        ("rules: [{on: [column.gone], decide: apply}]", "column.gone"),
    ):
        answer = shop.post(path, yaml=text, button="preview")
        assert answer.status_code == 422, text
        assert why in unescape(answer.text)
        assert text in unescape(answer.text), "what was typed is kept"


def test_a_new_policy_is_made_of_a_preset(shop: Site) -> None:
    text = shop.get("/policies/~new?preset=stop")
    seen = press(shop, "/policies/~new", text, "preview", name="mine", connection="own").text
    assert "would have been decided otherwise" in seen
    assert press(shop, "/policies/~new", seen, "save").headers["location"] == "/policies/mine"
    assert shop.app.objects.get("policy", "mine").spec == {"preset": "stop"}


def test_a_decision_is_explained(shop: Site) -> None:
    text = shop.get("/policies/kept?tab=explain&connection=own&path=main.item.secret&kind=column.removed")
    assert "rule 1 of policy kept" in text
    assert "instep policy explain main.item.secret column.removed" in text
    unknown = shop.client().get("/policies/kept?tab=explain&connection=own&path=main.item.x&kind=column.gone")
    assert unknown.status_code == 422


def test_cases_are_tested(shop: Site) -> None:
    cases = (
        "- {change: column.added, table: main.item, column: x, expect: review}\n"
        "- {change: column.added, table: main.item, column: x, expect: apply}\n"
    )
    text = shop.post("/policies/kept", connection="own", cases=cases).text
    assert (text.count("✓ passed"), text.count("✗ different")) == (1, 1)
    assert shop.post("/policies/kept", connection="own", cases="- {change: nothing}").status_code == 422
    assert shop.post("/policies/kept", connection="own", cases="[").status_code == 422


def test_versions_say_who_wrote_each(shop: Site) -> None:
    path = "/policies/kept/edit"
    seen = press(shop, path, shop.get(path), "preview", preset="stop").text
    press(shop, path, seen, "save")
    text = shop.get("/policies/kept?tab=versions")
    assert "policy.replace" in text
    assert "An admin sees" in shop.get("/policies/kept?tab=versions", "approver")


def test_a_viewer_may_try_but_not_save(shop: Site) -> None:
    path = "/policies/kept/edit"
    seen = shop.post(path, "viewer", **{**fields_of(shop.get(path, "viewer")), "button": "preview", "preset": "stop"})
    assert "Save (needs the role approver)" in seen.text
    saved = shop.post(path, "viewer", **{**fields_of(seen.text), "button": "save"})
    assert saved.status_code == 403
    assert shop.app.objects.get("policy", "kept").version == 1


@pytest.mark.parametrize("spec", [{"preset": "approve", "rules": RULES, "removed": "retain", "rename_threshold": 0.9}])
def test_keys_without_a_field_stay(spec: dict[str, Any]) -> None:
    draft = PolicyDraft.of(spec)
    assert draft.spec() == spec
    assert draft.changed("up-1").changed("down-0").spec() == spec
    assert draft.changed("up-0").spec() == draft.changed("remove-9").spec() == spec


def test_a_document_that_is_none_is_refused() -> None:
    for text in ("a: [", "- a", ""):
        with pytest.raises(ApiProblem):
            PolicyDraft.parse(text)


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("scripts", [True, False])
def test_a_rule_is_added_saved_and_taken_back_in_a_browser(shop: Site, browser: Any, scripts: bool) -> None:
    before = shop.app.objects.get("policy", "kept").spec
    with served(shop.app) as base, tab(browser, base, shop.token("approver"), scripts=scripts) as opened:
        shown = opened.open("/policies/kept")
        shown.click("text=Edit…")
        shown.click("button:has-text('Add a rule')")
        shown.fill("#on-2", "column.added")
        shown.select_option("#decide-2", "apply")
        shown.click("button[aria-label='Move rule 2 up']")
        shown.wait_for_selector("#on-1[value='column.added']")
        shown.click("button:has-text('Preview on recorded changes')")
        shown.wait_for_selector("text=2 would have been decided otherwise")
        shown.click("button:has-text('Save')")
        shown.wait_for_selector("text=The policy kept is saved")
        found = shop.app.objects.get("policy", "kept").spec
        assert [one["on"] for one in found["rules"]] == [["column.added"], ["column.removed"]]
        assert [one["decide"] for one in found["rules"]] == ["apply", "review"]
        shown.click("button:has-text('Undo')")
        shown.wait_for_selector("text=Done: put policy kept")
    assert shop.app.objects.get("policy", "kept").spec == before


@needs_browser
@pytest.mark.server
def test_its_pages_are_accessible_in_both_themes(shop: Site, browser: Any) -> None:
    explain = "/policies/kept?tab=explain&connection=own&path=main.item.secret&kind=column.removed"
    tabs = [f"/policies/kept?tab={one}" for one in ("yaml", "cases", "versions")]
    check_pages(
        shop,
        browser,
        "/policies",
        "/policies/kept",
        explain,
        *tabs,
        "/policies/kept/edit",
        "/policies/kept/edit?as=yaml",
        "/policies/~new",
    )
