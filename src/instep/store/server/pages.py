"""Pages of long lists, newest first. A page begins behind a place, not after a count: what is added meanwhile moves
nothing, and the last page costs what the first does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, FromClause, Select, Table, func, literal, select, tuple_

from instep.model import Run
from instep.operations.values import RunStatus
from instep.store.catalogs.plans import StoredPlan, plan_of
from instep.store.catalogs.reviews import asks_now
from instep.store.engine.database import Database
from instep.store.tables.catalogs import pauses, plans, reviews, runs
from instep.store.tables.columns import Utc
from instep.store.work.runs import run_of

Place = tuple[datetime, str]


@dataclass(frozen=True)
class RowFilter:
    """Filter of rows: of these connections (None: all), with one of these statuses and kinds (none: any), and with an
    id that begins so."""

    connections: Collection[str] | None = None
    statuses: Sequence[str] = ()
    kinds: Sequence[str] = ()
    id: str = ""

    def where(self, table: FromClause) -> list[ColumnElement[bool]]:
        columns = {"status": self.statuses, "kind": self.kinds}
        conditions = [_among(table.c[name], values) for name, values in columns.items() if values]
        if self.id:
            conditions.append(table.c.id.startswith(self.id, autoescape=True))
        return conditions if self.connections is None else [*conditions, _among(table.c.connection, self.connections)]


def _among(column: ColumnElement[str], values: Collection[str]) -> ColumnElement[bool]:
    """Return a condition; a single value is compared as such, as the index that begins with it then gives the order
    as well."""
    return column == next(iter(values)) if len(values) == 1 else column.in_(sorted(values))


class Pages:
    def __init__(self, database: Database) -> None:
        self._db = database

    def runs(self, only: RowFilter, after: Place | None = None, limit: int = 100) -> list[Run]:
        """Return runs by their start."""
        query = page_of(runs, runs.c.started, only, after, limit)
        with self._db.read() as transaction:
            return [run_of(row) for row in transaction.execute(query)]

    def plans(self, connection: str, before: int | None = None, limit: int = 100) -> list[tuple[int, StoredPlan]]:
        """Return plans of a connection with their numbers."""
        query = select(plans).where(plans.c.connection == connection).order_by(plans.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(plans.c.number < before)
        with self._db.read() as transaction:
            return [(row["number"], plan_of(row)) for row in transaction.execute(query).mappings()]

    def latest_runs(self, connections: Collection[str]) -> dict[str, Run]:
        """Return the last run of each connection that has had one."""
        with self._db.read() as transaction:
            return {row.connection: run_of(row) for row in transaction.execute(_newest(connections, runs))}

    def latest_statuses(self, connections: Collection[str]) -> dict[str, RunStatus]:
        """Return the status of the last run of each connection that has had one."""
        with self._db.read() as transaction:
            rows = transaction.execute(_newest(connections, runs.c.connection, runs.c.status))
            return {row[0]: row[1] for row in rows}

    def waiting(self, connections: Collection[str]) -> Mapping[str, int]:
        """Return how many open changes of each connection wait for a person; snoozed ones do not."""
        c = reviews.c
        is_open = c.status + "" == "open"  # not by the index of statuses: few connections, many open changes
        query = select(c.connection, func.count()).where(is_open, asks_now(self._db.now())).group_by(c.connection)
        with self._db.read() as transaction:
            rows = transaction.execute(query.where(c.connection.in_(sorted(connections))))
            return {row[0]: row[1] for row in rows}

    def paused(self, connections: Collection[str]) -> frozenset[str]:
        """Return those of these connections that are paused as a whole."""
        c = pauses.c
        where = (c.connection.in_(sorted(connections)), c.table_name == "", c.ended.is_(None))
        with self._db.read() as transaction:
            return frozenset(transaction.execute(select(c.connection).where(*where).distinct()).scalars())


def _newest(connections: Collection[str], *columns: Any) -> Select[Any]:
    """Return the query of these columns of each connection's last run."""
    c = runs.c
    newest = (
        select(c.connection, func.max(c.fence).label("fence"))
        .where(c.connection.in_(sorted(connections)))
        .group_by(c.connection)
        .subquery()
    )
    return select(*columns).join(newest, (newest.c.connection == c.connection) & (newest.c.fence == c.fence))


def page_of(
    table: Table, at: Column[datetime], only: RowFilter, after: Place | None, limit: int | None
) -> Select[tuple[object, ...]]:
    """Return the query of a page: rows behind a place, newest first."""
    where = only.where(table)
    if after is not None:
        where.append(tuple_(at, table.c.id) < tuple_(literal(after[0], Utc()), literal(after[1])))
    return select(table).where(*where).order_by(at.desc(), table.c.id.desc()).limit(limit)
