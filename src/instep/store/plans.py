"""Plans with the fingerprints that they start from, and the journal of their steps."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import insert, select, update

from instep.errors import InstepError
from instep.store.connections import ensure
from instep.store.database import Database
from instep.store.tables import plans, steps


@dataclass(frozen=True)
class StoredPlan:
    """`plan` is JSON-ready; the bases are fingerprints of the catalogs that it starts from."""

    id: str
    connection: str
    at: datetime
    base_accepted: str
    base_destination: str
    plan: Mapping[str, Any]


@dataclass(frozen=True)
class StepRecord:
    """One step of a plan: started, or done at `ended`."""

    plan: str
    step: str
    run: str
    status: Literal["started", "done"]
    started: datetime
    ended: datetime | None = None


class Plans:
    def __init__(self, database: Database) -> None:
        self._db = database

    def save(
        self, connection: str, plan: Mapping[str, Any], *, base_accepted: str, base_destination: str
    ) -> StoredPlan:
        now = self._db.now()
        stored = StoredPlan(f"p-{secrets.token_hex(4)}", connection, now, base_accepted, base_destination, dict(plan))
        with self._db.write() as transaction:
            ensure(transaction, connection, now)
            transaction.execute(insert(plans).values(**vars(stored)))
        return stored

    def get(self, plan_id: str) -> StoredPlan:
        """InstepError if there is none."""
        with self._db.read() as transaction:
            row = transaction.execute(select(plans).where(plans.c.id == plan_id)).mappings().first()
        if row is None:
            raise InstepError(f"no plan {plan_id!r} is known", hint="run `instep plan`")
        return StoredPlan(**row)

    def latest(self, connection: str) -> StoredPlan | None:
        query = select(plans).where(plans.c.connection == connection).order_by(plans.c.at.desc()).limit(1)
        with self._db.read() as transaction:
            row = transaction.execute(query).mappings().first()
            return StoredPlan(**row) if row else None


class Steps:
    """The journal: a step that is started and not done may or may not have happened."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def start(self, plan: str, step: str, run: str) -> None:
        """Before the step is executed; starting again after an interruption is fine."""
        now = self._db.now()
        where = (steps.c.plan == plan, steps.c.step == step)
        with self._db.write() as transaction:
            values = {"run": run, "status": "started", "started": now, "ended": None}
            if not transaction.execute(update(steps).where(*where).values(**values)).rowcount:
                transaction.execute(insert(steps).values(plan=plan, step=step, **values))

    def done(self, plan: str, step: str) -> None:
        where = (steps.c.plan == plan, steps.c.step == step)
        with self._db.write() as transaction:
            changed = transaction.execute(update(steps).where(*where).values(status="done", ended=self._db.now()))
            if not changed.rowcount:
                raise InstepError(f"step {step} of plan {plan} was never started")

    def of(self, plan: str) -> dict[str, StepRecord]:
        """Step id -> record, in the order of their start."""
        query = select(steps).where(steps.c.plan == plan).order_by(steps.c.started, steps.c.step)
        with self._db.read() as transaction:
            return {row["step"]: StepRecord(**row) for row in transaction.execute(query).mappings()}
