"""One HTTP request to the server: TLS checked, bounded in time and size, never redirected."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from instep.errors import ConnectError
from instep.loopback import is_loopback

CONNECT = 10.0
READ = 90.0
"""Seconds: the API itself waits up to 50 for a worker."""
MAX_ANSWER = 64 * 1024 * 1024


@dataclass(frozen=True)
class ServerAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def header(self, name: str) -> str:
        return next((value for known, value in self.headers.items() if known.lower() == name.lower()), "")


class Unreached(ConnectError):
    """The server cannot be reached. `begun`: it may have got the request."""

    begun = True


class _Http(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ)


class _Https(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ)


class _OpensHttp(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Http, req)


class _OpensHttps(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._checked = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Https, req, context=self._checked)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key is for one server: another address never gets it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Transport:
    """`base` is the server's URL. Proxies of the environment (HTTPS_PROXY, NO_PROXY) are used for other machines only;
    SSL_CERT_FILE and SSL_CERT_DIR name further authorities."""

    def __init__(self, base: str) -> None:
        self.base = base
        near = is_loopback(urlsplit(base).hostname or "")
        proxies = urllib.request.ProxyHandler({} if near else None)
        context = ssl.create_default_context()
        self._opener = urllib.request.build_opener(proxies, _OpensHttp(), _OpensHttps(context), _NoRedirect())

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> ServerAnswer:
        """Return the answer, whatever its status; Unreached if none comes. `Authorization` in `headers` goes to this
        server alone."""
        request = urllib.request.Request(self.base + path, data=body, method=method)
        for name, value in headers.items():
            request.add_unredirected_header(name, value)
        return _translate_errors(self.base, lambda: self._answer(request))

    def _answer(self, request: urllib.request.Request) -> ServerAnswer:
        try:
            with self._opener.open(request, timeout=CONNECT) as response:
                return _read(response)
        except urllib.error.HTTPError as error:
            with error:
                return _read(error)


def _read(response: Any) -> ServerAnswer:
    body = response.read(MAX_ANSWER + 1)
    if len(body) > MAX_ANSWER:
        raise ConnectError("the server's answer is larger than 64 MiB", hint="ask for less at once")
    if response.length:  # a body read in parts may end early without a word
        raise http.client.IncompleteRead(body, response.length)
    return ServerAnswer(response.status, dict(response.headers.items()), body)


def _translate_errors(base: str, ask: Callable[[], ServerAnswer]) -> ServerAnswer:
    """Translate network errors into ours, which name the server and repeat nothing that was sent."""
    try:
        return ask()
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise _untrusted(base, reason) from None
        raise _unreached(base, reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _unreached(base, error) from None


def _untrusted(base: str, reason: ssl.SSLCertVerificationError) -> ConnectError:
    hint = "have it present a certificate that this machine trusts, or name its authority in SSL_CERT_FILE"
    return ConnectError(f"the certificate of {base} is not trusted: {reason.verify_message}", hint=hint)


def _unreached(base: str, reason: object) -> Unreached:
    if isinstance(reason, TimeoutError):
        why = "it does not answer in time"
    elif isinstance(reason, http.client.HTTPException):
        why = "the connection broke off"
    else:
        why = (reason.strerror if isinstance(reason, OSError) else None) or "it cannot be reached"
    hint = f"check the address (--server or INSTEP_SERVER), and that `instep server` runs there: {base}/healthz"
    return Unreached(f"server {base}: {why}", hint=hint)
