"""Passwords and links that sign in: who may set them, what they end, and that nothing tells them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import Api, project, serve

from instep.control.resources import api_keys, sign_in
from instep.errors import NotFound
from instep.operations.immediate.people import ChangePasswordRequest

OLD, NEW = "correct horse battery", "another horse entirely"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with project(tmp_path, PROJECT) as app:
        yield serve(app)


PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
channels: {ops: {type: slack, url: '${env:NOWHERE_URL}'}}
notify: [{on: [failed], to: ops, tags: [europe]}]
connections:
  eu: {tags: [europe], notify: [{on: [breaking], to: ops, severity: warning}]}
  us: {tags: [america], notify: [{on: [applied], to: ops}]}
shelves: [.]
"""


def test_a_password_that_was_set_signs_in_and_ends_other_sessions(api: Api) -> None:
    key = api_keys.create(api.store, "ada", "viewer", "test").key
    session = sign_in.begin(api.store, key)
    answer = api.call("POST", f"/keys/{key.id}/password", body={"password": OLD})
    assert (answer.status_code, answer.json()) == (200, {"key": key.id, "name": "ada"})
    assert sign_in.session_of(api.store, session.token) is None
    assert sign_in.with_password(api.store, "ada", OLD) is not None
    assert sign_in.with_password(api.store, "ada", NEW) is None


def test_one_s_own_password_is_changed_by_the_old_one_alone(api: Api) -> None:
    headers = api.key("viewer")
    key = api.store.api_keys.named("viewer")
    assert key is not None
    for old in ("anything at all", OLD):
        assert api.call("POST", "/me/password", "viewer", {"old": old, "password": NEW}).status_code == 403
    sign_in.set_password(api.store, key, OLD)
    assert api.call("POST", "/me/password", "viewer", {"old": NEW, "password": NEW}).status_code == 403
    told = api.call("POST", "/me/password", "viewer", {"old": OLD, "password": NEW}, headers=headers)
    assert told.json() == {"key": key.id, "name": "viewer"}
    assert sign_in.with_password(api.store, "viewer", NEW) is not None


def test_nothing_tells_a_password(api: Api) -> None:
    key = api_keys.create(api.store, "ada", "viewer", "test").key
    bodies = ({"password": OLD}, {"password": "short-can"}, {"password": OLD, "colour": NEW}, {"password": [OLD]})
    texts = [api.call("POST", f"/keys/{key.id}/password", body=body).text for body in bodies]
    assert not any(one in text for text in texts for one in (OLD, NEW, "short-can"))
    assert OLD not in repr(api.store.audit.page())
    assert OLD not in repr(ChangePasswordRequest(OLD, NEW))


def test_a_revoked_key_gets_neither_password_nor_link(api: Api) -> None:
    key = api_keys.create(api.store, "ada", "viewer", "test").key
    api.store.api_keys.end(key.id, "test")
    for path in ("password", "link"):
        body = {"password": OLD} if path == "password" else None
        assert api.call("POST", f"/keys/{key.id}/{path}", body=body).status_code == 409


def test_a_link_signs_in_once(api: Api) -> None:
    key = api_keys.create(api.store, "ada", "viewer", "test").key
    token = api.call("POST", f"/keys/{key.id}/link").json()["token"]
    assert sign_in.with_link(api.store, token) is not None
    assert sign_in.with_link(api.store, token) is None


def test_at_the_project_there_is_no_own_password(api: Api) -> None:
    from instep.backends.local import LocalBackend

    with pytest.raises(NotFound, match="no API key is used here"):
        LocalBackend(api.app, None, print).operations.perform(ChangePasswordRequest(OLD, NEW))  # type: ignore[arg-type]


def test_routes_are_listed_as_far_as_they_are_seen(api: Api) -> None:
    found = api.get("/notification-routes")["items"]
    names = [(one["connection"], *one["on"]) for one in found]
    assert names == [("", "failed"), ("eu", "breaking"), ("us", "applied")]
    page = api.get("/notification-routes", params={"limit": 2})
    rest = api.get("/notification-routes", params={"limit": 2, "cursor": page["next_cursor"]})
    assert page["items"] + rest["items"] == found
    seen = api.client.get("/api/v1/notification-routes", headers=api.key("viewer", "europe")).json()["items"]
    assert [one["connection"] for one in seen] == ["eu"]


def test_a_reference_without_a_value_is_found_and_no_value_is_shown(api: Api) -> None:
    found = api.get("/references")["items"]
    assert [(one["kind"], one["name"], one["state"]) for one in found] == [
        ("source", "db", "ok"),
        ("destination", "lake", "ok"),
        ("channel", "ops", "bad"),
    ]
    assert found[2]["references"] == ["${env:NOWHERE_URL}"]
    page = api.get("/references", params={"limit": 1})
    assert api.get("/references", params={"limit": 9, "cursor": page["next_cursor"]})["items"] == found[1:]
    api.app.project.environment.variables["NOWHERE_URL"] = "https://example.com/canary"  # type: ignore[index]
    again = api.call("GET", "/references").text
    assert "canary" not in again


def test_the_health_names_the_version_and_what_is_wrong(api: Api) -> None:
    found = api.get("/health")
    assert found["version"]
    assert found["healthy"] is True
    api.store.jobs.enqueue("eu", "sync", why="a test")
    again = api.get("/health")
    assert again["healthy"] is False
    assert {one["name"]: one["state"] for one in again["findings"]}["workers"] == "bad"
