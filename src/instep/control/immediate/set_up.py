"""Jobs that are about a source or a destination alone, put into the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.objects import managed
from instep.control.queue import key_of
from instep.operations.immediate.set_up import DiscoverSourceRequest, TestDestinationRequest, TestSourceRequest
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.operations.values import ObjectKind
from instep.schema.selection.selection import patterns
from instep.store.work.jobs import CONNECTION_TEST, WAITED_FOR


@dataclass(frozen=True)
class QueuedJob:
    """A job that a worker does."""

    job: str
    """Its id."""
    fresh: bool
    """True if this request created it; false if the same was waiting already."""


class _Queueing(ImmediateWork):
    """Put a job into the queue."""

    def enqueue(self, context: WriteContext, kind: ObjectKind, job: str, request: Any, **more: Any) -> QueuedJob:
        """Put it there; NotFound for an object that there is not."""
        options = {kind: managed(context, kind, request.name).name, **more}
        key = f"{kind}/{request.name}/{key_of(more)}".rstrip("/")
        made, fresh = context.store.jobs.enqueue(
            "",
            job,
            key=key,
            options=options,
            priority=WAITED_FOR,
            why="asked for",
            who=context.who,
            source=request.name if kind == "source" else "",
        )
        return QueuedJob(made.id, fresh)

    def detail(self, request: ImmediateRequest, result: QueuedJob) -> Mapping[str, Any]:
        """Return the job."""
        return {"job": result.job}


class SourceTesting(_Queueing):
    """Have a source tested."""

    def execute(self, context: WriteContext, request: TestSourceRequest, prepared: None) -> QueuedJob:
        """Put its test into the queue."""
        return self.enqueue(context, "source", CONNECTION_TEST, request)


class DestinationTesting(_Queueing):
    """Have a destination tested."""

    def execute(self, context: WriteContext, request: TestDestinationRequest, prepared: None) -> QueuedJob:
        """Put its test into the queue."""
        return self.enqueue(context, "destination", CONNECTION_TEST, request)


class SourceDiscovery(_Queueing):
    """Have the tables of a source listed."""

    def execute(self, context: WriteContext, request: DiscoverSourceRequest, prepared: None) -> QueuedJob:
        """Put the look into the queue; SchemaError for a pattern that is none."""
        patterns(request.matching)
        return self.enqueue(context, "source", "discover", request, matching=list(request.matching))
