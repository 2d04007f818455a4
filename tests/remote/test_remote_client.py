"""The client against servers that are busy, strange, or gone; where it sends the key, and where it does not."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from instep.backends.http.client import Client, ServerRefused, address, compare, error_of
from instep.backends.http.credentials import ApiKeySecret, key
from instep.errors import AccessDenied, Blocked, Conflict, ConnectError, InstepError, SetupError

CANARY = "instep_sk_canary0123456789"
PROBLEM = "application/problem+json"
Answers = list[tuple[int, dict[str, str], Any]]
OK: tuple[int, dict[str, str], Any] = (200, {}, {"items": []})


@contextmanager
def serving(answers: Answers, version: str = "0.1.0") -> Iterator[tuple[str, list[Any]]]:
    """(URL, what was asked): /healthz tells a version, all else gets the answers in turn."""
    asked: list[Any] = []

    class Serves(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            healthy = self.path == "/healthz"
            asked.append((self.command, self.path, dict(self.headers), body))
            status, headers, said = (200, {}, {"version": version}) if healthy else answers.pop(0)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said if isinstance(said, bytes) else json.dumps(said).encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Serves)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def problem(status: int, code: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    return status, {"Content-Type": PROBLEM, **headers}, {"title": "t", "detail": "d", "code": code, "hint": "h"}


BUSY: list[tuple[str, Answers, list[float], type[InstepError] | None]] = [
    ("at once", [OK], [], None),
    ("busy, with a time", [problem(429, "too_many_requests", **{"Retry-After": "3"}), OK], [3.0], None),
    ("down for now, with a time", [problem(503, "unavailable", **{"Retry-After": "2"}), OK], [2.0], None),
    ("a proxy before one that starts", [(502, {}, b"bad"), (503, {}, b"bad"), OK], [0.25, 1.0], None),
    ("ours, without a time", [problem(503, "unavailable")], [], ConnectError),
    ("longer than anybody waits", [problem(429, "too_many_requests", **{"Retry-After": "900"})], [], ConnectError),
    ("a redirect", [(302, {"Location": "http://127.0.0.1:1/"}, b"")], [], ConnectError),
    ("a page", [(200, {"Content-Type": "text/html"}, b"<html>")], [], ConnectError),
    ("refused", [problem(422, "invalid")], [], ServerRefused),
    ("moved", [problem(409, "conflict")], [], Conflict),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("answers", "waits", "error"), [p[1:] for p in BUSY], ids=[p[0] for p in BUSY])
def test_a_busy_server(answers: Answers, waits: list[float], error: type[InstepError] | None) -> None:
    slept: list[float] = []
    with serving(list(answers)) as (url, asked):
        client = Client(url, ApiKeySecret(CANARY), "0.1.0", sleep=slept.append)
        if error is None:
            assert client.post("/changes/answers", {"a": 1}) == {"items": []}
        else:
            with pytest.raises(error) as raised:
                client.post("/changes/answers", {"a": 1})
            assert CANARY not in str(raised.value) + repr(client) + repr(vars(client))
    assert slept == waits
    writes = [one for one in asked if one[0] == "POST"]
    assert len({one[2]["Idempotency-Key"] for one in writes}) == 1
    assert "Authorization" not in asked[0][2]
    assert all(one[2]["Authorization"] == f"Bearer {CANARY}" for one in writes)


def test_nobody_there_is_told() -> None:
    slept: list[float] = []
    with pytest.raises(ConnectError, match="Connection refused"):
        Client("http://127.0.0.1:1", ApiKeySecret(CANARY), "0.1.0", sleep=slept.append).get("/me")
    assert slept == [0.25, 1.0, 4.0]


def test_another_version_gets_no_key() -> None:
    with serving([OK], version="0.9.0") as (url, asked), pytest.raises(Blocked, match="documents differ"):
        Client(url, ApiKeySecret(CANARY), "0.1.0").get("/me")
    assert all("Authorization" not in one[2] for one in asked)


VERSIONS = [("0.1.0", "0.1.0", ""), ("0.1.0", "0.1.4", "told"), ("0.1.0", "0.2.0", "refused"),
            ("1.2.0", "1.3.0", "told"), ("1.2.0", "2.0.0", "refused"), ("1.2.0", "", "refused")]  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs", "then"), VERSIONS)
def test_versions(mine: str, theirs: str, then: str) -> None:
    if then == "refused":
        with pytest.raises(Blocked):
            compare(mine, theirs)
    else:
        assert bool(compare(mine, theirs)) == bool(then)


ADDRESSES = [
    ("https://a.example/", "https://a.example"),
    ("https://a.example/api/v1", "https://a.example"),
    ("https://a.example/below/api/v1/", "https://a.example/below"),
    ("http://127.0.0.1:8321", "http://127.0.0.1:8321"),
    ("http://[::1]:8321", "http://[::1]:8321"),
    ("http://localhost", "http://localhost"),
    ("http://a.example", None),
    ("http://10.0.0.7", None),
    (f"https://u:{CANARY}@a.example", None),
    ("ftp://a.example", None),
    ("a.example", None),
    ("https://a.example?x=1", None),
    ("https://a.example:99999", None),
]


@pytest.mark.parametrize(("given", "found"), ADDRESSES)
def test_addresses(given: str, found: str | None) -> None:
    if found is not None:
        assert address(given) == found
        return
    with pytest.raises(InstepError) as raised:
        address(given)
    assert CANARY not in str(raised.value)


def test_where_the_key_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(CANARY + "\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert key({"INSTEP_API_KEY_FILE": str(file)}).secret == CANARY
    assert key({"INSTEP_API_KEY": CANARY, "INSTEP_API_KEY_FILE": "nowhere"}).secret == CANARY
    assert CANARY not in repr(key({"INSTEP_API_KEY": CANARY}))
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        with pytest.raises(SetupError, match="open to others"):
            key({"INSTEP_API_KEY_FILE": str(file)})
    for wrong in ({}, {"INSTEP_API_KEY_FILE": str(tmp_path)}, {"INSTEP_API_KEY": f"{CANARY} {CANARY}"}):
        with pytest.raises(SetupError) as raised:
            key(wrong)
        assert CANARY not in str(raised.value)


def test_a_key_that_is_not_let_in_is_exit_code_4() -> None:
    found = error_of({"code": "unauthorized", "title": "A valid API key is needed.", "detail": "no", "hint": "ask"})
    assert isinstance(found, AccessDenied)
    assert (found.exit_code, found.hint) == (4, "ask")
