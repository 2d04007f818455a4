"""Errors of a server as the errors that a local command raises: the same texts, the same exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from instep import errors

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
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("code"), str) else None


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
    found = problem.get(name, "")
    return found[:MAX_TEXT] if isinstance(found, str) else ""
