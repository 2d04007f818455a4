"""Documents of jobs and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from instep.api.wire.base import Dry, Page, Said


class JobListed(Said):
    """`attempt` counts the claims, of which it gets `attempts`; `due`: not begun before. `error` says why its last
    attempt failed. failed: another attempt would not help; dead: all are used up."""

    id: str
    connection: str
    kind: str
    status: str
    due: datetime
    created: datetime
    options: dict[str, Any]
    priority: int
    key: str
    attempt: int
    attempts: int
    why: str
    who: str
    error: str
    started: datetime | None
    ended: datetime | None
    lease_until: datetime | None
    owner: str
    fence: int
    stop: str
    run: str
    source: str


class JobWhole(JobListed):
    """`result` says what it did."""

    result: dict[str, Any]


class WorkerOut(Said):
    id: str
    host: str
    pid: int
    lanes: int
    started: datetime
    seen: datetime
    stopping: bool


class JobPage(Page[JobListed]):
    """What a job has answered is in the job alone. `counts` by status and `workers` are of the whole server: empty for
    keys that are for some groups."""

    counts: dict[str, int]
    workers: list[WorkerOut]


class JobChanged(Dry):
    job: JobWhole
