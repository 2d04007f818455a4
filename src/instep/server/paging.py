"""Pages: `limit` and an opaque `cursor`; the next page's is in `next_cursor`, null on the last one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import Field, create_model

from instep.server.models import QueryParameters
from instep.server.problems import ApiProblem

T = TypeVar("T")


class PageParameters(QueryParameters):
    """The parameters that choose a page of a list."""

    limit: int = Field(100, ge=1, le=1000, description="Maximum number of items per page.")
    cursor: str | None = Field(None, max_length=500, description="`next_cursor` of the previous page.")


def page_parameters(size: int, largest: int) -> type[PageParameters]:
    """Return the parameters of a list whose pages have this size unless the asker says, and at most `largest`."""
    limit: Any = (int, Field(size, ge=1, le=largest, description="The most items of a page."))
    return create_model("PageParameters", __base__=PageParameters, limit=limit)


def cursor(place: Sequence[Any]) -> str:
    """Return a place in a list, as text without meaning for clients."""
    parts = [part.isoformat() if isinstance(part, datetime) else part for part in place]
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def place(text: str | None, *kinds: type) -> list[Any] | None:
    """Return the place that a cursor stands for; None for the first page, Problem 400 for a text that is no cursor."""
    if text is None:
        return None
    try:
        parts = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise ValueError
        return [_part(part, kind) for part, kind in zip(parts, kinds, strict=True)]
    except (ValueError, RecursionError, OverflowError):
        raise ApiProblem(400, "unreadable", "the cursor is none of this list", "begin at the first page") from None


def _part(part: Any, kind: type) -> Any:
    if kind is datetime and isinstance(part, str):
        moment = datetime.fromisoformat(part)
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC)
    storable = abs(part) < 2**63 if isinstance(part, int) else isinstance(part, str) and part.isprintable()
    if type(part) is not kind or not storable:
        raise ValueError
    return part


def paged(records: Sequence[T], limit: int, where: Callable[[T], Sequence[Any]], shown: Callable[[T], Any]) -> Any:
    """Return a page of `records`, which holds one item more than `limit` if there are more."""
    page = records[:limit]
    more = cursor(where(page[-1])) if len(records) > limit else None
    return {"items": [shown(one) for one in page], "next_cursor": more}
