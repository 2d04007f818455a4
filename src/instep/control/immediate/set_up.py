"""Jobs that are about a source or a destination alone, put into the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control import queue
from instep.control.immediate.context import WriteContext
from instep.control.queries.objects import managed
from instep.control.queue import key_of
from instep.errors import Blocked
from instep.operations.immediate.set_up import (
    CreateDemoRequest,
    DiscoverSourceRequest,
    TestDestinationRequest,
    TestSourceRequest,
)
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.operations.values import ObjectKind
from instep.project.served import ServedProject
from instep.schema.selection.selection import patterns
from instep.store.work.jobs import CONNECTION_TEST, WAITED_FOR


@dataclass(frozen=True)
class QueuedJob:
    """A job that a worker does."""

    job: str
    """Its id."""
    fresh: bool
    """True if this request created it; false if the same was waiting already."""


class _EnqueueWork(ImmediateWork):
    """Put a job into the queue."""

    def enqueue(self, context: WriteContext, kind: ObjectKind, job: str, request: Any, **more: Any) -> QueuedJob:
        """Queue the job; raises NotFound for an unknown object."""
        options = {kind: managed(context, kind, request.name).name, **more}
        key = f"{kind}/{request.name}/{key_of(more)}".rstrip("/")
        made, fresh = context.store.jobs.enqueue(
            "",
            job,
            key=key,
            options=options,
            priority=WAITED_FOR,
            why="requested",
            who=context.who,
            source=request.name if kind == "source" else "",
        )
        return QueuedJob(made.id, fresh)

    def detail(self, request: ImmediateRequest, result: QueuedJob) -> Mapping[str, Any]:
        """Return the job."""
        return {"job": result.job}


class SourceTesting(_EnqueueWork):
    """Have a source tested."""

    def execute(self, context: WriteContext, request: TestSourceRequest, prepared: None) -> QueuedJob:
        """Queue its test."""
        return self.enqueue(context, "source", CONNECTION_TEST, request)


class DestinationTesting(_EnqueueWork):
    """Have a destination tested."""

    def execute(self, context: WriteContext, request: TestDestinationRequest, prepared: None) -> QueuedJob:
        """Queue its test."""
        return self.enqueue(context, "destination", CONNECTION_TEST, request)


class SourceDiscovery(_EnqueueWork):
    """Have the tables of a source listed."""

    def execute(self, context: WriteContext, request: DiscoverSourceRequest, prepared: None) -> QueuedJob:
        """Put the look into the queue; SchemaError for a pattern that is none."""
        patterns(request.matching)
        return self.enqueue(context, "source", "discover", request, matching=list(request.matching))


DEMO = "demo"
"""The name of the demo's connection, and the beginning of those of its source and destination."""


@dataclass(frozen=True)
class CreatedDemo:
    """The demo's connection, and the jobs that make its source and its first plan."""

    connection: str
    """Its name."""
    job: str
    """The job that makes the source."""
    plan: str
    """The job that makes the first plan."""


class DemoCreation(ImmediateWork):
    """Create the demo's connection."""

    def execute(self, context: WriteContext, request: CreateDemoRequest, prepared: None) -> CreatedDemo:
        """Create it; Conflict if one of its names is in use, Blocked where an API may name no file and without a
        server."""
        if not isinstance(context.project, ServedProject):
            raise Blocked(
                "a server keeps the demo's connection, and this project is read from its file alone",
                hint="`instep init --demo` makes a project of the demo, in an empty folder",
            )
        shelves = context.project.model.shelves
        if not shelves:
            raise Blocked("there is no folder for the demo's files", hint="name one below `shelves` in instep.yml")
        folder, source, destination = f"{shelves[0].rstrip('/')}/instep-{DEMO}", f"{DEMO}_till", f"{DEMO}_lake"
        parts: tuple[tuple[ObjectKind, str, dict[str, Any]], ...] = (
            ("source", source, {"type": "sqlite", "path": f"{folder}/till.db"}),
            ("destination", destination, {"type": "iceberg", "warehouse": f"{folder}/lake"}),
            ("connection", DEMO, {"source": source, "destination": destination, "policy": "approve"}),
        )
        for kind, name, spec in parts:
            context.resources.put(kind, name, spec, who=context.who, expected=0)  # a rehearsal is rolled back
        made, _ = context.store.jobs.enqueue(
            DEMO, "make_demo", options={"folder": folder}, priority=WAITED_FOR, why="requested", who=context.who
        )
        plan = queue.ask(context.store, DEMO, "plan", context.who, {}).job
        return CreatedDemo(DEMO, made.id, plan.id)

    def detail(self, request: CreateDemoRequest, result: CreatedDemo) -> Mapping[str, Any]:
        """Return the jobs."""
        return {"job": result.job, "plan": result.plan}
