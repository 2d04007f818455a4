"""Documents of what is held."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from instep.api.wire.base import Asked, Few, Name, Page, Said, Text


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


class Replaying(Asked):
    """Of these `tables` (schema.table), or all; only values of `column` if it is named. `preview`: only say what would
    be written."""

    tables: Few = Field([])
    column: Text = ""
    preview: bool = False
    why: Text = ""


class Discarding(Asked):
    """What is held of these `tables` (schema.table), or under these `ids`."""

    tables: Few = Field([])
    ids: Annotated[list[Name], Field(max_length=10_000)] = Field([])
    why: Text = ""
