"""Requests to real servers on loopback: what is sent, how answers are bounded, and URLs that are refused."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from certificates import make_certificates
from instep.egress.guard import EgressGuard, EgressRefused
from instep.egress.http import MAX_ANSWER, place, post
from instep.errors import ConnectError

LOOPBACK = EgressGuard(("127.0.0.0/8", "::1"))


@contextmanager
def server(answer: Callable[[Any], None], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server that answers posts so."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as running:
        running.handle_error = lambda *_: None  # type: ignore[method-assign]
        if context:
            running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running.server_address[1]
        finally:
            running.shutdown()
            thread.join()


def test_what_is_sent_and_what_comes_back() -> None:
    got: list[tuple[str, str | None, bytes]] = []

    def answer(request: Any) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        got.append((request.path, request.headers["Host"], body))
        request.send_response(202)
        request.send_header("Retry-After", "7")
        request.end_headers()
        request.wfile.write(b"thanks")

    with server(answer) as port:
        found = post(LOOPBACK, f"http://localhost:{port}/hook?a=b", b"{}", {"X-A": "1"})
    assert got == [("/hook?a=b", f"localhost:{port}", b"{}")]
    assert (found.status, found.headers["retry-after"], found.body) == (202, "7", b"thanks")


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    asked: list[str] = []

    def answer(request: Any) -> None:
        asked.append(request.path)
        request.send_response(302)
        request.send_header("Location", "/elsewhere")
        request.end_headers()

    with server(answer) as port:
        assert post(LOOPBACK, f"http://127.0.0.1:{port}/a", b"", {}).status == 302
    assert asked == ["/a"]


def test_an_answer_is_cut() -> None:
    def answer(request: Any) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"x" * (3 * MAX_ANSWER))

    with server(answer) as port:
        assert len(post(LOOPBACK, f"http://127.0.0.1:{port}/", b"", {}).body) == MAX_ANSWER


def test_a_receiver_that_drips_is_left_in_time() -> None:
    def answer(request: Any) -> None:
        while True:
            request.wfile.write(b"H")
            request.wfile.flush()
            time.sleep(0.1)

    with server(answer) as port, pytest.raises(ConnectError):
        post(LOOPBACK, f"http://127.0.0.1:{port}/", b"", {}, timeout=0.5)


def test_tls_is_checked_against_the_name(tmp_path: Path) -> None:
    make_certificates(tmp_path)

    def answer(request: Any) -> None:
        request.send_response(204)
        request.end_headers()

    for name, right in (("good", True), ("other", False), ("expired", False)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        with server(answer, context) as port:
            url = f"https://localhost:{port}/secret-path"
            if right:
                assert post(LOOPBACK, url, b"", {}, ca=str(tmp_path / "ca.pem")).status == 204
                continue
            with pytest.raises(ConnectError, match="TLS") as failed:
                post(LOOPBACK, url, b"", {}, ca=str(tmp_path / "ca.pem"))
            assert "secret-path" not in str(failed.value)


def test_plain_http_goes_to_listed_hosts_only() -> None:
    with pytest.raises(EgressRefused, match="without TLS"):
        post(EgressGuard(resolve=lambda *_: ["93.184.216.34"]), "http://a.example/", b"", {})
    with pytest.raises(EgressRefused, match="this machine itself"):
        post(EgressGuard(), "https://localhost/", b"", {})


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a/x", "file:///etc/passwd", "gopher://a", "https:///x", "https://user:pw@a/", "https://a b/", "//a/x",
     "https://a\\@b/", "https://a/\r\nX: y", "https://a:99999/", "https://[::1/", "javascript:alert(1)"],
)  # fmt: skip
def test_urls_that_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(EgressRefused) as refused:
        place(url)
    assert not url or url not in str(refused.value)


def test_a_place_hides_its_path() -> None:
    assert repr(place("https://hooks.example/T0/secret?x")) == "Place(https://hooks.example:443)"
