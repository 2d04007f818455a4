"""The client's pure parts by tables and laws, and its transport against servers that break off or show a wrong
certificate."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_remote_client import CANARY, OK, Answers, serving

from certificates import make_certificates
from instep import errors
from instep.backends.decode import record
from instep.backends.http.client import (
    BUSY_TIMEOUT,
    MAX_TEXT,
    TRIES,
    Client,
    address,
    compare,
    error_of,
    part,
    problem_of,
    strange,
)
from instep.backends.http.credentials import ApiKeySecret, key
from instep.backends.http.transport import ServerAnswer, Transport, Unreached
from instep.backends.remote_jobs import Follower
from instep.backends.remote_jobs import error_of as ended
from instep.errors import ConnectError, InstepError, SetupError
from instep.loopback import is_loopback
from instep.model import Job, Run
from instep.operations.values import JobStatus
from instep.server.problems import TITLES, ApiProblem, of_error
from instep.worker.perform import _problem

KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, InstepError)]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
OF_THE_SERVER = {errors.ReadError, errors.LockYielded, SetupError}
"""What its own machine lacks: to a client it is a server that cannot do it now."""


def job(status: JobStatus, **more: Any) -> Job:
    return Job("j-1", "shop", "sync", status, NOW, NOW, **more)


@pytest.mark.parametrize("kind", KINDS, ids=[k.__name__ for k in KINDS])
def test_an_error_keeps_text_hint_and_exit_code_over_the_api_and_through_a_job(kind: type[InstepError]) -> None:
    raised = kind("shop: no", hint="do this")
    body = json.dumps(of_error(raised).document()).encode()
    problem = problem_of("application/problem+json; charset=utf-8", body)
    assert problem is not None
    asked = error_of(problem)
    before = f"{TITLES['forbidden']} " if kind is errors.Forbidden else ""
    assert (asked.message, asked.hint) == (f"{before}shop: no", "do this")
    assert asked.exit_code == (4 if kind in OF_THE_SERVER else kind.exit_code)
    found = ended(job("dead", result=json.loads(json.dumps(_problem(raised)))))
    assert (type(found), str(found)) == (kind, str(raised))


class Elsewhere(errors.AccessDenied):
    """As those that rooms make for themselves."""


def test_an_error_of_a_room_comes_back_as_its_nearest_kind() -> None:
    found = ended(job("failed", result=_problem(Elsewhere("gone", hint="grant"))))
    assert (type(found), found.exit_code, found.hint) == (errors.AccessDenied, 4, "grant")


ENDED: list[tuple[str, dict[str, Any], type[InstepError], str]] = [
    ("cancelled", {"status": "cancelled", "error": "by ann"}, errors.Blocked, "was cancelled: by ann"),
    ("of a driver", {"status": "dead", "error": "OSError: x"}, InstepError, "is dead: OSError: x"),
    ("a kind of later", {"status": "failed", "result": {"problem": {"type": "New", "message": "m"}}}, InstepError, "m"),
    ("no kind", {"status": "failed", "result": {"problem": {"type": "annotations", "message": "m"}}}, InstepError, "m"),
    ("no document", {"status": "failed", "error": "e", "result": {"problem": "text"}}, InstepError, "is failed: e"),
]


@pytest.mark.parametrize(("how", "kind", "said"), [c[1:] for c in ENDED], ids=[c[0] for c in ENDED])
def test_how_a_job_ended_is_told(how: dict[str, Any], kind: type[InstepError], said: str) -> None:
    found = ended(job(**how))
    assert type(found) is kind
    assert said in found.message


EXITS = {"unauthorized": 4, "forbidden": 4, "too_many_requests": 4, "internal": 4, "unavailable": 4, "blocked": 3,
         "conflict": 5, "precondition_failed": 5}  # fmt: skip


@pytest.mark.parametrize("code", TITLES)
def test_every_code_of_the_api_has_an_exit_code(code: str) -> None:
    found = error_of(ApiProblem(400, code, "no", "ask").document())
    assert (found.exit_code, found.hint) == (EXITS.get(code, 1), "ask")
    assert "no" in found.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    max_leaves=5,
)
PROBLEM = "application/problem+json"


@given(st.dictionaries(st.sampled_from(["code", "title", "detail", "hint", "errors"]), json_values))
def test_whatever_a_problem_says_is_an_error_of_ours(document: dict[str, Any]) -> None:
    found = problem_of(PROBLEM, json.dumps(document).encode())
    assert (found is not None) == isinstance(document.get("code"), str)
    if found is not None:
        error = error_of(found)
        assert error.message
        assert len(str(error)) <= 3 * MAX_TEXT + 100 + len(found["code"])


@given(st.text(max_size=60), st.binary(max_size=60))
def test_an_answer_of_somebody_else_is_no_problem_of_ours(kind: str, body: bytes) -> None:
    found = problem_of(kind, body)
    assert found is None or "code" in found
    assert problem_of(PROBLEM, b"[" * 100_000) is None


STRANGE = [(302, "redirect"), (502, "cannot be reached"), (504, "cannot be reached"), (200, "as an instep server"),
           (404, "as an instep server")]  # fmt: skip


@pytest.mark.parametrize(("status", "said"), STRANGE)
def test_strangers_are_told_apart(status: int, said: str) -> None:
    found = strange(status, "https://a.example")
    assert (said in found.message, found.exit_code, bool(found.hint)) == (True, 4, True)


@given(st.sampled_from(["http", "https", "HTTPS", "ftp", ""]), st.text(max_size=12), st.text(max_size=8))
def test_an_address_is_one_that_can_be_asked_or_is_refused(scheme: str, host: str, path: str) -> None:
    try:
        found = address(f"{scheme}://{host}/{path}")
    except InstepError:
        return
    assert address(found) == found, "said again it is the same"
    Transport(found)
    found.partition("://")[2].partition("/")[0].partition(":")[0].encode("idna")
    assert found.startswith("https://") or is_loopback(host.partition(":")[0].lower())


WRONG = ["https://a.example/\u00e4", f"https://{'a' * 64}.example", "https://a..example", "http://127.1", "http://0",
         "https:///api/v1", "https://a.example/#x", "https://a b.example", "\u202ehttps://a.example"]  # fmt: skip


@pytest.mark.parametrize("given_", WRONG, ids=ascii)
def test_an_address_that_cannot_be_asked_is_refused_at_once(given_: str) -> None:
    with pytest.raises(InstepError):
        address(given_)


numbers = st.integers(0, 30)
releases = st.builds("{}.{}.{}".format, numbers, numbers, numbers)


@given(releases, releases)
def test_who_may_speak_with_whom_is_the_same_from_both_sides(mine: str, theirs: str) -> None:
    def told(a: str, b: str) -> str:
        try:
            return "told" if compare(a, b) else ""
        except errors.Blocked:
            return "refused"

    assert told(mine, theirs) == told(theirs, mine)
    assert told(mine, mine) == ""
    same = mine.split(".")[: 1 if mine[:2] != "0." else 2] == theirs.split(".")[: 1 if mine[:2] != "0." else 2]
    assert (told(mine, theirs) != "refused") == same


KEYS: list[tuple[str, bytes | None, int, str]] = [
    ("as it is told", CANARY.encode() + b"\r\n", 0o600, ""),
    ("read only", CANARY.encode(), 0o400, ""),
    ("the group may read", CANARY.encode(), 0o640, "open to others"),
    ("others may write", CANARY.encode(), 0o602, "open to others"),
    ("empty", b"", 0o600, "holds no API key"),
    ("two lines", f"{CANARY}\n{CANARY}".encode(), 0o600, "holds no API key"),
    ("no text", b"\xff\xfe" + CANARY.encode(), 0o600, "holds no API key"),
    ("a header within", f"{CANARY}\r\nX-Role: admin".encode(), 0o600, "holds no API key"),
    ("a large file", b"a" * 10_000, 0o600, "holds no API key"),
    ("none", None, 0, "No such file"),
]


@pytest.mark.parametrize(("body", "mode", "said"), [c[1:] for c in KEYS], ids=[c[0] for c in KEYS])
def test_a_key_file_is_private_and_one_line(tmp_path: Path, body: bytes | None, mode: int, said: str) -> None:
    file = tmp_path / "key"
    if body is not None:
        file.write_bytes(body)
        file.chmod(mode)
    given_ = {"INSTEP_API_KEY_FILE": f" {file} ", "INSTEP_API_KEY": " "}
    if not said:
        assert key(given_).header == f"Bearer {CANARY}"
        return
    with pytest.raises(SetupError, match=said) as refused:
        key(given_)
    assert CANARY not in str(refused.value)
    assert str(file) in str(refused.value)


@given(st.text(max_size=30))
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    try:
        found = part(name)
    except InstepError:
        return
    assert found.isascii()
    assert found not in ("", ".", "..")
    assert not set(found) & set("/\\?#&; \r\n")


outcomes = st.lists(
    st.tuples(st.sampled_from([200, 404, 429, 500, 502, 503, 504, 0]), st.none() | st.integers(0, 90)), min_size=TRIES
)


@given(outcomes)
def test_retrying_has_an_end_and_a_write_one_token(answers: list[tuple[int, int | None]]) -> None:
    """0: nobody there. Whatever a server says, a write is sent at most so often, waits so long, and says who it is."""
    left, slept, tokens = list(answers), list[float](), set[str]()

    def send(_: str, path: str, headers: Any, __: bytes | None) -> ServerAnswer:
        if path == "/healthz":
            return ServerAnswer(200, {}, b'{"version": "0.1.0"}')
        tokens.add(headers["Idempotency-Key"])
        status, after = left.pop(0)
        if not status:
            raise Unreached("nobody")
        return ServerAnswer(status, {} if after is None else {"retry-after": str(after)}, b"{}")

    client = Client("https://a.example", ApiKeySecret(CANARY), "0.1.0", sends=send, sleep=slept.append)
    try:
        assert client.post("/x", {}) == {}
        last = 200
    except InstepError:
        last = answers[len(answers) - len(left) - 1][0]
    sent = answers[: len(answers) - len(left)]
    assert len(sent) <= TRIES
    assert len(slept) == len(sent) - 1
    assert sum(slept) <= BUSY_TIMEOUT + 21
    assert len(tokens) == 1
    assert sent[-1][0] == last
    assert all(status in (0, 429, 502, 503, 504) for status, _ in sent[:-1]), "nothing that was answered is sent again"


times = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1)).map(lambda t: t.replace(tzinfo=UTC))


@given(st.text(), st.integers(0, 9), times)
def test_a_record_outlives_its_document(why: str, attempt: int, at: datetime) -> None:
    known = job("running", why=why, attempt=attempt, started=at, options={"full": True})
    document = json.loads(json.dumps(dataclasses.asdict(known), default=datetime.isoformat))
    assert record(Job, {**document, "of a later release": 1}) == known
    with pytest.raises(ConnectError, match="is not a Run: "):
        record(Run, {**document, "started": "never"})


def listing(count: int, most: int) -> tuple[Client, list[dict[str, list[str]]]]:
    """A client of a server that has so many items and gives at most `most` of them at once; what was asked for."""
    asked: list[dict[str, list[str]]] = []

    def send(_: str, path: str, __: Any, ___: bytes | None) -> ServerAnswer:
        if path == "/healthz":
            return ServerAnswer(200, {}, b'{"version": "0.1.0"}')
        query = parse_qs(urlsplit(path).query)
        asked.append(query)
        at, limit = int(query.get("cursor", ["0"])[0]), min(most, int(query["limit"][0]))
        upto = min(count, at + limit)
        page = {"items": [{"n": n} for n in range(at, upto)], "next_cursor": str(upto) if upto < count else None}
        return ServerAnswer(200, {}, json.dumps(page).encode())

    return Client("https://a.example", ApiKeySecret(CANARY), "0.1.0", sends=send), asked


sizes = st.integers(1, 7)


@given(st.integers(0, 30), sizes, sizes, st.none() | st.integers(0, 40))
def test_pages_are_one_list(count: int, most: int, size: int, wanted: int | None) -> None:
    """Whatever a server gives at once: each item once, in order, no more asked for than is wanted."""
    client, asked = listing(count, most)
    found = [one["n"] for one in client.pages("/changes", wanted, size, status=["open", "a&b=c"], connection=None)]
    assert found == list(range(count if wanted is None else min(count, wanted)))
    assert all(int(query["limit"][0]) <= size for query in asked)
    assert all(query["status"] == ["open", "a&b=c"] and "connection" not in query for query in asked)
    if wanted == 0:
        assert not asked


@dataclasses.dataclass
class Shown:
    """What a board is told."""

    lines: list[str] = dataclasses.field(default_factory=list)

    def step(self, text: str) -> None:
        self.lines.append(text)

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None:
        self.lines.append(f"{path} {rows} {step}")

    def received(self, path: str, rows: int, expected: int) -> None:
        self.lines.append(f"{path or 'in all'} {rows} of {expected} received")


def event(number: int, type: str, seconds: int, **data: Any) -> dict[str, Any]:
    return {"number": number, "type": type, "at": (NOW + timedelta(seconds=seconds)).isoformat(), "data": data}


def test_a_job_is_followed_by_what_happens_after_it_began() -> None:
    """Each event once, oldest first; those of an earlier run are another's."""
    happened = [
        event(1, "table.loaded", -9, table="public.old", read=9),
        event(2, "run.started", 1, kind="sync", run="r"),
    ]
    later = [event(3, "table.loaded", 2, table="public.t", read=5), event(4, "table.failed", 3, table="public.u")]
    failed = job("queued", error="away\nmore", attempt=1, attempts=3)
    turns = [
        (job("queued"), happened[:1]), (failed, happened[:1]), (failed, happened[:1]),
        (job("running", started=NOW, attempt=2, attempts=3), happened),
        (job("running", started=NOW, attempt=2, attempts=3), [*happened, *later]),
        (job("done", started=NOW), []),
    ]  # fmt: skip
    at = -1

    def send(_: str, path: str, __: Any, ___: bytes | None) -> ServerAnswer:
        nonlocal at
        if path == "/healthz":
            return ServerAnswer(200, {}, b'{"version": "0.1.0"}')
        if path.startswith("/api/v1/queue/"):
            at += 1
            return ServerAnswer(
                200, {}, json.dumps(dataclasses.asdict(turns[at][0]), default=datetime.isoformat).encode()
            )
        if path == "/api/v1/runs/r":
            some = (
                {"": {"rows": 7, "expected": 9}, "public.t": {"rows": 5, "expected": 0}}
                if len(turns[at][1]) > 2
                else {}
            )
            return ServerAnswer(200, {}, json.dumps({"detail": {"received": some} if some else {}}).encode())
        newest_first = sorted(turns[at][1], key=lambda e: -int(e["number"]))
        return ServerAnswer(200, {}, json.dumps({"items": newest_first, "next_cursor": None}).encode())

    board = Shown()
    client = Client("https://a.example", ApiKeySecret(CANARY), "0.1.0", sends=send)
    done = Follower(client, lambda: nullcontext(board), print, sleep=lambda _: None).done("j-1")
    assert done.status == "done"
    assert board.lines == [
        "sync waits for a worker (job j-1)",
        "attempt 1 of 3 failed: away; the next one at 00:00:00 UTC",
        "sync runs (job j-1, attempt 2 of 3)",
        "sync r",
        "public.t 5 done",
        "public.u 0 failed",
        "in all 7 of 9 received",
        "public.t 5 of 0 received",
    ]


@contextmanager
def saying(raw: bytes) -> Iterator[str]:
    """The URL of a server that says these bytes and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            there, _ = listening.accept()
            with there:
                there.recv(65536)
                there.sendall(raw)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join(60)


HEAD = b"HTTP/1.1 200 OK\r\n"
BROKEN = [
    ("nothing", b""),
    ("no HTTP", b"\x00\x01\r\n\r\n"),
    ("a status that is none", b"HTTP/1.1 abc\r\n\r\n"),
    ("a header without end", HEAD + b"X: " + b"a" * 70_000),
    ("a body cut short", HEAD + b'Content-Length: 100\r\n\r\n{"a": 1}'),
    ("a refusal cut short", b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n{}"),
    ("a chunk cut short", HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\n{}"),
    ("chunks without end", HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"),
]


@pytest.mark.parametrize("raw", [c[1] for c in BROKEN], ids=[c[0] for c in BROKEN])
def test_an_answer_that_breaks_off_is_none(raw: bytes) -> None:
    """So it is asked for again: half a document is not mistaken for a stranger's."""
    with saying(raw) as url, pytest.raises(Unreached) as told:
        Transport(url).send("GET", "/api/v1/me", {"Authorization": f"Bearer {CANARY}"})
    assert url in told.value.message
    assert CANARY not in str(told.value)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@contextmanager
def secured(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, answers: Answers) -> Iterator[tuple[str, Any]]:
    """As `serving`, over TLS with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")

    class Tls(ThreadingHTTPServer):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            self.socket = context.wrap_socket(self.socket, server_side=True)

        def handle_error(self, *_: Any) -> None: ...

    monkeypatch.setattr("test_remote_client.ThreadingHTTPServer", Tls)
    with serving(answers) as (url, asked):
        yield url.replace("http://", "https://"), asked


SHOWN = [
    ("good", "ca", ""),
    ("good", "stranger", "unable to get local issuer certificate"),
    ("good", "", "unable to get local issuer certificate"),
    ("other", "ca", "IP address mismatch"),
    ("expired", "ca", "certificate has expired"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("shown", "trusted", "said"), SHOWN)
def test_a_certificate_is_checked_before_anything_is_sent(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, shown: str, trusted: str, said: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / f"{trusted}.pem"))
    slept: list[float] = []
    with secured(certificates, shown, monkeypatch, [OK]) as (url, asked):
        client = Client(url, ApiKeySecret(CANARY), "0.1.0", sleep=slept.append)
        if not said:
            assert client.get("/me") == {"items": []}
            assert [path for _, path, *_ in asked] == ["/healthz", "/api/v1/me"]
            return
        with pytest.raises(ConnectError, match=said) as told:
            client.get("/me")
    assert "SSL_CERT_FILE" in told.value.hint
    assert (asked, slept) == ([], []), "a certificate does not get better by asking again"


def test_a_server_without_tls_is_told_and_the_key_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([OK]) as (url, asked), pytest.raises(ConnectError, match="SSL") as told:
        Client(url.replace("http", "https"), ApiKeySecret(CANARY), "0.1.0", sleep=lambda _: None).get("/me")
    assert (asked, CANARY in str(told.value), os.environ.get("INSTEP_API_KEY")) == ([], False, None)
