"""Requests to the API of a server: pages, writes that are never done twice, patience with one that is busy."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from instep.errors import ConnectError, InstepError
from instep.remote.address import PREFIX, address
from instep.remote.key import Key
from instep.remote.problems import error_of, problem_of, strange
from instep.remote.transport import Answer, Transport, Unreached
from instep.remote.version import compare

TRIES = 4
PATIENCE = 60.0
"""The most seconds that one request waits before it is sent again, all waits together."""
PAGE = 1000
Sends = Callable[[str, str, Mapping[str, str], bytes | None], Answer]


class Client:
    """`note` is told once if the server is of another version; one that is too far off is refused before the key is
    sent."""

    def __init__(
        self,
        server: str,
        key: Key,
        version: str,
        note: Callable[[str], None] = lambda _: None,
        *,
        sends: Sends | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base = address(server)
        self._key, self._version, self._note, self._sleep = key, version, note, sleep
        self._send = sends or Transport(self.base).send
        self._met = False

    def get(self, path: str, /, **query: Any) -> Any:
        """The document at a path below /api/v1."""
        return self._ask("GET", _target(path, query))

    def read(self, path: str) -> tuple[Any, str]:
        """(the document, the tag of what was read), for a `patch` of it."""
        answer = self._answer("GET", path)
        return self._document(answer), answer.header("ETag")

    def pages(self, path: str, /, most: int | None = None, size: int = PAGE, **query: Any) -> Iterator[dict[str, Any]]:
        """The items of a list, page by page; at most so many."""
        cursor, left = None, most
        while left is None or left > 0:
            limit = size if left is None else min(size, left)
            page = self.get(path, **query, limit=limit, cursor=cursor)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            if (cursor := page["next_cursor"]) is None:
                return

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """The answer to a write. It carries a token of its own: sent again after a lost answer, it is not done
        again."""
        return self._ask("POST", _target(path, query), body, token=secrets.token_urlsafe(24))

    def patch(self, path: str, body: Mapping[str, Any], tag: str) -> Any:
        """As `post`; refused if the document is another by now than that of this `tag`."""
        return self._ask("PATCH", path, body, token=secrets.token_urlsafe(24), tag=tag)

    def delete(self, path: str, **query: Any) -> Any:
        """As `post`."""
        return self._ask("DELETE", _target(path, query), token=secrets.token_urlsafe(24))

    def _ask(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, token: str = "", tag: str = ""
    ) -> Any:
        return self._document(self._answer(method, target, body, token, tag))

    def _answer(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, token: str = "", tag: str = ""
    ) -> Answer:
        self._meet()
        more = {name: value for name, value in (("Idempotency-Key", token), ("If-Match", tag)) if value}
        return self._patiently(method, PREFIX + target, {"Authorization": self._key.header, **more}, body)

    def _meet(self) -> None:
        """Looks who answers there before the key is sent."""
        if self._met:
            return
        found = self._document(self._patiently("GET", "/healthz", {}, None))
        if not isinstance(found, dict) or not isinstance(found.get("version"), str):
            raise strange(200, self.base)
        if said := compare(self._version, found["version"]):
            self._note(said)
        self._met = True

    def _patiently(
        self, method: str, target: str, headers: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Answer:
        """Sends until there is an answer to go by. Every request may be sent again: writes have tokens."""
        said = {"Accept": "application/json", "User-Agent": f"instep/{self._version}", **headers}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            said["Content-Type"] = "application/json"
        left = PATIENCE
        for attempt in range(1, TRIES + 1):
            wait: float | None
            try:
                answer = self._send(method, target, said, content)
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

    def _document(self, answer: Answer) -> Any:
        kind = answer.header("Content-Type")
        if answer.status >= 300:
            problem = problem_of(kind, answer.body)
            raise error_of(problem) if problem else strange(answer.status, self.base)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise strange(answer.status, self.base) from None


def _again_in(answer: Answer, attempt: int) -> float | None:
    """Seconds after which to ask again; None if the answer stands. What a server of ours cannot do now it says in a
    problem, which more asking does not change unless it names a time."""
    if answer.status not in (429, 502, 503, 504):
        return None
    said = answer.header("Retry-After").strip()
    if said.isascii() and said.isdigit() and len(said) < 6:
        return max(float(said), 0.1)
    if answer.status == 429:
        return float(attempt)
    return None if problem_of(answer.header("Content-Type"), answer.body) else 0.25 * 4 ** (attempt - 1)


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = [(k.rstrip("_"), v) for k, v in query.items() if v is not None and v is not False]
    pairs = [(k, one) for k, v in given for one in (v if isinstance(v, list | tuple) else (v,))]
    said = urlencode([(k, "true" if v is True else v) for k, v in pairs])
    return f"{path}?{said}" if said else path


def part(name: str) -> str:
    """A name as one part of a path; InstepError for what cannot be one."""
    if not name or len(name) > 200 or name in (".", "..") or any(c in "/\\" or not c.isprintable() for c in name):
        raise InstepError(f"{name!r} cannot be a name", hint="check how it is written")
    return quote(name, safe="")


__all__ = ["Client", "ConnectError", "part"]
