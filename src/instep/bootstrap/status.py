"""The status of connections: last loads, pending decisions, and the log position of their source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from instep.control.freshness import freshness_of, has_target, worst_first
from instep.control.queries.context import QueryContext
from instep.control.queries.work import managed_page
from instep.control.selection.reselected import decided
from instep.model import AcceptedVersion
from instep.operations.queries.work import GetStatus, ListConnections, ListStatus, ListTableStatus
from instep.operations.spec import QueryWork
from instep.store.catalog_documents import accepted_document
from instep.store.catalogs.connection_status import LISTED, ConnectionStatus, TableLoad
from instep.store.store import Store
from instep.sync.status import next_command, shown_outcomes, statuses, table_loads

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
        return [connection_status for part in parts for connection_status in connection_statuses(context, part)]

    def place(self, item: str) -> Sequence[Any]:
        """Return the connection's name."""
        return (item,)


class StatusLookup(QueryWork):
    """The status of one connection."""

    def find(self, context: QueryContext, query: GetStatus) -> ConnectionStatus:
        """Return the status."""
        [status] = connection_statuses(context, [context.connection(query.connection)])
        return status


class TableStatusList(QueryWork):
    """The status of one connection's tables by schema and name."""

    place_types = (str, str)

    def items(
        self, context: QueryContext, query: ListTableStatus, after: Sequence[Any] | None, limit: int
    ) -> Sequence[TableLoad]:
        """Return how each table fared last."""
        store, name = context.store, context.connection(query.connection)
        accepted = accepted_document(store, name)[1].outlines.values()
        live = [table.ref for table in accepted if not table.retained]
        latest = store.pages.latest_runs([name]).get(name)
        outcomes = shown_outcomes(live, store.runs.latest_outcomes_of([name])[name], latest)
        behind, search = (after[0], after[1]) if after else None, query.search.casefold()
        fitting = (
            outcome
            for outcome in outcomes
            if (behind is None or outcome.table > behind)
            and (not query.status or outcome.status in query.status)
            and search in ".".join(filter(None, outcome.table)).casefold()
        )
        loads = table_loads(store, name, list(islice(fitting, limit)))
        project = context.project.for_connections([name])
        if not has_target(project.connection(name)):
            return loads
        refs = [load.table for load in loads]
        fresh = freshness_of(store, project, [name], datetime.now(UTC), whole=True, only=refs)[name]
        return [replace(outcome, freshness=fresh.get(outcome.table)) for outcome in loads]

    def place(self, item: TableLoad) -> Sequence[Any]:
        """Return the table's schema and name."""
        return item.table


def _names(context: QueryContext, after: Sequence[Any] | None, limit: int) -> Sequence[str]:
    """Return the connections of a page; at the project in the order of its file, ProjectError if it has none."""
    if context.key is None:
        return context.project.selected()[:limit]
    return [managed.name for managed in managed_page(context, ListConnections(), after, limit)]


def _versions(store: Store, names: Sequence[str]) -> Mapping[str, tuple[AcceptedVersion, Mapping[str, Any]]]:
    """Return the latest accepted version of each with its catalog; that of a single one is cached."""
    if len(names) != 1:
        return store.accepted.latest_of(names)
    version, document = accepted_document(store, names[0])
    return {names[0]: (version, {"tables": list(document.tables.values())})} if version else {}


def connection_statuses(context: QueryContext, names: Sequence[str]) -> list[ConnectionStatus]:
    """Return the status of each, by as many statements as for one."""
    project = context.project.for_connections(names)
    versions = _versions(context.store, names)
    chosen = decided(project, context.store, {name: catalog for name, (_, catalog) in versions.items()}, names)
    loads = statuses(project, context.store, versions, names, context.open_connection, context.tell)
    fresh = freshness_of(context.store, project, names, datetime.now(UTC), whole=True)
    return [
        ConnectionStatus(
            **vars(load),
            **chosen[load.connection],
            freshness=worst_first(fresh[load.connection].values())[:LISTED],
            freshness_counts=dict(Counter(table.state for table in fresh[load.connection].values())),
            next_command=next_command(load.connection, load.last_run),
            log=context.log_status(load.connection),
        ).shortened()
        for load in loads
    ]
