"""Answers about connections, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from instep.control import pauses
from instep.control.pauses import ActivePause
from instep.control.queries.context import QueryContext
from instep.control.resources.api_keys import links_of_groups
from instep.control.resources.resources import Managed
from instep.errors import NotFound, ProjectError
from instep.model import Run
from instep.operations.queries.connections import GetConnection, ListConnections
from instep.operations.spec import QueryWork
from instep.store.server.resources import Link

Fares = Literal["processing", "paused", "running", "failing", "waiting", "idle", "new"]


@dataclass(frozen=True)
class ConnectionSummary:
    """A connection with its state."""

    name: str
    source: str
    destination: str
    namespace: str
    policy: str
    tags: tuple[str, ...]
    status: Fares
    """processing: a detection runs; waiting: for a person; new: it has never run."""
    waiting: int
    """Open changes that wait for a person."""
    last_run: Run | None
    managed_by: Literal["file", "server"]


@dataclass(frozen=True)
class ConnectionDetails(ConnectionSummary):
    """A connection with its pauses."""

    pauses: tuple[ActivePause, ...] = ()
    """Pauses in effect for it or its tables."""


class ConnectionList(QueryWork):
    """Connections by their names."""

    place_types = (str,)

    def items(
        self, context: QueryContext, query: ListConnections, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ConnectionSummary]:
        """Return connections by name."""
        return summaries(context, managed_page(context, query, after, limit))

    def place(self, item: ConnectionSummary) -> Sequence[Any]:
        """Return the connection's name."""
        return (item.name,)


class ConnectionLookup(QueryWork):
    """One connection by its name."""

    def find(self, context: QueryContext, query: GetConnection) -> ConnectionDetails:
        """Return the connection with its pauses."""
        name = query.connection
        found = context.resources.find("connection", name) if context.sees(name) else None
        if found is None:
            raise NotFound.of("connection", name)
        [one] = summaries(context, [found])
        return ConnectionDetails(**vars(one), pauses=pauses.active(context.store, name))


def managed_page(
    context: QueryContext, query: ListConnections, after: Sequence[Any] | None, limit: int
) -> Sequence[Managed]:
    """Return connections by name that the asker may see."""
    links: list[Link] = [("tag", query.tag)] if query.tag is not None else []
    groups = context.key.groups if context.key is not None else ()
    return context.resources.page(
        "connection",
        after=after[0] if after else "",
        limit=limit,
        name=query.search or "",
        links=links,
        any_of=links_of_groups(groups),
    )


def summaries(context: QueryContext, found: Sequence[Managed]) -> list[ConnectionSummary]:
    """Return how connections fare, by a few statements for all of them."""
    names, store = [one.name for one in found], context.store
    runs, waiting = store.pages.latest_runs(names), store.pages.waiting(names)
    paused, namespaces = store.pages.paused(names), dict[str, str]()
    detecting = {
        job.connection for job in store.jobs.unfinished(names) if job.kind == "detect" and job.status == "running"
    }

    def one(of: Managed) -> ConnectionSummary:
        run, open_ = runs.get(of.name), waiting.get(of.name, 0)
        status = "processing" if of.name in detecting else _status(run, open_, of.name in paused)
        return _summary(context, of, run, open_, status, namespaces)

    return [one(of) for of in found]


def _summary(
    context: QueryContext, found: Managed, run: Run | None, waiting: int, status: Fares, namespaces: dict[str, str]
) -> ConnectionSummary:
    """Return one summary. What the server keeps names both its ends: their sections are not read for it."""
    name, spec, own = found.name, found.spec, found.by == "file"
    destination = context.project.destination_of(name) if own else str(spec["destination"])
    if destination not in namespaces:
        namespaces[destination] = _namespace(context, destination)
    return ConnectionSummary(
        name=name,
        source=context.project.source_of(name) if own else str(spec["source"]),
        destination=destination,
        namespace=str(spec.get("namespace") or namespaces[destination] or name),
        policy=str(spec.get("policy") or ""),
        tags=tuple(found.tags),
        status=status,
        waiting=waiting,
        last_run=run,
        managed_by=found.by,
    )


def _namespace(context: QueryContext, destination: str) -> str:
    """Return "" where the file refers to a value that is not there: one connection must not hide the others."""
    try:
        return context.project.common_namespace(destination)
    except ProjectError:
        return ""


def _status(run: Run | None, waiting: int, paused: bool) -> Fares:
    if paused:
        return "paused"
    if run is not None and run.status in ("running", "failed"):
        return "running" if run.status == "running" else "failing"
    return "waiting" if waiting else "idle" if run is not None else "new"
