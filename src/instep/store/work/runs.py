"""Runs: at most one running per connection, each with a fence higher than all before it and a lease.

A run is taken over when its process is gone from this host or its lease has expired; what it still tries to
write is refused by its fence.

Keeps a run's lease alive from a thread while the run works.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)

from instep.errors import Fenced, InstepError, RunInProgress
from instep.events import RunEnded
from instep.model import Run, TableRun
from instep.operations.values import RunKind, RunStatus
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.engine.owner import Owner, this_process
from instep.store.history.events import Events
from instep.store.tables.catalogs import QUARANTINED, connections, runs, table_runs
from instep.store.tables.queue import LOST, MOVES, jobs

LEASE = timedelta(seconds=60)
_AT_ONCE = 200
"""Rows that one statement names."""
SYNCS = ("sync", "backfill")
FAILED = ("failed", "partial", "blocked")


@dataclass(frozen=True)
class Outcomes:
    """Times of a connection's last successful (`succeeded`) and failed (`failed`) sync, None if never. A
    job that was given up has failed, too, even if it never began a run."""

    succeeded: datetime | None = None
    failed: datetime | None = None
    running: bool = False


class LatestOutcome(NamedTuple):
    """Outcome of the last run of a table, and its id."""

    table: tuple[str, str]
    status: str
    mode: str
    run: str


class Runs:
    def __init__(self, database: Database, events: Events, lease: timedelta = LEASE) -> None:
        self._db, self._events = database, events
        self.lease = lease

    def claim(self, connection: str, kind: RunKind, who: str = "", detail: Mapping[str, Any] | None = None) -> Run:
        """Start a run; raises RunInProgress while another one of the connection is alive. One that is not ends here,
        with its event."""
        with self._db.write(connection) as transaction:
            now = self._db.now()
            ensure(transaction, connection, now)
            self._take_over(transaction, connection, now)
            where = connections.c.name == connection
            transaction.execute(update(connections).where(where).values(fence=connections.c.fence + 1))
            fence = int(transaction.execute(select(connections.c.fence).where(where)).scalar_one())
            run = Run(_run_id(now), connection, kind, "running", fence, now, detail=dict(detail or {}))
            owner = this_process()
            transaction.execute(
                insert(runs).values(
                    **vars(run),
                    who=who,
                    host=owner.host,
                    pid=owner.pid,
                    pid_started=owner.started,
                    lease_until=now + self.lease,
                )
            )
            return run

    def check_idle(self, connection: str) -> None:
        """Raise RunInProgress while a run of the connection is alive, as `claim` does."""
        with self._db.read() as transaction:
            _under_way(transaction, connection, self._db.now())

    def _take_over(self, transaction: Connection, connection: str, now: datetime) -> None:
        where = (runs.c.connection == connection, runs.c.status == "running")
        row = _under_way(transaction, connection, now)
        if row is None:
            return
        gone = Owner(row.host, row.pid, row.pid_started).is_ended
        silent = f"no sign of life since {row.lease_until - self.lease:%H:%M:%S} UTC"
        why = f"process {row.pid} has ended" if gone else silent
        error = f"interrupted: {why}"
        ends = update(runs).where(*where, runs.c.id == row.id).values(status="failed", ended=now, error=error)
        if transaction.execute(ends).rowcount == 1:
            self._events.add(RunEnded(connection, row.id, row.kind, "failed", error))

    def orphans(self) -> list[Run]:
        """Return runs that are recorded as running and whose process on this host has certainly ended."""
        with self._db.read() as transaction:
            rows = transaction.execute(select(runs).where(runs.c.status == "running")).all()
        return [run_of(row) for row in rows if Owner(row.host, row.pid, row.pid_started).is_ended]

    def unable_to_commit(self, ids: Iterable[str]) -> frozenset[str]:
        """Return those of these ended runs that certainly commit no more: their process on this host is gone, or is
        this one, which has ended them itself."""
        with self._db.read() as transaction:
            rows = transaction.execute(select(runs).where(runs.c.id.in_(list(ids)))).all()
        owners = ((row.id, Owner(row.host, row.pid, row.pid_started)) for row in rows)
        return frozenset(id for id, owner in owners if owner.is_ended or owner == this_process())

    def heartbeat(self, run: Run) -> None:
        """Extend the lease; raises Fenced once the run was taken over."""
        with self._db.write(run.connection) as transaction:
            self._change(transaction, run, lease_until=self._db.now() + self.lease)

    def finish(self, run: Run, status: RunStatus, error: str = "", detail: Mapping[str, Any] | None = None) -> Run:
        """End a run; `detail` replaces the recorded one if given. Raises Fenced once it was taken over."""
        with self._db.write(run.connection) as transaction:
            values: dict[str, Any] = {"status": status, "error": error, "ended": self._db.now()}
            if detail is not None:
                values["detail"] = dict(detail)
            self._change(transaction, run, **values)
            return run_of(transaction.execute(select(runs).where(runs.c.id == run.id)).one())

    def describe(self, run: Run, **detail: Any) -> None:
        """Add to the recorded detail of a run."""
        with self._db.write(run.connection) as transaction:
            where = runs.c.id == run.id
            recorded = transaction.execute(select(runs.c.detail).where(where)).scalar_one()
            transaction.execute(update(runs).where(where).values(detail={**recorded, **detail}))

    def record_result(self, run: Run, status: RunStatus, error: str = "") -> None:
        """Record the result of a run that was ended on record before its work, so as to hold nobody up."""
        values = {"status": status, "error": error, "ended": self._db.now()}
        with self._db.write(run.connection) as transaction:
            transaction.execute(update(runs).where(runs.c.id == run.id).values(**values))

    def check(self, run: Run) -> None:
        """Raise Fenced once the run was taken over."""
        with self._db.read() as transaction:
            status = transaction.execute(select(runs.c.status).where(runs.c.id == run.id)).scalar()
            if status != "running":
                raise _fenced(run)

    def _change(self, transaction: Connection, run: Run, **values: Any) -> None:
        where = (runs.c.id == run.id, runs.c.status == "running")
        if transaction.execute(update(runs).where(*where).values(**values)).rowcount != 1:
            raise _fenced(run)

    def get(self, run_id: str) -> Run:
        """Return the run with this id, or whose id alone starts so; InstepError if there is none."""
        with self._db.read() as transaction:
            rows = transaction.execute(select(runs).where(runs.c.id.startswith(run_id, autoescape=True)).limit(2)).all()
            if len(rows) != 1:
                raise InstepError(f"no run {run_id!r} is known", hint="see `instep history`")
            return run_of(rows[0])

    def get_many(self, ids: Collection[str]) -> dict[str, Run]:
        """Return the runs with these whole ids, by id; unknown ids are skipped."""
        with self._db.read() as transaction:
            rows = transaction.execute(select(runs).where(runs.c.id.in_(ids))).all()
            return {row.id: run_of(row) for row in rows}

    def running(self, connection: str) -> Run | None:
        """Return the run that is under way, dead or alive."""
        run = self.latest(connection)
        return run if run and run.status == "running" else None

    def latest(self, connection: str, kind: RunKind | None = None) -> Run | None:
        history = self.history(connection, kind=kind, limit=1)
        return history[0] if history else None

    def history(self, connection: str | None = None, *, kind: RunKind | None = None, limit: int = 50) -> list[Run]:
        """Return runs, newest first, of one connection or of all."""
        query = select(runs).order_by(runs.c.started.desc(), runs.c.fence.desc()).limit(limit)
        if connection is not None:
            query = query.where(runs.c.connection == connection)
        if kind is not None:
            query = query.where(runs.c.kind == kind)
        with self._db.read() as transaction:
            return [run_of(row) for row in transaction.execute(query)]

    def with_tables(
        self, connection: str, kinds: Sequence[RunKind], since: datetime
    ) -> list[tuple[Run, list[TableRun]]]:
        """Return the runs of these kinds that have not ended by `since`, with the results of their tables."""
        lasts = or_(runs.c.ended.is_(None), runs.c.ended > since)
        query = select(runs).where(runs.c.connection == connection, runs.c.kind.in_(kinds), lasts)
        results = select(table_runs).where(table_runs.c.run.in_(query.with_only_columns(runs.c.id)))
        with self._db.read() as transaction:
            found: dict[str, tuple[Run, list[TableRun]]] = {r.id: (run_of(r), []) for r in transaction.execute(query)}
            for result in map(_table_run, transaction.execute(results)):
                found[result.run][1].append(result)
        return list(found.values())

    def last_dead(self, connection: str) -> int:
        """Return the fence of the connection's last run that did not get to its end, 0 if all did."""
        ended = runs.c.status.not_in(("running", "done", "partial"))
        query = select(func.max(runs.c.fence)).where(runs.c.connection == connection, ended)
        with self._db.read() as transaction:
            return int(transaction.execute(query).scalar() or 0)

    def outcomes(self, names: Sequence[str]) -> dict[str, Outcomes]:
        """Return how the syncs of these connections have gone; those that never ran are not there."""
        c = runs.c
        done = func.max(case((c.status == "done", c.ended)))
        failed = func.max(case((c.status.in_(FAILED), c.ended)))
        running = func.count(case((c.status == "running", c.fence)))
        query = select(c.connection, done, failed, running).where(c.connection.in_(names), c.kind.in_(SYNCS))
        j = jobs.c
        lost = select(j.connection, func.max(j.ended)).where(
            j.connection.in_(names), j.kind.in_(MOVES), j.status.in_(LOST), j.error != ""
        )
        with self._db.read() as transaction:
            rows = transaction.execute(query.group_by(c.connection)).all()
            given_up = {name: ended for name, ended in transaction.execute(lost.group_by(j.connection)) if ended}
        outcomes = {name: Outcomes(done, failed, running > 0) for name, done, failed, running in rows}
        for name, ended in given_up.items():
            outcome = outcomes.get(name, Outcomes())
            outcomes[name] = replace(outcome, failed=max(filter(None, (outcome.failed, ended))))
        return outcomes

    def record_tables(self, *results: TableRun) -> None:
        """Record the results of tables; the latest one counts."""
        if not results:
            return
        c = table_runs.c
        same = (c.run == bindparam("of"), c.table_schema == bindparam("schema"), c.table_name == bindparam("name"))
        with self._db.write() as transaction:
            keys = [{"of": r.run, "schema": r.table[0], "name": r.table[1]} for r in results]
            transaction.execute(table_runs.delete().where(*same), keys)
            transaction.execute(insert(table_runs), [_row(r) for r in results])

    def tables(
        self,
        run_id: str,
        statuses: Sequence[str] = (),
        after: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[TableRun]:
        """Return the tables of a run, by name; with these statuses or all, `after` this schema and name."""
        c = table_runs.c
        query = select(table_runs).where(c.run == run_id).order_by(c.table_schema, c.table_name).limit(limit)
        if statuses:
            query = query.where(c.status.in_(statuses))
        if after is not None:
            query = query.where(tuple_(c.table_schema, c.table_name) > tuple_(literal(after[0]), literal(after[1])))
        with self._db.read() as transaction:
            return [_table_run(row) for row in transaction.execute(query)]

    def outcomes_of_run(self, run_id: str) -> dict[str, int]:
        """Return the number of a run's tables by status."""
        c = table_runs.c
        query = select(c.status, func.count()).where(c.run == run_id).group_by(c.status).order_by(c.status)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}

    def tables_of_runs(self, places: Sequence[tuple[str, tuple[str, str]]]) -> list[TableRun]:
        """Return the results of some runs (ids) for some tables, in the order given."""
        c = table_runs.c
        results: dict[tuple[str, tuple[str, str]], TableRun] = {}
        with self._db.read() as transaction:
            for at in range(0, len(places), _AT_ONCE):
                part = [(run, *ref) for run, ref in places[at : at + _AT_ONCE]]
                where = tuple_(c.run, c.table_schema, c.table_name).in_(part)
                for result in map(_table_run, transaction.execute(select(table_runs).where(where))):
                    results[result.run, result.table] = result
        return [results[place] for place in places if place in results]

    def loads(self, connection: str, table: str | None, before: int | None, limit: int) -> list[tuple[Run, TableRun]]:
        """Return runs that loaded a table with what they did to it, or (None) to all tables together, newest first.

        `table` is `schema.table`; `before`: runs with a lower fence.
        """
        c = table_runs.c
        sums = [func.sum(c[name]).label(name) for name in _COUNTED]
        failed = func.max(case((c.status == "failed", 1), else_=0)).label("failed")
        query = select(runs, *sums, failed).join(table_runs, runs.c.id == c.run).where(runs.c.connection == connection)
        if table is not None:
            path = case((c.table_schema == "", c.table_name), else_=c.table_schema + "." + c.table_name)
            query = query.where(path == table)
        if before is not None:
            query = query.where(runs.c.fence < before)
        query = query.group_by(runs.c.id).order_by(runs.c.fence.desc()).limit(limit)
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        return [(run_of(row), _summed(row)) for row in rows]

    def has_quarantined(self, connection: str) -> bool:
        """Return whether a run of the connection has put anything into quarantine."""
        return bool(self.with_quarantined([connection]))

    def with_quarantined(self, names: Sequence[str]) -> frozenset[str]:
        """Return those of these connections of which a run has quarantined anything. By an index of its own."""
        query = select(runs.c.connection).join(table_runs, runs.c.id == table_runs.c.run).distinct()
        with self._db.read() as transaction:
            where = (runs.c.connection.in_(names), text(QUARANTINED))
            return frozenset(transaction.execute(query.where(*where)).scalars())

    def latest_outcomes_of(self, names: Sequence[str]) -> dict[str, list[LatestOutcome]]:
        """Return for each table of these connections how its last run went, by schema and name."""
        c = table_runs.c
        columns = (runs.c.connection, c.table_schema, c.table_name, c.status, c.mode, c.run)
        outcomes: dict[str, list[LatestOutcome]] = {name: [] for name in names}
        with self._db.read() as transaction:
            for connection, schema, name, *outcome in transaction.execute(self._latest(columns, names)):
                outcomes[connection].append(LatestOutcome((schema, name), *outcome))
        return {name: sorted(own) for name, own in outcomes.items()}

    def latest_tables(self, connection: str) -> dict[tuple[str, str], TableRun]:
        """Return for each table of a connection the result of the last run that loaded it."""
        with self._db.read() as transaction:
            rows = transaction.execute(self._latest(tuple(table_runs.c), [connection]))
            return {result.table: result for result in map(_table_run, rows)}

    def _latest(self, columns: Sequence[Column[Any]], names: Sequence[str]) -> Select[Any]:
        c = table_runs.c
        query = select(*columns).select_from(table_runs).join(runs, runs.c.id == c.run)
        newest = (
            select(runs.c.connection, c.table_schema, c.table_name, func.max(runs.c.fence).label("fence"))
            .join(runs, runs.c.id == c.run)
            .where(runs.c.connection.in_(names))
            .group_by(runs.c.connection, c.table_schema, c.table_name)
            .subquery()
        )
        return query.join(
            newest,
            (newest.c.connection == runs.c.connection)
            & (newest.c.table_schema == c.table_schema)
            & (newest.c.table_name == c.table_name)
            & (newest.c.fence == runs.c.fence),
        )


def _run_id(now: datetime) -> str:
    """Return a run id that sorts by time and is safe in file names."""
    return f"r-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _under_way(transaction: Connection, connection: str, now: datetime) -> Row[Any] | None:
    """Return the run that has not ended, if it is dead; RunInProgress if it is alive."""
    where = (runs.c.connection == connection, runs.c.status == "running")
    row = transaction.execute(select(runs).where(*where)).first()
    if row is not None and row.lease_until > now and not Owner(row.host, row.pid, row.pid_started).is_ended:
        raise _in_progress(row)
    return row


def _in_progress(row: Row[Any]) -> RunInProgress:
    return RunInProgress(
        f"connection {row.connection}: a {row.kind} is running since {row.started:%Y-%m-%d %H:%M:%S} UTC "
        f"(process {row.pid} on {row.host.partition('/')[0]}, run {row.id})",
        hint="wait until it ends, or stop that process",
    )


def _fenced(run: Run) -> Fenced:
    return Fenced(
        f"connection {run.connection}: run {run.id} was taken over by a later one and stops here",
        hint="the later run does its work; see `instep status`",
    )


_RUN_FIELDS = ("id", "connection", "kind", "status", "fence", "started", "ended", "error", "detail")


def run_of(row: Row[Any]) -> Run:
    return Run(**{field: getattr(row, field) for field in _RUN_FIELDS})


_COUNTED = ("read", "inserted", "updated", "deleted", "invalid_values", "bytes", "seconds")


def _summed(row: Row[Any]) -> TableRun:
    counted = {name: row._mapping[name] for name in _COUNTED}
    whole: dict[str, Any] = {name: float(value) if name == "seconds" else int(value) for name, value in counted.items()}
    return TableRun(row.id, ("", ""), "failed" if row.failed else "done", **whole)


def _row(result: TableRun) -> dict[str, Any]:
    values = {k: v for k, v in vars(result).items() if k != "table"}
    return {**values, "table_schema": result.table[0], "table_name": result.table[1]}


def _table_run(row: Row[Any]) -> TableRun:
    values = dict(row._mapping)
    return TableRun(table=(values.pop("table_schema"), values.pop("table_name")), **values)


class Heartbeat:
    """`with Heartbeat(store.runs, run):` extends the lease three times per lease.

    `is_lost` becomes true once the run was taken over; `check()` then raises Fenced. A store that is busy for a
    moment does not end the run: the next beat tries again.
    """

    def __init__(self, runs: Runs, run: Run) -> None:
        self._runs, self._run = runs, run
        self._stop = threading.Event()
        self._lost: Fenced | None = None
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {run.id}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def check(self) -> None:
        """Raise Fenced once the run was taken over."""
        if self._lost is not None:
            raise Fenced(self._lost.message, hint=self._lost.hint)

    def _beat(self) -> None:
        while not self._stop.wait(self._runs.lease.total_seconds() / 3):
            try:
                self._runs.heartbeat(self._run)
            except Fenced as error:
                self._lost = error
                return
            except InstepError:
                continue
