"""Answers about work of connections, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from instep.control.queries.context import QueryContext
from instep.errors import InstepError, NotFound
from instep.model import Job
from instep.operations.queries.work import GetQueuedJob, ListBackfills
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


class JobDetails(QueryWork):
    """One job by its id or a unique prefix of it."""

    def find(self, context: QueryContext, query: GetQueuedJob) -> Job:
        """Return the job with what it has answered."""
        try:
            return context.store.jobs.get(query.job, context.scope)
        except InstepError:
            raise NotFound.of("job", query.job) from None
