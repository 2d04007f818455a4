"""The backend that works at a server, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from instep.backends.calls import raise_refused
from instep.backends.decode import record
from instep.backends.http.client import Client, part
from instep.backends.protocol import ChangeDetails, Listing
from instep.backends.remote_jobs import Follower, RemoteJobs
from instep.backends.rollout_steps import follow_step
from instep.control.rollouts.waves import ConnectionGroup, members_of
from instep.errors import InstepError, NotFound, ProjectError
from instep.operations.queries.work import GetConnection, ListConnections
from instep.operations.registry import immediate_for, page_summary_of, query_for, result_of, spec_for
from instep.operations.spec import (
    ImmediateRequest,
    ImmediateSpec,
    OperationSpec,
    Options,
    Preview,
    Query,
    QuerySpec,
    Request,
    check_served,
    served_fields,
)
from instep.suggest import first_of

if TYPE_CHECKING:
    from instep.model import Review
    from instep.operations.immediate.decisions import AnswerPreview
    from instep.operations.values import Answer


@dataclass(frozen=True)
class RemoteOperations:
    works: RemoteJobs

    def prepare(self, connection: str, request: Request) -> Preview:
        document = self._done(connection, request, {"preview": True})
        bound = type(request).of_options(document["request"])
        return Preview(connection, bound, document["document"], document["lines"], document["detail"])

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        return self._done(preview.connection, preview.request, {"allow": list(allow)} if allow else {})

    def begin(self, connection: str, request: Request) -> dict[str, Any]:
        """Enqueue it; return the job, which waits for a worker or was there already (`fresh` false)."""
        check_served(request)
        request.check_remote()
        served = served_fields(type(request))
        body = {name: value for name, value in request.options().items() if name in served}
        why = {"why": request.why} if request.why else {}
        return self.works.begin(connection, _below(spec_for(request)), {**body, **why})

    def run(self, connection: str, request: Request) -> Any:
        job = self.works.follower.wait_until_over(self.begin(connection, request)["id"])
        return self.works.answer(job, result_of(spec_for(request)))

    def perform(self, request: ImmediateRequest) -> Any:
        return self._send(request)

    def rehearse(self, request: ImmediateRequest) -> Any:
        return self._send(request, rehearsed=True)

    def _send(self, request: ImmediateRequest, *, rehearsed: bool = False) -> Any:
        spec, path, body = _address(request, immediate_for(request))
        client = self.works.client
        method = spec.route.partition(" ")[0]
        sent = None if method == "DELETE" else body
        return record(result_of(spec), client.write(method, path, sent, dry_run=rehearsed))

    def perform_all(self, requests: Sequence[ImmediateRequest]) -> list[Any]:
        """Rehearse all before any is done: each is a request of its own."""
        raise_refused(requests, [self.rehearse(request) for request in requests])
        done = [self._send(one) for one in requests]
        raise_refused(requests, done)
        return done

    def _done(self, connection: str, request: Request, more: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.works.done(connection, _below(spec_for(request)), {**request.options(), **more}).result


def _below(spec: OperationSpec) -> str:
    """Return the path of an operation below its connection."""
    return spec.route.partition("{connection}/")[2]


_NAMED = 20


class RemoteBackend:
    """`follower` shows what becomes of work that a command waits for; `say` tells the user what else matters.
    `folder`: where lock files are."""

    def __init__(
        self,
        client: Client,
        follower: Follower,
        say: Callable[[str], None],
        folder: Path,
    ) -> None:
        self._api, self._follower, self.folder = client, follower, folder
        self._notify = say
        self._works = works = RemoteJobs(client, follower, say)
        self.operations = RemoteOperations(works)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def connection(self, name: str | None) -> str:
        if name:
            return name
        names = [one.name for one in self.items(ListConnections(), _NAMED)]
        if len(names) > 1:
            raise ProjectError(
                f"the server has {len(names)} connections: choose one",
                hint=f"name it as the command's CONNECTION or by -c (see --help): {first_of(names)}",
            )
        if not names:
            raise ProjectError("the server has no connections that this key is for", hint="ask its admin")
        return str(names[0])

    def connections(self) -> list[str]:
        return [one.name for one in self.items(ListConnections())]

    def has_connection(self, name: str) -> bool:
        try:
            self.query(GetConnection(name, freshness=False))
        except NotFound:
            return False
        return True

    def change_details(self, review: Review, sample: int) -> ChangeDetails:
        return ChangeDetails()

    def preview_answer(self, connection: str, reviews: list[Review], answer: Answer | None) -> AnswerPreview:
        from instep.operations.immediate.decisions import AnswerPreview

        return AnswerPreview()

    def query(self, query: Query) -> Any:
        """Return the single result of a query."""
        spec, path, values = _address(query, query_for(query))
        document = self._api.post(path, values) if spec.has_body else self._api.get(path, **values)
        return record(result_of(spec), document)

    def items(self, query: Query, limit: int | None = None) -> list[Any]:
        """Return the items of the list that a query asks for, at most `limit`."""
        return list(self._each(query, limit))

    def listing(self, query: Query, limit: int | None = None) -> Listing:
        """Return at most `limit` items of a list, and the record of what its first page has beside them."""
        spec, path, parameters = _address(query, query_for(query))
        beside = record(page_summary_of(spec), self._api.get(path, **parameters, limit=1))
        return Listing(self.items(query, limit), beside)

    def detect_group(self, group: ConnectionGroup) -> Mapping[str, str]:
        """Queue all detections at once, then wait for one after the other."""
        failed: dict[str, str] = {}
        names = members_of(group, [(one.name, one.destination, one.tags) for one in self.items(ListConnections())])
        jobs = {name: self._works.begin(name, "detect", {"why": "rollout"})["id"] for name in names}
        for name, job in jobs.items():
            try:
                self._follower.done(job)
            except InstepError as error:
                failed[name] = error.message
        return failed

    def send_due(self) -> None:
        return None

    def carry_rollout(self, request: ImmediateRequest) -> None:
        """Follow the worker that carries the rollout on."""
        waits = self._follower.waits()
        follow_step(self, request, self._notify, lambda: self._follower.sleep(next(waits)))

    def _each(self, query: Query, limit: int | None = None) -> Iterator[Any]:
        spec, path, parameters = _address(query, query_for(query))
        kind = result_of(spec)
        for page in self._api.pages(path, limit, spec.largest_page, **parameters):
            yield record(kind, page)


S = TypeVar("S", QuerySpec, ImmediateSpec)


def _address(options: Options, spec: S) -> tuple[S, str, dict[str, Any]]:
    """Return the specification of what is asked, its path with the names filled in, and its other values."""
    values = options.options()
    in_path = {name: values.pop(name) for name in re.findall(r"{(\w+)}", spec.path)}
    return spec, spec.path.format(**{name: part(str(value)) for name, value in in_path.items()}), values
