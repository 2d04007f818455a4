"""One HTTP request to an address of somebody's choosing: judged before, bounded in time and size, never redirected."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from instep.egress.guard import EgressGuard, EgressRefused, JudgedHost, connect
from instep.errors import ConnectError


class SocketClient(Protocol):
    """Client that has its connection, once open, in `sock`."""

    @property
    def sock(self) -> socket.socket | None: ...


@contextmanager
def ended_at(talking: SocketClient, deadline: float) -> Iterator[None]:
    """End the connection at `deadline` (of the monotonic clock) if the block is not over by then: what reads from it
    fails."""

    def end() -> None:
        if (open_socket := talking.sock) is not None:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


MAX_ANSWER = 64 * 1024
_UNFIT = re.compile(r"[\x00-\x20\x7f-\uffff\\]")


@dataclass(frozen=True)
class HttpAnswer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """Cut at 64 kB."""


@dataclass(frozen=True)
class HttpAddress:
    """A URL in its parts. Its `repr` shows the host only: paths of webhooks are secrets."""

    scheme: str
    host: str
    port: int
    path: str

    def __repr__(self) -> str:
        return f"Place({self.scheme}://{self.host}:{self.port})"


def place(url: str) -> HttpAddress:
    """Parse a URL; raises EgressRefused, which does not repeat it, for one that is not plain http or https."""
    wrong = "" if not _UNFIT.search(url) else "it has characters that belong into no URL"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused("it is malformed") from None
    if parts.scheme not in ("http", "https"):
        wrong = wrong or "it is neither https nor http"
    if parts.username is not None or parts.password is not None:
        wrong = wrong or "it names a user: a login belongs into a header"
    if wrong or not parts.hostname:
        raise _refused(wrong or "it names no host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HttpAddress(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path)


def check_url(guard: EgressGuard, url: str) -> None:
    """Raise EgressRefused for a URL that `request` refuses whatever its host stands for: nothing is looked up."""
    to = place(url)
    target = guard.judged_as_written(to.host, to.port)
    if to.scheme == "http" and not (target.trusted if target else guard.allow):
        raise _in_clear(to)


def _in_clear(to: HttpAddress) -> EgressRefused:
    return EgressRefused(f"{to.host} is asked for without TLS", hint="use https, or list it under `egress: allow:`")


def _refused(why: str) -> EgressRefused:
    return EgressRefused(f"the URL cannot be used: {why}", hint="write https://host/path")


def post(
    guard: EgressGuard, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float = 10.0, ca: str = ""
) -> HttpAnswer:
    """Post `body` and return the answer: see `request`."""
    return request(guard, "POST", url, body, headers, timeout=timeout, ca=ca)


def request(
    guard: EgressGuard,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    timeout: float = 10.0,
    ca: str = "",
) -> HttpAnswer:
    """Send a request and return the answer, whatever its status. All of it takes at most `timeout` seconds. Plain http
    goes to allow-listed hosts only. `ca`: a file of authorities, instead of the system's. Raises EgressRefused, or
    ConnectError without an answer."""
    to = place(url)
    begun = time.monotonic()
    target = guard.target(to.host, to.port)
    if to.scheme == "http" and not target.trusted:
        raise _in_clear(to)
    context = ssl.create_default_context(cafile=ca or None) if to.scheme == "https" else None
    connection = _PinnedConnection(target, timeout, context)
    try:
        with ended_at(connection, begun + timeout):
            connection.request(method, to.path, body, {**headers, "Connection": "close", "User-Agent": "instep"})
            answer = connection.getresponse()
            return HttpAnswer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read(MAX_ANSWER))
    except ssl.SSLError as error:
        raise _failed(to, f"TLS: {getattr(error, 'verify_message', '') or error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        slow = isinstance(error, TimeoutError) or time.monotonic() - begun >= timeout
        raise _failed(to, f"no answer in {timeout:g} s" if slow else type(error).__name__) from None
    finally:
        connection.close()


def _failed(to: HttpAddress, why: str) -> ConnectError:
    return ConnectError(f"{to.host} port {to.port}: {why}", hint="check the address and that the receiver runs")


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to an address that was judged already; TLS is for the name."""

    def __init__(self, target: JudgedHost, timeout: float, context: ssl.SSLContext | None) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self._target, self._context = target, context
        self.default_port = 443 if context else 80

    def connect(self) -> None:
        assert isinstance(self.timeout, float | int)
        self.sock = connect(self._target, self.timeout)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._target.host)
