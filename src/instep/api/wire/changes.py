"""Documents of schema changes and of what is answered to them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Few, Name, Said


class ChangeOut(Said):
    """`table` is schema and name; `change` holds before and after; `rule` and `why` say what decided it."""

    id: str
    connection: str
    kind: str
    table: list[str]
    column: str
    summary: str
    change: dict[str, Any]
    action: str
    rule: str
    why: str
    status: str
    key: str
    source_fingerprint: str
    tables_fingerprint: str
    modifiers: dict[str, Any]
    evidence: dict[str, Any]
    first_seen: datetime
    seen: int
    decided_by: str
    decided_at: datetime | None
    snoozed_until: datetime | None


class Changed(Dry):
    change: ChangeOut


class Snooze(Asked):
    """One of both: a duration (`90m`, `4h`, `3d`, `2w`) or a time."""

    duration: Annotated[str | None, Field(max_length=10)] = None
    until: Annotated[str | None, Field(max_length=40)] = None


class Answers(Asked):
    """Which changes: by id, or the open ones that fit. Those of different sorts must all fit, of one sort any. `hash`:
    what is approved lets its columns in as salted SHA-256; then all are answered or none."""

    answer: Literal["approved", "rejected", "ignored"]
    hash: bool = False
    ids: Annotated[list[Name], Field(max_length=10_000)] = Field([])
    connection: Name | None = None
    patterns: Few = Field([])
    kinds: Few = Field([])
    tables: Few = Field([])


class Answered(Said):
    id: str
    ok: bool
    summary: str
    problem: str = ""


class AnsweredAll(Dry):
    answered: int
    refused: int
    items: list[Answered]
