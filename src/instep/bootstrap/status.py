"""The status of connections: last loads, pending decisions, and the log position of their source."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from instep.control.freshness import freshness_of, worst_first
from instep.control.queries.context import QueryContext
from instep.control.queries.work import managed_page
from instep.control.selection.reselected import decided
from instep.operations.queries.work import GetStatus, ListConnections, ListStatus
from instep.operations.spec import QueryWork
from instep.store.catalogs.connection_status import ConnectionStatus
from instep.sync.status import statuses

_AT_ONCE = 100
"""Connections whose status is read by the same statements."""


class StatusList(QueryWork):
    """The status of connections by their names."""

    place_types = (str,)

    def items(self, context: QueryContext, query: ListStatus, after: Sequence[Any] | None, limit: int) -> Sequence[str]:
        """Return the connections' names."""
        return _names(context, after, limit)

    def shown(self, context: QueryContext, items: Sequence[str]) -> Sequence[ConnectionStatus]:
        """Return the status of each."""
        parts = [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]
        return [one for part in parts for one in connection_statuses(context, part)]

    def place(self, item: str) -> Sequence[Any]:
        """Return the connection's name."""
        return (item,)


class StatusLookup(QueryWork):
    """The status of one connection."""

    def find(self, context: QueryContext, query: GetStatus) -> ConnectionStatus:
        """Return the status."""
        [found] = connection_statuses(context, [context.connection(query.connection)])
        return found


def _names(context: QueryContext, after: Sequence[Any] | None, limit: int) -> Sequence[str]:
    """Return the connections of a page; at the project in the order of its file, ProjectError if it has none."""
    if context.key is None:
        return context.project.selected()[:limit]
    return [one.name for one in managed_page(context, ListConnections(), after, limit)]


def connection_statuses(context: QueryContext, names: Sequence[str]) -> list[ConnectionStatus]:
    """Return the status of each, by as many statements as for one."""
    project = context.project.among(names)
    versions = context.store.accepted.latest_of(names)
    chosen = decided(project, context.store, {name: catalog for name, (_, catalog) in versions.items()}, names)
    loads = statuses(project, context.store, versions, names, context.open_connection, context.tell)
    fresh = freshness_of(context.store, project, names, datetime.now(UTC), whole=True)
    return [
        ConnectionStatus(
            **vars(one),
            **chosen[one.connection],
            freshness=worst_first(fresh[one.connection].values()),
            log=context.log_status(one.connection),
        )
        for one in loads
    ]
