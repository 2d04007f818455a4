"""Who gets to see a page: sessions, forms of other sites, links that work once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from starlette.testclient import TestClient
from web_world import Site, form_tokens, needs_browser, served, tab

from instep.control.resources import api_keys, sign_in
from instep.errors import InstepError
from instep.server.app import create_app
from instep.server.rates import Rates
from instep.server.web.app import page_roles
from instep.server.web.visit import COOKIE

PASSWORD = "correct horse battery"


def test_without_a_session_every_page_leads_to_the_sign_in(page: Site) -> None:
    client = TestClient(page.made, follow_redirects=False)
    for route, role in page_roles().items():
        method, path = route.split(" ")
        if role is None:
            continue
        answer = client.request(method, path.replace("{", "").replace("}", ""))
        assert answer.status_code == 303, route
        assert answer.headers["location"].startswith("/sign-in"), route


def test_a_password_begins_a_session_and_a_wrong_one_does_not(page: Site) -> None:
    key = api_keys.create(page.store, "ada", "approver", "test").key
    sign_in.set_password(page.store, key, PASSWORD)
    client = TestClient(page.made, follow_redirects=False)
    for name, password in (("ada", "correct horse"), ("eve", PASSWORD), ("", "")):
        answer = client.post("/sign-in", data={"name": name, "password": password, "back": "/"})
        assert answer.status_code == 401, name
        assert COOKIE not in answer.cookies
    answer = client.post("/sign-in", data={"name": "ada", "password": PASSWORD, "back": "/changes?tab=applied"})
    assert answer.headers["location"] == "/changes?tab=applied"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "ada" in client.get("/changes").text


@pytest.mark.parametrize("secure", [True, False], ids=["behind a proxy", "on this machine"])
def test_a_session_behind_a_proxy_is_sent_by_tls_alone(page: Site, secure: bool) -> None:
    """Also behind a proxy that does not say by which protocol it was asked."""
    made = api_keys.create(page.store, "ada", "viewer", "test")
    client = TestClient(create_app(page.app, secure=secure), follow_redirects=False, base_url="http://testserver")
    answer = client.post("/sign-in", data={"name": "", "password": made.secret, "back": "/"})
    assert answer.status_code == 303
    assert ("Secure" in answer.headers["set-cookie"]) == secure


def test_passwords_cannot_be_guessed(page: Site) -> None:
    """Neither from one address nor, by many, of one name: the right one is not let in any more."""
    made = api_keys.create(page.store, "eve@example.com", "admin", "test")
    sign_in.set_password(page.store, made.key, PASSWORD)
    for rates in (Rates(failures=3), Rates(guesses=3)):
        client = TestClient(create_app(page.app, rates=rates), follow_redirects=False, base_url="http://testserver")
        sent = {"name": "eve@example.com", "password": "not the right one", "back": "/"}
        found = [client.post("/sign-in", data=sent).status_code for _ in range(3)]
        answer = client.post("/sign-in", data={**sent, "password": PASSWORD})
        assert ([*found, answer.status_code], "set-cookie" in answer.headers) == ([401, 401, 401, 429], False)
        answer = client.post("/sign-in", data={**sent, "password": made.secret})
        assert answer.status_code == 303, "an API key cannot be guessed"


def test_two_projects_on_one_machine_do_not_sign_each_other_out(page: Site) -> None:
    """A browser sends the cookies of a host to all of its ports."""
    key = api_keys.create(page.store, "ada", "approver", "test").key
    jar = TestClient(page.made, follow_redirects=False, base_url="http://127.0.0.1:8321")
    assert jar.post(f"/sign-in/once/{sign_in.make_link(page.store, key)}").status_code == 303
    other = TestClient(page.made, follow_redirects=False, base_url="http://127.0.0.1:8322", cookies=jar.cookies)
    assert other.get("/changes").status_code == 303, "the session is of the other server"
    assert other.post(f"/sign-in/once/{sign_in.make_link(page.store, key)}").status_code == 303
    jar.cookies.update(other.cookies)
    assert jar.get("/changes").status_code == 200
    assert other.get("/changes").status_code == 200


@pytest.mark.parametrize("password", ["short", "x" * 201])
def test_a_password_has_bounds(page: Site, password: str) -> None:
    key = api_keys.create(page.store, "ada", "viewer", "test").key
    with pytest.raises(InstepError, match="12 to 200 characters"):
        sign_in.set_password(page.store, key, password)


def test_a_new_password_ends_other_sessions(page: Site) -> None:
    key = api_keys.create(page.store, "ada", "viewer", "test").key
    old, own = sign_in.begin(page.store, key).token, sign_in.begin(page.store, key).token
    sign_in.set_password(page.store, key, PASSWORD, own)
    assert sign_in.session_of(page.store, old) is None
    assert sign_in.session_of(page.store, own) is not None


def test_a_session_ends_with_its_key_or_its_secret(page: Site) -> None:
    by_key, by_secret = (api_keys.create(page.store, name, "viewer", "test") for name in ("a", "b"))
    first, second = sign_in.begin(page.store, by_key.key), sign_in.with_secret(page.store, by_secret.secret)
    assert second is not None
    page.store.api_keys.end(by_key.key.id, "test")
    page.store.api_keys.expire_secrets(by_secret.key.id, page.store.api_keys.now() - timedelta(seconds=1))
    assert sign_in.session_of(page.store, first.token) is None
    assert sign_in.session_of(page.store, second.token) is None


def test_a_link_works_once_and_not_by_being_looked_at(page: Site) -> None:
    key = api_keys.create(page.store, "ada", "viewer", "test").key
    address = f"/sign-in/once/{sign_in.make_link(page.store, key)}"
    client = TestClient(page.made, follow_redirects=False)
    assert client.get(address).status_code == 200
    assert client.post(address).headers["location"] == "/"
    client.cookies.clear()
    assert client.post(address).status_code == 401


def test_a_form_needs_the_token_of_its_session(page: Site) -> None:
    client = page.client()
    for token in ("", "0" * 64, sign_in.form_token("another")):
        assert client.post("/sign-out", data={"form_token": token}).status_code == 403
    assert client.get("/changes").status_code == 200


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.test"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_a_form_of_another_site_is_refused(page: Site, headers: dict[str, str]) -> None:
    client = page.client()
    data = {"form_token": sign_in.form_token(page.token("admin"))}
    assert client.post("/sign-out", data=data, headers=headers).status_code == 403
    assert client.get("/changes").status_code == 200


@pytest.mark.parametrize("back", ["//evil.test", "https://evil.test", "/\\evil.test", "javascript:alert(1)", "/\n/x"])
def test_the_way_back_stays_at_this_server(page: Site, back: str) -> None:
    key = api_keys.create(page.store, "ada", "viewer", "test").key
    sign_in.set_password(page.store, key, PASSWORD)
    client = TestClient(page.made, follow_redirects=False)
    answer = client.post("/sign-in", data={"name": "ada", "password": PASSWORD, "back": back})
    assert answer.headers.get("location", "/") == "/"


def test_a_page_has_the_policies_that_keep_others_out(page: Site) -> None:
    headers = page.client().get("/changes").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert form_tokens(page.get("/changes")) == {sign_in.form_token(page.token("admin"))}


def test_an_unknown_address_is_a_page_for_people_and_a_document_for_programs(page: Site) -> None:
    answer = page.client().get("/nowhere")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert page.client().get("/api/v1/nowhere").headers["content-type"] == "application/problem+json"


@needs_browser
@pytest.mark.server
def test_a_change_is_approved_in_a_browser(page: Site, browser: object) -> None:
    with served(page.app) as base, tab(browser, base, page.token("approver")) as opened:
        shown = opened.open("/changes")
        shown.click("text=main.item.colour")
        shown.wait_for_url("**/changes/c-*")
        shown.click("[data-key=a]")
        shown.wait_for_selector("text=Done")
        assert not opened.violations()
    assert {one.column: one.status for one in page.store.reviews.find("eu")} == {"colour": "approved", "weight": "open"}


def _documents() -> dict[str, str]:
    """Return texts that are small, and large or no JSON once they are read."""
    first, lines = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]", range(1, 9)
    again = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in lines)
    return {
        "aliases that repeat one another": "\n".join([first, *again]),
        "an alias of itself": "a: &a [*a]",
        "very many values": f"a: [{'a,' * 100_000}]",
        "very deep": f"a: {'[' * 5_000}{']' * 5_000}",
        "a date that is none": "a: 2026-13-45",
        "a date": "a: 2026-12-04",
        "a set": "a: !!set {x}",
        "bytes": "a: !!binary aGVsbG8=",
        "an object of Python": "a: !!python/object/apply:os.getcwd []",
        "a number without end": "a: 1e999",
        "a key that is a list": "? [a, b]\n: c",
        "a name twice": "a: 1\na: 2",
        "rules that are none": "rules: [1, {x: [2]}]",
        "a reference": "a: ${env:HOME}",
    }


_FORMS = (
    "/do/create_source",
    "/do/create_policy",
    "/policies/~new",
    "/policies/kept",
    "/setup/sources/~new?type=files",
)


@pytest.mark.parametrize("name", list(_documents()))
def test_a_document_in_a_form_is_small_and_json(page: Site, name: str) -> None:
    """A form's answer is made in the process of all requests, from what was typed: a few hundred bytes must not keep it
    busy, nor fail it. Whoever may not send the document does not have it read at all."""
    text = _documents()[name]
    page.app.objects.put("policy", "kept", {"preset": "stop"}, who="test")
    fields = dict.fromkeys(("spec", "yaml", "cases", "options"), text)
    more = {"name": "new", "connection": "own", "button": "preview", "path": "data", "type": "files"}
    for path in _FORMS:
        answer = page.post(path, **fields, **more)
        assert answer.status_code < 500, (path, answer.text[:500])
        assert len(answer.content) < 500_000 + 10 * len(text), path
    refused = page.post("/do/create_source", "viewer", spec=text, name="new", button="preview")
    assert (refused.status_code, "needs the role admin" in refused.text) == (403, True)
    if len(text) < 4_000:
        opened = page.client("viewer").get("/do/create_source", params={"spec": text, "name": "new"})
        assert opened.status_code < 500
        assert len(opened.content) < 500_000
