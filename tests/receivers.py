"""Real receivers of notices on loopback: a web server that answers as it is told, and a mail server."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword


@dataclass
class Web:
    """`answers` are given one by one, (status, headers) each; then 200. `got`: (path, headers, body)."""

    port: int = 0
    answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    got: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/path-is-secret"

    @property
    def documents(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.got]


@contextmanager
def web() -> Iterator[Web]:
    receiver = Web()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((self.path, dict(self.headers.items()), body))
            status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"an answer that nobody should repeat")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as running:
        receiver.port = running.server_address[1]
        thread = Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            running.shutdown()
            thread.join()


@dataclass
class Post:
    """`refuse`: what the server says to an address, "" to take it."""

    port: int = 0
    refuse: str = ""
    users: Mapping[str, str] = field(default_factory=dict)
    mails: list[EmailMessage] = field(default_factory=list)
    secured: list[bool] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.refuse:
            return self.refuse
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.secured.append(server.transport.get_extra_info("sslcontext") is not None)
        return "250 taken"

    def check(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        user = data.login.decode()
        self.logins.append(user)
        return AuthResult(success=self.users.get(user) == data.password.decode(), handled=False)


class _AnyPort(Controller):
    """Told the port that it was given before it knocks at it."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def post_office(tls: ssl.SSLContext | None = None, *, at_once: bool = False, **options: Any) -> Iterator[Post]:
    """`tls`: the certificate, for STARTTLS or (`at_once`) from the first byte."""
    post = Post(**options)
    secured = {"ssl_context": tls} if at_once else {"tls_context": tls, "require_starttls": tls is not None}
    first = {"auth_required": not at_once, "auth_require_tls": not at_once}  # it knows of STARTTLS only
    login = {"authenticator": post.check, **first} if post.users else {}
    server = _AnyPort(post, hostname="127.0.0.1", port=0, **secured, **login)
    server.start()
    try:
        post.port = server.port
        yield post
    finally:
        server.stop()
