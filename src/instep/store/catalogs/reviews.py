"""Recorded changes with their decisions.

A change *stands* while it is open, approved or rejected: seen again, it is the same row with a higher count.
A change that is no longer seen becomes obsolete; one that was carried out is applied. If either comes back it
is a new row with an id of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update

from instep.errors import Conflict, InstepError
from instep.model import Review
from instep.operations.values import EXISTING, ReviewStatus
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import change_digest, reviews


@dataclass(frozen=True)
class DetectedChange:
    """A change as one detection saw it, with what was decided about it."""

    key: str
    """The change's content key."""
    kind: str
    table: tuple[str, str]
    column: str
    summary: str
    change: Mapping[str, Any]
    action: str
    rule: str
    why: str
    modifiers: Mapping[str, Any] = field(default_factory=dict)
    tables_fingerprint: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


def asks_now(now: datetime) -> ColumnElement[bool]:
    """Return the condition that an open change asks a person, and is not snoozed."""
    c = reviews.c
    return c.action.not_in(("apply", "ignore")) & (c.snoozed_until.is_(None) | (c.snoozed_until <= now))


class Reviews:
    def __init__(self, database: Database) -> None:
        self._db = database

    def is_asleep(self, review: Review) -> bool:
        """Return whether it is snoozed now."""
        return review.snoozed_until is not None and review.snoozed_until > self._db.now()

    def record(
        self,
        connection: str,
        findings: Sequence[DetectedChange],
        source_fingerprint: str,
        *,
        count: bool = True,
        unseen: Collection[tuple[str, str]] = (),
        out_of_sight: Collection[str] = (),
    ) -> list[Review]:
        """Record one detection's changes and answer them in the order of `findings`.

        New ones are opened, all at one time. Standing ones count one more detection (unless `count` is false) and,
        while open, take the new decision. Standing ones that are not among the findings become obsolete, except
        those of `unseen` tables, which this detection could not look at, and those `out_of_sight`, by content key.
        """
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            now = self._db.now()
            existing = {r.key: r for r in self._select(transaction, connection, EXISTING)}
            unique = {f.key: f for f in findings}
            new = [f for key, f in unique.items() if key not in existing]
            self._open(transaction, connection, new, source_fingerprint, now)
            for key, finding in unique.items():
                if key in existing:
                    self._see(transaction, existing[key], finding, source_fingerprint, count)
            gone = existing.keys() - {f.key for f in findings} - set(out_of_sight)
            ids = [existing[key].id for key in gone if existing[key].table not in unseen]
            self._close(transaction, ids, "obsolete", EXISTING)
            recorded = {r.key: r for r in self._select(transaction, connection, EXISTING)}
            return [recorded[finding.key] for finding in findings]

    def _open(
        self, transaction: Connection, connection: str, new: Sequence[DetectedChange], source: str, now: datetime
    ) -> None:
        common = {
            "connection": connection,
            "status": "open",
            "source_fingerprint": source,
            "first_seen": now,
            "last_seen": now,
            "seen": 1,
        }
        ids = _new_ids(transaction, connection, [finding.key for finding in new])
        rows = [{"id": ids[finding.key]} | common | _columns(finding) for finding in new]
        if rows:
            transaction.execute(insert(reviews), rows)

    def _see(self, transaction: Connection, review: Review, finding: DetectedChange, source: str, count: bool) -> None:
        values: dict[str, Any] = {"source_fingerprint": source, "last_seen": self._db.now()}
        if review.status == "open":
            values |= _columns(finding)
            if review.action != finding.action:
                values["snoozed_until"] = None
        elif review.status == "rejected":
            values["tables_fingerprint"] = finding.tables_fingerprint
        if count:
            values["seen"] = reviews.c.seen + 1
        transaction.execute(update(reviews).where(reviews.c.id == review.id).values(**values))

    def decide(self, review_id: str, status: ReviewStatus, who: str) -> Review:
        """Approve or reject an open change; a person may change their mind until it is applied. Raises Conflict for
        a change that is applied or obsolete."""
        with self._db.write() as transaction:
            [done] = self._decide(transaction, [self._one(transaction, review_id)], status, who)
            return done

    def decide_many(self, ids: Sequence[str], status: ReviewStatus, who: str) -> list[Review]:
        """Decide changes with these whole ids, all or none; in their order. Errors are those of `decide`."""
        with self._db.write() as transaction:
            return self._decide(transaction, _all_of(transaction, ids), status, who)

    def _decide(
        self, transaction: Connection, changes: Sequence[Review], status: ReviewStatus, who: str
    ) -> list[Review]:
        for review in changes:
            if review.status not in EXISTING:
                hint = "see `instep changes list --all`: changes that an undo rejected have their own ids there"
                raise Conflict(over(review), hint=hint if review.status == "applied" else "see `instep changes list`")
        values = {"status": status, "decided_by": who, "decided_at": self._db.now(), "snoozed_until": None}
        return self._set(transaction, changes, values)

    @staticmethod
    def _set(transaction: Connection, changes: Sequence[Review], values: Mapping[str, Any]) -> list[Review]:
        ids = [review.id for review in changes]
        for some in _parts(ids):
            transaction.execute(update(reviews).where(reviews.c.id.in_(some)).values(**values))
        return reviews_by_ids(transaction, ids)

    def open_approved(self, connection: str, finding: DetectedChange, who: str) -> Review:
        """Return a change that a person has named, rather than a detection found; the one that stands, if there is
        one."""
        with self._db.write() as transaction:
            existing = {r.key: r for r in self._select(transaction, connection, EXISTING)}
            if finding.key not in existing:
                self._open(transaction, connection, [finding], "", self._db.now())
        return self.decide((existing.get(finding.key) or self.existing(connection)[finding.key]).id, "approved", who)

    def snooze_many(self, ids: Sequence[str], until: datetime) -> list[Review]:
        """Snooze open changes with these whole ids; raises Conflict for one that is not open."""
        with self._db.write() as transaction:
            changes = _all_of(transaction, ids)
            for review in changes:
                if review.status != "open":
                    raise Conflict(not_open(review), hint="see `instep changes list`")
            return self._set(transaction, changes, {"snoozed_until": until})

    def reopen_many(self, ids: Sequence[str]) -> list[Review]:
        """Open changes with these whole ids again, snoozed ones too; who has answered them stays recorded. Raises
        Conflict for a change that is applied or obsolete."""
        with self._db.write() as transaction:
            changes = _all_of(transaction, ids)
            for review in changes:
                if review.status not in EXISTING:
                    raise Conflict(over(review), hint="see `instep changes list`")
            return self._set(transaction, changes, {"status": "open", "snoozed_until": None})

    def assign(self, review_id: str, assignee: str) -> Review:
        """Assign a change to somebody; "" for nobody."""
        with self._db.write() as transaction:
            [done] = self._set(transaction, [self._one(transaction, review_id)], {"assignee": assignee})
            return done

    def assign_many(self, ids: Sequence[str], assignee: str) -> list[Review]:
        """Assign the changes with these whole ids to somebody; raises InstepError for an unknown one."""
        with self._db.write() as transaction:
            return self._set(transaction, _all_of(transaction, ids), {"assignee": assignee.strip()})

    def reopen(self, ids: Iterable[str]) -> None:
        """Reopen changes whose approval is void; who approved them stays recorded."""
        with self._db.write() as transaction:
            self._close(transaction, list(ids), "open", ("approved",))

    def require_review(self, review_id: str, *, rule: str, why: str) -> None:
        """Open a review that policy or a person had accepted; a pause stays one."""
        with self._db.write() as transaction:
            review = self._one(transaction, review_id)
            if review.status not in ("open", "approved"):
                return
            action = review.action if review.action in ("pause_table", "pause_connection") else "review"
            values = {"status": "open", "action": action, "rule": rule, "why": why, "snoozed_until": None}
            if (review.status, review.action, review.rule) == ("open", action, rule):
                values = {"why": why}  # a snooze goes on
            transaction.execute(update(reviews).where(reviews.c.id == review.id).values(**values))

    def reopen_rejected(self, ids: Iterable[str]) -> None:
        """Reopen changes whose rejection a later choice has withdrawn."""
        with self._db.write() as transaction:
            self._close(transaction, list(ids), "open", ("rejected",))

    def applied(self, ids: Iterable[str]) -> None:
        """Mark changes as carried out; settled ones are left alone."""
        with self._db.write() as transaction:
            self._close(transaction, list(ids), "applied", EXISTING)

    def obsolete(self, ids: Iterable[str]) -> None:
        """Mark changes as gone."""
        with self._db.write() as transaction:
            self._close(transaction, list(ids), "obsolete", EXISTING)

    def _close(
        self, transaction: Connection, ids: Sequence[str], status: ReviewStatus, was: Sequence[ReviewStatus]
    ) -> None:
        for id in ids:
            where = (reviews.c.id == id, reviews.c.status.in_(was))
            transaction.execute(update(reviews).where(*where).values(status=status))

    def get(self, review_id: str) -> Review:
        """Return the change with this id, or whose id alone starts so; InstepError if there is none."""
        with self._db.read() as transaction:
            return self._one(transaction, review_id)

    def of_ids(self, ids: Collection[str]) -> list[Review]:
        """Return the changes with these whole ids; unknown ids are skipped."""
        with self._db.read() as transaction:
            return reviews_by_ids(transaction, list(ids))

    def find(
        self,
        connection: str | None = None,
        statuses: Sequence[ReviewStatus] = (),
        limit: int | None = None,
        *,
        kinds: Collection[str] = (),
        scope: Collection[str] | None = None,
    ) -> list[Review]:
        """Return reviews, newest first; of one connection or all, with these statuses or all, of these kinds or all;
        only of the connections in `scope`, if it is given."""
        with self._db.read() as transaction:
            return self._select(transaction, connection, statuses, limit, kinds, scope)

    def waiting(self, connection: str) -> tuple[str, ...]:
        """Return the ids of the changes that wait for a person now, oldest first and table by table; snoozed ones wait
        later."""
        c = reviews.c
        query = select(c.id).where(c.connection == connection, c.status == "open", asks_now(self._db.now()))
        order = (c.first_seen, c.table_schema, c.table_name, c.column_name, c.id)
        with self._db.read() as transaction:
            return tuple(transaction.execute(query.order_by(*order)).scalars())

    def existing(self, connection: str) -> dict[str, Review]:
        """Return content key -> the change that is open, approved or rejected."""
        return {review.key: review for review in self.find(connection, EXISTING)}

    def _select(
        self,
        transaction: Connection,
        connection: str | None,
        statuses: Sequence[str],
        limit: int | None = None,
        kinds: Collection[str] = (),
        scope: Collection[str] | None = None,
    ) -> list[Review]:
        where: list[ColumnElement[bool]] = []
        if connection is not None:
            where.append(reviews.c.connection == connection)
        if scope is not None:
            where.append(reviews.c.connection.in_(sorted(scope)))
        if statuses:
            where.append(reviews.c.status.in_(statuses))
        if kinds:
            where.append(reviews.c.kind.in_(sorted(kinds)))
        query = select(reviews).where(*where).order_by(reviews.c.first_seen.desc(), reviews.c.id).limit(limit)
        return [review_of(row) for row in transaction.execute(query)]

    def _one(self, transaction: Connection, review_id: str) -> Review:
        full_id = review_id if review_id.startswith("c-") else f"c-{review_id}"
        exact = transaction.execute(select(reviews).where(reviews.c.id == full_id)).first()
        if exact is not None:  # by the key: the beginning of an id is looked for in every row
            return review_of(exact)
        query = select(reviews).where(reviews.c.id.startswith(full_id, autoescape=True)).order_by(reviews.c.id).limit(9)
        rows = transaction.execute(query).all()
        if len(rows) == 1:
            return review_of(rows[0])
        if rows:
            fits = ", ".join(row.id for row in rows)
            raise InstepError(f"{review_id!r} fits several changes: {fits}", hint="give one more character")
        raise InstepError(f"no change {review_id!r} is known", hint="see `instep changes list --all`")


def _new_ids(transaction: Connection, connection: str, keys: Sequence[str]) -> dict[str, str]:
    """Return an id for each key. Short, and the same for the same history: a digest of connection, key and the number
    of earlier rows."""
    c, earlier = reviews.c, dict.fromkeys(keys, 0)
    for some in _parts(keys):
        counts = select(c.key, func.count()).where(c.connection == connection, c.key.in_(some)).group_by(c.key)
        for key, count in transaction.execute(counts):
            earlier[key] = count
    left = {k: hashlib.sha256(f"{connection}\0{k}\0{n}".encode()).hexdigest() for k, n in earlier.items()}
    ids: dict[str, str] = {}
    for length in range(6, 64):
        tried = {key: f"c-{digest[:length]}" for key, digest in left.items()}
        used = set(ids.values())
        for some in _parts(list(tried.values())):
            used.update(transaction.execute(select(c.id).where(c.id.in_(some))).scalars())
        for key, short in tried.items():
            if short not in used:
                ids[key] = short
                used.add(short)
                del left[key]
        if not left:
            return ids
    raise InstepError(f"change {next(iter(left))} of {connection} is already recorded")


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the values by as many as one query may name."""
    return (values[at : at + _AT_ONCE] for at in range(0, len(values), _AT_ONCE))


def _columns(finding: DetectedChange) -> dict[str, Any]:
    values = {k: v for k, v in vars(finding).items() if k not in ("table", "column")}
    schema, name = finding.table
    values |= {
        "table_schema": schema,
        "table_name": name,
        "column_name": finding.column,
        "change": dict(finding.change),
        "modifiers": dict(finding.modifiers),
        "evidence": dict(finding.evidence),
    }
    return values | {"likeness": change_digest(values)}


def over(review: Review) -> str:
    """Return why a change that is no longer open cannot be answered."""
    return f"change {review.id} is already {review.status}: {review.summary}"


def not_open(review: Review) -> str:
    """Return why a change that is not open cannot be snoozed."""
    return f"change {review.id} is {review.status}, only open ones can be snoozed: {review.summary}"


_AT_ONCE = 500
"""Values of one statement."""


def reviews_by_ids(transaction: Connection, ids: Sequence[str]) -> list[Review]:
    """Return the changes with these whole ids, in their order; unknown ids are skipped."""
    by_id: dict[str, Review] = {}
    for some in _parts(ids):
        rows = transaction.execute(select(reviews).where(reviews.c.id.in_(some)))
        by_id |= {row.id: review_of(row) for row in rows}
    return [by_id[id] for id in dict.fromkeys(ids) if id in by_id]


def _all_of(transaction: Connection, ids: Sequence[str]) -> list[Review]:
    changes = reviews_by_ids(transaction, ids)
    if missing := set(ids) - {review.id for review in changes}:
        raise InstepError(f"no change {min(missing)!r} is known", hint="see `instep changes list --all`")
    return changes


def review_of(row: Row[Any]) -> Review:
    values = dict(row._mapping)
    table = values.pop("table_schema"), values.pop("table_name")
    for name in ("last_seen", "likeness"):
        values.pop(name)
    return Review(table=table, column=values.pop("column_name"), **values)
