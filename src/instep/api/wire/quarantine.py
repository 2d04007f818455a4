"""Documents of what is held."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from instep.api.wire.base import Asked, Name, Page, Said


class HeldOut(Said):
    """A held value or row. Originals of hashed and excluded columns are not here."""

    id: str
    table: str
    column: str
    key: Any
    original: Any
    reason: str
    place: str
    change: str
    rule: str
    run: str
    since: Any
    at: Any
    status: str


class HeldPage(Page[HeldOut]):
    unreadable: list[str]


class Matching(Asked):
    """Rows of `table` (schema.table) with this `key`: texts by column, as they are held; null for NULL."""

    table: Name
    key: Annotated[dict[Name, Annotated[str, Field(max_length=10_000)] | None], Field(min_length=1, max_length=100)]


class Matches(Said):
    ids: list[str]
