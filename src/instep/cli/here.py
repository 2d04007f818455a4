"""A desk at the project of this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from instep.cli.here_detectors import DetectorsHere
from instep.cli.here_notices import NoticesHere
from instep.cli.here_operations import OperationsHere
from instep.cli.here_plans import PlansHere
from instep.cli.here_policies import PoliciesHere
from instep.cli.here_rollouts import RolloutsHere
from instep.cli.here_rows import RowsHere
from instep.cli.here_selections import SelectionsHere
from instep.errors import Blocked
from instep.remote.desk import Detected, HeldThere, Keys, Queue, Ref, SchemaAt, Seen

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.here_rows import Watch
    from instep.control.history import Side
    from instep.control.keys import Issued
    from instep.control.reviews import Answer, Wish
    from instep.control.trail import Trail
    from instep.model import Job, JobStatus, Review
    from instep.store.api_keys import ApiKey
    from instep.sync.changes.answer import Outlook


_AT_ONCE = 100
"""Connections whose status is read by the same statements."""


class Here:
    """`watch` shows what is told while rows are read."""

    def __init__(self, app: App, watch: Watch) -> None:
        self.app = app
        self.folder = app.project.root
        self.planning = PlansHere(app)
        self.rows = RowsHere(app, watch)
        self.operations = OperationsHere(app)
        self.selections = SelectionsHere(app)
        self.rollouts = RolloutsHere(app)
        self.policies = PoliciesHere(app)
        self.detectors = DetectorsHere(app)
        self.notices = NoticesHere(app)

    def __enter__(self) -> Self:
        self.app.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.app.__exit__(*error)

    @property
    def _who(self) -> str:
        from instep.bootstrap import user

        return user()

    def connection(self, name: str | None) -> str:
        return self.app.connection(name)

    def has_connection(self, name: str) -> bool:
        return name in self.app.project.connections

    def tables(self, connection: str) -> Mapping[str, Ref]:
        return {table.path: table.ref for table in self.app.store.accepted.catalog(connection).tables}

    def status(self) -> list[dict[str, Any]]:
        from instep.cli.context import say
        from instep.cli.log import logged
        from instep.control.reselected import decided
        from instep.sync.status import statuses

        app, found = self.app, list[dict[str, Any]]()
        names = app.project.selected()
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            chosen = decided(app.project, app.store, some)
            for one in statuses(app.project, app.store, some, app.pipe, say):
                name = one["connection"]
                log = logged(app, name) if app.project.follows_log(name) else None
                found.append(chosen[name] | one | {"log": log})
        return found

    def detect(self, connection: str) -> Detected:
        from instep.control.named import check_named
        from instep.sync.changes.evolve import preview

        check_named(self.app.project, self.app.store, connection)
        found = preview(self.app.pipe(connection), count=True, pauses=True)
        pending = bool(found.waiting) or any(d.applied or d.effect == "waiting" for d in found.detection.decisions)
        reviews, counts = tuple(found.reviews.values()), found.detection.counts
        return Detected(reviews, counts, pending, found.missing, found.others)

    def changes(self, connection: str | None, *, every: bool) -> list[Review]:
        from instep.control.reviews import waiting

        name = connection and self.app.connection(connection)
        return self.app.store.reviews.find(name) if every else waiting(self.app.store, name)

    def change(self, id: str, sample: int) -> Seen:
        from instep.plans.costs import tried_of
        from instep.plans.keys import key_lines

        review = self.app.store.reviews.get(id)
        return Seen(review, key_lines(self.app, review.connection, [review]), *tried_of(self.app, review, sample))

    def choose(self, wish: Wish) -> list[Review]:
        from instep.control.reviews import choose

        if wish.connection is not None:
            self.app.connection(wish.connection)
        return choose(self.app.store, wish)

    def outlook(self, connection: str, found: list[Review], answer: Answer | None) -> Outlook:
        from instep.store.reviews import STANDING
        from instep.sync.changes.answer import Outlook, approving, keeping

        pipe = self.app.pipe(connection)
        if answer != "approved":
            return keeping(pipe, found, "rejected" if answer else "open")
        return approving(pipe, found) if all(r.status in STANDING for r in found) else Outlook()

    def answer(self, found: list[Review], status: Answer, *, hashed: bool) -> list[Review]:
        from instep.control.reviews import answer
        from instep.control.selections import answer_hashed

        if hashed:
            return answer_hashed(self.app.project, self.app.store, found, status, self._who)
        return answer(self.app.store, found, status, self._who)

    def snooze(self, found: list[Review], end: datetime) -> list[Review]:
        from instep.control.reviews import snooze

        return snooze(self.app.store, found, end, self._who)

    def pause(self, connection: str, reason: str, table: Ref | None) -> bool:
        from instep.control.pauses import pause

        return pause(self.app.store, connection, reason, table)

    def resume(self, connection: str, table: Ref | None) -> bool:
        from instep.control.pauses import resume

        try:
            return bool(resume(self.app.store, connection, self._who, table))
        except Blocked:
            from instep.sync.detection.pause import decide_anew

            decide_anew(self.app.pipe(connection))
            return bool(resume(self.app.store, connection, self._who, table))

    def events(self, connection: str, limit: int) -> list[dict[str, Any]]:
        return [asdict(e) for e in self.app.store.events.latest(connection=connection, limit=limit)]

    def runs(self, connection: str, limit: int) -> list[dict[str, Any]]:
        return [asdict(r) for r in self.app.store.runs.history(connection, limit=limit)]

    def plans(self, connection: str, limit: int) -> list[dict[str, Any]]:
        from instep.cli.plan_history import plan_rows

        return plan_rows(self.app.store, connection, limit)

    def versions(self, connection: str, limit: int) -> list[dict[str, Any]]:
        return [{**asdict(v), "label": v.label} for v in self.app.store.accepted.history(connection)[:limit]]

    def trail(self, connection: str, text: str) -> Trail:
        from instep.control.trail import trail

        return trail(self.app.store, connection, text)

    def schema(self, connection: str | None, side: Side, at: str | None) -> SchemaAt:
        from instep.control.history import catalog_of, moment, version_at

        when, store = moment(at) if at is not None else None, self.app.store
        version = version_at(store, self.connection(connection), side, when)
        kept = store.copies.standing(version.connection) if at is None and side != "source" else []
        return SchemaAt(version, catalog_of(store, version), kept)

    def held(self, connection: str, table: str | None) -> HeldThere:
        from instep.sync.held.quarantine import holdings

        found = list(holdings(self.app.pipe(connection), [table] if table else []))
        entries = [entry_document(h.table.path, e) for h in found for e in h.found.entries]
        return HeldThere(entries, [f"{h.table.path}: {name}" for h in found for name in h.found.broken])

    def queue(self, statuses: Sequence[JobStatus], connection: str | None, limit: int) -> Queue:
        jobs = self.app.store.jobs
        found = jobs.find(status=statuses, connection=connection, limit=limit, whole=False)
        return Queue(found, jobs.counts(), self.app.store.workers.live())

    def job(self, id: str) -> Job:
        return self.app.store.jobs.get(id)

    def cancel(self, id: str) -> Job:
        return self.app.store.jobs.cancel(id, self._who)

    def retry(self, id: str) -> Job:
        return self.app.store.jobs.retry(id, self._who)

    def keys(self) -> Keys:
        return Keys(self.app.store.api_keys.page(limit=10_000), self.app.store.api_keys.now())

    def key(self, id: str) -> ApiKey:
        return self.app.store.api_keys.get(id)

    def create_key(self, name: str, role: str, groups: Sequence[str], days: int | None) -> Issued:
        from instep.control import keys as use

        store, who = self.app.store, self._who
        with store.transaction():
            issued = use.create(store, name, role, who, groups=groups, lasts=_lasts(days))
            store.audit.add(who, "key.create", name, {"key": issued.key.id, "role": role, "groups": list(groups)})
        return issued

    def rotate_key(self, id: str, overlap: timedelta, days: int | None) -> Issued:
        from instep.control import keys as use

        with self.app.store.transaction():
            issued = use.rotate(self.app.store, id, overlap=overlap, lasts=_lasts(days))
            self.app.store.audit.add(self._who, "key.rotate", id, {"name": issued.key.name})
        return issued

    def revoke_key(self, id: str) -> ApiKey:
        from instep.control import keys as use

        with self.app.store.transaction():
            ended = use.revoke(self.app.store, id, self._who)
            self.app.store.audit.add(self._who, "key.revoke", id, {"name": ended.name})
        return ended


def _lasts(days: int | None) -> timedelta | None:
    return timedelta(days=days) if days is not None else None


def entry_document(table: str, entry: Any) -> dict[str, Any]:
    """A held value or row as JSON has it; `table` is what its table is called now, a whole row is an object."""
    data = {k: v for k, v in asdict(entry).items() if k not in ("fields", "name", "chunk")}
    original = entry.original
    if not entry.column and original is not None:
        original = json.loads(original)
    return {**data, "table": table, "key": json.loads(entry.key), "original": original}


__all__ = ["Here", "entry_document"]
