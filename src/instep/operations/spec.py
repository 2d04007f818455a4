"""The specification of an operation: its request, who may ask for it, how its job runs, and the code that does it.

The routes of the API, the roles, the queue and the worker take what they know of an operation from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal

from instep.operations.values import Reason

Role = Literal["viewer", "operator", "approver", "admin"]
"""What an API key may do; each role may do what those before it may."""


@dataclass(frozen=True)
class JobPolicy:
    """How the queue treats the jobs of an operation."""

    attempts: int = 3
    """How often a job is tried before it is dead."""
    runs_while_paused: bool = True
    """Whether it runs while its connection is paused."""
    reads_catalog: bool = False
    """Whether it counts among the jobs that read the catalog of one source at the same time."""
    two_person: bool = False
    """Whether it may need a second person, so that each person's request is a job of its own."""
    retry_command: str = ""
    """The command that asks anew, where a job counts for its requester alone and nobody else may retry it."""
    shared: bool = False
    """Whether one job serves everybody who has asked for the same."""


@dataclass(frozen=True)
class Request:
    """What every request may say."""

    why: Reason = field(default="", kw_only=True)
    """The reason, for the audit log."""

    def options(self) -> dict[str, Any]:
        """Return what the job needs, as JSON has it: the fields that are not as they are by default."""
        said = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "why"}
        defaults = {one.name: one.default for one in fields(self)}
        return {name: _plain(value) for name, value in said.items() if value != defaults[name]}


@dataclass(frozen=True)
class OperationSpec:
    """One operation on a connection, or on the whole project."""

    name: str
    """What jobs, audit entries and Python call it."""
    role: Role
    """The least role of a key that may ask for it."""
    route: str
    """Method and path below /api/v1 of the request for it, or of the one that is most like it."""
    work: str
    """The function that a worker calls, as `module:function`."""
    job: JobPolicy = field(default_factory=JobPolicy)
    request: type[Request] = Request
    """The record of its options."""


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return list(value) if isinstance(value, tuple) else value
