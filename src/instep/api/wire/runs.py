"""Documents of runs, and of the plans that they carried out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from instep.api.wire.base import Said


class TableRunOut(Said):
    """`ref` is the table's schema and name."""

    table: str
    ref: list[str]
    status: str
    mode: str
    read: int
    inserted: int
    updated: int
    deleted: int
    misfits: int
    bytes: int
    seconds: float
    error: str


class RunOut(Said):
    id: str
    connection: str
    kind: str
    status: str
    fence: int
    started: datetime
    ended: datetime | None
    error: str
    detail: dict[str, Any]


class RunWithTables(RunOut):
    tables: list[TableRunOut]


class StepOut(Said):
    number: int
    step: str
    at_table: str
    kind: str
    text: str
    status: str
    rows: int
    started: datetime | None
    ended: datetime | None
    error: str


class PlanOut(Said):
    id: str
    connection: str
    at: datetime
    status: str
    run: str
    who: str
    version: int
    changes: list[str]
    ended: datetime | None
    error: str
    base_accepted: str
    base_destination: str


class PlanWithSteps(PlanOut):
    plan: dict[str, Any]
    steps: list[StepOut]
