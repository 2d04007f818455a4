"""A desk at a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from instep.control.history import Version
from instep.control.keys import Issued
from instep.control.reviews import Answer, Wish, selected
from instep.control.trail import Trail
from instep.errors import Blocked, Conflict, ProjectError
from instep.model import Job, JobStatus, Member, Review, Worker
from instep.remote.client import Client, part
from instep.remote.desk import Detected, HeldThere, Keys, Queue, Ref, SchemaAt, Seen
from instep.remote.follow import Follower, error_of, report_of
from instep.remote.problems import ServerRefused
from instep.remote.records import moments, record
from instep.remote.there_detectors import DetectorsThere
from instep.remote.there_notices import NoticesThere
from instep.remote.there_operations import OperationsThere
from instep.remote.there_plans import PlansThere
from instep.remote.there_policies import PoliciesThere
from instep.remote.there_rollouts import RolloutsThere
from instep.remote.there_rows import RowsThere
from instep.remote.there_selections import SelectionsThere
from instep.remote.work import Works
from instep.schema.counts import Count, Counts
from instep.schema.table import catalog_from_dict
from instep.store.api_keys import ApiKey
from instep.store.copies import Copy
from instep.sync.progress import Report

if TYPE_CHECKING:
    from instep.control.history import Side
    from instep.operations.sync import SyncRequest
    from instep.sync.changes.answer import Outlook

TIMES = frozenset({"at", "since", "until", "started", "ended"})
_STATUS_PAGE = 100
_NAMED = 20


class There:
    """`follower` shows what becomes of work that a command waits for; `say` tells the user what else matters, `told`
    what became of a connection of a rollout. `folder`: where lock files are."""

    def __init__(
        self,
        client: Client,
        follower: Follower,
        say: Callable[[str], None],
        told: Callable[[Member], None],
        folder: Path,
    ) -> None:
        self._api, self._follower, self.folder = client, follower, folder
        self._works = works = Works(client, follower, say)
        self.planning = PlansThere(works, self._review)
        self.rows = RowsThere(works, self.report)
        self.operations = OperationsThere(works)
        self.selections = SelectionsThere(client)
        self.rollouts = RolloutsThere(works, told, say)
        self.policies = PoliciesThere(client)
        self.detectors = DetectorsThere(client)
        self.notices = NoticesThere(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def connection(self, name: str | None) -> str:
        if name:
            return name
        names = [one["name"] for one in self._api.pages("/connections", _NAMED)]
        if len(names) > 1:
            raise ProjectError("which connection?", hint=f"name one of: {', '.join(names)}")
        if not names:
            raise ProjectError("the server has no connections that this key is for", hint="ask its admin")
        return str(names[0])

    def has_connection(self, name: str) -> bool:
        try:
            self._api.get(f"/connections/{part(name)}")
        except ServerRefused:
            return False
        return True

    def tables(self, connection: str) -> Mapping[str, Ref]:
        return {table.path: table.ref for table in self.schema(connection, "accepted", None).catalog.tables}

    def status(self) -> list[dict[str, Any]]:
        return [moments(one, TIMES) for one in self._api.pages("/status", size=_STATUS_PAGE)]

    def detect(self, connection: str) -> Detected:
        result = self._works.done(connection, "detect", {"why": "asked for"}).result
        if why := result.get("skipped"):
            raise Blocked(f"connection {connection} was not looked at: {why}", hint="`instep detector status`, there")
        ids = dict.fromkeys(result.get("changes", ()))
        found = {r.id: r for r in self._reviews(connection, stop=set(ids))}
        counts = Counts(**{level: Count(**of) for level, of in result.get("counts", {}).items()})
        reviews = tuple(found[id] for id in ids if id in found)
        pending, others = bool(result.get("pending") or result.get("waiting")), bool(result.get("others", True))
        return Detected(reviews, counts, pending, tuple(result.get("missing", ())), others)

    def begin_sync(self, connection: str, request: SyncRequest) -> dict[str, Any]:
        """The job, which waits for a worker or was there already (`fresh` false)."""
        return self._works.begin(connection, "sync", {**request.options(), "why": "asked for"})

    def report(self, job_id: str) -> Report:
        """What a sync did, once it is over; the error that ended it if it made no run."""
        job = self._follower.over(job_id)
        found = report_of(self._api, job) if job.status != "cancelled" else None
        if found is None:
            raise error_of(job)
        return found

    def changes(self, connection: str | None, *, every: bool) -> list[Review]:
        found = self._reviews(connection, () if every else ("open",))
        return list(found) if every else [r for r in found if _waits(r)]

    def _reviews(
        self, connection: str | None, status: Sequence[str] = (), stop: set[str] | None = None
    ) -> Iterator[Review]:
        """Newest first; with `stop` only until all of those have come."""
        left = None if stop is None else set(stop)
        if left is not None and not left:
            return
        for one in self._api.pages("/changes", connection=connection, status=status):
            yield record(Review, one)
            if left is not None:
                left.discard(one["id"])
                if not left:
                    return

    def change(self, id: str, sample: int) -> Seen:
        return Seen(self._review(id))

    def _review(self, id: str) -> Review:
        """By its id, or how that begins, as on the other side."""
        try:
            return record(Review, self._api.get(f"/changes/{part(id)}"))
        except ServerRefused as error:
            found = [r for r in self._reviews(None) if r.id.startswith(id)]
            if len(found) != 1:
                raise error
            return found[0]

    def choose(self, wish: Wish) -> list[Review]:
        return selected(wish, self._review, lambda name: list(self._reviews(name, ("open",))))

    def outlook(self, connection: str, found: list[Review], answer: Answer | None) -> Outlook:
        from instep.sync.changes.answer import Outlook

        return Outlook()

    def answer(self, found: list[Review], status: Answer, *, hashed: bool) -> list[Review]:
        """All of them or none: it is rehearsed first."""
        body = {"answer": status, "ids": [r.id for r in found], "hash": hashed}
        for dry in (True, False):
            done = self._api.post("/changes/answers", body, dry_run=dry)
            if refused := [one for one in done["items"] if not one["ok"]]:
                raise Conflict(f"change {refused[0]['id']}: {refused[0]['problem']}", hint="see `instep changes list`")
        return [record(Review, self._api.get(f"/changes/{part(r.id)}")) for r in found]

    def snooze(self, found: list[Review], end: datetime) -> list[Review]:
        body = {"until": end.isoformat()}
        for dry in (True, False):
            done = [self._api.post(f"/changes/{part(r.id)}/snooze", body, dry_run=dry) for r in found]
        return [record(Review, one["change"]) for one in done]

    def pause(self, connection: str, reason: str, table: Ref | None) -> bool:
        body = {"reason": reason, "table": list(table) if table else None}
        return bool(self._api.post(f"/connections/{part(connection)}/pause", body)["changed"])

    def resume(self, connection: str, table: Ref | None) -> bool:
        body = {"table": list(table) if table else None}
        return bool(self._api.post(f"/connections/{part(connection)}/resume", body)["changed"])

    def events(self, connection: str, limit: int) -> list[dict[str, Any]]:
        return self._listed("/events", limit, connection=connection)

    def runs(self, connection: str, limit: int) -> list[dict[str, Any]]:
        return self._listed("/runs", limit, connection=connection)

    def plans(self, connection: str, limit: int) -> list[dict[str, Any]]:
        ids = [one["id"] for one in self._api.pages(f"/connections/{part(connection)}/plans", limit)]
        whole = (moments(self._api.get(f"/plans/{part(id)}"), TIMES) for id in ids)
        return [{k: v for k, v in one.items() if k != "plan"} for one in whole]

    def versions(self, connection: str, limit: int) -> list[dict[str, Any]]:
        return self._listed(f"/connections/{part(connection)}/history", limit)

    def _listed(self, path: str, limit: int, **query: Any) -> list[dict[str, Any]]:
        return [moments(one, TIMES) for one in self._api.pages(path, limit, **query)]

    def trail(self, connection: str, text: str) -> Trail:
        return record(Trail, self._api.get(f"/connections/{part(connection)}/trail", of=text))

    def schema(self, connection: str | None, side: Side, at: str | None) -> SchemaAt:
        name = self.connection(connection)
        found = self._api.get(f"/connections/{part(name)}/schema", side=side, at=at)
        copies = tuple(record(Copy, one) for one in found["copies"])
        return SchemaAt(record(Version, found), catalog_from_dict(found["catalog"]), copies)

    def held(self, connection: str, table: str | None) -> HeldThere:
        path = f"/connections/{part(connection)}/quarantine"
        first = self._api.get(path, table=table, all=True, limit=1)
        broken = list(first["unreadable"])
        entries = self._api.pages(path, table=table, all=True)
        return HeldThere([moments(one, TIMES) for one in entries], broken)

    def queue(self, statuses: Sequence[JobStatus], connection: str | None, limit: int) -> Queue:
        """Jobs of the pages; counts and workers of the first one."""
        asked: dict[str, Any] = {"status": list(statuses), "connection": connection}
        first = self._api.get("/queue", **asked, limit=1)
        jobs = tuple(record(Job, one) for one in self._api.pages("/queue", limit, **asked))
        return Queue(jobs, first["counts"], tuple(record(Worker, one) for one in first["workers"]))

    def job(self, id: str) -> Job:
        return record(Job, self._api.get(f"/queue/{part(id)}"))

    def cancel(self, id: str) -> Job:
        return record(Job, self._api.post(f"/queue/{part(id)}/cancel")["job"])

    def retry(self, id: str) -> Job:
        return record(Job, self._api.post(f"/queue/{part(id)}/retry")["job"])

    def keys(self) -> Keys:
        return Keys(tuple(record(ApiKey, one) for one in self._api.pages("/keys")), datetime.now(UTC))

    def key(self, id: str) -> ApiKey:
        return record(ApiKey, self._api.get(f"/keys/{part(id)}"))

    def create_key(self, name: str, role: str, groups: Sequence[str], days: int | None) -> Issued:
        return _issued(self._api.post("/keys", {"name": name, "role": role, "groups": list(groups), "days": days}))

    def rotate_key(self, id: str, overlap: timedelta, days: int | None) -> Issued:
        hours = int(overlap.total_seconds() // 3600)
        return _issued(self._api.post(f"/keys/{part(id)}/rotate", {"overlap_hours": hours, "days": days}))

    def revoke_key(self, id: str) -> ApiKey:
        return record(ApiKey, self._api.delete(f"/keys/{part(id)}")["key"])


def _waits(review: Review) -> bool:
    """As `control.reviews.waiting` has it."""
    asleep = review.snoozed_until is not None and review.snoozed_until > datetime.now(UTC)
    return review.action not in ("apply", "ignore") and not asleep


def _issued(document: Mapping[str, Any]) -> Issued:
    """A secret is told once: a request that was sent again after a lost answer does not get it."""
    key = record(ApiKey, document["key"])
    if document["secret"] is None:
        raise Blocked(
            f"API key {key.id} was made, but the answer with its secret was lost on the way",
            hint=f"`instep keys rotate {key.id} --overlap-hours 0` gives it another one",
        )
    return Issued(key, document["secret"])
