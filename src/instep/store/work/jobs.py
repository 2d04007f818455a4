"""The queue: jobs wait, are claimed by one worker at a time, and are never lost nor done twice.

A claim has a lease and a fence. A worker that is silent for longer than the lease loses the job to the next claim;
whatever it still tries to write is refused, because its fence is older. What must happen exactly once is written in
one transaction with `check` or with the end of the job.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    cast,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from instep.errors import Conflict, Fenced, InstepError
from instep.events import JobDead
from instep.model import Job, JobKind
from instep.operations.registry import names_with, policy_of
from instep.operations.values import JobStatus
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.engine.keyring import Keyring, Sealed, SecretPlace, seal, unseal
from instep.store.history.events import Events
from instep.store.tables.catalogs import pauses
from instep.store.tables.queue import jobs, rollouts
from instep.store.work.rollouts import all_in_scope
from instep.store.work.runs import LEASE

FIRST = 15.0
LONGEST = 1800.0
SPREAD = 0.25


def backoff(attempt: int, name: str) -> timedelta:
    """Return the delay after the `attempt`-th failure (1 is the first): doubled each time up to half an hour, give or
    take a quarter.

    The same job always waits the same, different jobs that failed together do not come back together.
    """
    base = min(FIRST * 2.0 ** (min(max(attempt, 1), 32) - 1), LONGEST)
    digest = hashlib.sha256(f"{name}/{attempt}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return timedelta(seconds=base * (1 - SPREAD + 2 * SPREAD * share))


WAITED_FOR = 100
"""The priority of a job whose answer somebody waits for; some lanes run nothing else."""
REQUESTED = 50
SCHEDULED = 0
LOOKS_AT_A_TIME = 2
"""Number of jobs that read the catalog of one source at the same time; one of them may be a detection."""
VALUES_LIVE = timedelta(hours=1)
"""Time for which the store has the values of rows that a job's result shows, from the end of the job."""
CONNECTION_TEST = "test_connection"
"""Runs beside other jobs of its connection."""


class Jobs:
    """Results that have values of rows are sealed with `keys`, unless there are none or everybody knows them."""

    def __init__(
        self,
        database: Database,
        events: Events,
        lease: timedelta = LEASE,
        keys: Callable[[], Keyring | None] = lambda: None,
    ) -> None:
        self._db, self._events, self._keys = database, events, keys
        self.lease = lease

    def enqueue(
        self,
        connection: str,
        kind: JobKind,
        *,
        key: str = "",
        options: Mapping[str, Any] | None = None,
        priority: int = SCHEDULED,
        due: datetime | None = None,
        attempts: int | None = None,
        why: str = "",
        who: str = "",
        source: str = "",
    ) -> tuple[Job, bool]:
        """Queue a job; return (the job, whether it is new). If one of the same (connection, kind, key) waits
        already, that one is returned; it takes the earlier time and the higher priority of the two, and counts as
        requested by both people."""
        with self._db.write() as transaction:
            now = self._db.now()
            due = due or now
            if twin := _waiting(transaction, connection, kind, key):
                _raise_priority(transaction, twin, priority, due, options or {})
                self._join(transaction, twin, who)
                return self._get(transaction, twin.id), False
            if connection:
                ensure(transaction, connection, now)
            job = Job(
                f"j-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
                connection,
                kind,
                "queued",
                due,
                now,
                dict(options or {}),
                priority,
                key,
                attempts=attempts or policy_of(kind).attempts,
                why=why,
                who=who,
                source=source,
            )
            transaction.execute(insert(jobs).values(**vars(job)))
            return job, True

    def _join(self, transaction: Connection, job: Job, who: str) -> None:
        if not who or not policy_of(job.kind).shared or requested_by(job.who, who):
            return
        people = f"{job.who or job.why or 'the schedule'}, {who}"
        transaction.execute(update(jobs).where(jobs.c.id == job.id).values(who=people))

    def claim(self, owner: str, *, at_least: int | None = None, kinds: Collection[JobKind] = ()) -> Job | None:
        """Return the most urgent job that may begin now, with a new fence and lease; None if there is none. `at_least`:
        only of that priority and above. What waits: jobs of a paused connection, of one that has another job running,
        and looks at a source that enough others look at."""
        with self._db.write(common=True) as transaction:
            now = self._db.now()
            self._give_up_silent(transaction, jobs.c.lease_until <= now)
            row = _most_urgent(transaction, now, at_least, kinds)
            if row is None:
                return None
            values = {
                "status": "running",
                "attempt": row.attempt + 1,
                "fence": row.fence + 1,
                "owner": owner,
                "started": now,
                "lease_until": now + self.lease,
                "stop": "",
            }
            transaction.execute(update(jobs).where(jobs.c.id == row.id).values(**values))
            return self._get(transaction, row.id)

    def heartbeat(self, job: Job) -> Job:
        """Extend the lease and answer the job as it is now: `stop` says whether somebody wants it to end. Raises
        Fenced once it belongs to somebody else."""
        with self._db.write(common=True) as transaction:
            self._change(transaction, job, lease_until=self._db.now() + self.lease)
            return self._get(transaction, job.id)

    def note_run(self, job: Job, run: str) -> None:
        """Record the run that the job has created; Fenced as above."""
        with self._db.write(common=True) as transaction:
            self._change(transaction, job, run=run)

    def finish(
        self, job: Job, status: JobStatus = "done", *, error: str = "", result: Mapping[str, Any] | None = None
    ) -> Job:
        """End a job for good; Fenced as above."""
        with self._db.write(common=True) as transaction:
            values: dict[str, Any] = {"status": status, "error": error, "ended": self._db.now(), "lease_until": None}
            self._change(transaction, job, **values, result=self._stored(job, result or {}))
            if status == "dead":
                self._events.add(JobDead(job.connection, job.id, job.kind, job.attempt, error))
            return self._get(transaction, job.id)

    def _stored(self, job: Job, result: Mapping[str, Any]) -> dict[str, Any]:
        keys = self._keys() if policy_of(job.kind).shows_values and result else None
        if keys is None or keys.insecure:
            return dict(result)
        return {"sealed": asdict(seal(keys, _place(job), json.dumps(result)))}

    def open_result(self, job: Job) -> Job:
        """Return the job with its result unsealed; without one if the key to it is gone."""
        if not policy_of(job.kind).shows_values or "sealed" not in job.result:
            return job
        try:
            if (keys := self._keys()) is None:
                return replace(job, result={})
            return replace(job, result=json.loads(unseal(keys, _place(job), Sealed(**job.result["sealed"]))))
        except InstepError:
            return replace(job, result={})

    def forget_values(self) -> int:
        """Delete the values of rows from results that are older than an hour; answers how many jobs had some."""
        c = jobs.c
        with self._db.write(common=True) as transaction:
            old = (c.kind.in_(names_with("shows_values")), c.ended <= self._db.now() - VALUES_LIVE)
            query = update(jobs).where(*old, cast(c.result, Text) != "{}").values(result={})
            return transaction.execute(query).rowcount

    def fail(self, job: Job, error: str, *, retryable: bool, result: Mapping[str, Any] | None = None) -> Job:
        """Record an error: put the job back into the queue with a delay while attempts are left, else mark it dead;
        failed if another attempt would not help. Fenced as above."""
        with self._db.write(common=True) as transaction:
            if retryable and job.attempt < job.attempts:
                due = self._db.now() + backoff(job.attempt, job.id)
                return self._requeue(transaction, job, error, due, result)
            return self.finish(job, "dead" if retryable else "failed", error=error, result=result)

    def give_back(self, job: Job, why: str, wait: timedelta = timedelta()) -> Job:
        """Undo a claim whose work was not finished through no fault of its own: the attempt does not count, and it
        may begin again after `wait`. Fenced as above."""
        with self._db.write(common=True) as transaction:
            requeued = self._requeue(transaction, job, why, self._db.now() + wait, None)
            if requeued.status == "queued":
                back = {"attempt": job.attempt - 1}
                transaction.execute(update(jobs).where(jobs.c.id == job.id).values(**back))
            return self._get(transaction, job.id)

    def _requeue(
        self, transaction: Connection, job: Job, error: str, due: datetime, result: Mapping[str, Any] | None
    ) -> Job:
        """Queue the next attempt of a job; one of the same kind that was queued meanwhile does its work: two never
        wait for the same."""
        if twin := _waiting(transaction, job.connection, job.kind, job.key):
            _raise_priority(transaction, twin, job.priority, twin.due, {})
            return self.finish(job, "failed", error=f"{error} (job {twin.id} does its work)", result=result)
        self._change(transaction, job, status="queued", error=error, due=due, lease_until=None, owner="")
        return self._get(transaction, job.id)

    def abandon(self, owners: Collection[str]) -> list[Job]:
        """Take the jobs of workers that are known to be dead, without waiting for their leases to end. Whatever ended
        such a worker, it was seldom the job: a first attempt is followed by the next at once."""
        if not owners:
            return []
        with self._db.write(common=True) as transaction:
            return self._give_up_silent(transaction, jobs.c.owner.in_(owners), at_once=1)

    def _give_up_silent(self, transaction: Connection, condition: ColumnElement[bool], at_once: int = 0) -> list[Job]:
        rows = transaction.execute(select(jobs).where(jobs.c.status == "running", condition)).all()
        return [self._give_up(transaction, _job(row), at_once) for row in rows]

    def _give_up(self, transaction: Connection, job: Job, at_once: int) -> Job:
        """End an attempt whose worker has died: a job that kills its worker each time has to end some day.

        It is tried again with a delay, up to attempt `at_once` without one.
        """
        error = f"worker {job.owner} gave no sign of life during attempt {job.attempt} of {job.attempts}"
        if job.stop:
            return self.finish(job, "cancelled", error=f"stopped by {job.stop}")
        if job.attempt >= job.attempts:
            return self.finish(job, "dead", error=error)
        delay = backoff(job.attempt, job.id) if job.attempt > at_once else timedelta()
        return self._requeue(transaction, job, error, self._db.now() + delay, None)

    def cancel(self, job_id: str, who: str) -> Job:
        """Cancel a job: a waiting one ends at once, a running one as soon as its worker hears of it. Raises Conflict
        for one that is over, InstepError for an unknown one."""
        with self._db.write() as transaction:
            job = self._get(transaction, job_id)
            if job.over:
                raise Conflict(f"job {job.id} is {job.status} already", hint=f"see `instep queue show {job.id}`")
            values: dict[str, Any] = {"stop": who}
            if job.status == "queued":
                values |= {"status": "cancelled", "ended": self._db.now(), "error": f"cancelled by {who}"}
            transaction.execute(update(jobs).where(jobs.c.id == job.id).values(**values))
            return self._get(transaction, job.id)

    def cancel_requested(self, requester: str, who: str) -> list[Job]:
        """Cancel the waiting jobs that `requester` alone has asked for; answers them."""
        query = select(jobs.c.id).where(jobs.c.status == "queued", jobs.c.who == requester)
        with self._db.write() as transaction:
            return [self.cancel(job_id, who) for job_id in transaction.execute(query).scalars().all()]

    def retry(self, job_id: str, who: str) -> Job:
        """Queue a job again that failed, died or was cancelled, with all its attempts; if one of its kind waits
        already, return that one. Raises Conflict for one that is running or done, and for one that is bound to
        another person."""
        with self._db.write() as transaction:
            job = self._get(transaction, job_id)
            if job.status not in ("failed", "dead", "cancelled"):
                raise Conflict(f"job {job.id} is {job.status}: there is nothing to retry", hint="see `instep queue`")
            command = policy_of(job.kind).retry_command
            if command and who != job.who:
                raise Conflict(
                    f"job {job.id} ({job.kind}) was requested by {job.who or 'nobody'}, and nobody else can retry it",
                    hint=f"ask for it again: `{command}`",
                )
            if twin := _waiting(transaction, job.connection, job.kind, job.key):
                self._join(transaction, twin, who)
                return self._get(transaction, twin.id)
            values = {
                "status": "queued",
                "attempt": 0,
                "due": self._db.now(),
                "ended": None,
                "owner": "",
                "stop": "",
                "why": f"tried again by {who}",
                "who": who if policy_of(job.kind).shared else job.who,
            }
            transaction.execute(update(jobs).where(jobs.c.id == job.id).values(**values))
            return self._get(transaction, job.id)

    def _change(self, transaction: Connection, job: Job, **values: Any) -> None:
        if transaction.execute(update(jobs).where(*_leased(job)).values(**values)).rowcount != 1:
            raise _fenced(job)

    def get(self, job_id: str, scope: Collection[str] | None = None) -> Job:
        """Return the job with this id, or whose id alone starts so; InstepError if there is none. `scope`: only jobs of
        these connections are known, and of rollouts that touch no other connection."""
        with self._db.read() as transaction:
            return self._get(transaction, job_id, scope)

    def _get(self, transaction: Connection, job_id: str, scope: Collection[str] | None = None) -> Job:
        in_scope = select(jobs) if scope is None else select(jobs).where(_of(scope))
        rows = transaction.execute(in_scope.where(jobs.c.id == job_id)).all() if job_id else []
        if not rows and job_id:
            like = jobs.c.id.startswith(job_id, autoescape=True)
            rows = transaction.execute(in_scope.where(like).limit(2)).all()
        if len(rows) != 1:
            raise InstepError(f"no job {job_id!r} is known", hint="see `instep queue list`")
        return _job(rows[0])

    def running(self, connection: str, kind: JobKind | None = None) -> Job | None:
        """Return the job that runs for the connection now, connection tests apart."""
        return self._one(connection, "running", kind)

    def queued(self, connection: str, kind: JobKind | None = None) -> Job | None:
        """Return the connection's next job."""
        return self._one(connection, "queued", kind)

    def waiting(self, connection: str, kind: JobKind, key: str) -> Job | None:
        """Return the waiting job with the same (connection, kind, key)."""
        with self._db.read() as transaction:
            return _waiting(transaction, connection, kind, key)

    def unfinished(self, connections: Collection[str]) -> list[Job]:
        """Return queued and running jobs of these connections, the most urgent first."""
        c = jobs.c
        query = select(jobs).where(c.connection.in_(connections), c.status.in_(("queued", "running")))
        with self._db.read() as transaction:
            return [_job(row) for row in transaction.execute(_in_turn(query))]

    def _one(self, connection: str, status: JobStatus, kind: JobKind | None) -> Job | None:
        of_kind = jobs.c.kind == kind if kind else jobs.c.kind != CONNECTION_TEST
        query = select(jobs).where(jobs.c.connection == connection, jobs.c.status == status, of_kind)
        with self._db.read() as transaction:
            row = transaction.execute(_in_turn(query).limit(1)).first()
            return _job(row) if row else None

    def newest(self, connection: str, kind: JobKind, key: str) -> Job | None:
        """Return the last that was asked for with this key, whatever became of it."""
        c = jobs.c
        query = select(jobs).where(c.connection == connection, c.kind == kind, c.key == key)
        with self._db.read() as transaction:
            row = transaction.execute(query.order_by(c.created.desc(), c.id.desc()).limit(1)).first()
            return _job(row) if row else None

    def find(
        self,
        *,
        status: Collection[JobStatus] = (),
        connection: str | None = None,
        kind: JobKind | None = None,
        before: str = "",
        after: tuple[datetime, str] | None = None,
        scope: Collection[str] | None = None,
        limit: int = 50,
        whole: bool = True,
    ) -> list[Job]:
        """Return jobs, newest first; `before`: only those older than the job of this id; `after`: those behind this
        place (created, id). `scope`: as in `get`. Without `whole` their results, which may be long, are left out."""
        columns = [c for c in jobs.c if whole or c.name != "result"]
        query = select(jobs.c.id).order_by(jobs.c.created.desc(), jobs.c.id.desc()).limit(limit)
        if status:
            query = query.where(jobs.c.status.in_(status))
        if connection is not None:
            query = query.where(jobs.c.connection == connection)
        if kind is not None:
            query = query.where(jobs.c.kind == kind)
        if scope is not None:
            query = query.where(_of(scope))
        if after is not None:
            query = query.where(_older(*after))
        with self._db.read() as transaction:
            if before:
                older = self._get(transaction, before)
                query = query.where(_older(older.created, older.id))
            page = select(*columns).where(jobs.c.id.in_(query)).order_by(jobs.c.created.desc(), jobs.c.id.desc())
            return [_job(row) for row in transaction.execute(page)]

    def counts(self) -> dict[JobStatus, int]:
        """Return how many there are of each status."""
        query = select(jobs.c.status, func.count()).group_by(jobs.c.status)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}


def _most_urgent(
    transaction: Connection, now: datetime, at_least: int | None, kinds: Collection[JobKind]
) -> Row[Any] | None:
    """Return one priority after the other, so that an index gives the order and thousands that wait are not sorted."""
    query = select(func.max(jobs.c.priority)).where(jobs.c.status == "queued")
    priority = transaction.execute(query).scalar()
    while priority is not None and (at_least is None or priority >= at_least):
        if row := transaction.execute(_next(now, priority, kinds)).first():
            return row
        priority = transaction.execute(query.where(jobs.c.priority < priority)).scalar()
    return None


def _next(now: datetime, priority: int, kinds: Collection[JobKind]) -> Select[Any]:
    other, c = jobs.alias("other"), jobs.c
    while_paused, looks = sorted(names_with("runs_while_paused")), sorted(names_with("reads_catalog"))
    busy = exists().where(
        other.c.connection == c.connection,
        other.c.status == "running",
        c.connection != "",
        other.c.kind != CONNECTION_TEST,
    )
    same = (other.c.source == c.source, other.c.status == "running", other.c.kind.in_(looks))
    looking = select(func.count()).where(*same).scalar_subquery()
    detecting = exists().where(other.c.source == c.source, other.c.status == "running", other.c.kind == "detect")
    paused = exists().where(
        pauses.c.connection == c.connection,
        pauses.c.table_schema == "",
        pauses.c.table_name == "",
        pauses.c.ended.is_(None),
    )
    query = select(jobs).where(
        c.status == "queued",
        c.priority == priority,
        c.due <= now,
        or_(c.kind == CONNECTION_TEST, ~busy),
        or_(c.kind.in_(while_paused), ~paused),
        or_(c.source == "", c.kind.not_in(looks), looking < LOOKS_AT_A_TIME),
        or_(c.source == "", c.kind != "detect", ~detecting),
    )
    if kinds:
        query = query.where(c.kind.in_(sorted(kinds)))
    # A row that somebody else has locked manually holds up itself only.
    return _in_turn(query).limit(1).with_for_update(skip_locked=True, of=jobs)


def _in_turn(query: Select[Any]) -> Select[Any]:
    return query.order_by(jobs.c.priority.desc(), jobs.c.due, jobs.c.created, jobs.c.id)


def _place(job: Job) -> SecretPlace:
    return SecretPlace("job", job.id, "/result", 1)


def _older(created: datetime, id: str) -> ColumnElement[bool]:
    c = jobs.c
    return or_(c.created < created, and_(c.created == created, c.id < id))


def _of(scope: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a job is about one of these connections."""
    c = jobs.c
    is_rollout = exists().where(rollouts.c.id == c.key)
    rollout = and_(c.connection == "", c.kind == "rollout", is_rollout, all_in_scope(c.key, scope))
    return or_(c.connection.in_(sorted(scope)), rollout)


def requested_by(people: str, who: str) -> bool:
    """Return whether this person is, alone or with others, who has asked for a job; `people` is its `who`."""
    return f", {who}, " in f", {people}, "


def serves(people: str, who: str) -> bool:
    """Return whether a job that `people` have asked for does for this person, too, what two people have to agree on:
    one for another person alone leaves out what that one has approved."""
    return not people or ", " in people or people == who


def _waiting(transaction: Connection, connection: str, kind: JobKind, key: str) -> Job | None:
    c = jobs.c
    same = (c.connection == connection, c.kind == kind, c.key == key, c.status == "queued")
    row = transaction.execute(select(jobs).where(*same)).first()
    return _job(row) if row else None


def _raise_priority(
    transaction: Connection, job: Job, priority: int, due: datetime, options: Mapping[str, Any]
) -> None:
    """Make a waiting job more urgent, unless it waits for its next attempt and nobody requests it now. The options
    of both requests hold."""
    due = min(due, job.due) if priority > SCHEDULED or not job.attempt else job.due
    values = {"priority": max(priority, job.priority), "due": due, "options": {**job.options, **options}}
    transaction.execute(update(jobs).where(jobs.c.id == job.id).values(**values))


def _leased(job: Job) -> tuple[ColumnElement[bool], ...]:
    return jobs.c.id == job.id, jobs.c.fence == job.fence, jobs.c.status == "running"


def _fenced(job: Job) -> Fenced:
    return Fenced(
        f"job {job.id} ({job.kind} of {job.connection or 'no connection'}) was taken over and stops here",
        hint=f"see `instep queue show {job.id}`",
    )


def _job(row: Row[Any]) -> Job:
    return Job(**row._mapping)
