"""Errors as the API answers them: RFC 9457 documents with a code for programs and a hint for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from instep import errors
from instep.project.documents import MOST_PROBLEMS, InvalidDocument, pointer
from instep.server.invalid_fields import invalid_fields
from instep.suggest import did_you_mean

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/v1/docs#problem-"
TITLES = {
    "unreadable": "The request cannot be read.",
    "unauthorized": "A valid API key is needed.",
    "forbidden": "The API key may not do this.",
    "not_found": "Not found.",
    "method_not_allowed": "The method is not allowed here.",
    "conflict": "Another run or request came first.",
    "blocked": "A person or a policy has to decide first.",
    "precondition_failed": "The object has changed since it was read.",
    "too_large": "The request is too large.",
    "media_type": "The body is not JSON.",
    "invalid": "The request is invalid.",
    "change_not_found": "No connection has this change.",
    "repeated_differently": "The Idempotency-Key was used for another request.",
    "too_many_requests": "Too many requests.",
    "internal": "The server failed.",
    "unavailable": "A required system cannot be reached.",
}
_BY_ERROR: tuple[tuple[type[errors.InstepError], int, str], ...] = (
    (errors.Blocked, 409, "blocked"),
    (errors.Conflict, 409, "conflict"),
    (errors.ConnectError, 503, "unavailable"),
    (errors.SetupError, 503, "unavailable"),
    (errors.ReadError, 503, "unavailable"),
    (errors.Forbidden, 403, "forbidden"),
    (errors.NotFound, 404, "not_found"),
    (errors.ChangeNotFound, 422, "change_not_found"),
    (errors.InstepError, 422, "invalid"),
)
_BY_STATUS = {400: "unreadable", 404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "media_type"}


@dataclass(eq=False)
class ApiProblem(Exception):
    """A problem document (RFC 9457)."""

    status: int
    code: str
    detail: str
    """Names the object and the cause."""
    hint: str = ""
    """The next step."""
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Added to the document."""

    def document(self) -> dict[str, Any]:
        names = {"type": f"urn:instep:problem:{self.code}", "title": TITLES[self.code], "status": self.status}
        document = {"detail": self.detail, "code": self.code, "hint": self.hint, "docs": DOCS + self.code}
        return {**names, **document, **self.more}


FAILED = ApiProblem(500, "internal", "the request failed inside the server", "see the server's log")
"""A mistake of this program: its text may hold anything, so nothing of it is told."""


def respond(problem: ApiProblem) -> Response:
    """Return the problem as a response."""
    return JSONResponse(problem.document(), problem.status, dict(problem.headers), MEDIA_TYPE)


def unknown(what: str, name: str) -> ApiProblem:
    """Return a 404 for an object that does not exist, or that the key may not see: both look alike."""
    return ApiProblem(404, "not_found", f"no {what} {name!r} is known", f"list the {what}s, or check the name")


def of_error(error: errors.InstepError) -> ApiProblem:
    """Return the problem for one of our errors."""
    status, code = next((s, c) for kind, s, c in _BY_ERROR if isinstance(error, kind))
    more = {"errors": list(_places(error))} if isinstance(error, InvalidDocument) else {}
    return ApiProblem(status, code, error.message, error.hint, more=more)


def _places(error: InvalidDocument) -> Iterator[dict[str, str]]:
    """Return the places where an object's document is wrong, as JSON pointers into the request."""
    for path, message in error.problems:
        yield {"at": f"{error.below}{pointer(path)}", "message": message}


def of_status(error: HTTPException, hint: str = "") -> ApiProblem:
    """Return the problem for an error of the framework."""
    code = _BY_STATUS.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    detail = TITLES[code] if error.status_code in (404, 405) else str(error.detail)
    return ApiProblem(error.status_code, code, detail, hint, headers=error.headers or {})


def of_invalid(error: RequestValidationError, route: Any = None) -> ApiProblem:
    """Return the invalid fields of a request for a route with the reasons, without texts that were given: one of them
    may be a secret."""
    found = invalid_fields(error, route, MOST_PROBLEMS)
    problems = [{"at": place, "message": text} for place, text in found]
    more = "; and more" if len(found) > 5 else ""
    detail = "; ".join(f"{place}: {text}" for place, text in found[:5]) + more
    unreadable = any(e["type"] == "json_invalid" for e in error.errors())
    status, code = (400, "unreadable") if unreadable else (422, "invalid")
    return ApiProblem(status, code, detail, "correct these fields", more={"errors": problems})


async def on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiProblem)
    return respond(error)


async def on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.InstepError)
    return respond(of_error(error))


async def on_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return respond(of_status(error, _closest_routes(request) if error.status_code == 404 else ""))


def _closest_routes(request: Request) -> str:
    """Return the routes whose paths are closest to the one that is not there."""
    paths = {route.path for route in request.app.routes if isinstance(route, APIRoute)}
    return did_you_mean(request.url.path, sorted(paths), "see /api/v1/docs")


async def on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return respond(of_invalid(error, request.scope.get("route")))
