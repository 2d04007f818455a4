"""The backend that works on the project of this machine, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from instep.backends.answers import raise_refused
from instep.backends.local_rollouts import LocalRollouts
from instep.backends.local_settings import LocalPolicies, LocalSelections
from instep.backends.protocol import ChangeDetails, Detected, Keys, QuarantineEntries, Queue, Ref
from instep.operations.registry import immediate_for, query_for, spec_for, work_of
from instep.operations.spec import ImmediateRequest, ImmediateWork, JobWork, Preview, Query, Request

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.detector import DetectorStatus
    from instep.control.immediate.context import WriteContext
    from instep.control.queries.context import QueryContext
    from instep.control.reviews import ChangeFilter
    from instep.model import JobStatus, Review
    from instep.operations.kinds import Answer
    from instep.store.server.api_keys import ApiKey
    from instep.sync.progress import Progress
    from instep.sync.schema_changes.answer import AnswerOutlook

    Watch = Callable[[], AbstractContextManager[Progress]]


class LocalOperations:
    def __init__(self, app: App, watch: Watch) -> None:
        self.app, self.watch = app, watch

    def prepare(self, connection: str, request: Request) -> Preview:
        with self._work(connection, request) as work:
            preview: Preview = work.prepare(self.app.sync_context(connection), request)
            return preview

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        with self._work(preview.connection, preview.request) as work:
            done: Mapping[str, Any] = work.execute(self.app.sync_context(preview.connection), preview, tuple(allow))
            return done

    def run(self, connection: str, request: Request) -> Any:
        with self._work(connection, request) as work:
            context = self.app.sync_context(connection)
            return work.run(context, work.begin(context, request))

    def perform(self, request: ImmediateRequest) -> Any:
        spec = immediate_for(request)
        work: ImmediateWork = work_of(spec)()
        context = self._write_context()
        prepared = work.prepare(context, request)
        with self.app.store.transaction():
            result = work.execute(context, request, prepared)
            if spec.always_audited:
                self.app.store.audit.add(context.who, *spec.noted(request), work.detail(request, result))
        return result

    def perform_all(self, requests: Sequence[ImmediateRequest]) -> list[Any]:
        with self.app.store.transaction():
            done = [self.perform(one) for one in requests]
            raise_refused(requests, done)
        return done

    def _write_context(self) -> WriteContext:
        from instep.bootstrap import user
        from instep.control.immediate.context import WriteContext

        return WriteContext(self.app.project, lambda: self.app.store, who=user(), decide_anew=self._decide_anew)

    def _decide_anew(self, connection: str) -> None:
        from instep.sync.detection.pause import decide_anew

        decide_anew(self.app.sync_context(connection))

    @contextmanager
    def _work(self, connection: str, request: Request) -> Iterator[Any]:
        """Make the work of a request; one that moves rows is watched."""
        spec, engine = spec_for(request), None
        if spec.starts_engine:
            engine = self.app.engine(connection)
            engine.begin()
        work: JobWork = work_of(spec)()
        work.app, work.at_project = self.app, True
        if not work.moves_rows:
            yield work
            return
        work.engine = engine or self.app.engine(connection)
        with self.watch() as work.progress:
            yield work


class LocalNotifications:
    def __init__(self, app: App) -> None:
        self.app = app

    def test(self, channel: str) -> int:
        from instep.notify.trial import try_channel
        from instep.store.store import utc_now

        return try_channel(self.app.channel(channel), channel, utc_now())


class LocalDetectors:
    def __init__(self, app: App) -> None:
        self.app = app

    def standing(self, connection: str) -> DetectorStatus:
        from instep.control.detector import standing

        return standing(self.app.store, self.app.project, connection)

    def enable(self, connection: str) -> bool:
        from instep.bootstrap import user
        from instep.control.detector import switch_on

        return switch_on(self.app.store, connection, user())

    def set(self, connection: str, options: Mapping[str, Any], table: str) -> None:
        from instep.bootstrap import user
        from instep.control.detector import patch
        from instep.control.resources.resources import merged

        spec = self.app.objects.get("connection", connection).spec
        self.app.objects.put("connection", connection, merged(spec, patch(spec, options, table)), who=user())


_AT_ONCE = 100
"""Connections whose status is read by the same statements."""


class LocalBackend:
    """Answers from the project of this machine, and works in this process.

    `watch` opens the display of progress; `notify_user` writes one line for the person who waits.
    """

    def __init__(self, app: App, watch: Watch, notify_user: Callable[[str], None]) -> None:
        self.app = app
        self._notify = notify_user
        self.folder = app.project.root
        self.operations = LocalOperations(app, watch)
        self.selections = LocalSelections(app)
        self.rollouts = LocalRollouts(app, notify_user)
        self.policies = LocalPolicies(app)
        self.detectors = LocalDetectors(app)
        self.notices = LocalNotifications(app)

    def __enter__(self) -> Self:
        self.app.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.app.__exit__(*error)

    def connection(self, name: str | None) -> str:
        return self.app.connection(name)

    def owner(self, what: str, connection: str | None) -> tuple[str, str]:
        if connection:
            return what, self.app.connection(connection)
        store = self.app.store
        if what.startswith("r-"):
            return what, store.runs.get(what).connection
        if what.startswith("p-"):
            return what, store.plans.get(what).connection
        return what, store.reviews.get(what).connection

    def has_connection(self, name: str) -> bool:
        return name in self.app.project.connections

    def tables(self, connection: str) -> Mapping[str, Ref]:
        return {table.path: table.ref for table in self.app.store.accepted.catalog(connection).tables}

    def status(self) -> list[dict[str, Any]]:
        from instep.bootstrap.logs import log_status
        from instep.control.selection.reselected import decided
        from instep.sync.status import statuses

        app, found = self.app, list[dict[str, Any]]()
        names = app.project.selected()
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            chosen = decided(app.project, app.store, some)
            for one in statuses(app.project, app.store, some, app.sync_context, self._notify):
                name = one["connection"]
                log = log_status(app, name) if app.project.follows_log(name) else None
                found.append(chosen[name] | one | {"log": log})
        return found

    def detect(self, connection: str) -> Detected:
        from instep.control.selection.unknown_tables import check_named
        from instep.sync.schema_changes.evolve import preview

        check_named(self.app.project, self.app.store, connection)
        found = preview(self.app.sync_context(connection), count=True, pauses=True)
        pending = bool(found.waiting) or any(d.applied or d.effect == "waiting" for d in found.detection.decisions)
        reviews, counts = tuple(found.reviews.values()), found.detection.counts
        return Detected(reviews, counts, pending, found.missing, found.others)

    def changes(self, connection: str | None, *, every: bool) -> list[Review]:
        from instep.control.reviews import waiting

        name = connection and self.app.connection(connection)
        return self.app.store.reviews.find(name) if every else waiting(self.app.store, name)

    def change(self, id: str, sample: int) -> ChangeDetails:
        from instep.plans.costs import tried_of
        from instep.plans.planned import key_lines

        review = self.app.store.reviews.get(id)
        return ChangeDetails(
            review, key_lines(self.app, review.connection, [review]), *tried_of(self.app, review, sample)
        )

    def choose(self, change_filter: ChangeFilter) -> list[Review]:
        from instep.control.reviews import choose

        if change_filter.connection is not None:
            self.app.connection(change_filter.connection)
        return choose(self.app.store, change_filter)

    def outlook(self, connection: str, found: list[Review], answer: Answer | None) -> AnswerOutlook:
        from instep.store.catalogs.reviews import STANDING
        from instep.sync.schema_changes.answer import AnswerOutlook, approving, keeping

        context = self.app.sync_context(connection)
        if answer != "approved":
            return keeping(context, found, "rejected" if answer else "open")
        return approving(context, found) if all(r.status in STANDING for r in found) else AnswerOutlook()

    def query(self, query: Query) -> Any:
        """Return the one answer of a query."""
        return work_of(query_for(query))().find(self._seen, query)

    def items(self, query: Query, limit: int) -> list[Any]:
        """Return at most `limit` items of the list that a query asks for."""
        return list(work_of(query_for(query))().items(self._seen, query, None, limit))

    @property
    def _seen(self) -> QueryContext:
        from instep.control.queries.context import QueryContext

        return QueryContext(self.app.project, lambda: self.app.store, open_connection=self.app.sync_context)

    def held(self, connection: str, table: str | None) -> QuarantineEntries:
        from instep.sync.quarantine.quarantine import holdings

        found = list(holdings(self.app.sync_context(connection), [table] if table else []))
        entries = [entry_document(h.table.path, e) for h in found for e in h.found.entries]
        return QuarantineEntries(entries, [f"{h.table.path}: {name}" for h in found for name in h.found.broken])

    def matches(self, connection: str, table: str, key: Mapping[str, str | None]) -> list[str]:
        from instep.sync.quarantine.quarantine import of_row

        return of_row(self.app.sync_context(connection), table, key)

    def queue(self, statuses: Sequence[JobStatus], connection: str | None, limit: int) -> Queue:
        jobs = self.app.store.jobs
        found = jobs.find(status=statuses, connection=connection, limit=limit, whole=False)
        return Queue(found, jobs.counts(), self.app.store.workers.live())

    def keys(self) -> Keys:
        return Keys(self.app.store.api_keys.page(limit=10_000), self.app.store.api_keys.now())

    def key(self, id: str) -> ApiKey:
        return self.app.store.api_keys.get(id)


def entry_document(table: str, entry: Any) -> dict[str, Any]:
    """A held value or row as JSON has it; `table` is what its table is called now, a whole row is an object."""
    data = {k: v for k, v in asdict(entry).items() if k not in ("fields", "name", "chunk")}
    original = entry.original
    if not entry.column and original is not None:
        original = json.loads(original)
    return {**data, "table": table, "key": json.loads(entry.key), "original": original}


__all__ = ["LocalBackend", "entry_document"]
