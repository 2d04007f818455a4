"""Checks before every route: sizes, JSON that has one meaning, texts that can be stored; and security headers."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from instep.server.problems import FAILED, ApiProblem, respond

MAX_BODY = 1024 * 1024
MAX_DEPTH = 32
MAX_TARGET = 8192
BODY_TIMEOUT = 30.0
FORM_TYPE = "application/x-www-form-urlencoded"
JSON_TYPES = ("application/json", "application/merge-patch+json")
CONTENT_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_log = logging.getLogger("instep.api")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffd]")  # the last one stands for bytes that are not UTF-8

Render = Callable[[str, ApiProblem], Response]


def as_problem(_path: str, problem: ApiProblem) -> Response:
    return respond(problem)


class RequestGuard:
    """Refuses requests before anything reads them, and sets the security headers. `render` says a problem in the
    words of the routes below a path."""

    def __init__(
        self,
        app: ASGIApp,
        render: Render = as_problem,
        secure: bool = False,
        slashes: tuple[str, ...] = (),
        is_page: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Wrap the app. `secure`: clients come by TLS, which a proxy ends. `slashes`: below these paths a name may
        hold one. `is_page`: True for paths whose bodies are forms of browsers."""
        self.app, self.render, self.slashes, self.is_page = app, render, slashes, is_page
        self.secure = secure
        self.headers = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.secure:
            scope["scheme"] = "https"  # of cookies and addresses, whatever a proxy says of itself

        begun = False

        async def with_headers(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            check_framing(headers)
            check_target(scope, slashes=scope["path"].startswith(self.slashes))
            body = await body_in_time(headers, receive, check_form if self.is_page(scope["path"]) else check_document)
            await self.app(scope, replayed(body, receive), with_headers)
        except ApiProblem as problem:
            await self.render(scope["path"], problem)(scope, receive, with_headers)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise  # the answer is cut off, so that nobody takes a part for the whole
            await self.render(scope["path"], FAILED)(scope, receive, with_headers)


BodyCheck = Callable[[Headers, bytes], None]


def check_document(headers: Headers, body: bytes) -> None:
    """Raise a Problem for a body that is not JSON of one meaning."""
    check_type(headers.get("content-type", ""))
    check_json(body)


def check_form(headers: Headers, body: bytes) -> None:
    """Raise a Problem for a body that is no form of a browser."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise ApiProblem(415, "media_type", f"the body's Content-Type is not {FORM_TYPE}", "send the page's form")


async def body_in_time(headers: Headers, receive: Receive, check: BodyCheck = check_document) -> bytes:
    """Return the whole body; a Problem if it does not come in time."""
    try:
        with anyio.fail_after(BODY_TIMEOUT):
            return await read_body(headers, receive, check)
    except TimeoutError:
        raise ApiProblem(
            408, "unreadable", f"the body has not come within {BODY_TIMEOUT:.0f} s", "send it again"
        ) from None


def check_framing(headers: Headers) -> None:
    """Raise a Problem for a body whose end a proxy in between may see elsewhere; nothing more is read from such a
    connection."""
    if "content-length" in headers and "transfer-encoding" in headers:
        why = "the request has both a Content-Length and a Transfer-Encoding"
        raise ApiProblem(400, "unreadable", why, "send one of the two", headers={"Connection": "close"})


def check_target(scope: Scope, slashes: bool = False) -> None:
    """Check that path and query are text that can be stored and shown. A slash, dot or control character that is
    hidden in a part of a path is refused, as parts are names; `slashes` permits slashes."""
    path, query = scope["path"], scope.get("query_string", b"").decode("latin-1")
    raw = scope.get("raw_path") or path.encode()
    if len(raw) + len(query) > MAX_TARGET:
        raise ApiProblem(400, "unreadable", f"the address is longer than {MAX_TARGET} bytes", "shorten it")
    parts = [unquote(part) for part in raw.decode("latin-1").split("/")]
    odd = any(part in (".", "..") or (not slashes and ("/" in part or "\\" in part)) for part in parts)
    if odd or _has_control_characters(path):
        raise ApiProblem(400, "unreadable", "a part of the path is not a name", "check how the address is made")
    if any(_has_control_characters(text) for pair in parse_qsl(query, keep_blank_values=True) for text in pair):
        raise ApiProblem(400, "unreadable", "a parameter is not plain text", "send UTF-8 without control characters")


def _has_control_characters(text: str) -> bool:
    return _CONTROL.search(text) is not None


async def read_body(headers: Headers, receive: Receive, check: BodyCheck = check_document) -> bytes:
    """Return the whole body; a Problem if it is too large, or `check` raises one."""
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise _too_large()
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiProblem(400, "unreadable", "the request ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            raise _too_large()
        if not message.get("more_body"):
            break
    body = b"".join(parts)
    if body:
        check(headers, body)
    return body


def _too_large() -> ApiProblem:
    return ApiProblem(413, "too_large", f"the body is larger than {MAX_BODY} bytes", "send less at once")


def check_type(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() not in JSON_TYPES:
        raise ApiProblem(415, "media_type", "the body's Content-Type is not application/json", "send JSON")


def check_json(body: bytes) -> None:
    """Refuse what parsers read differently: a name twice, NaN, numbers of thousands of digits, depth, halves of
    characters."""
    try:
        document = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_number)
        _check_values(document)
    except RecursionError:
        raise _deep() from None
    except ValueError as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ApiProblem(400, "unreadable", f"the body is not JSON: {why[:200]}", "send one JSON document") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("an object has a name twice")
    return mapping


def _no_number(_: str) -> None:
    raise ValueError("NaN and Infinity are not JSON numbers")


def _deep() -> ApiProblem:
    return ApiProblem(400, "unreadable", f"the body is nested deeper than {MAX_DEPTH}", "send flatter JSON")


def _check_values(document: Any) -> None:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH + 1):
        if any(isinstance(value, str) and _UNSTORABLE.search(value) for value in level):
            raise ValueError("a text has a character that cannot be stored")
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return
        level = [inner for value in containers for inner in _inside(value)]
    raise _deep()


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else value


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body in one piece, then what the connection itself sends."""
    answered = False

    async def again() -> Message:
        nonlocal answered
        if answered:
            return await receive()
        answered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
