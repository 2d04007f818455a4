"""Answers about connections, their work and their scheduled detection, from the store alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from instep.control import pauses
from instep.control.detector import State, detector_status
from instep.control.freshness import freshness_of, summary
from instep.control.pauses import ActivePause
from instep.control.queries.context import QueryContext
from instep.control.resources.api_keys import links_of_groups, may
from instep.control.resources.resources import Managed
from instep.control.schedules import upcoming
from instep.errors import InstepError, NotFound, ProjectError
from instep.model import Job, JobSummary, Run, Scheduled, Worker
from instep.operations.queries.work import (
    ConnectionState,
    CountConnections,
    GetConnection,
    GetDetector,
    GetQueuedJob,
    ListBackfills,
    ListConnections,
    ListQueue,
)
from instep.operations.registry import policy_of, spec_of
from instep.operations.spec import QueryWork
from instep.operations.values import JobStatus, RunStatus
from instep.store.catalogs.backfills import Backfill
from instep.store.catalogs.connection_status import FreshnessSummary
from instep.store.server.resources import Link
from instep.store.store import Store

_AT_ONCE = 1000
"""Connections that are counted by the same statements."""


@dataclass(frozen=True)
class ConnectionSummary:
    """A connection with its state."""

    name: str
    source: str
    destination: str
    namespace: str
    policy: str
    tags: tuple[str, ...]
    status: ConnectionState
    """processing: a detection runs; waiting: for a person; new: it has never run."""
    waiting: int
    """Open changes that wait for a person."""
    last_run: Run | None
    managed_by: Literal["file", "server"]
    synced: datetime | None = None
    """End of the last sync that succeeded; null before the first."""
    freshness: FreshnessSummary | None = None
    """Freshness of its loaded tables against their targets; null if none has one."""


@dataclass(frozen=True)
class ConnectionDetails(ConnectionSummary):
    """A connection with its pauses and schedules."""

    pauses: tuple[ActivePause, ...] = ()
    """Pauses in effect for it or its tables."""
    schedules: tuple[Scheduled, ...] = ()
    """Its scheduled work with the next times."""


class ConnectionList(QueryWork):
    """Connections by their names."""

    place_types = (str,)

    def items(
        self, context: QueryContext, query: ListConnections, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ConnectionSummary]:
        """Return connections by name; those of one state are looked for page by page."""
        matching: list[ConnectionSummary] = []
        while len(matching) < limit:
            page = managed_page(context, query, after, limit)
            matching += (one for one in summaries(context, page) if query.status in (None, one.status))
            if query.status is None or len(page) < limit:
                break
            after = (page[-1].name,)
        return matching[:limit]

    def place(self, item: ConnectionSummary) -> Sequence[Any]:
        """Return the connection's name."""
        return (item.name,)


@dataclass(frozen=True)
class ConnectionCounts:
    """Numbers of connections."""

    states: Mapping[ConnectionState, int]
    """Number of connections per state; states without any are left out."""
    total: int


class ConnectionCounting(QueryWork):
    """Numbers of connections."""

    def find(self, context: QueryContext, query: CountConnections) -> ConnectionCounts:
        """Return the numbers per state, from a few statements for each thousand connections."""
        counted, after, store = Counter[ConnectionState](), tuple[str, ...](), context.store
        while page := managed_page(context, query, after, _AT_ONCE):
            names = [one.name for one in page]
            states = _states(store, names, store.pages.latest_statuses(names), store.pages.waiting(names))
            counted.update(states.values())
            after = (names[-1],)
        return ConnectionCounts(dict(counted), counted.total())


class ConnectionLookup(QueryWork):
    """One connection by its name."""

    def find(self, context: QueryContext, query: GetConnection) -> ConnectionDetails:
        """Return the connection with its pauses."""
        name = query.connection
        resource = context.resources.find("connection", name) if context.sees(name) else None
        if resource is None:
            raise NotFound.of("connection", name)
        [one] = summaries(context, [resource], freshness=query.freshness)
        schedules = upcoming(context.store, context.project, name, datetime.now(UTC))
        return ConnectionDetails(**vars(one), pauses=pauses.active(context.store, name), schedules=schedules)


def managed_page(
    context: QueryContext, query: ListConnections | CountConnections, after: Sequence[Any] | None, limit: int
) -> Sequence[Managed]:
    """Return connections by name that the asker may see."""
    links: list[Link] = [("tag", query.tag)] if query.tag is not None else []
    links += [("policy", query.policy)] if query.policy is not None else []
    groups = context.key.groups if context.key is not None else ()
    return context.resources.page(
        "connection",
        after=after[0] if after else "",
        limit=limit,
        name=query.search or "",
        links=links,
        any_of=links_of_groups(groups),
    )


def summaries(
    context: QueryContext, connections: Sequence[Managed], *, freshness: bool = True
) -> list[ConnectionSummary]:
    """Return how connections fare, by a few statements for all of them; without `freshness` that is None."""
    names, store = [one.name for one in connections], context.store
    runs, waiting = store.pages.latest_runs(names), store.pages.waiting(names)
    states, outcomes = (
        _states(store, names, {name: run.status for name, run in runs.items()}, waiting),
        store.runs.outcomes(names),
    )
    namespaces = dict[str, str]()
    targeted = [one.name for one in connections if freshness and _may_have_target(one.spec)]
    fresh = (
        freshness_of(store, context.project.for_connections(targeted), targeted, datetime.now(UTC)) if targeted else {}
    )

    def one(of: Managed) -> ConnectionSummary:
        synced = outcomes[of.name].succeeded if of.name in outcomes else None
        connections = _summary(context, of, runs.get(of.name), waiting.get(of.name, 0), states[of.name], namespaces)
        return replace(connections, synced=synced, freshness=summary(fresh.get(of.name, {}).values()))

    return [one(of) for of in connections]


def _states(
    store: Store, names: Sequence[str], last: Mapping[str, RunStatus], waiting: Mapping[str, int]
) -> dict[str, ConnectionState]:
    """Return the state of each connection. `last`: the statuses of their last runs; `waiting`: how many changes of each
    wait for a person."""
    paused = store.pages.paused(names)
    detecting = {
        job.connection for job in store.jobs.unfinished(names) if job.kind == "detect" and job.status == "running"
    }
    return {
        name: "processing" if name in detecting else _status(last.get(name), waiting.get(name, 0), name in paused)
        for name in names
    }


def _may_have_target(spec: Mapping[str, Any]) -> bool:
    """Return whether a connection's section, as it is written, says anything of freshness."""
    tables = spec.get("tables") or {}
    return "freshness" in spec or any("freshness" in (table or {}) for table in tables.values())


def _summary(
    context: QueryContext,
    managed: Managed,
    run: Run | None,
    waiting: int,
    status: ConnectionState,
    namespaces: dict[str, str],
) -> ConnectionSummary:
    """Return one summary. What the server keeps names both its ends: their sections are not read for it."""
    name, spec, own = managed.name, managed.spec, managed.by == "file"
    destination = context.project.destination_of(name) if own else str(spec["destination"])
    if destination not in namespaces:
        namespaces[destination] = _namespace(context, destination)
    return ConnectionSummary(
        name=name,
        source=context.project.source_of(name) if own else str(spec["source"]),
        destination=destination,
        namespace=str(spec.get("namespace") or namespaces[destination] or name),
        policy=str(spec.get("policy") or ""),
        tags=tuple(managed.tags),
        status=status,
        waiting=waiting,
        last_run=run,
        managed_by=managed.by,
    )


def _namespace(context: QueryContext, destination: str) -> str:
    """Return "" where the file refers to a value that is not there: one connection must not hide the others."""
    try:
        return context.project.common_namespace(destination)
    except ProjectError:
        return ""


def _status(last: RunStatus | None, waiting: int, paused: bool) -> ConnectionState:
    if paused:
        return "paused"
    if last in ("running", "failed"):
        return "running" if last == "running" else "failing"
    return "waiting" if waiting else "new" if last is None else "idle"


class BackfillList(QueryWork):
    """Backfills of one connection by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListBackfills, after: Sequence[Any] | None, limit: int
    ) -> Sequence[Backfill]:
        """Return backfills, newest first."""
        known = context.store.backfills.find(context.connection(query.connection), query.status)[::-1]
        return [one for one in known if after is None or one.number < after[0]][:limit]

    def place(self, item: Backfill) -> Sequence[Any]:
        """Return the backfill's number."""
        return (item.number,)


@dataclass(frozen=True)
class QueueTotals:
    """Jobs with the counts and workers of the whole server; both are empty for keys limited to groups."""

    counts: Mapping[JobStatus, int]
    """Number of jobs per status."""
    workers: tuple[Worker, ...]
    """The workers."""


class QueueList(QueryWork):
    """Jobs by the time when they were made."""

    place_types = (datetime, str)

    def items(
        self, context: QueryContext, query: ListQueue, after: Sequence[Any] | None, limit: int
    ) -> Sequence[JobSummary]:
        """Return jobs, newest first."""
        named = query.connection
        if named is not None and context.key is not None:  # at the project also what is left of one that is gone
            named = context.connection(named)
        jobs = context.store.jobs.find(
            status=query.status,
            connection=named,
            scope=context.scope if named is None else None,
            after=(after[0], after[1]) if after else None,
            limit=limit,
            whole=False,
        )
        names = [field.name for field in fields(JobSummary)]
        return [JobSummary(**{name: getattr(job, name) for name in names}) for job in jobs]

    def place(self, item: JobSummary) -> Sequence[Any]:
        """Return when the job was made, and its id."""
        return (item.created, item.id)

    def page_summary(self, context: QueryContext, query: ListQueue) -> QueueTotals:
        """Return how many jobs there are, and who works."""
        if context.scope is not None:
            return QueueTotals({}, ())
        return QueueTotals(context.store.jobs.counts(), tuple(context.store.workers.live()))


class JobDetails(QueryWork):
    """One job by its id or a unique prefix of it."""

    def find(self, context: QueryContext, query: GetQueuedJob) -> Job:
        """Return the job with what it has answered."""
        try:
            job = context.store.jobs.get(query.job, context.scope)
        except InstepError:
            raise NotFound.of("job", query.job) from None
        job = context.store.jobs.open_result(job)
        return job if context.key is None else as_shown_to(context.key.role, job)


def as_shown_to(role: str, job: Job) -> Job:
    """Return the job as this role may read it: without its result if that has values of rows which the role may not
    ask for."""
    if not policy_of(job.kind).shows_values or may(role, spec_of(job.kind).role):
        return job
    return replace(job, result={})


@dataclass(frozen=True)
class DetectionSummary:
    """One detection."""

    job: str
    status: str
    why: str
    triggered_by_error: bool
    ended: datetime | None
    error: str
    counts: Mapping[str, Mapping[str, int]]
    """New, deleted, updated and unchanged objects by level, once it has looked."""

    @classmethod
    def of(cls, job: Job) -> DetectionSummary:
        """Return the summary of a job."""
        by_error, counts = bool(job.options.get("triggered_by_error")), job.result.get("counts", {})
        return cls(job.id, job.status, job.why, by_error, job.ended, job.error, counts)


@dataclass(frozen=True)
class DetectorDetails:
    """The scheduled detection of a connection."""

    connection: str
    state: State
    """processing: a detection runs; internal_disabled: it has switched itself off."""
    enabled: bool
    frequency: int
    """Interval in seconds."""
    internal_disabled_detect_schema_changes: bool
    reason: str
    """Reason why it has disabled itself."""
    next_due: datetime | None
    current: DetectionSummary | None
    """The detection that runs or waits."""
    last: DetectionSummary | None
    """The detection that ended last."""
    options: Mapping[str, Any]
    """Options of the source as a whole, as far as they are set."""
    tables: Mapping[str, Mapping[str, Any]]
    """Options of tables by pattern."""


class DetectorLookup(QueryWork):
    """The scheduled detection of one connection."""

    def find(self, context: QueryContext, query: GetDetector) -> DetectorDetails:
        """Return its state, its last detections and its options."""
        name = context.connection(query.connection)
        status = detector_status(context.store, context.project, name)
        next_due = None
        if status.enabled and not status.internal_disabled:
            planned = upcoming(context.store, context.project, name, datetime.now(UTC))
            next_due = next((one.next_due for one in planned if one.kind == "detect"), None)
        return DetectorDetails(
            status.connection,
            status.state,
            status.enabled,
            status.frequency,
            status.internal_disabled,
            status.reason,
            next_due,
            DetectionSummary.of(status.job) if status.job else None,
            DetectionSummary.of(status.last) if status.last else None,
            dict(status.options),
            {pattern: dict(options) for pattern, options in status.tables.items()},
        )
