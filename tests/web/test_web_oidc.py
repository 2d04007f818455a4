"""Sign-in at an OpenID Connect provider: the whole code flow against one that is not ours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.testclient import TestClient
from web_world import Site, site

from instep.bootstrap import open_project
from instep.egress.http import request
from instep.errors import ProjectError
from instep.server.web import oidc
from instep.store.server.persons import persons

# The provider's own imports are deprecated where it stands on.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PROJECT = """\
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: iceberg}}}}
connections: {{eu: {{source: db, destination: lake}}}}
egress: {{allow: [localhost]}}
oidc:
  issuer: http://localhost:{port}
  client_id: instep
  client_secret: "${{env:OIDC_SECRET}}"
  roles: {{platform: admin, analysts: approver}}
"""


@pytest.fixture
def provider() -> Iterator[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from oidc_provider_mock import run_server_in_thread
    with run_server_in_thread() as server:
        yield server.server_port


@pytest.fixture
def signed(tmp_path: Path, provider: int) -> Iterator[Site]:
    tmp_path.joinpath("instep.yml").write_text(PROJECT.format(port=provider))
    tmp_path.joinpath(".env").write_text("OIDC_SECRET=secret-91ab\n")
    tmp_path.joinpath(".env").chmod(0o600)
    with open_project(tmp_path) as app:
        yield site(app)


def person(port: int, sub: str, **claims: Any) -> None:
    """Let the provider know a person."""
    answer = httpx2.put(f"http://localhost:{port}/users/{sub}", json=claims)
    assert answer.is_success, answer.text


def sign_in(page: Site, sub: str) -> tuple[TestClient, httpx2.Response]:
    """Sign in as a browser would; the answer of the last step here."""
    client = TestClient(page.made, follow_redirects=False, base_url="http://testserver")
    there = client.get("/sign-in/oidc").headers["location"]
    answer = httpx2.post(there, data={"sub": sub}, follow_redirects=False)
    assert answer.status_code in (302, 303), answer.text
    back = urlsplit(answer.headers["location"])
    assert back.path == "/sign-in/oidc/done"
    return client, client.get(f"{back.path}?{back.query}")


def test_a_person_signs_in_with_the_role_of_their_groups(signed: Site, provider: int) -> None:
    person(provider, "ada", email="ada@example.org", groups=["analysts", "others"])
    client, answer = sign_in(signed, "ada")
    assert answer.headers["location"] == "/", answer.text
    assert "ada@example.org" in client.get("/changes").text
    key = signed.store.api_keys.named("ada@example.org")
    assert key is not None
    assert key.role == "approver"


def test_what_the_provider_says_of_itself_is_read_once(
    signed: Site, provider: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(guard: Any, method: str, url: str, *rest: Any, **more: Any) -> Any:
        asked.append(urlsplit(url).path)
        return request(guard, method, url, *rest, **more)

    monkeypatch.setattr(oidc, "request", noted)
    monkeypatch.setattr(oidc, "_documents", {})
    person(provider, "ada", email="ada@example.org", groups=["analysts"])
    for _ in range(2):
        _, answer = sign_in(signed, "ada")
        assert answer.headers["location"] == "/", answer.text
    assert asked.count("/.well-known/openid-configuration") == 1


def test_the_role_follows_the_groups_at_the_next_sign_in(signed: Site, provider: int) -> None:
    person(provider, "ada", email="ada@example.org", groups=["platform"])
    client, _ = sign_in(signed, "ada")
    person(provider, "ada", email="ada@example.org", groups=["analysts"])
    sign_in(signed, "ada")
    key = signed.store.api_keys.named("ada@example.org")
    assert key is not None
    assert key.role == "approver"
    assert client.get("/changes").status_code == 303  # what was begun as an admin has ended


@pytest.mark.parametrize("groups", [[], ["others"], ["*"], "x", 7, None, [["platform"]]])
def test_who_has_no_role_is_refused(signed: Site, provider: int, groups: Any) -> None:
    person(provider, "ada", email="ada@example.org", groups=groups)
    _, answer = sign_in(signed, "ada")
    assert answer.status_code == 403
    assert signed.store.api_keys.named("ada@example.org") is None


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "no role is left": ({"email": "ada@example.org", "groups": []}, ""),
    "another role": ({"email": "ada@example.org", "groups": ["analysts"]}, "ada@example.org"),
    "another address": ({"email": "ada@example.com", "groups": ["platform"]}, "ada@example.com"),
    "an address that is not checked any more": ({"email": "ada@example.org", "email_verified": False,
                                                 "groups": ["platform"]}, "ada"),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "name"), CHANGED.values(), ids=CHANGED)
def test_a_person_has_one_key(signed: Site, provider: int, claims: dict[str, Any], name: str) -> None:
    """Of two, one would go on with the rights of before, and the two would pass for two people under four eyes."""
    person(provider, "ada", email="ada@example.org", groups=["platform"])
    client, _ = sign_in(signed, "ada")
    before = signed.store.api_keys.named("ada@example.org")
    assert before is not None
    waits, _ = signed.store.jobs.enqueue("eu", "verify", who=before.who)
    person(provider, "ada", **claims)
    _, answer = sign_in(signed, "ada")
    assert (answer.status_code, client.get("/changes").status_code) == (303 if name else 403, 303)
    living = [key for key in signed.store.api_keys.page() if key.ended is None]
    assert [key.name for key in living] == ([name] if name else [])
    assert signed.store.jobs.get(waits.id).status == "cancelled"
    if name:
        assert persons(signed.store.api_keys, living[0].who) == persons(signed.store.api_keys, before.who)


def test_an_address_that_nobody_has_checked_is_not_taken_for_a_name(signed: Site, provider: int) -> None:
    person(provider, "eve", email="ada@example.org", email_verified=False, groups=["analysts"])
    sign_in(signed, "eve")
    assert signed.store.api_keys.named("ada@example.org") is None
    assert signed.store.api_keys.named("eve") is not None


def test_another_person_with_the_same_address_is_not_taken_for_them(signed: Site, provider: int) -> None:
    """Some providers let people choose their address, and do not say whether they have checked it."""
    person(provider, "ada", email="ada@example.org", groups=["platform"])
    sign_in(signed, "ada")
    person(provider, "eve", email="ada@example.org", groups=["analysts"])
    client, answer = sign_in(signed, "eve")
    assert answer.status_code == 403
    assert client.get("/changes").status_code == 303
    key = signed.store.api_keys.named("ada@example.org")
    assert key is not None
    assert key.role == "admin"
    _, answer = sign_in(signed, "ada")
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("address", ["ada (k-1b39a28bc088)", "ada, bob@example.org", "a" * 201, "ada\u202e", "a\nb"])
def test_a_name_that_records_would_take_for_others_is_refused(signed: Site, provider: int, address: str) -> None:
    """The audit log, and four eyes, know people by name and key: whoever chooses a name must not choose those."""
    person(provider, "eve", email=address, groups=["platform"])
    client, answer = sign_in(signed, "eve")
    assert answer.status_code >= 400
    assert client.get("/changes").status_code == 303
    assert signed.store.api_keys.named(address) is None


def test_a_key_of_that_name_that_somebody_made_is_not_taken_over(signed: Site, provider: int) -> None:
    from instep.control.resources import api_keys

    made = api_keys.create(signed.store, "ada@example.org", "viewer", "test").key
    person(provider, "ada", email="ada@example.org", groups=["platform"])
    _, answer = sign_in(signed, "ada")
    assert answer.status_code == 403
    assert signed.store.api_keys.get(made.id).role == "viewer"


@pytest.mark.parametrize("change", ["state", "code", "cookie", "error"])
def test_what_comes_back_has_to_be_what_this_browser_began(signed: Site, provider: int, change: str) -> None:
    person(provider, "ada", email="ada@example.org", groups=["platform"])
    client = TestClient(signed.made, follow_redirects=False)
    there = client.get("/sign-in/oidc").headers["location"]
    assert parse_qs(urlsplit(there).query)["code_challenge_method"] == ["S256"]
    back = urlsplit(httpx2.post(there, data={"sub": "ada"}, follow_redirects=False).headers["location"])
    query = {
        "state": re.sub("state=[^&]*", "state=other", back.query),
        "code": re.sub("code=[^&]*", "code=other", back.query),
        "cookie": back.query,
        "error": re.sub("code=[^&]*", "error=access_denied", back.query),
    }[change]
    if change == "cookie":
        client.cookies.clear()
    answer = client.get(f"/sign-in/oidc/done?{query}")
    assert answer.status_code in (403, 503), answer.text
    assert "secret-91ab" not in answer.text
    assert client.get("/changes").status_code == 303


@pytest.mark.parametrize("lacks", ["client_id: instep\n", "roles: {platform: admin, analysts: approver}\n"])
def test_a_provider_without_its_client_or_roles_is_a_mistake(tmp_path: Path, lacks: str) -> None:
    text = PROJECT.format(port=1)
    assert lacks in text
    tmp_path.joinpath("instep.yml").write_text(text.replace(f"  {lacks}", ""))
    with pytest.raises(ProjectError, match="are required beside `issuer`"):
        open_project(tmp_path)
