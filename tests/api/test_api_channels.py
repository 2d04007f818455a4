"""Channels over the API, to a real receiver on loopback: the test button, deliveries with their attempts, another try
of a dead one, and a closed channel that is opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, serve
from standardwebhooks.webhooks import Webhook

from instep.bootstrap import App, open_server
from instep.events import ReviewNeeded
from receivers import Web, web

SECRET = "whsec_" + "c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10aGUtdGVzdHM="
PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {eu: {tags: [europe]}}
channels: {told: {type: slack, url: "${env:HOOK_URL}"}, inner_one: {type: slack, url: "${env:INNER_URL}"}}
egress: {allow: [127.0.0.0/8]}
"""


@pytest.fixture
def hook() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture
def api(tmp_path: Path, hook: Web, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """`hook` is kept by the server with its secrets, `told` stands in the file."""
    monkeypatch.setenv("HOOK_URL", hook.url)
    monkeypatch.setenv("INNER_URL", "http://10.1.2.3/path-is-secret")
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    with open_server(tmp_path, insecure_dev=True) as app:
        api = serve(app)
        spec = {"type": "webhook", "url": hook.url, "secret": SECRET}
        assert api.call("POST", "/channels", body={"name": "hook", "spec": spec}).status_code == 201
        theirs = {"source": "db", "destination": "lake", "notify": [{"on": ["review_needed"], "to": "hook"}]}
        body = {"name": "shop", "spec": theirs, "tags": ["asia"]}
        assert api.call("POST", "/connections", body=body).status_code == 201
        yield api


def happen(api: Api, *changes: str) -> None:
    """Changes that wait for a review are told to the channel of the connection."""
    with api.store.transaction():
        for change in changes:
            api.store.events.add(ReviewNeeded("shop", change, f"column {change} is new", "preset approve"))


def send(api: Api) -> int:
    """What is due is sent, as a worker does it; how many deliveries were tried."""
    assert isinstance(api.app, App)
    return len(api.app.sender().send())


def deliveries(api: Api, **params: Any) -> list[tuple[Any, ...]]:
    found = api.get("/deliveries", params=params)["items"]
    return [(one["channel"], one["status"], one["notices"], one["attempt"]) for one in found]


def state(api: Api, name: str = "hook") -> tuple[int, str]:
    found = api.get(f"/channels/{name}/state", "viewer")
    return found["waiting"], found["closed"]


@pytest.mark.parametrize("name", ["hook", "told"])
def test_the_test_button_sends_at_once_and_says_what_was_answered(api: Api, hook: Web, name: str) -> None:
    assert api.call("POST", f"/channels/{name}/test", "viewer").status_code == 403
    rehearsed = api.call("POST", f"/channels/{name}/test", "operator", params={"dry_run": "true"})
    assert (rehearsed.json()["dry_run"], hook.got) == (True, [])
    found = api.call("POST", f"/channels/{name}/test", "operator", headers={"Idempotency-Key": "once"})
    assert (found.status_code, found.json()["channel"], found.json()["code"]) == (200, name, 200), found.text
    again = api.call("POST", f"/channels/{name}/test", "operator", headers={"Idempotency-Key": "once"})
    assert (again.json(), again.headers["idempotent-replayed"]) == (found.json(), "true")
    [(path, headers, body)] = hook.got
    assert path == "/hook/path-is-secret"
    assert f"test of channel {name}" in body.decode()
    if name == "hook":
        assert Webhook(SECRET).verify(body, dict(headers))["type"] == "org.instep.channel.test.v1"
    assert deliveries(api) == [], "it is no delivery"
    entry = api.store.audit.page()[0]
    assert (entry.action, entry.target, entry.detail) == ("channel.test", name, {"code": 200})


# what the receiver answers, what the answer says of it
REFUSALS: list[tuple[int, dict[str, str], str]] = [
    (500, {}, "the receiver answered 500"), (404, {}, "the receiver answered 404"),
    (410, {}, "the receiver answered 410 (gone)"),
    (302, {"Location": "http://127.0.0.1/"}, "it redirects elsewhere"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "headers", "said"), REFUSALS)
def test_a_test_that_is_refused(api: Api, hook: Web, status: int, headers: dict[str, str], said: str) -> None:
    hook.answers = [(status, headers)]
    found = api.call("POST", "/channels/hook/test", headers={"Idempotency-Key": "k"})
    assert (found.status_code, found.json()["code"]) == (503, "unavailable")
    assert said in found.json()["detail"]
    assert "path-is-secret" not in found.text
    assert "that nobody should repeat" not in found.text
    assert state(api) == (0, ""), "a test closes nothing"
    assert api.call("POST", "/channels/hook/test", headers={"Idempotency-Key": "k"}).status_code == 200, "not kept"


def test_a_test_goes_nowhere_where_it_is_not_allowed(api: Api) -> None:
    found = api.call("POST", "/channels/inner_one/test")
    assert (found.status_code, "10.1.2.3" in found.json()["detail"]) == (503, True)
    assert "egress" in found.json()["hint"]
    assert "path-is-secret" not in found.text
    assert api.call("POST", "/channels/none/test").status_code == 404


NOWHERE = {  # where nothing is sent, whatever a name stands for: what is said of it
    "file:///etc/path-is-secret": "neither https nor http",
    "gopher://hooks.example.org/path-is-secret": "neither https nor http",
    "https://": "names no host",
    "https://me:path-is-secret@hooks.example.org/": "a login belongs into a header",
    "http://169.254.169.254/path-is-secret": "metadata",
    "https://169.254.169.254/path-is-secret": "metadata",
    "https://2852039166/path-is-secret": "metadata",
    "https://10.1.2.3/path-is-secret": "private network",
    "https://[::ffff:10.1.2.3]/path-is-secret": "private network",
    "http://1.1.1.1/path-is-secret": "without TLS",
}


@pytest.mark.parametrize("url", NOWHERE)
@pytest.mark.parametrize("kind", ["slack", "teams", "webhook"])
def test_a_channel_that_leads_where_nothing_is_sent_is_refused_when_it_is_made(api: Api, kind: str, url: str) -> None:
    spec = {"type": kind, "url": url, **({"secret": SECRET} if kind == "webhook" else {})}
    for method, path, body in (
        ("POST", "/channels", {"name": "inner", "spec": spec}),
        ("PUT", "/channels/inner", {"spec": spec}),
    ):
        found = api.call(method, path, body=body)
        assert (found.status_code, NOWHERE[url] in found.text) == (422, True), found.text
        assert "path-is-secret" not in found.text
    assert api.call("GET", "/channels/inner").status_code == 404


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "email", "to": ["a@example.org"], "sender": "b@example.org", "host": "169.254.169.254"},
        {"type": "apprise", "url": "jsons://10.1.2.3/path-is-secret"},
    ],
    ids=lambda spec: spec["type"],
)
def test_a_server_of_another_kind_of_channel_is_judged_when_it_is_made(api: Api, spec: dict[str, Any]) -> None:
    found = api.call("POST", "/channels", body={"name": "inner", "spec": spec})
    assert (found.status_code, "nothing is sent there" in found.text) == (422, True), found.text
    assert "path-is-secret" not in found.text


def test_a_name_and_a_listed_host_are_judged_when_something_is_sent(api: Api, hook: Web) -> None:
    for url in ("https://hooks.example.org/x", "http://hooks.example.org/x", hook.url):
        found = api.call("PUT", "/channels/mine", body={"spec": {"type": "slack", "url": url}})
        assert found.status_code in (200, 201), found.text


def test_from_an_event_to_its_delivery(api: Api, hook: Web) -> None:
    happen(api, "c-1", "c-2")
    assert state(api) == (2, "")
    assert send(api) == 1
    assert (state(api), deliveries(api)) == ((0, ""), [("hook", "sent", 2, 1)])
    [(_, headers, body)] = hook.got
    assert len(Webhook(SECRET).verify(body, dict(headers))["data"]["notices"]) == 2
    [listed] = api.get("/deliveries", "viewer")["items"]
    found = api.call("GET", f"/deliveries/{listed['number']}", "viewer")
    assert headers["webhook-id"] == found.json()["id"] == listed["id"]
    [tried] = found.json()["attempts"]
    assert (tried["attempt"], tried["code"], tried["error"]) == (1, 200, "")
    for tag in (found.headers["etag"], "*", f'"other", {found.headers["etag"]}'):
        again = api.call("GET", f"/deliveries/{listed['number']}", headers={"If-None-Match": tag})
        assert (again.status_code, again.headers["etag"]) == (304, found.headers["etag"])
    assert api.call("GET", "/deliveries/99", headers={"If-None-Match": "*"}).status_code == 404
    refused = api.call("POST", f"/deliveries/{listed['number']}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict"), "it has arrived"
    for path in ("/deliveries/99", "/deliveries/99/retry"):
        assert api.call("POST" if path.endswith("retry") else "GET", path).status_code == 404


def test_what_a_channel_was_sent_is_on_record_when_it_is_gone(api: Api, hook: Web) -> None:
    happen(api, "c-1")
    assert send(api) == 1
    untold = {"spec": {"source": "db", "destination": "lake"}}
    assert api.call("PUT", "/connections/shop/settings", body=untold).status_code == 200
    assert api.call("DELETE", "/channels/hook").json()["deleted"] == "hook"
    [sent] = deliveries(api, channel="hook")
    assert sent[:2] == ("hook", "sent")
    assert deliveries(api, channel="hook", status="waiting") == []
    assert api.call("GET", "/deliveries", params={"channel": "hock"}).status_code == 404


def test_a_dead_delivery_is_tried_again_and_says_the_same(api: Api, hook: Web) -> None:
    happen(api, "c-1")
    hook.answers = [(500, {})]
    store = api.store
    store.outbox.gather()
    claimed = store.outbox.claim()
    assert claimed is not None
    store.outbox.failed(claimed, "the receiver answered 500", seconds=0.1, code=500)
    assert deliveries(api, status="dead") == [("hook", "dead", 1, 1)]
    assert (deliveries(api, status="sent"), deliveries(api, channel="told")) == ([], [])
    at = f"/deliveries/{claimed.number}"
    read = api.call("GET", at)
    document = {key: value for key, value in read.json().items() if key != "attempts"}
    rehearsed = api.call("POST", f"{at}/retry", "operator", params={"dry_run": "true"})
    assert (rehearsed.json()["delivery"]["status"], deliveries(api)) == ("waiting", [("hook", "dead", 1, 1)])
    assert api.call("POST", f"{at}/retry", headers={"If-Match": '"other"'}).status_code == 412
    again = api.call("POST", f"{at}/retry", "operator").json()["delivery"]
    assert (again["status"], again["ended"], again["id"]) == ("waiting", None, document["id"])
    hook.answers = []
    assert send(api) == 1
    assert deliveries(api) == [("hook", "sent", 1, 2)]
    assert [tried["code"] for tried in api.get(at)["attempts"]] == [500, 200]
    assert hook.got[-1][1]["webhook-id"] == document["id"]


def test_a_closed_channel_keeps_what_it_is_to_tell_until_it_is_opened(api: Api, hook: Web) -> None:
    happen(api, "c-1")
    hook.answers = [(410, {})]
    assert send(api) == 1
    assert state(api) == (1, "the receiver answered 410 (gone)")
    happen(api, "c-2")
    assert (state(api)[0], len(hook.got)) == (2, 1)
    rehearsed = api.call("POST", "/channels/hook/open", "operator", params={"dry_run": "true"})
    assert (rehearsed.json()["opened"], state(api)[1] != "") == (True, True)
    assert api.call("POST", "/channels/hook/open", "operator").json()["opened"] is True
    assert state(api) == (2, "")
    assert api.call("POST", "/channels/hook/open", "operator").json()["opened"] is False
    assert [entry.action for entry in api.store.audit.page()][:2] == ["channel.open"] * 2


# a key's group, a route, what it answers: a channel is seen by whose connections name it
SCOPED: list[tuple[str, str, str, int]] = [
    ("asia", "GET", "/channels/hook/state", 200), ("asia", "POST", "/channels/hook/test", 200),
    ("europe", "GET", "/channels/hook/state", 404), ("europe", "POST", "/channels/hook/test", 404),
    ("asia", "GET", "/channels/told/state", 404), ("asia", "POST", "/channels/hook/open", 403),
    ("asia", "GET", "/deliveries", 403), ("asia", "GET", "/deliveries/1", 403),
    ("asia", "POST", "/deliveries/1/retry", 403), ("lake", "POST", "/channels/hook/test", 200),
]  # fmt: skip


@pytest.mark.parametrize(("group", "method", "path", "status"), SCOPED)
def test_keys_for_groups(api: Api, hook: Web, group: str, method: str, path: str, status: int) -> None:
    answer = api.client.request(method, f"/api/v1{path}", headers=api.key("operator", group))
    assert answer.status_code == status, answer.text
    assert len(hook.got) == (status == 200 and path.endswith("test"))
