"""Documents of what is held."""

from __future__ import annotations

from typing import Any

from instep.api.wire.base import Page, Said


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
