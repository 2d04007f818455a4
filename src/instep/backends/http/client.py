"""Requests to the API of a server: pages, writes that are never done twice, retries while one is busy.

Errors of a server as the errors that a local command raises: the same texts, the same exit codes.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from instep import errors
from instep.backends.http.credentials import ApiKeySecret
from instep.backends.http.transport import ServerAnswer, Transport, Unreached
from instep.errors import Blocked, ConnectError, InstepError
from instep.loopback import is_loopback

PREFIX = "/api/v1"


def address(given: str) -> str:
    """Return the server's URL without a slash at its end, from one that may end in /api/v1. InstepError, which never
    repeats a login, for what is no such URL; Blocked for http to another machine."""
    try:
        parts = urlsplit(given.strip())
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        raise _wrong("it is malformed") from None
    if parts.username is not None or parts.password is not None:
        raise _wrong("it holds a login: the key comes from INSTEP_API_KEY or a file")
    if parts.scheme not in ("http", "https") or not host or not given.strip().isprintable() or " " in given.strip():
        raise _wrong("it is neither https nor http with a host")
    if not parts.path.isascii():
        raise _wrong("its path has letters that a URL writes as %XX")
    if parts.query or parts.fragment:
        raise _wrong("it has a query or a fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise Blocked(
            f"http://{host} is on another machine, and the API key would travel in clear",
            hint="use https, which a proxy before the server ends, or a tunnel to this machine (ssh -L)",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(PREFIX)}"


def _wrong(why: str) -> InstepError:
    return InstepError(f"--server is not the URL of a server: {why}", hint="for example https://instep.example.org")


_FORM = re.compile(r"(\d+)\.(\d+)")


def compare(client: str, server: str) -> str:
    """Return the note for the user about two versions, "" for equal ones.

    Raises Blocked if they are too far apart: another major version, or another minor one before 1.0.
    """
    if client == server:
        return ""
    mine, theirs = _FORM.match(client), _FORM.match(server)
    if mine is None or theirs is None or _line(mine) != _line(theirs):
        raise Blocked(
            f"this is instep {client}, the server is {server or 'of an unknown version'}: their documents differ",
            hint=f"install instep {server} here, or bring the server to {client}" if theirs else "check the URL",
        )
    return f"this is instep {client}, the server is instep {server}: features that only one of them has may be missing"


def _line(match: re.Match[str]) -> tuple[str, ...]:
    return (match[1],) if match[1] != "0" else (match[1], match[2])


TRIES = 4
BUSY_TIMEOUT = 60.0
"""The most seconds that one request waits before it is sent again, all waits together."""
PAGE = 1000
Sends = Callable[[str, str, Mapping[str, str], bytes | None], ServerAnswer]


class Client:
    """`note` is told once if the server is of another version; one that is too far off is refused before the key is
    sent."""

    def __init__(
        self,
        server: str,
        key: ApiKeySecret,
        version: str,
        note: Callable[[str], None] = lambda _: None,
        *,
        sends: Sends | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base = address(server)
        self._key, self._version, self._note, self._sleep = key, version, note, sleep
        self._send = sends or Transport(self.base).send
        self._is_checked = False

    def get(self, path: str, /, **query: Any) -> Any:
        """Return the document at a path below /api/v1."""
        return self._ask("GET", _target(path, query))

    def read(self, path: str) -> tuple[Any, str]:
        """Return (the document, its tag), the tag for a later `patch`."""
        answer = self._answer("GET", path)
        return self._document(answer), answer.header("ETag")

    def pages(self, path: str, /, most: int | None = None, size: int = PAGE, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; at most so many."""
        cursor, left = None, most
        while left is None or left > 0:
            limit = size if left is None else min(size, left)
            page = self.get(path, **query, limit=limit, cursor=cursor)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            if (cursor := page["next_cursor"]) is None:
                return

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Send a POST as `write` does; return the answer."""
        return self.write("POST", path, body, **query)

    def write(self, method: str, path: str, body: Mapping[str, Any] | None = None, /, **query: Any) -> Any:
        """Send a write and return the answer. It carries a token of its own: sent again after a lost answer, it
        takes effect once."""
        return self._ask(method, _target(path, query), body, token=secrets.token_urlsafe(24))

    def patch(self, path: str, body: Mapping[str, Any], tag: str) -> Any:
        """Change a document as `post` writes; refused if it is not the one with this `tag` any more."""
        return self._ask("PATCH", path, body, token=secrets.token_urlsafe(24), tag=tag)

    def _ask(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, token: str = "", tag: str = ""
    ) -> Any:
        return self._document(self._answer(method, target, body, token, tag))

    def _answer(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, token: str = "", tag: str = ""
    ) -> ServerAnswer:
        self._check_server()
        more = {name: value for name, value in (("Idempotency-Key", token), ("If-Match", tag)) if value}
        return self._retried(method, PREFIX + target, {"Authorization": self._key.header, **more}, body)

    def _check_server(self) -> None:
        """Check that a server of ours answers before the key is sent."""
        if self._is_checked:
            return
        document = self._document(self._retried("GET", "/healthz", {}, None))
        if not isinstance(document, dict) or not isinstance(document.get("version"), str):
            raise strange(200, self.base)
        if mismatch := compare(self._version, document["version"]):
            self._note(mismatch)
        self._is_checked = True

    def _retried(
        self, method: str, target: str, headers: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> ServerAnswer:
        """Send until there is an answer to go by. Every request may be sent again: writes have tokens."""
        all_headers = {"Accept": "application/json", "User-Agent": f"instep/{self._version}", **headers}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            all_headers["Content-Type"] = "application/json"
        left = BUSY_TIMEOUT
        for attempt in range(1, TRIES + 1):
            wait: float | None
            try:
                answer = self._send(method, target, all_headers, content)
            except Unreached:
                if attempt == TRIES:
                    raise
                wait = 0.25 * 4.0 ** (attempt - 1)
            else:
                wait = _again_in(answer, attempt)
                if wait is None or attempt == TRIES or wait > left:
                    return answer
            left -= wait
            self._sleep(wait)
        raise AssertionError("the last attempt answers or raises")

    def _document(self, answer: ServerAnswer) -> Any:
        kind = answer.header("Content-Type")
        if answer.status >= 300:
            problem = problem_of(kind, answer.body)
            raise error_of(problem) if problem else strange(answer.status, self.base)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise strange(answer.status, self.base) from None


def _again_in(answer: ServerAnswer, attempt: int) -> float | None:
    """Return the seconds after which to ask again, None if the answer is final. A server of ours states in a problem
    what it cannot do now; asking again changes that only if it names a time."""
    if answer.status not in (429, 502, 503, 504):
        return None
    seconds = answer.header("Retry-After").strip()
    if seconds.isascii() and seconds.isdigit() and len(seconds) < 6:
        return max(float(seconds), 0.1)
    if answer.status == 429:
        return float(attempt)
    return None if problem_of(answer.header("Content-Type"), answer.body) else 0.25 * 4 ** (attempt - 1)


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = [(k.rstrip("_"), v) for k, v in query.items() if v is not None and v is not False]
    pairs = [(k, one) for k, v in given for one in (v if isinstance(v, list | tuple) else (v,))]
    query_text = urlencode([(k, "true" if v is True else v) for k, v in pairs])
    return f"{path}?{query_text}" if query_text else path


def part(name: str) -> str:
    """Return a name as one part of a path; InstepError for what cannot be one."""
    if not name or len(name) > 200 or name in (".", "..") or any(c in "/\\" or not c.isprintable() for c in name):
        raise InstepError(f"{name!r} cannot be a name", hint="check how it is written")
    return quote(name, safe="")


_BY_CODE: Mapping[str, type[errors.InstepError]] = {
    "blocked": errors.Blocked,
    "change_not_found": errors.ChangeNotFound,
    "conflict": errors.Conflict,
    "not_found": errors.NotFound,
    "precondition_failed": errors.Conflict,
    "unavailable": errors.ConnectError,
    "internal": errors.ConnectError,
    "too_many_requests": errors.ConnectError,
    "unauthorized": errors.AccessDenied,
    "forbidden": errors.AccessDenied,
}
MAX_TEXT = 2000


class ServerRefused(errors.InstepError):
    """The server refused the request."""


def problem_of(content_type: str, body: bytes) -> dict[str, Any] | None:
    """Return the problem document of an answer; None if it is none of a server of ours."""
    if content_type.partition(";")[0].strip().lower() != "application/problem+json":
        return None
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return problem if isinstance(problem, dict) and isinstance(problem.get("code"), str) else None


def error_of(problem: Mapping[str, Any]) -> errors.InstepError:
    """Return the error that a problem stands for. Its message is the problem's detail; where that says less than the
    title, the title comes first."""
    kind = _BY_CODE.get(str(problem["code"]), ServerRefused)
    title, detail = _text(problem, "title"), _text(problem, "detail")
    message = detail if detail and kind is not errors.AccessDenied else " ".join(filter(None, (title, detail)))
    return kind(message or f"the server refused: {problem['code']}", hint=_text(problem, "hint"))


def strange(status: int, where: str) -> errors.InstepError:
    """Return the error for an answer that no instep server gives: a proxy's, or another program's."""
    if 300 <= status < 400:
        hint = "name the address that it redirects to: the key is not sent on to others"
        return errors.ConnectError(f"{where} answers with a redirect (HTTP {status})", hint=hint)
    if status in (502, 503, 504):
        hint = "a proxy answers in its place: is the server up?"
        return errors.ConnectError(f"{where} cannot be reached (HTTP {status})", hint=hint)
    hint = "check the URL: is it an instep server?"
    return errors.ConnectError(f"{where} does not answer as an instep server (HTTP {status})", hint=hint)


def _text(problem: Mapping[str, Any], name: str) -> str:
    text = problem.get(name, "")
    return text[:MAX_TEXT] if isinstance(text, str) else ""


__all__ = ["Client", "ConnectError", "part"]
