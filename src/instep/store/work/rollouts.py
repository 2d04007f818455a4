"""Rollouts and their connections.

One process at a time carries a rollout on: each claim has a fence higher than all before it, and what an earlier one
still writes is refused. Stopping needs no claim: from then on no connection is begun.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, insert, select, update

from instep.errors import Conflict, Fenced, InstepError
from instep.model import Member, Rollout
from instep.operations.values import MemberStatus, RolloutStatus
from instep.store.engine.database import Database
from instep.store.engine.owner import Owner, this_process
from instep.store.tables.queue import rollout_members, rollouts

LEASE = timedelta(seconds=60)
_FREE = {"host": "", "pid": 0, "pid_started": "", "lease_until": None}


@dataclass(frozen=True)
class RolloutDraft:
    """A rollout that is about to be made: see `Rollout`."""

    what: Mapping[str, Any]
    group: Mapping[str, Any]
    sizes: tuple[str, ...]
    gates: Mapping[str, Any]
    members: tuple[Member, ...]
    who: str

    @property
    def wave_count(self) -> int:
        return max((m.wave for m in self.members), default=0)


class Rollouts:
    def __init__(self, database: Database, lease: timedelta = LEASE) -> None:
        self._db = database
        self.lease = lease

    def add(self, draft: RolloutDraft) -> Rollout:
        """Return a new one, which has touched nothing yet."""
        now = self._db.now()
        id = f"w-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        row = {
            "id": id,
            "what": dict(draft.what),
            "members": dict(draft.group),
            "sizes": list(draft.sizes),
            "gates": dict(draft.gates),
            "status": "ready",
            "waves": draft.wave_count,
            "who": draft.who,
            "created": now,
            "updated": now,
        }
        with self._db.write() as transaction:
            transaction.execute(insert(rollouts).values(**row))
            if draft.members:
                transaction.execute(insert(rollout_members), [_row(id, m) for m in draft.members])
            return _rollout(_one(transaction, id))

    def get(self, id: str) -> Rollout:
        """Return the rollout with this id, or whose id alone starts so; InstepError if there is none."""
        with self._db.read() as transaction:
            return _rollout(_one(transaction, id))

    def find(
        self,
        statuses: Sequence[RolloutStatus] = (),
        limit: int = 50,
        below: str = "",
        scope: Collection[str] | None = None,
    ) -> list[Rollout]:
        """Return rollouts, newest first; with these statuses, or all; those older than the one whose id is `below`.
        `scope`: only those all of whose connections are among these."""
        query = select(rollouts).order_by(rollouts.c.id.desc()).limit(limit)
        if statuses:
            query = query.where(rollouts.c.status.in_(statuses))
        if below:
            query = query.where(rollouts.c.id < below)
        if scope is not None:
            query = query.where(all_in_scope(rollouts.c.id, scope))
        with self._db.read() as transaction:
            return [_rollout(row) for row in transaction.execute(query)]

    def members(
        self,
        id: str,
        *,
        wave: int | None = None,
        upto: int | None = None,
        statuses: Sequence[MemberStatus] = (),
        after: tuple[int, str] | None = None,
        limit: int | None = None,
    ) -> list[Member]:
        """Return members by wave and name; of one wave, of all `upto` one, with these statuses, `after` (wave,
        connection)."""
        c = rollout_members.c
        query = select(rollout_members).where(c.rollout == id).order_by(c.wave, c.connection).limit(limit)
        if wave is not None:
            query = query.where(c.wave == wave)
        if upto is not None:
            query = query.where(c.wave <= upto)
        if statuses:
            query = query.where(c.status.in_(statuses))
        if after is not None:
            query = query.where((c.wave > after[0]) | ((c.wave == after[0]) & (c.connection > after[1])))
        with self._db.read() as transaction:
            return [_member(row) for row in transaction.execute(query)]

    def is_within(self, id: str, scope: Collection[str]) -> bool:
        """Return whether all connections of the rollout are among these."""
        query = select(rollouts.c.id).where(rollouts.c.id == id, all_in_scope(rollouts.c.id, scope))
        with self._db.read() as transaction:
            return transaction.execute(query).first() is not None

    def counts(self, id: str) -> dict[tuple[int, MemberStatus], int]:
        """Return (wave, status) -> number of connections."""
        c = rollout_members.c
        query = select(c.wave, c.status, func.count()).where(c.rollout == id).group_by(c.wave, c.status)
        with self._db.read() as transaction:
            return {(row[0], row[1]): row[2] for row in transaction.execute(query)}

    def claim(self, id: str, allowed: Sequence[RolloutStatus], *, as_is: bool = False) -> Rollout:
        """Claim a rollout: it is running from now on, or with `as_is` keeps its status. Raises Conflict while
        another process has it, and for a rollout in another status."""
        with self._db.write() as transaction:
            row = self._allowed(transaction, id, allowed)
            owner, now = this_process(), self._db.now()
            values = {} if as_is else {"status": "running", "why": ""}
            self._set(
                transaction,
                row.id,
                fence=row.fence + 1,
                host=owner.host,
                pid=owner.pid,
                pid_started=owner.started,
                lease_until=now + self.lease,
                **values,
            )
            return _rollout(_one(transaction, row.id))

    def check_allowed(self, id: str, allowed: Sequence[RolloutStatus]) -> Rollout:
        """Return the rollout, if `claim` would answer it."""
        with self._db.read() as transaction:
            return _rollout(self._allowed(transaction, id, allowed))

    def _allowed(self, transaction: Connection, id: str, allowed: Sequence[RolloutStatus]) -> Row[Any]:
        row = _one(transaction, id)
        self._check_free(row)
        if row.status not in (*allowed, "running"):
            raise Conflict(
                f"rollout {row.id} is {row.status}{f': {row.why}' if row.why else ''}", hint=_NEXT[row.status]
            )
        return row

    def reopen(self, id: str, allowed: Sequence[RolloutStatus]) -> Rollout:
        """Make a rollout ready again; raise Conflict as `claim` does."""
        with self._db.write() as transaction:
            row = self._allowed(transaction, id, allowed)
            self._set(transaction, row.id, status="ready", why="", **_FREE)
            return _rollout(_one(transaction, row.id))

    def unclaim(self, rollout: Rollout) -> None:
        """End this process's part for now: another one goes on where it is."""
        with self._db.write() as transaction:
            self._check(transaction, rollout)
            self._set(transaction, rollout.id, **_FREE)

    def _check_free(self, row: Row[Any]) -> None:
        if not row.pid or Owner(row.host, row.pid, row.pid_started).is_ended or row.lease_until <= self._db.now():
            return
        raise Conflict(
            f"rollout {row.id} is carried on by process {row.pid} on {row.host.partition('/')[0]}",
            hint=f"wait for it, or `instep rollout stop {row.id}`: it ends with the connection that it is at",
        )

    def heartbeat(self, rollout: Rollout) -> None:
        """Extend the lease; raises Fenced once another process has taken over."""
        with self._db.write() as transaction:
            self._check(transaction, rollout)
            self._set(transaction, rollout.id, lease_until=self._db.now() + self.lease)

    def begin_wave(self, rollout: Rollout, number: int) -> None:
        """Record that this wave begins."""
        with self._db.write() as transaction:
            self._check(transaction, rollout)
            self._set(transaction, rollout.id, wave=number)

    def release(self, rollout: Rollout, status: RolloutStatus, why: str = "") -> Rollout:
        """End this process's part. What a person has stopped meanwhile stays stopped."""
        with self._db.write() as transaction:
            row = self._check(transaction, rollout)
            values = {"status": status, "why": why} if row.status == "running" else {}
            self._set(transaction, rollout.id, **values, **_FREE)
            return _rollout(_one(transaction, rollout.id))

    def stop(self, id: str, why: str) -> Rollout:
        """Stop the rollout: no further connection is begun. Conflict for one that is over."""
        with self._db.write() as transaction:
            row = _one(transaction, id)
            if row.status not in ("ready", "running", "halted", "stopped"):
                raise Conflict(f"rollout {row.id} is {row.status}: no part of it would start", hint=_NEXT[row.status])
            self._set(transaction, row.id, status="stopped", why=why)
            return _rollout(_one(transaction, row.id))

    def goes_on(self, rollout: Rollout) -> bool:
        """Return whether connections may be begun; raises Fenced once another process has taken over."""
        with self._db.read() as transaction:
            return bool(self._check(transaction, rollout).status == "running")

    def check(self, rollout: Rollout) -> None:
        """Raise Fenced once another process has taken over."""
        with self._db.read() as transaction:
            self._check(transaction, rollout)

    def member(self, id: str, connection: str) -> Member:
        """Raise InstepError for a connection that is not of it."""
        c = rollout_members.c
        query = select(rollout_members).where(c.rollout == id, c.connection == connection)
        with self._db.read() as transaction:
            row = transaction.execute(query).first()
        if row is None:
            raise InstepError(
                f"rollout {id} has no connection {connection}", hint=f"see `instep rollout status {id} --all`"
            )
        return _member(row)

    def move(
        self, id: str, connection: str, was: Sequence[MemberStatus], status: MemberStatus, **values: Any
    ) -> Member:
        """Return the connection's new status, with `values` for other fields; Conflict if it is in none of `was` any
        more."""
        c = rollout_members.c
        where = (c.rollout == id, c.connection == connection, c.status.in_(was))
        values |= {"started": self._db.now()} if status == "running" else {"ended": self._db.now()}
        with self._db.write() as transaction:
            done = transaction.execute(update(rollout_members).where(*where).values(status=status, **values))
            if done.rowcount != 1:
                now = self.member(id, connection)
                raise Conflict(
                    f"rollout {id}: connection {connection} is {now.status}", hint="look at its status again"
                )
            return self.member(id, connection)

    def accept(self, id: str, wave: int, why: str, who: str) -> int:
        """Accept the gates' findings up to this wave; return on how many connections."""
        c = rollout_members.c
        names = [m.connection for m in self.members(id, upto=wave) if m.findings and not m.accepted]
        with self._db.write() as transaction:
            for name in names:
                where = (c.rollout == id, c.connection == name)
                transaction.execute(update(rollout_members).where(*where).values(accepted=why, who=who))
        return len(names)

    def prune(self, before: datetime) -> int:
        """Delete rollouts that are over or stopped and were last touched before then, with their connections; return
        how many. Nothing of them can be rolled back by then."""
        resting: tuple[RolloutStatus, ...] = ("done", "partial", "stopped", "halted")
        with self._db.write() as transaction:
            where = (rollouts.c.status.in_(resting), rollouts.c.updated < before)
            old = select(rollouts.c.id).where(*where)
            transaction.execute(delete(rollout_members).where(rollout_members.c.rollout.in_(old)))
            return transaction.execute(delete(rollouts).where(*where)).rowcount

    def _set(self, transaction: Connection, id: str, **values: Any) -> None:
        transaction.execute(update(rollouts).where(rollouts.c.id == id).values(updated=self._db.now(), **values))

    def _check(self, transaction: Connection, rollout: Rollout) -> Row[Any]:
        row = _one(transaction, rollout.id)
        if row.fence != rollout.fence:
            raise Fenced(
                f"rollout {rollout.id} is carried on by another process, this one stops here",
                hint=f"see `instep rollout status {rollout.id}`",
            )
        return row


_NEXT: Mapping[RolloutStatus, str] = {
    "ready": "`instep rollout advance` starts the next wave",
    "running": "wait for the process that carries it on",
    "stopped": "`instep rollout resume` continues, `instep rollout rollback` takes a wave back",
    "halted": "check the findings of the gates, then resume, skip connections, or roll the wave back",
    "partial": "`instep rollout resume` tries unfinished connections again",
    "done": "nothing is left to do; make a new one for another change",
}


def all_in_scope(rollout: ColumnElement[str], scope: Collection[str]) -> ColumnElement[bool]:
    """Return whether all connections of the rollout with this id are among `scope`."""
    c = rollout_members.c
    return ~exists().where(c.rollout == rollout, c.connection.not_in(sorted(scope)))


def _one(transaction: Connection, id: str) -> Row[Any]:
    query = select(rollouts).where(rollouts.c.id.startswith(id, autoescape=True)).order_by(rollouts.c.id).limit(9)
    rows = transaction.execute(query).all()
    exact = [row for row in rows if row.id == id] or rows
    if len(exact) == 1:
        return exact[0]
    if rows:
        raise InstepError(f"{id!r} fits several rollouts: {', '.join(r.id for r in rows)}", hint="write more of it")
    raise InstepError(f"no rollout {id!r} is known", hint="see `instep rollout status`")


def _row(id: str, member: Member) -> dict[str, Any]:
    return {**vars(member), "rollout": id, "before": dict(member.before), "findings": list(member.findings)}


def _rollout(row: Row[Any]) -> Rollout:
    owner = f"process {row.pid} on {row.host.partition('/')[0]}" if row.pid else ""
    return Rollout(
        row.id,
        row.what,
        row.members,
        tuple(row.sizes),
        row.gates,
        row.status,
        row.wave,
        row.waves,
        row.who,
        row.created,
        row.updated,
        row.why,
        row.fence,
        owner,
    )


def _member(row: Row[Any]) -> Member:
    values = dict(row._mapping)
    return Member(**{**values, "findings": tuple(values["findings"])})
