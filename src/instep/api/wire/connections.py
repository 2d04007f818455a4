"""Documents of connections and of their pauses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Name, Said
from instep.api.wire.runs import RunOut


class ConnectionOut(Said):
    """`status` is processing (a detection runs), paused, running, failing, waiting (for a person), idle, or new (never
    run)."""

    name: str
    source: str
    destination: str
    namespace: str
    policy: str
    tags: list[str]
    status: Literal["processing", "paused", "running", "failing", "waiting", "idle", "new"]
    waiting: int = Field(description="Open changes that wait for a person.")
    last_run: RunOut | None
    managed_by: Literal["file", "server"]


class PauseOut(Said):
    reason: str
    since: datetime
    change: str
    table: str | None


class ConnectionWithPauses(ConnectionOut):
    pauses: list[PauseOut]


class Pausing(Asked):
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    table: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None


class Resuming(Asked):
    table: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None


class Paused(Dry):
    """`changed`: this request has done it."""

    paused: bool
    changed: bool
    pauses: list[PauseOut]
