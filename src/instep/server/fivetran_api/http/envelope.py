"""The form of every answer: `code`, `message`, `data`; a body even for errors and deletions.

Pages of lists: `limit` from 1 to 1000 and an opaque `cursor` that names the last item of the page before.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from instep.control.selection.schema_patch import NotListed
from instep.errors import Blocked, Conflict, InstepError

_CODES = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    413: "PayloadTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class Refusal(Exception):
    """An answer that is no success. `code` is the word that clients compare; `headers` go with it."""

    def __init__(
        self, status: int, message: str, *, code: str = "", hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.message, self.hint = status, message, hint
        self.code = code or _CODES.get(status, "InvalidInput")
        self.headers = dict(headers or {})
        super().__init__(message)


def not_found(what: str, name: str) -> Refusal:
    """Return a 404 with the code word of that kind: NotFound_Connection, NotFound_Group..."""
    return Refusal(404, f"There is no {what.lower()} with id '{name}'.", code=f"NotFound_{what}")


def success(message: str = "", data: Any = None, *, status: int = 200) -> JSONResponse:
    body: dict[str, Any] = {"code": "Success"}
    if message:
        body["message"] = message
    if data is not None:
        body["data"] = data
    return JSONResponse(body, status)


def page(message: str, items: Sequence[Any], cursor: str | None) -> JSONResponse:
    """Return a list. Both spellings of the cursor, because one client reads the other; null on the last page."""
    return success(message, {"items": list(items), "next_cursor": cursor, "nextCursor": cursor})


def of_error(error: InstepError) -> Refusal:
    """Return an error of a use case as an answer."""
    if isinstance(error, NotListed):
        return Refusal(404, error.message, hint=error.hint)
    if isinstance(error, Blocked | Conflict):
        return Refusal(409, error.message, hint=error.hint)
    return Refusal(400, error.message, hint=error.hint)


def refused_as(status: int, message: str, hint: str, headers: Mapping[str, str]) -> JSONResponse:
    """Return the body of a request that was refused before any route has seen it."""
    code = "InternalError" if status == 500 else ""
    return _body(Refusal(status, message, code=code, hint=hint, headers=headers), new_id())


def refused(request: Request, error: Exception) -> JSONResponse:
    """Return the body of a refusal, with a number to look for in the log."""
    refusal = error if isinstance(error, Refusal) else _refusal(error)
    return _body(refusal, request.scope.get("request_id") or new_id())


def _body(refusal: Refusal, request_id: str) -> JSONResponse:
    body = {"code": refusal.code, "message": refusal.message, "request_id": request_id}
    if refusal.hint:
        body["hint"] = refusal.hint
    return JSONResponse(body, refusal.status, refusal.headers)


def new_id() -> str:
    return secrets.token_hex(8)


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, InstepError):
        return of_error(error)
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        return Refusal(error.status_code, _PLAIN.get(error.status_code, str(error.detail)), headers=headers)
    return Refusal(500, "The request failed in the server.", code="InternalError", hint="see the server's log")


_PLAIN = {404: "There is nothing at this address.", 405: "This method is not supported here."}


LIMIT, MAX_LIMIT = 100, 1000
MAX_CURSOR = 2000
T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """The part of a list that a request asks for."""

    after: str = ""
    """The key of the last item that was seen, "" for the first page."""
    limit: int = LIMIT

    def cut(self, items: Sequence[T], key: Callable[[T], str]) -> tuple[list[T], str | None]:
        """Return the page out of up to limit + 1 items from behind `after` on, and the cursor of the next one."""
        shown = list(items[: self.limit])
        return shown, cursor(key(shown[-1])) if len(items) > self.limit else None


def window(request: Request) -> Window:
    """Return the requested window; raises Refusal (400) if it makes no sense."""
    limit_text = request.query_params.get("limit", str(LIMIT))
    limit = int(limit_text) if limit_text.isascii() and limit_text.isdigit() and len(limit_text) < 8 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise Refusal(400, f"The limit must be a number from 1 to {MAX_LIMIT}.")
    given = request.query_params.get("cursor") or ""
    return Window(_after(given) if given else "", limit)


def cursor(after: str) -> str:
    return base64.urlsafe_b64encode(json.dumps({"after": after}).encode()).decode()


def _after(given: str) -> str:
    try:
        if len(given) > MAX_CURSOR:
            raise ValueError
        document = json.loads(base64.b64decode(given.encode(), altchars=b"-_", validate=True))
        if (
            not isinstance(document, dict)
            or not isinstance(document.get("after"), str)
            or not document["after"].isprintable()
        ):
            raise ValueError  # what is not printable is no name, and half a character could not be looked up
    except (ValueError, binascii.Error, RecursionError):
        raise Refusal(400, "The cursor is not one of this list.", hint="take next_cursor of the page before") from None
    return str(document["after"])
