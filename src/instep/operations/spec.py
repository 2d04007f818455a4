"""The specification of an operation: its request, who may ask for it, how its job runs, and the code that does it.

The routes of the API, the roles, the queue and the worker take what they know of an operation from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any, ClassVar, Literal, Self, get_args, get_type_hints

from instep.errors import InstepError, ProjectError
from instep.operations.values import OwnUse, ProjectOnly, Reason, check_bounds

Role = Literal["viewer", "operator", "approver", "admin"]
"""The role of an API key; each may do what those before it may."""


@dataclass(frozen=True)
class JobPolicy:
    """Rules of the queue for the jobs of an operation."""

    attempts: int = 3
    """Maximum number of attempts of a job."""
    runs_while_paused: bool = True
    """True if it runs while its connection is paused."""
    reads_catalog: bool = False
    """True if it counts among the jobs that read the catalog of one source at the same time."""
    two_person: bool = False
    """True if it may need a second person, so that each person's request is a job of its own."""
    retry_command: str = ""
    """The command that asks anew, where a job counts for its requester alone and nobody else may retry it."""
    shared: bool = False
    """True if one job serves everybody who has asked for the same."""
    shows_values: bool = False
    """True if its result has values of rows, which only keys that may ask for it are given."""


@dataclass(frozen=True)
class Options:
    """A record of what is requested. Raises InstepError for a value out of the bounds of its field."""

    def __post_init__(self) -> None:
        """Check the bounds here, for requests at the project and over a server."""
        check_bounds(self)

    def options(self) -> dict[str, Any]:
        """Return the fields that are not as they are by default, as JSON has them."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "why"}
        defaults = {one.name: one.default for one in fields(self)}
        return {name: _plain(value) for name, value in values.items() if value != defaults[name]}

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the request that has these options."""
        hints = get_type_hints(cls)
        names = [one.name for one in fields(cls) if one.name in options]
        return cls(**{name: _typed(options[name], hints[name]) for name in names})


@dataclass(frozen=True)
class Request(Options):
    """Base of the requests of operations."""

    why: Reason = field(default="", kw_only=True)
    """The reason, for the audit log."""

    def check_remote(self) -> None:
        """Raise InstepError for what no server can be asked for."""


@dataclass(frozen=True)
class Query(Options):
    """Base of queries."""


@dataclass(frozen=True)
class ImmediatePart(Options):
    """A record in a request for an operation that is done at once."""


@dataclass(frozen=True)
class ImmediateRequest(ImmediatePart):
    """Base of the requests of immediate operations."""


@dataclass(frozen=True)
class Preview:
    """Preview of an operation, before it is carried out."""

    connection: str
    request: Request
    """The request to carry out, bound to what the preview has found."""
    document: Mapping[str, Any]
    """JSON form of the preview."""
    lines: Sequence[str]
    """Text for people."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """More for people, which is no part of the document."""
    prepared: Any = field(default=None, repr=False)
    """The prepared work; only in the process that prepared it."""

    def to_dict(self) -> dict[str, Any]:
        """Return what a client needs to show it and to have it carried out."""
        document = {"document": dict(self.document), "lines": list(self.lines), "detail": dict(self.detail)}
        return {**document, "request": self.request.options()}

    def _repr_html_(self) -> str:
        """Show the lines in a notebook."""
        return f"<pre>{escape(chr(10).join(self.lines))}</pre>"


class JobWork:
    """The code of an operation that a worker may do. `context` is a connection's, as `sync` has it."""

    moves_rows: ClassVar[bool] = False
    """True if it reads or writes many rows, so that it is given an `engine` and a `progress`."""
    rewrites: ClassVar[bool] = False
    """True if it may rewrite large tables, so that it is given a `progress`; the engine is the context's."""
    engine: Any = None
    """The engine that reads and merges rows, as `sync.loading.engine.Engine`."""
    progress: Any = None
    """The display of progress, as `sync.progress.Progress`; None where nobody watches."""
    app: Any = None
    """The open project, as `bootstrap.App`, for what is more than one connection's."""
    job: Any = None
    """The job, as `model.Job`; None at the project."""
    at_project: bool = False
    """True if the answer stays at the project, so that values of rows may be in it."""


class Work(JobWork):
    """An operation that is shown before it is carried out."""

    def prepare(self, context: Any, request: Any) -> Preview:
        """Find out what the request does; nothing is written."""
        raise NotImplementedError

    def execute(self, context: Any, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Carry out what `prepare` has shown in this process. `allow`: patterns of what may be lost."""
        raise NotImplementedError

    def already(self, context: Any, request: Any) -> Mapping[str, Any] | None:
        """Return what an earlier attempt of the same has answered, or None."""
        return None


class DirectWork(JobWork):
    """An operation that is done without being shown first, and answers a record."""

    makes_run: ClassVar[bool] = False
    """True if it is a run of its connection which the record does not name."""

    def begin(self, context: Any, request: Any) -> Any:
        """Put on record what is asked for at the project; return the request. Of a job its route has done so."""
        return request

    def run(self, context: Any, request: Any) -> Any:
        """Do it; return the record that the specification names as `result`."""
        raise NotImplementedError

    def document(self, result: Any) -> Mapping[str, Any]:
        """Return what a job keeps of the record: a client makes the same record of it."""
        document: Mapping[str, Any] = document_of(result)
        return document

    def failure(self, result: Any) -> str:
        """Return what has failed, of which the record tells; a job that ends so is tried again. "" if nothing has."""
        return ""

    def retried(self, result: Any) -> str:
        """Return why a job whose work is done in part is tried again while it has attempts left; "" if it is not."""
        return ""


@dataclass(frozen=True)
class OperationSpec:
    """One operation on a connection, or on the whole project."""

    name: str
    """Name in jobs, audit entries and Python."""
    role: Role
    """The least role of a key that may ask for it."""
    route: str
    """Method and path below /api/v1 of the request for it, or of the one that is most like it."""
    work: str
    """The function that a worker calls, or the class of its `Work` or `DirectWork`, as `module:name`."""
    job: JobPolicy = field(default_factory=JobPolicy)
    request: type[Request] = Request
    """The record of its options."""
    result: str = ""
    """The record that its `DirectWork` answers, as `module:name`. One that has `of_job` is made of a job by it."""
    starts_engine: bool = False
    """True if it is sure to read rows: an engine that takes long to start does so while all else is loaded."""


def served_fields(request: type[Options]) -> dict[str, Any]:
    """Return the types of the fields that a request over a server may have, by name."""
    hints = get_type_hints(request, include_extras=True)
    return {name: hint for name, hint in hints.items() if not _has(hint, ProjectOnly, OwnUse)}


def check_served(request: Request) -> None:
    """Raise ProjectError for a request that says what is answered at the project alone."""
    hints = get_type_hints(type(request), include_extras=True)
    for name in request.options():
        if _has(hints[name], ProjectOnly):
            raise ProjectError(
                f"rows do not pass through a server: `{name}` works only in the project",
                hint="run it where the project is, without a server; `instep query` reads rows there too",
            )


def document_of(value: Any) -> Any:
    """Return a record, or what is in one, as JSON has it: fields by name, moments as ISO 8601."""
    if is_dataclass(value):
        return {one.name: document_of(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: document_of(one) for name, one in value.items()}
    return [document_of(one) for one in value] if isinstance(value, tuple | list) else _plain(value)


def _has(hint: Any, *marks: type[ProjectOnly | OwnUse]) -> bool:
    return any(isinstance(one, marks) for one in getattr(hint, "__metadata__", ()))


class QueryWork:
    """The code that answers a query. `context` is what the asker may see, as `control.queries.context` has it."""

    place_types: tuple[type, ...] = ()
    """The types of an item's place in a list; () for a query with one answer."""

    def find(self, context: Any, query: Any) -> Any:
        """Return the one answer. Raises NotFound for an object that is not there, or that the asker may not see."""
        raise NotImplementedError

    def items(self, context: Any, query: Any, after: Sequence[Any] | None, limit: int) -> Sequence[Any]:
        """Return at most `limit` items of a list, from behind the place `after` on."""
        raise NotImplementedError

    def shown(self, context: Any, items: Sequence[Any]) -> Sequence[Any]:
        """Return what a page shows of its items: for lists whose items are dear, and one more is read than is shown."""
        return items

    def place(self, item: Any) -> Sequence[Any]:
        """Return where an item stands in the list: behind it the next page begins."""
        raise NotImplementedError

    def page_summary(self, context: Any, query: Any) -> Any:
        """Return the record that the specification names as `page_summary`: what each page has beside its items."""
        raise NotImplementedError


@dataclass(frozen=True)
class QuerySpec:
    """One query about a connection, or about the whole project."""

    name: str
    """Name in the API's description."""
    role: Role
    """The least role of a key that may ask it."""
    route: str
    """Method and path below /api/v1; names in braces are fields of the query. The other fields of a GET are its
    parameters; of a POST, its body: they are long, or not to be kept in an address."""
    query: type[Query]
    """The record of what is asked for."""
    result: str
    """The record of the answer, or of one item of it, as `module:name`."""
    work: str
    """The class of its `QueryWork`, as `module:name`."""
    paged: bool = False
    """True if the answer is a list, which comes page by page."""
    page_summary: str = ""
    """The record of what each page has beside its items, as `module:name`; "" for nothing."""
    whole: bool = False
    """True if it is about the whole server: a key that is for some groups is refused."""
    page_size: int = 100
    """The items of a page, unless the asker says how many."""
    largest_page: int = 1000
    """The most items of a page."""

    @property
    def path(self) -> str:
        """The path below /api/v1."""
        return self.route.partition(" ")[2]

    @property
    def has_body(self) -> bool:
        """True if the values stand in a body."""
        return self.route.startswith("POST ")


class ImmediateWork:
    """The code of an operation that is done at once. `context`: who asks, as `control.immediate.context` has it."""

    def prepare(self, context: Any, request: Any) -> Any:
        """Return what is looked up before the transaction begins: a long look in it would hold up other writers."""
        return None

    def execute(self, context: Any, request: Any, prepared: Any) -> Any:
        """Do it in the transaction that is open; return the record that the specification names as `result`.

        `prepared` is None for a request that was sent again.
        """
        raise NotImplementedError

    def refusal(self, result: Any) -> InstepError | None:
        """Return the error of an answer that tells of something refused, for an asker who wants all or nothing."""
        return None

    def detail(self, request: Any, result: Any) -> Mapping[str, Any]:
        """Return what the audit log keeps beside who, what and when. No secret is part of it."""
        raise NotImplementedError


@dataclass(frozen=True)
class ImmediateSpec:
    """One operation that is done at once, in the store alone, without a job."""

    name: str
    """Name in the API's description."""
    role: Role
    """The least role of a key that may ask for it."""
    route: str
    """Method and path below /api/v1; names in braces are fields of the request, its other fields are the body."""
    request: type[ImmediateRequest]
    """The record of what is requested."""
    result: str
    """The record of the answer, as `module:name`."""
    work: str
    """The class of its `ImmediateWork`, as `module:name`."""
    audit: str
    """Name in the audit log; names in braces are fields of the request."""
    target: str
    """The field of the request that the audit log names as its target; without a value it is all connections. A text
    that is no field is the target itself."""
    match: str = ""
    """The document whose ETag If-Match is compared with, as `server.immediate_routes` names it; "": it is refused."""
    status: int = 200
    """The HTTP status of the answer; a rehearsal is answered 200."""
    fresh: str = ""
    """The field of the answer that is false where it was under way before, which is answered 200."""
    secret_field: str = ""
    """The field of the answer that holds a secret: null in a rehearsal, and when the request is sent again."""
    whole: bool = False
    """True if it is about the whole server: a key that is for some groups is refused."""

    def noted(self, request: ImmediateRequest) -> tuple[str, str]:
        """Return the action and the target that the audit log has of a request."""
        target = getattr(request, self.target, self.target)
        return self.audit.format(**vars(request)), str(target or "all connections")

    @property
    def path(self) -> str:
        """The path below /api/v1."""
        return self.route.partition(" ")[2]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, Options):
        return value.options()
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _typed(value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    is_moment = isinstance(value, str) and datetime in (hint, *get_args(hint))
    return datetime.fromisoformat(value) if is_moment else value
