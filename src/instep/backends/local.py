"""The backend that works on the project of this machine, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from instep.backends.calls import raise_refused
from instep.backends.protocol import ChangeDetails, Listing
from instep.errors import ConnectError, InstepError
from instep.operations.registry import immediate_for, query_for, spec_for, work_of
from instep.operations.spec import (
    ImmediateRequest,
    ImmediateWork,
    JobWork,
    Preview,
    Query,
    QueryWork,
    Request,
    document_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from instep.bootstrap import App
    from instep.control.immediate.context import WriteContext
    from instep.control.imports import ImportedFiles
    from instep.control.queries.context import QueryContext
    from instep.control.rollouts.waves import ConnectionGroup
    from instep.model import Review
    from instep.operations.immediate.decisions import AnswerPreview
    from instep.operations.immediate.imports import ImportConfigurationRequest
    from instep.operations.values import Answer
    from instep.sync.progress import Progress

    Watch = Callable[[], AbstractContextManager[Progress]]
    Wait = Callable[[], AbstractContextManager[None]]


class _Rehearsed(Exception):
    """Ends a rehearsal."""


class LocalOperations:
    def __init__(self, app: App, watch: Watch, wait: Wait = nullcontext) -> None:
        self.app, self.watch, self.wait = app, watch, wait

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

    def rehearse(self, request: ImmediateRequest) -> Any:
        work: ImmediateWork = work_of(immediate_for(request))()
        context = replace(self.write_context(), rehearsed=True)
        prepared = work.prepare(context, request)
        with suppress(_Rehearsed), self.app.store.transaction():
            done = work.execute(context, request, prepared)
            raise _Rehearsed
        return done

    def perform(self, request: ImmediateRequest) -> Any:
        spec = immediate_for(request)
        work: ImmediateWork = work_of(spec)()
        context = self.write_context()
        prepared = work.prepare(context, request)
        with self.app.store.transaction():
            result = work.execute(context, request, prepared)
            detail = document_of(work.detail(request, result))
            self.app.store.audit.add(context.who, *spec.noted(request), detail)
        return result

    def perform_all(self, requests: Sequence[ImmediateRequest]) -> list[Any]:
        with self.app.store.transaction():
            done = [self.perform(request) for request in requests]
            raise_refused(requests, done)
        return done

    def write_context(self) -> WriteContext:
        from instep.bootstrap import user
        from instep.control.immediate.context import WriteContext

        return WriteContext(
            self.app.project,
            lambda: self.app.store,
            who=user(),
            decide_anew=self._decide_anew,
            open_channel=self.app.channel,
        )

    def _decide_anew(self, connection: str) -> None:
        from instep.sync.detection.pause import decide_anew

        decide_anew(self.app.sync_context(connection))

    @contextmanager
    def _work(self, connection: str, request: Request) -> Iterator[Any]:
        """Make the work of a request; one that moves rows is watched, any other is waited for."""
        spec, engine = spec_for(request), None
        if spec.starts_engine:
            engine = self.app.engine(connection)
            if not any(one.table is None for one in self.app.store.pauses.active(connection)):
                engine.begin()
        work: JobWork = work_of(spec)()
        work.app, work.at_project = self.app, True
        if not (work.moves_rows or work.rewrites):
            with self.wait():
                yield work
            return
        if work.moves_rows:
            work.engine = engine or self.app.engine(connection)
        with self.watch() as work.progress:
            yield work


def import_configuration(
    request: ImportConfigurationRequest, folder: Path, *, into: Path | None = None, dry_run: bool = False
) -> ImportedFiles:
    """Write the project of an export into a folder, and let its store take states and catalogs; or write it into
    another new file (`into`) alone.

    ProjectError for files that are no export, or if a file is there already with another text.
    """
    from instep.bootstrap import open_project
    from instep.control.imports import import_files
    from instep.sync.progress import Silent

    done = import_files(request, folder, into=into, dry_run=dry_run)
    if dry_run or into is not None or not done.has_memory:
        return done
    with open_project(folder) as app:
        imported = LocalOperations(app, lambda: nullcontext(Silent())).perform(request)
    return replace(done, configuration=imported)


_POLL = 0.5
"""Seconds between two looks at a rollout that workers carry on."""
_ALL = 2**31 - 1


class LocalBackend:
    """Answers from the project of this machine, and works in this process.

    `watch` opens the display of progress, `wait` that of work that tells none; `notify_user` writes one line for the
    person who waits.
    """

    def __init__(self, app: App, watch: Watch, notify_user: Callable[[str], None], wait: Wait = nullcontext) -> None:
        self._app, self._is_closed = app, False
        self._notify = notify_user
        self.folder = app.project.root
        self._operations = LocalOperations(app, watch, wait)

    @property
    def app(self) -> App:
        """Return the open project; InstepError for one that was closed, whose store would silently open again."""
        if self._is_closed:
            raise InstepError(f"the project in {self.folder} was closed", hint="open it again, with `instep.open`")
        return self._app

    @property
    def operations(self) -> LocalOperations:
        """Return the operations of the open project."""
        _ = self.app
        return self._operations

    def __enter__(self) -> Self:
        self.app.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._app.__exit__(*error)

    def connection(self, name: str | None) -> str:
        return self.app.connection(name)

    def connections(self) -> list[str]:
        return list(self.app.project.selected())

    def has_connection(self, name: str) -> bool:
        return name in self.app.project.connections

    def change_details(self, review: Review, sample: int) -> ChangeDetails:
        from instep.plans.costs import tried_of
        from instep.plans.planned import key_lines

        return ChangeDetails(key_lines(self.app, review.connection, [review]), *tried_of(self.app, review, sample))

    def preview_answer(self, connection: str, reviews: list[Review], answer: Answer | None) -> AnswerPreview:
        from instep.operations.immediate.decisions import AnswerPreview
        from instep.operations.values import EXISTING
        from instep.sync.schema_changes.answer import approving, keeping

        context = self.app.sync_context(connection)
        if answer != "approved":
            return keeping(context, reviews, "rejected" if answer else "open")
        return approving(context, reviews) if all(r.status in EXISTING for r in reviews) else AnswerPreview()

    def query(self, query: Query) -> Any:
        """Return the single result of a query."""
        return work_of(query_for(query))().find(self._seen, query)

    def items(self, query: Query, limit: int | None = None) -> list[Any]:
        """Return the items of the list that a query asks for, at most `limit`."""
        return self._items(work_of(query_for(query))(), query, limit)

    def listing(self, query: Query, limit: int | None = None) -> Listing:
        """Return at most `limit` items of a list, and the record of what it has beside them."""
        work: QueryWork = work_of(query_for(query))()
        return Listing(self._items(work, query, limit), work.page_summary(self._seen, query))

    def _items(self, work: QueryWork, query: Query, limit: int | None) -> list[Any]:
        items = work.items(self._seen, query, None, _ALL if limit is None else limit)
        return list(work.shown(self._seen, items))

    def detect_group(self, group: ConnectionGroup) -> Mapping[str, str]:
        """Detect changes of all connections of a group in this process."""
        from instep.control.rollouts.create import detect_all
        from instep.control.rollouts.waves import chosen
        from instep.sync.runs import InProcess

        runs = InProcess(self.app.sync_context, self.app.engine)
        return detect_all(runs, chosen(self.app.project, group), "create")

    def send_due(self) -> None:
        self.app.sender().send()

    def carry_rollout(self, request: ImmediateRequest) -> None:
        """Follow the workers, or carry the rollout on here. ConnectError if the last worker goes before the end."""
        from instep.backends.rollout_steps import follow_step

        if self.app.store.workers.live():
            follow_step(self, request, self._notify, self._wait)
        else:
            self._run_locally(request)

    def _wait(self) -> None:
        if not self.app.store.workers.live():
            raise ConnectError("the rollout's job waits, and no worker is left", hint="start one: `instep worker`")
        time.sleep(_POLL)

    def _run_locally(self, request: Any) -> None:
        from instep.control.queries.decisions import rollout_of
        from instep.control.rollouts.create import patch_of
        from instep.control.rollouts.flow import Rolling
        from instep.control.rollouts.machine import member_line
        from instep.control.rollouts.policies import ServedPolicies
        from instep.control.rollouts.queued import withdraw
        from instep.sync.runs import InProcess

        app, context = self.app, self.operations.write_context()
        rollout = rollout_of(context, request.rollout)
        spec = immediate_for(request)
        work = work_of(spec)()
        with app.store.transaction():
            withdraw(app.store, rollout.id, context.who)
            course = work.course(context, request)
            app.store.audit.add(context.who, *spec.noted(request), document_of(work.requested(request)))
        patch = patch_of(rollout.what, app.project, app.store, ServedPolicies(app.objects))
        runs = InProcess(app.sync_context, app.engine)
        rolling = Rolling(app.store, patch, runs, context.who, lambda member: self._notify(member_line(member)))
        rolling.carry_on(rollout.id, course)

    @property
    def _seen(self) -> QueryContext:
        from instep.control.queries.context import QueryContext

        return QueryContext(
            self.app.project,
            lambda: self.app.store,
            open_connection=self.app.sync_context,
            log_status=self._log_status,
            tell=self._notify,
        )

    def _log_status(self, connection: str) -> Mapping[str, Any] | None:
        from instep.bootstrap.app import log_status

        return log_status(self.app, connection) if self.app.project.follows_log(connection) else None
