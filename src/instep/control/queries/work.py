"""Answers about work of connections, from the store alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from instep.control.queries.context import QueryContext
from instep.errors import InstepError, NotFound
from instep.model import Job, JobSummary, Worker
from instep.operations.kinds import JobStatus
from instep.operations.queries.work import GetQueuedJob, ListBackfills, ListQueue
from instep.operations.spec import QueryWork
from instep.store.catalogs.backfills import Backfill


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
        found = context.store.jobs.find(
            status=query.status,
            connection=named,
            scope=context.scope if named is None else None,
            after=(after[0], after[1]) if after else None,
            limit=limit,
            whole=False,
        )
        names = [one.name for one in fields(JobSummary)]
        return [JobSummary(**{name: getattr(job, name) for name in names}) for job in found]

    def place(self, item: JobSummary) -> Sequence[Any]:
        """Return when the job was made, and its id."""
        return (item.created, item.id)

    def beside(self, context: QueryContext, query: ListQueue) -> QueueTotals:
        """Return how many jobs there are, and who works."""
        if context.scope is not None:
            return QueueTotals({}, ())
        return QueueTotals(context.store.jobs.counts(), tuple(context.store.workers.live()))


class JobDetails(QueryWork):
    """One job by its id or a unique prefix of it."""

    def find(self, context: QueryContext, query: GetQueuedJob) -> Job:
        """Return the job with what it has answered."""
        try:
            return context.store.jobs.get(query.job, context.scope)
        except InstepError:
            raise NotFound.of("job", query.job) from None
