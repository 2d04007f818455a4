"""Settings in the page: keys and people, the audit log, health and references; who sees what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from govern_world import check_pages, send, server_site
from web_world import Site, needs_browser, served, tab

from instep.control.resources import api_keys, sign_in

PASSWORD = "correct horse battery"
PAGES = ("/settings/you", "/settings/keys", "/settings/audit", "/settings/health", "/settings/secrets")
HOSTILE = "<script>alert('x')</script>\"'{{7*7}}"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    """A server with two connections."""
    with server_site(tmp_path) as page:
        yield page


def create_key(shop: Site, name: str, button: str) -> Any:
    """Send the form of a new key."""
    return send(shop, "/do/create_key", {"name": name, "role": "operator", "button": button})


def test_a_viewer_sees_oneself_alone(shop: Site) -> None:
    assert shop.client("viewer").get("/settings").headers["location"] == "/settings/you"
    for path in PAGES:
        assert shop.client("viewer").get(path).status_code == (200 if path == "/settings/you" else 403), path
    assert "/settings/keys" not in shop.get("/settings/you", "viewer")
    assert shop.client("admin").get("/settings").headers["location"] == "/settings/keys"


def test_a_key_s_secret_is_shown_once(shop: Site) -> None:
    made = create_key(shop, "ci", "do")
    [secret] = re.findall(r"instep_sk_[\w-]{43}", made.text)[:1]
    key = api_keys.authenticate(shop.store, secret)
    assert key is not None
    assert key.name == "ci"
    assert "shown this once" in made.text
    text = shop.get("/settings/keys")
    assert secret not in text
    assert secret[:14] in text
    assert re.findall(r"instep_sk_[\w-]{43}", create_key(shop, "other", "preview").text) == []


def test_a_password_is_set_and_is_in_no_page(shop: Site) -> None:
    key = api_keys.create(shop.store, "ada", "viewer", "test").key
    short = shop.post("/do/set_password", key=key.id, password="too short", button="do")
    assert short.status_code == 422
    assert "too short" not in short.text.partition("</main>")[0].replace("a password has", "")
    done = shop.post("/do/set_password", key=key.id, password=f" {PASSWORD}", back="/settings/keys", button="do")
    assert done.headers["location"] == "/settings/keys"
    assert sign_in.with_password(shop.store, "ada", f" {PASSWORD}") is not None, "as it was typed"
    assert PASSWORD not in shop.get("/settings/audit")
    assert PASSWORD not in shop.get(f"/do/set_password?key={key.id}&password={PASSWORD.replace(' ', '+')}")


def test_one_s_own_password_takes_the_old_one(shop: Site) -> None:
    token = shop.token("viewer")
    key = shop.store.api_keys.named("viewer")
    assert key is not None
    sign_in.set_password(shop.store, key, PASSWORD, token)
    wrong = shop.post("/do/change_password", "viewer", old="another one", password="x" * 12, button="do")
    assert wrong.status_code == 403
    done = shop.post("/do/change_password", "viewer", old=PASSWORD, password="x" * 12, button="do", back="/settings")
    assert done.status_code == 303
    assert sign_in.session_of(shop.store, token) is None, "one signs in again"
    assert sign_in.with_password(shop.store, "viewer", "x" * 12) is not None


def test_what_is_deleted_is_typed_first(shop: Site) -> None:
    key = api_keys.create(shop.store, "ada", "viewer", "test").key
    assert f'Type <span class="mono">{key.id}</span>' in shop.get(f"/do/revoke_key?key={key.id}")
    for typed in ("", "ada", key.id[:-1]):
        refused = shop.post("/do/revoke_key", key=key.id, typed=typed, button="do")
        assert refused.status_code == 422
        assert "was not typed" in refused.text
    assert shop.post("/do/revoke_key", key=key.id, button="preview").status_code == 200
    assert shop.store.api_keys.get(key.id).ended is None
    assert shop.post("/do/revoke_key", key=key.id, typed=key.id, button="do").status_code == 303
    assert shop.store.api_keys.get(key.id).ended is not None
    assert shop.post("/do/revoke_key", "viewer", key=key.id, button="do").status_code == 403


def test_a_sign_in_link_is_shown_once_as_an_address(shop: Site) -> None:
    key = api_keys.create(shop.store, "ada", "viewer", "test").key
    made = shop.post("/do/make_sign_in_link", key=key.id, button="do", back="/settings/keys")
    [token] = set(re.findall(r"http://testserver/sign-in/once/([\w-]{43})", made.text))
    assert sign_in.with_link(shop.store, token) is not None


def test_the_audit_log_is_paged_filtered_and_checked(shop: Site) -> None:
    shop.token("admin")
    for number in range(120):
        shop.store.audit.add("ada", "connection.pause", f"c{number % 2}", {"n": number})
    first = shop.get("/settings/audit")
    assert first.count("<tr data-row>") == 100
    [more] = re.findall(r'rel="next" href="([^"]+)"', first)
    assert shop.get(more.replace("&amp;", "&")).count("<tr data-row>") >= 20
    assert shop.get("/settings/audit?target=c1").count("<tr data-row>") == 60
    assert "Whole:" in shop.get("/settings/audit?check=1")
    with shop.store._db.write() as transaction:
        transaction.exec_driver_sql("update audit set target = 'c9' where number = 50")
    assert "entry 50 was changed after it was written" in shop.get("/settings/audit?check=1")


def test_health_names_what_is_wrong(shop: Site) -> None:
    assert "✓ healthy" in shop.get("/settings/health")
    shop.store.jobs.enqueue("eu", "sync", why="a test")
    text = shop.get("/settings/health")
    assert "something is wrong" in text
    assert "instep worker" in text


def test_references_without_a_value_are_named(tmp_path: Path) -> None:
    text = "sources: {pg: {type: postgres, database: d, user: u, password: '${env:NOT_THERE}'}}\n"
    with server_site(tmp_path, text) as page:
        shown = page.get("/settings/secrets")
    assert "${env:NOT_THERE}" in shown
    assert "✗ missing" in shown


def test_a_hostile_text_is_shown_as_text(shop: Site) -> None:
    shop.store.audit.add(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    for path in ("/settings/audit", "/settings/audit?check=1"):
        text = shop.get(path)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        assert "{{7*7}}" in text


@needs_browser
@pytest.mark.server
def test_a_person_is_made_and_signs_in(shop: Site, browser: object) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("admin")) as opened:
        shown = opened.open("/settings/keys")
        shown.click("text=New key or person…")
        shown.fill("#field-name", "grace")
        shown.select_option("#field-role", "approver")
        shown.click("button:has-text('Create key')")
        shown.wait_for_selector("text=shown this once")
        assert not opened.violations()
        opened.open("/settings/keys")
        shown.click("tr:has-text('grace') >> text=Password…")
        shown.fill("#field-password", PASSWORD)
        shown.click("button:has-text('Set password')")
        shown.wait_for_selector("text=Done: set password")
    with served(shop.app) as base, tab(browser, base, "") as opened:
        shown = opened.open("/sign-in")
        shown.fill("#name", "grace")
        shown.fill("#password", PASSWORD)
        shown.click("button:has-text('Sign in')")
        shown.wait_for_selector("text=grace")


@needs_browser
@pytest.mark.server
def test_its_pages_are_accessible_in_both_themes(shop: Site, browser: object) -> None:
    check_pages(shop, browser, *PAGES, "/settings/audit?check=1")
