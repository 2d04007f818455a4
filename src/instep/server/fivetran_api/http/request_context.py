"""One request's caller with what it may see and do: the common ground of all routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import Request

from instep.control.resources.api_keys import in_scope, may
from instep.control.selection.selections import SwitchedConnection, place_of
from instep.model import JobKind
from instep.operations.spec import Role
from instep.project.project import Project
from instep.schema.planning.naming import Naming
from instep.server.access import RequiredRights, address_of, credentials, denied
from instep.server.fivetran_api.http.envelope import Refusal, not_found
from instep.server.fivetran_api.http.ports import ApiCaller, ApiJob, Item, Ports
from instep.server.fivetran_api.http.request_body import DEPTH, fields_of
from instep.server.fivetran_api.http.services import no_source

if TYPE_CHECKING:
    from instep.sync.two_people import Act

BUSY = "The job that this takes is still going."


@dataclass(frozen=True)
class RequestContext:
    ports: Ports
    caller: ApiCaller
    route: str
    path: str
    """`path` is the request's own, and so the target in the audit log."""

    @contextmanager
    def write(self, body: Any = None, *, depth: int = DEPTH) -> Iterator[None]:
        """Open one transaction around what a request does, with its entry in the audit log: none exists without the
        other. The entry names the fields of the `body`, if there is one; a body without fields does nothing."""
        with self.ports.store.transaction():
            yield
            if body is None:
                self.record()
            elif fields := fields_of(body, depth):
                self.record(fields=fields)

    def record(self, **detail: Any) -> None:
        """Add an entry in the audit log about this request, in the transaction of what it does; it holds names,
        never a value that was sent."""
        method = self.route.partition(" ")[0].lower()
        self.ports.store.audit.add(self.caller.name, f"v1.{method}", self.path, detail)

    def agree(self, act: Act) -> None:
        """Block (409) the first person who requests this act under four_eyes.

        The request is kept for the second one, who sends the same within a week.
        """
        from instep.sync.two_people import requested_alone

        store = self.ports.store
        with store.transaction():
            refused = requested_alone(store, act, self.caller.name)
            if refused is not None:
                self.record(asked=act.name, what=act.what)
        if refused is not None:
            raise refused

    def may(self, role: Role) -> bool:
        return may(self.caller.role, role)

    def allow(self, needed: RequiredRights) -> None:
        """Raise Refusal (403) for a key that may not do this. Not to be called in a transaction, which would take its
        entry in the audit log back."""
        caller = self.caller
        match denied(self.ports.store, caller.name, caller.role, caller.groups, self.route, needed):
            case "role":
                raise Refusal(403, f"Your key has the role {caller.role}; this takes {needed.role}.")
            case "groups":
                raise Refusal(403, "Your key is for some groups; this takes an administrator of all.")

    def sees(self, group: str, tags: frozenset[str] = frozenset()) -> bool:
        """Return True if the key is for this group, or for a connection there with these tags."""
        return in_scope(self.caller.groups, {group, *tags})

    def connection(self, name: str) -> Item:
        """Return the connection, known service or not; 404 for what there is not, or what the key may not see."""
        get = self.ports.objects.get
        # looked for twice: a connection that gets its source meanwhile is in neither place at one look each
        item = get("connection", name) or get("foreign", name) or get("connection", name)
        if item is None or not self.sees(item.group, item.tags):
            raise not_found("Connection", name)
        return item

    def own_connection(self, name: str) -> Item:
        """Return a connection that has a source."""
        connection = self.connection(name)
        if connection.kind == "foreign":
            raise Refusal(400, self.why_incomplete(connection))
        return connection

    def why_incomplete(self, item: Item) -> str:
        """Return why a connection has no source, for people."""
        if self.ports.objects.get("destination", item.group) is None:
            return f"Connection '{item.name}' waits for a destination: its group '{item.group}' has none yet."
        return no_source(item.name, str(item.spec.get("service", "")))

    def place(self, name: str) -> SwitchedConnection:
        return place_of(self.ports.project(name), self.ports.store, name)

    def naming(self, name: str) -> Naming:
        project = self.ports.project(name)
        return Naming(namespace=project.namespace_of(name), default_schema=_default_schema(project, name))

    def run(
        self, connection: str, kind: JobKind, options: Mapping[str, Any], key: str = "", *, recorded: bool = False
    ) -> ApiJob:
        """Return a job that touches a source, once it is done; not to be called in a transaction. Refusal: 503 without
        a worker or when it takes longer than a request may, 400 if it failed. `recorded`: it is what the request is
        for, and has its entry in the audit log."""
        jobs = self.ports.jobs
        if not jobs.has_worker():
            raise Refusal(
                503,
                "No worker is running that could reach the source.",
                headers={"Retry-After": "30"},
                hint="start one: `instep worker`, or `instep server --with-worker`",
            )
        with self.ports.store.transaction():
            job = jobs.enqueue(connection, kind, options, key=key, urgent=True, who=self.caller.name)
            if recorded:
                self.record(job=job.id)
        job = jobs.wait(job.id, self.ports.wait)
        if job.status in ("queued", "running"):
            raise Refusal(503, BUSY, hint="ask again: the same job is waited for", headers={"Retry-After": "5"})
        if job.status != "done":
            raise Refusal(400, job.error or f"The job was {job.status}.")
        return job


def _default_schema(project: Project, name: str) -> str:
    """Return the schema of a source that needs no mention in names; told by its type, without loading it."""
    section = project.model.sources[project.source_of(name)]
    plain = {"postgres": "public", "sqlite": "main", "files": "files"}
    if section.type in plain:
        return plain[section.type]
    database = getattr(section, "database", "")
    return database if isinstance(database, str) else ""


def caller_of(request: Request, ports: Ports) -> ApiCaller:
    """Return the caller, by Basic or Bearer authorization; Refusal: 401 if that is not known, 429 if the key or the
    address has asked too often."""
    given = credentials(request.headers.get("authorization", ""))
    caller = ports.keys.caller(*given) if given else None
    if caller is None:
        if given and ports.limits and (seconds := ports.limits.fail(address_of(request))):
            raise _too_many("Too many wrong API keys have come from here.", seconds)
        raise Refusal(
            401,
            "Invalid authorization credentials: send the API key and its secret by Basic authorization.",
            headers={"WWW-Authenticate": 'Basic realm="instep"'},
        )
    if ports.limits:
        request.state.allowance = left = ports.limits.count_request(caller.key)
        if left.retry_after:
            raise _too_many(f"The limit of {left.limit} requests a minute is reached.", left.retry_after)
    return caller


def _too_many(text: str, seconds: int) -> Refusal:
    return Refusal(429, text, headers={"Retry-After": str(seconds)})
