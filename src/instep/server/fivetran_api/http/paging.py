"""Pages of lists: `limit` from 1 to 1000 and an opaque `cursor` that names the last item of the page before."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from instep.server.fivetran_api.http.envelope import Refusal

LIMIT, MAX_LIMIT = 100, 1000
MAX_CURSOR = 2000
T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """`after` is the key of the last item that was seen, "" for the first page."""

    after: str = ""
    limit: int = LIMIT

    def cut(self, found: Sequence[T], key: Callable[[T], str]) -> tuple[list[T], str | None]:
        """Return the page out of up to limit + 1 items from behind `after` on, and the cursor of the next one."""
        shown = list(found[: self.limit])
        return shown, cursor(key(shown[-1])) if len(found) > self.limit else None


def window(request: Request) -> Window:
    """Return what the query asks for; Refusal (400) if it makes no sense."""
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
