"""What never gets to a route: sizes, JSON of two meanings, texts that cannot be stored; and the headers of answers."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import anyio
import pytest
from api_world import Api, serve
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from instep.control.resources import api_keys, sign_in
from instep.events import Paused
from instep.server import guard
from instep.server.access import PREFIX
from instep.server.context import Caller, ServerContext
from instep.server.guard import HEADERS, MAX_BODY, MAX_DEPTH, RequestGuard, check_json
from instep.server.problems import MEDIA_TYPE, ApiProblem
from instep.server.rates import Listeners, RateLimitState, Rates, RateWindows
from instep.server.routes.events import is_let_in
from instep.server.web.visit import HEADERS as PAGE_HEADERS
from instep.store.history.events import Events

POST = f"{PREFIX}/connections/eu/pause"


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BODIES: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"{", 400),
    "nothing of JSON": (b"reason", 400),
    "two documents": (b"{}{}", 400),
    "a name twice": (b'{"reason": "a", "reason": "b"}', 400),
    "a name twice, deep": (b'{"reason": [{"a": 1, "a": 1}]}', 400),
    "NaN": (b'{"reason": NaN}', 400),
    "not UTF-8": (b'{"reason": "\xff"}', 400),
    "UTF-16": ('{"reason": "x"}'.encode("utf-16"), 400),
    "half a character": (b'{"reason": "\\ud800"}', 400),
    "half a character in a name": (b'{"\\udfff": 1}', 400),
    "a zero character": (b'{"reason": "a\\u0000b"}', 400),
    "too deep": (nested(MAX_DEPTH + 1), 400),
    "far too deep": (nested(100_000), 400),
    "a number of 5,000 digits": (b'{"reason": ' + b"9" * 5000 + b"}", 400),
    "deep enough": (nested(MAX_DEPTH), 422),
    "another type": (b"[]", 422),
    "an unknown field": (b'{"reason": "x", "why": "y"}', 422),
    "too large": (b'{"reason": "' + b"x" * MAX_BODY + b'"}', 413),
    "good": ('{"reason": "größer 🎉"}'.encode(), 200),
}


def test_windows_forget_who_is_silent() -> None:
    now = 0.0
    windows = RateWindows(2, lambda: now)
    assert [windows.count_request("a")[0] for _ in range(3)] == [True, True, False]
    assert windows.count_request("a")[1] == RateLimitState(2, 0, 60)
    now = 59.0
    assert windows.count_request("a")[1].reset == 1
    now = 60.0
    assert windows.count_request("a") == (True, RateLimitState(2, 1, 60))
    for number in range(1000):
        windows.count_request(f"address {number}")
    now = 200.0
    windows.count_request("b")
    assert len(windows) == 1


@pytest.mark.parametrize("path", [POST, "/v1/connections"])
def test_a_length_beside_chunks_is_refused(api: Api, path: str) -> None:
    headers = {**api.key("admin"), "Content-Type": "application/json", "Content-Length": "2",
               "Transfer-Encoding": "chunked"}  # fmt: skip
    found = api.client.post(path, content=b"{}", headers=headers)
    assert (found.status_code, found.headers["connection"]) == (400, "close")
    assert "both a Content-Length and a Transfer-Encoding" in found.text
    assert api.store.pauses.active("eu") == []


@pytest.mark.parametrize("name", BODIES)
def test_bodies(api: Api, name: str) -> None:
    body, status = BODIES[name]
    headers = {**api.key("operator"), "Content-Type": "application/json"}
    found = api.client.post(POST, content=body, headers=headers)
    assert found.status_code == status, found.text
    if status != 200:
        assert found.headers["content-type"] == MEDIA_TYPE
        assert found.json()["status"] == status
        assert api.store.pauses.active("eu") == []


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("application/json", 200), ("application/json; charset=utf-8", 200), ("APPLICATION/JSON", 200),
        ("text/plain", 415), ("", 415), ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415),
    ],
)  # fmt: skip
def test_media_types(api: Api, said: str, status: int) -> None:
    headers = {**api.key("operator"), "Content-Type": said}
    assert api.client.post(POST, content=b'{"reason": "x"}', headers=headers).status_code == status


def test_a_body_of_unknown_length_is_counted(api: Api) -> None:
    headers = {**api.key("operator"), "Content-Type": "application/json"}
    parts = (b" " * 65536 for _ in range(MAX_BODY // 65536 + 1))
    assert api.client.post(POST, content=parts, headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/connections/..%2F..%2Fetc", 400), ("/connections/a%2Fb", 400), ("/connections/%00", 400),
        ("/connections/%ff", 400), ("/connections/a%0Ab", 400), ("/connections/%2e%2e", 400),
        ("/connections/a%5Cb", 400), ("/connections/eu?x=%00", 400), ("/connections/eu?x=%ed%a0%80", 400),
        ("/connections/%C3%A9", 404), ("/connections/EU", 404), ("/connections/" + "x" * 201, 422),
        ("/connections/eu/", 404), ("/connections/" + "x" * 9000, 400), ("/connections/eu/settings?x=a%26b", 422),
    ],
)  # fmt: skip
def test_addresses(api: Api, path: str, status: int) -> None:
    found = api.client.get(PREFIX + path, headers=api.key("viewer"))
    assert found.status_code == status, found.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_what_json_writes_is_let_through(value: Any) -> None:
    check_json(json.dumps(value).encode())


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_whatever_is_sent_is_json_or_a_problem(body: bytes) -> None:
    try:
        check_json(body)
    except ApiProblem:
        return
    json.loads(body.decode())


@given(st.integers(0, MAX_DEPTH + 3))
@settings(max_examples=60)
def test_depth_is_counted(depth: int) -> None:
    try:
        check_json(nested(depth + 1))
    except ApiProblem:
        assert depth + 1 > MAX_DEPTH
    else:
        assert depth + 1 <= MAX_DEPTH


def test_every_answer_has_the_security_headers(api: Api) -> None:
    for path in ("/healthz", f"{PREFIX}/docs", f"{PREFIX}/me", f"{PREFIX}/nothing", f"{PREFIX}/%00", "/nothing"):
        found = api.client.get(path).headers
        wanted = HEADERS | (PAGE_HEADERS if path == "/nothing" else {})
        assert {name: found[name] for name in wanted} == wanted
        assert "strict-transport-security" not in found
    secure = serve(api.app, secure=True)
    assert "max-age" in secure.client.get("/healthz").headers["strict-transport-security"]


def test_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_TIMEOUT", 0.01)
    sent: list[Any] = []

    async def never() -> Any:
        await anyio.sleep(60)

    async def keep(message: Any) -> None:
        sent.append(message)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    with ThreadPoolExecutor(1) as pool:  # the main thread has a loop already where tests have opened a browser
        pool.submit(anyio.run, RequestGuard(app), scope, never, keep).result(300)
    assert sent[0]["status"] == 408


def test_refusals_of_the_compatible_api_are_in_its_envelope(api: Api) -> None:
    refused = api.client.post("/v1/x", content=b"{")
    assert refused.status_code == 415
    assert {"code", "message"} <= set(refused.json())
    assert "type" not in refused.json()


class TestRates:
    def test_a_key_that_asks_too_often_waits(self, api: Api) -> None:
        few = serve(api.app, rates=Rates(requests=3))
        answers = [few.call("GET", "/me", "viewer") for _ in range(4)]
        assert [a.status_code for a in answers] == [200, 200, 200, 429]
        assert [a.headers["ratelimit-remaining"] for a in answers] == ["2", "1", "0", "0"]
        assert 1 <= int(answers[3].headers["retry-after"]) <= 60
        assert answers[3].json()["code"] == "too_many_requests"
        assert few.call("GET", "/me", "operator").status_code == 200

    def test_writes_and_streams_say_what_is_left(self, api: Api) -> None:
        calls = (("POST", "/connections/eu/pause"), ("GET", "/connections/eu"), ("GET", "/events/stream"))
        for method, path in calls:
            found = api.call(method, path, body={"reason": "x"} if method == "POST" else None)
            assert int(found.headers["ratelimit-limit"]) == 100_000

    def test_a_key_has_so_many_streams_at_once(self, api: Api) -> None:
        listeners = Listeners(1)
        few = serve(api.app, listeners=listeners)
        assert few.call("GET", "/events/stream", "viewer").status_code == 200
        key = few.get("/me", "viewer")["id"]
        listeners.begin(key)
        found = few.call("GET", "/events/stream", "viewer")
        assert (found.status_code, found.headers["retry-after"]) == (429, "10")
        assert few.call("GET", "/events/stream", "operator").status_code == 200
        listeners.end(key)
        assert few.call("GET", "/events/stream?connection=none", "viewer").status_code == 404
        assert few.call("GET", "/events/stream", "viewer").status_code == 200

    def test_streams_that_are_asked_for_at_the_same_moment_count(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        few = serve(api.app, listeners=Listeners(1))
        asked, answered, only = Event(), Event(), ServerContext.only

        def slowly(*given: Any) -> Any:
            asked.set()
            answered.wait(20)
            return only(*given)

        monkeypatch.setattr(ServerContext, "only", slowly)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(few.call, "GET", "/events/stream", "viewer")
            assert asked.wait(60)
            second = few.call("GET", "/events/stream", "viewer")
            answered.set()
            assert (first.result().status_code, second.status_code) == (200, 429)

    @pytest.mark.parametrize("how", ["revoked", "expired"])
    def test_a_stream_ends_with_its_key(self, api: Api, how: str) -> None:
        listeners = Listeners()
        long = serve(api.app, listeners=listeners, stream=120.0)
        key = long.get("/me", "viewer")["id"]
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(long.call, "GET", "/events/stream?after=0", "viewer")
            while not listeners.open_of(key):
                time.sleep(0.01)
            if how == "revoked":
                api.store.api_keys.end(key, "test")
            else:
                api.store.api_keys.expire_secrets(key, api.store.api_keys.now())
            assert stream.result(300).status_code in (200, 401)
        assert listeners.open_of(key) == 0

    @pytest.mark.parametrize("how", ["signed out", "another password"])
    def test_a_stream_of_the_page_ends_with_its_session(self, api: Api, how: str) -> None:
        server: ServerContext = api.client.app.state.server  # type: ignore[attr-defined]
        key = api_keys.create(api.store, "ann", "viewer", "test").key
        begun, other = sign_in.begin(api.store, key), sign_in.begin(api.store, key)
        assert is_let_in(server, Caller(key, begun.token))
        if how == "signed out":
            sign_in.end(api.store, begun.token)
        else:
            sign_in.set_password(api.store, key, "three or four words", other.token)
        assert not is_let_in(server, Caller(key, begun.token))
        assert is_let_in(server, Caller(key, other.token))
        assert is_let_in(server, Caller(key)), "by its secret"

    @pytest.mark.parametrize("named", [False, True])
    def test_a_stream_follows_the_groups_of_its_key(
        self, api: Api, monkeypatch: pytest.MonkeyPatch, named: bool
    ) -> None:
        """What comes into a group is told of, and what leaves it no more: a stream lasts for a quarter of an hour."""
        looks, after = list[int](), Events.after
        monkeypatch.setattr(Events, "after", lambda *a, **k: (after(*a, **k), looks.append(1))[0])
        spec = {"source": "db", "destination": "lake"}
        for name, tags in (("goes", ["asia"]), ("comes", ["africa"])):
            body = {"name": name, "spec": {**spec, "tags": tags}}
            assert api.call("POST", "/connections", body=body).status_code == 201
        listeners = Listeners()
        long = serve(api.app, listeners=listeners, stream=120.0)
        headers = long.key("viewer", "asia")
        me = long.client.get(f"{PREFIX}/me", headers=headers).json()["id"]
        path = f"{PREFIX}/events/stream?after={api.store.events.last_number()}{'&connection=goes' * named}"
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(long.client.get, path, headers=headers)
            while not listeners.open_of(me):
                time.sleep(0.01)
            for name, tags in (("goes", ["africa"]), ("comes", ["asia"])):
                body = {"spec": {**spec, "tags": tags}}
                assert api.call("PUT", f"/connections/{name}/settings", body=body).status_code == 200
            api.store.events.add(Paused("goes", "theirs", ""), Paused("comes", "ours", ""))
            seen = len(looks)
            while not (stream.done() or len(looks) > seen + 2):
                time.sleep(0.01)
            if not named:  # it goes on
                api.store.api_keys.end(me, "test")
            found = stream.result(300)
        assert ("theirs" in found.text, "ours" in found.text) == (False, not named)

    def test_who_guesses_keys_is_not_answered_and_others_are(self, api: Api) -> None:
        few = serve(api.app, rates=Rates(failures=2))
        wrong = {"Authorization": "Bearer instep_sk_" + "x" * 43}
        found = [few.client.get(f"{PREFIX}/me", headers=wrong).status_code for _ in range(3)]
        assert found == [401, 401, 429]
        assert few.call("GET", "/me", "viewer").status_code == 200
        assert few.client.get("/healthz").status_code == 200


def test_a_mistake_of_the_program_tells_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the password is canary")

    monkeypatch.setattr(type(api.store.pages), "latest_runs", fail)
    found = api.call("GET", "/connections")
    assert (found.status_code, found.json()["code"]) == (500, "internal")
    assert "canary" not in found.text
    assert {name: found.headers[name] for name in HEADERS} == HEADERS
    assert "GET /api/v1/connections failed" in caplog.text
