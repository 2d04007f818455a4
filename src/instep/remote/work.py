"""Work that a worker at the server does for a command, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from instep.model import Job
from instep.remote.client import Client, part
from instep.remote.follow import Follower


@dataclass(frozen=True)
class Works:
    """`note` is told what stands in the way of a job."""

    client: Client
    follower: Follower
    note: Callable[[str], None]

    def begin(self, connection: str, what: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The job that a request below a connection has put into the queue, or that was there already."""
        job: dict[str, Any] = self.client.post(f"/connections/{part(connection)}/{what}", asked)
        if not job["fresh"]:
            self.note(f"job {job['id']} was there already: {job['status']}")
        if job.get("note"):
            self.note(job["note"])
        return job

    def over(self, connection: str, what: str, asked: Mapping[str, Any]) -> Job:
        """Once it is over, however it ended."""
        return self.follower.over(self.begin(connection, what, asked)["id"])

    def done(self, connection: str, what: str, asked: Mapping[str, Any]) -> Job:
        """Once it is over; the error that it ended with."""
        return self.follower.done(self.begin(connection, what, asked)["id"])
