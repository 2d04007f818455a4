"""Calls that are the same at the project and over a server, made of operations and queries: finding and answering
changes, detection, discarding and erasing, and the impact on models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from instep.control.reviews import ChangeFilter, selected
from instep.errors import Blocked, Conflict, InstepError
from instep.operations.decide.impact import ImpactRequest
from instep.operations.everyday.detect import Detected, DetectRequest
from instep.operations.immediate.changes import AssignChangeRequest, CommentChangeRequest
from instep.operations.immediate.decisions import (
    AnswerChangesRequest,
    AssignChangesRequest,
    ReopenChangesRequest,
    SnoozeChangeRequest,
)
from instep.operations.queries.decisions import ListChanges, RunPolicyCases
from instep.operations.queries.history import GetPlan, GetSchema, ListRuns, ListVersions
from instep.operations.queries.quarantine import MatchQuarantined
from instep.operations.queries.work import ListTableStatus
from instep.operations.registry import immediate_for, immediate_specs, work_of
from instep.operations.repair.discard_quarantine import DiscardQuarantineRequest
from instep.operations.repair.erase import EraseRequest
from instep.operations.values import EXISTING
from instep.schema.catalog.catalog import catalog_from_dict
from instep.suggest import did_you_mean

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.control.queries.changes import ListedChange
    from instep.control.queries.history import AppliedPlan
    from instep.lineage.model import Model
    from instep.model import Review, Run
    from instep.operations.spec import ImmediateRequest
    from instep.operations.values import Answer, ChangeView, ReviewStatus
    from instep.store.catalogs.comments import Comment
    from instep.store.catalogs.connection_status import ConnectionStatus

Ref = tuple[str, str]

_AT_ONCE = 1_000
"""Changes of one request, which are answered with all of their columns, and sample changes of one query."""


def detect(backend: Backend, connection: str) -> tuple[Detected, list[Review]]:
    """Detect schema changes; return what was found, and the changes. Raises Blocked if the detector is switched off."""
    detected: Detected = backend.operations.run(connection, DetectRequest(why="requested"))
    if detected.skipped:
        raise Blocked(
            f"connection {connection} was not checked: {detected.skipped}", hint="`instep detector status`, there"
        )
    reviews: dict[str, Review] = {}
    for statuses in (EXISTING, ()):  # what a job has applied meanwhile is not among those that stand
        if missing := set(detected.changes) - reviews.keys():
            reviews |= {r.id: r for r in backend.items(ListChanges(connection, statuses)) if r.id in missing}
    return detected, [reviews[id] for id in detected.changes if id in reviews]


def status_document(backend: Backend, status: ConnectionStatus) -> dict[str, Any]:
    """Return the status of a connection as JSON has it, with all of its tables."""
    document = asdict(status)
    for name in ("outcomes", "unmatched", "last_maintained"):
        del document[name]
    has_tables = status.outcomes or status.unmatched
    tables = [asdict(one) for one in backend.items(ListTableStatus(status.connection))] if has_tables else []
    maintained = [table.pop("maintained") for table in tables]
    by_time = sorted((one for one in maintained if one), key=lambda one: one["at"])
    return {**document, "maintained": by_time, "tables": tables}


def immediate_request(operation: str, values: Mapping[str, Any]) -> ImmediateRequest:
    """Return the request for an operation that is done at once, made of values as JSON has them. Raises InstepError for
    an operation, a field or a value that there is not."""
    from pydantic import TypeAdapter, ValidationError

    if (spec := immediate_specs().get(operation)) is None:
        hint = did_you_mean(operation, immediate_specs(), "docs/reference/openapi.json has them all")
        raise InstepError(f"there is no immediate operation {operation!r}", hint=hint)
    hint = "docs/reference/openapi.json has the fields of each operation"
    if unknown := values.keys() - {field.name for field in fields(spec.request)}:
        raise InstepError(f"{operation} has no field {', '.join(sorted(unknown))}", hint=hint)
    try:
        made: ImmediateRequest = TypeAdapter(spec.request).validate_python(dict(values))
    except ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise InstepError(f"{operation}: {where}", hint=hint) from None
    return made


def list_changes(
    backend: Backend,
    connection: str | None,
    *,
    every: bool,
    search: str = "",
    kinds: Sequence[str] = (),
    tag: str = "",
    assignee: str = "",
) -> list[ListedChange]:
    """Return the changes that wait for a person, or every one, newest first; of these only those that match."""
    name = backend.connection(connection) if connection else None
    view: ChangeView | None = None if every else "review"
    query = ListChanges(name, kind=tuple(kinds), view=view, search=search, tag=tag, assignee=assignee)
    listed_changes: list[ListedChange] = backend.items(query)
    return listed_changes


def comment_change(backend: Backend, id: str, text: str) -> Comment:
    """Comment on the change with this id, or a unique prefix of it; return the comment."""
    change = find_change(backend, id).id
    done: Comment = backend.operations.perform(CommentChangeRequest(change=change, text=text)).comment
    return done


def assign_change(backend: Backend, id: str, assignee: str) -> Review:
    """Assign a change, found as by `find_change`, to somebody; "" for nobody. Return the change."""
    change = find_change(backend, id).id
    done: Review = backend.operations.perform(AssignChangeRequest(change=change, assignee=assignee)).change
    return done


def find_change(backend: Backend, id: str) -> Review:
    """Find a change by its id or a unique prefix of it. Raises InstepError where none or several fit."""
    full_id = id if id.startswith("c-") else f"c-{id}"
    like: list[Review] = backend.items(ListChanges(id=full_id), 9)
    exact = [one for one in like if one.id == full_id]
    if len(exact or like) == 1:
        return (exact or like)[0]
    if like:
        fits = ", ".join(sorted(one.id for one in like))
        raise InstepError(f"{id!r} fits several changes: {fits}", hint="give one more character")
    raise InstepError(f"no change {id!r} is known", hint="see `instep changes list --all`")


def choose_changes(
    backend: Backend, change_filter: ChangeFilter, statuses: tuple[ReviewStatus, ...] = ("open",)
) -> list[Review]:
    """Return the changes that are meant; InstepError if there are none. Filters find those with these `statuses`."""
    name = change_filter.connection and backend.connection(change_filter.connection)
    return selected(
        change_filter,
        lambda id: find_change(backend, id),
        lambda _: backend.items(ListChanges(name, statuses)),
    )


def find_owner(backend: Backend, what: str, connection: str | None) -> tuple[str, str]:
    """Return the id of a change, a run or a plan as an undo takes it, and its connection or the one named."""
    owner: Review | Run | AppliedPlan
    if what.startswith("r-"):
        like = backend.items(ListRuns(id=what), 2)
        if len(like) != 1:
            raise InstepError(f"no run {what!r} is known", hint="see `instep history`")
        [owner] = like
    else:
        owner = backend.query(GetPlan(what)) if what.startswith("p-") else find_change(backend, what)
    return owner.id, backend.connection(connection) if connection else owner.connection


def accepted_tables(backend: Backend, connection: str) -> Mapping[str, Ref]:
    """Return the accepted tables by what people call them; none before the first schema is accepted."""
    if not backend.items(ListVersions(connection), 1):
        return {}
    return {table.path: table.ref for table in catalog_from_dict(backend.query(GetSchema(connection)).catalog).tables}


def answer_changes(
    backend: Backend, reviews: Sequence[Review], answer: Answer, *, hashed: bool = False
) -> list[Review]:
    """Answer these changes; return them as they are then. `hashed`: columns that are approved come in as hashes.

    Raises Conflict for one that was answered or superseded meanwhile.
    """
    ids = tuple(review.id for review in reviews)
    parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
    requests = [AnswerChangesRequest(answer=answer, hash=hashed, ids=part) for part in parts]
    return [item.change for done in backend.operations.perform_all(requests) for item in done.items]


def assign_changes(backend: Backend, reviews: Sequence[Review], assignee: str) -> list[Review]:
    """Assign these changes to somebody, "" for nobody; return them as they are afterwards."""
    ids = tuple(review.id for review in reviews)
    parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
    requests = [AssignChangesRequest(assignee=assignee, ids=part) for part in parts]
    return [item.change for done in backend.operations.perform_all(requests) for item in done.items]


def snooze_changes(backend: Backend, reviews: Sequence[Review], end: datetime) -> list[Review]:
    """Snooze these open changes until then; return them. Raises Conflict if one of them is not open."""
    requests = [SnoozeChangeRequest(change=review.id, until=end.isoformat()) for review in reviews]
    return [done.change for done in backend.operations.perform_all(requests)]


def reopen_changes(backend: Backend, reviews: Sequence[Review]) -> list[Review]:
    """Take back the answers to these changes, and their snoozes; return them. Raises Conflict for one that is over."""
    ids = tuple(review.id for review in reviews)
    parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
    requests = [ReopenChangesRequest(ids=part) for part in parts]
    return [item.change for done in backend.operations.perform_all(requests) for item in done.items]


def run_cases(backend: Backend, connection: str, cases: Sequence[dict[str, Any]]) -> list[Any]:
    """Decide sample changes of a connection; return what became of each, in their order."""
    parts = [tuple(cases[at : at + _AT_ONCE]) for at in range(0, len(cases), _AT_ONCE)]
    return [result for part in parts for result in backend.query(RunPolicyCases(connection, part)).results]


def raise_refused(requests: Sequence[ImmediateRequest], results: Sequence[Any]) -> None:
    """Raise the error of the first result that tells of something refused."""
    for request, result in zip(requests, results, strict=True):
        refusal = work_of(immediate_for(request))().refusal(result)
        if refusal is not None:
            raise refusal


IDS = 10_000
"""The most ids that one request may name."""
ROUNDS = 3
"""Rounds of looking up what is quarantined of a row and erasing it: a run in between may quarantine more."""


def discard_entries(backend: Backend, connection: str, ids: Sequence[str]) -> list[str]:
    """Discard entries by their whole ids; return those whose originals went."""
    gone: list[str] = []
    for at in range(0, len(ids), IDS):
        request = DiscardQuarantineRequest(ids=tuple(ids[at : at + IDS]))
        gone += backend.operations.run(connection, request).ids
    return gone


def erase_row(backend: Backend, connection: str, table: str, key: Mapping[str, str | None]) -> int:
    """Erase the entries of the rows with this key (texts by column); return how many there were.

    The key is looked up and kept nowhere: what the queue and the audit log hold are ids of entries. Raises Conflict
    while a run is under way, and if the row is held again and again.
    """
    erased = 0
    for _ in range(ROUNDS):
        ids = _matches(backend, connection, table, key, erased)
        if not ids:
            return erased
        for at in range(0, len(ids), IDS):
            request = EraseRequest(table=table, ids=tuple(ids[at : at + IDS]))
            erased += int(backend.operations.run(connection, request).erased)
    if left := _matches(backend, connection, table, key, erased):
        raise Conflict(
            f"{erased:,} entries of this row were erased, and {len(left):,} more are quarantined in {table} by now",
            hint=f"`instep pause {connection}`, then erase them",
        )
    return erased


def _matches(backend: Backend, connection: str, table: str, key: Mapping[str, str | None], erased: int) -> list[str]:
    try:
        return list(backend.query(MatchQuarantined(connection, table, dict(key))).ids)
    except Conflict as error:
        if not erased:
            raise
        message = f"{erased:,} entries of this row were erased, and more may be quarantined: {error.message}"
        raise Conflict(message, hint=error.hint) from None


def impact_of(
    backend: Backend, connection: str, models: Sequence[Model] | None, dialect: str, change: str
) -> Mapping[str, Any]:
    """Return the document of `plans.downstream.impact_document`.

    Models of this machine are judged here; None: those that the project names, whose SQL is of this `dialect` ("": as
    it says there). `change`: the first characters of an id; "" for all of today.
    """
    configured = models is None
    request = ImpactRequest(change=change, configured=configured, dialect=dialect if configured else "")
    answer = backend.operations.run(connection, request)
    verdicts: Mapping[str, Any] = answer.verdicts or {} if models is None else answer.judge(models)
    return verdicts
