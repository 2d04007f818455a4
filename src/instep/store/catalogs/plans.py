"""Plans that were applied, and the journal of their steps: for people and for undo, never what a run goes by.

A step that is `running` after its run is over may or may not have happened: the next run asks the destination
(sync/journal.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, insert, literal, select, tuple_, update

from instep.errors import InstepError
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import plans, steps

_AT_ONCE = 500
PlanStatus = Literal["running", "done", "failed", "interrupted"]
StepStatus = Literal["planned", "running", "done", "failed", "skipped"]


@dataclass(frozen=True)
class PlannedStep:
    """A step as planned, before it is executed."""

    id: str
    table: str
    """The destination's."""
    kind: str
    text: str
    rows: int = 0
    """Rows that it writes again."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan on record."""

    id: str
    connection: str
    at: datetime
    base_accepted: str
    base_destination: str
    plan: Mapping[str, Any]
    """JSON-ready; the bases are fingerprints of the catalogs that it starts from."""
    run: str = ""
    who: str = ""
    status: PlanStatus = "running"
    version: int = 0
    """The accepted version that it led to (0 while there is none)."""
    changes: tuple[str, ...] = ()
    """The ids of the changes that it applied."""
    ended: datetime | None = None
    error: str = ""


@dataclass(frozen=True)
class StepRecord:
    """One step of a plan."""

    plan: str
    number: int
    """Number from 1 in the order of execution."""
    step: str
    at_table: str
    kind: str
    text: str
    status: StepStatus
    rows: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    error: str = ""


class Plans:
    def __init__(self, database: Database) -> None:
        self._db = database

    def open(
        self,
        connection: str,
        plan_id: str,
        plan: Mapping[str, Any],
        planned: Sequence[PlannedStep],
        *,
        base_accepted: str,
        base_destination: str,
        run: str = "",
        who: str = "",
    ) -> StoredPlan:
        """Open the record of a plan before its first step. A finished plan with this id keeps its record: this one gets
        a numbered id."""
        now = self._db.now()
        with self._db.write() as transaction:
            ensure(transaction, connection, now)
            used = set(transaction.execute(select(plans.c.id).where(plans.c.id.startswith(plan_id))).scalars())
            free = plan_id
            for number in range(2, len(used) + 2):
                free = free if free not in used else f"{plan_id}-{number}"
            stored = StoredPlan(free, connection, now, base_accepted, base_destination, dict(plan), run=run, who=who)
            transaction.execute(insert(plans).values(**{**vars(stored), "changes": []}))
            rows = [_planned(free, number, step) for number, step in enumerate(planned, 1)]
            if rows:
                transaction.execute(insert(steps), rows)
        return stored

    def close(
        self, plan_id: str, status: PlanStatus, *, version: int = 0, changes: Iterable[str] = (), error: str = ""
    ) -> None:
        """Record the end of a plan; its steps that were never started are skipped."""
        now = self._db.now()
        values = {"status": status, "version": version, "changes": list(changes), "error": error, "ended": now}
        with self._db.write() as transaction:
            transaction.execute(update(plans).where(plans.c.id == plan_id).values(**values))
            left = (steps.c.plan == plan_id, steps.c.status == "planned")
            transaction.execute(update(steps).where(*left).values(status="skipped"))

    def get(self, plan_id: str) -> StoredPlan:
        """Raise InstepError if there is none."""
        with self._db.read() as transaction:
            row = transaction.execute(select(plans).where(plans.c.id == plan_id)).mappings().first()
        if row is None:
            raise InstepError(f"no plan {plan_id!r} is known", hint="see `instep history --plans`")
        return plan_of(row)

    def history(self, connection: str, limit: int = 50) -> list[StoredPlan]:
        """Return plans, newest first."""
        with self._db.read() as transaction:
            return [plan_of(row) for row in _newest(transaction, connection, limit)]

    def of_run(self, connection: str, run: str) -> list[StoredPlan]:
        """Return the plans that a run of a connection applied, oldest first, without their documents."""
        where = (plans.c.connection == connection, plans.c.run == run)
        columns = [column for column in plans.c if column.name != "plan"]
        query = select(*columns).where(*where).order_by(plans.c.number)
        with self._db.read() as transaction:
            return [plan_of({**row, "plan": {}}) for row in transaction.execute(query).mappings()]

    def unfinished(self, connection: str) -> list[StoredPlan]:
        """Return plans that may have left tables half done, newest first: nothing has ended well since."""
        status = (
            select(plans.c.status).where(plans.c.connection == connection).order_by(plans.c.number.desc()).limit(20)
        )
        with self._db.read() as transaction:
            since = list(takewhile(lambda value: value != "done", transaction.execute(status).scalars()))
            return [plan_of(row) for row in _newest(transaction, connection, len(since))] if since else []


class Steps:
    """The journal of steps."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def start(self, plan: str, ids: Iterable[str]) -> None:
        """Record that steps start, before they are executed; may be repeated after an interruption."""
        self._move(plan, ids, {"status": "running", "started": self._db.now(), "ended": None})

    def end(self, plan: str, ids: Iterable[str], status: StepStatus, error: str = "") -> None:
        self._move(plan, ids, {"status": status, "ended": self._db.now(), "error": error})

    def _move(self, plan: str, ids: Iterable[str], values: Mapping[str, Any]) -> None:
        requested = set(ids)
        with self._db.write() as transaction:
            where = (steps.c.plan == plan, steps.c.step.in_(sorted(requested)))
            if transaction.execute(update(steps).where(*where).values(**values)).rowcount < len(requested):
                raise InstepError(f"plan {plan} has no step {', '.join(sorted(requested))}", hint="plan again")

    def of(self, plan: str) -> tuple[StepRecord, ...]:
        """Return the steps in the order of their execution."""
        query = select(steps).where(steps.c.plan == plan).order_by(steps.c.number)
        with self._db.read() as transaction:
            return tuple(StepRecord(**row) for row in transaction.execute(query).mappings())

    def of_many(self, ids: Sequence[str]) -> dict[str, tuple[StepRecord, ...]]:
        """Return the steps of several plans by the plan's id, each in the order of their execution."""
        step_records: dict[str, list[StepRecord]] = {}
        with self._db.read() as transaction:
            for at in range(0, len(ids), _AT_ONCE):
                query = select(steps).where(steps.c.plan.in_(ids[at : at + _AT_ONCE])).order_by(steps.c.number)
                for row in transaction.execute(query).mappings():
                    step_records.setdefault(row["plan"], []).append(StepRecord(**row))
        return {plan: tuple(records) for plan, records in step_records.items()}

    def of_run(
        self, connection: str, run: str, after: tuple[int, int] | None, limit: int
    ) -> list[tuple[int, StepRecord]]:
        """Return steps of the plans that a run of a connection applied, each with the number of its plan, in the order
        of their execution; `after`: those behind these numbers of a plan and a step."""
        where = [plans.c.connection == connection, plans.c.run == run]
        if after is not None:
            where.append(tuple_(plans.c.number, steps.c.number) > tuple_(literal(after[0]), literal(after[1])))
        query = select(plans.c.number.label("plan_number"), steps).join(plans, plans.c.id == steps.c.plan)
        query = query.where(*where).order_by(plans.c.number, steps.c.number).limit(limit)
        with self._db.read() as transaction:
            rows = [dict(row) for row in transaction.execute(query).mappings()]
        return [(row.pop("plan_number"), StepRecord(**row)) for row in rows]

    def timed(self, connection: str, kind: str, limit: int = 50) -> list[StepRecord]:
        """Return steps of a kind that were done and wrote rows again, newest first."""
        query = select(steps).join(plans, plans.c.id == steps.c.plan).order_by(steps.c.ended.desc()).limit(limit)
        where = (plans.c.connection == connection, steps.c.kind == kind, steps.c.status == "done", steps.c.rows > 0)
        with self._db.read() as transaction:
            return [StepRecord(**row) for row in transaction.execute(query.where(*where)).mappings()]


def _planned(plan: str, number: int, step: PlannedStep) -> dict[str, Any]:
    document = {"kind": step.kind, "text": step.text, "rows": step.rows, "at_table": step.table}
    return {"plan": plan, "number": number, "step": step.id, "status": "planned", **document}


def _newest(transaction: Connection, connection: str, limit: int) -> Sequence[RowMapping]:
    query = select(plans).where(plans.c.connection == connection)
    return transaction.execute(query.order_by(plans.c.number.desc()).limit(limit)).mappings().all()


def plan_of(row: RowMapping | Mapping[str, Any]) -> StoredPlan:
    values = {name: row[name] for name in StoredPlan.__dataclass_fields__}
    return StoredPlan(**{**values, "changes": tuple(row["changes"])})
