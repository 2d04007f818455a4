"""Objects that the server keeps, as routes read and write them: sources, destinations, policies, channels, and the
settings of connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from instep.control.resources.api_keys import links_of_groups
from instep.control.resources.resources import Managed, merged
from instep.errors import InstepError
from instep.model import ObjectKind
from instep.project.documents import InvalidObject
from instep.project.sections.foreign_settings import is_word
from instep.project.text.problems import near
from instep.server.context import Caller, ServerContext
from instep.server.models import DryRunResult, Name, RequestModel, ResponseModel
from instep.server.problems import ApiProblem, unknown
from instep.server.writes import Write, WriteAnswer
from instep.store.server.resources import Link

Spec = Annotated[
    dict[str, Any],
    Field(description="The object, in the form of its section in instep.yml; stars keep a stored secret."),
]
Tags = Annotated[
    list[Name] | None,
    Field(max_length=100, description="Tags of the object; null keeps them. For connections, set them in `spec`."),
]


class ObjectOut(ResponseModel):
    """A source, destination, policy, channel or connection. `spec` is its section in instep.yml, with stars for
    secrets. Objects of the project file have version 0 and no times."""

    id: str
    kind: Literal["source", "destination", "policy", "channel", "connection"]
    name: str
    spec: dict[str, Any]
    managed_by: Literal["file", "server"]
    version: int
    tags: list[str]
    created: datetime | None
    created_by: str
    updated: datetime | None
    updated_by: str


class ObjectWhole(RequestModel):
    spec: Spec
    tags: Tags = None


class NewObject(ObjectWhole):
    name: Annotated[str, Field(min_length=1, max_length=63)]


class ObjectChange(RequestModel):
    """Changes to an object. `spec` is a merge patch (RFC 7396): null removes a key."""

    spec: Spec = Field(default_factory=dict)
    tags: Tags = None


class ObjectWritten(DryRunResult):
    object: ObjectOut


class Deleted(DryRunResult):
    deleted: str


_TIED = ("source", "destination", "namespace", "tags", "shard", "notify", "log")
"""What ties a connection to others: a key that is for some groups may not change it."""


def document(found: Managed) -> dict[str, Any]:
    said = {k: v for k, v in vars(found).items() if k != "by"}
    return ObjectOut(**said, managed_by=found.by).model_dump(mode="json")


def page(
    the: ServerContext, who: Caller, kind: ObjectKind, *, after: str, limit: int, name: str = "", tag: str | None = None
) -> list[Managed]:
    """Return objects in the order of names that the key is for."""
    links: list[Link] = [("tag", tag)] if tag is not None else []
    if not who.scoped:
        return the.app.objects.page(kind, after=after, limit=limit, name=name, links=links)
    if kind == "connection":
        return _of_groups(the, who, after, limit, name, links)
    wanted = (n for n in sorted(_used(the, who, kind)) if n > after and name.lower() in n.lower())
    found = (one for one in (find(the, kind, n) for n in wanted) if one is not None)
    return list(islice((one for one in found if tag is None or tag in one.tags), limit))


def _of_groups(the: ServerContext, who: Caller, after: str, limit: int, name: str, links: list[Link]) -> list[Managed]:
    either = links_of_groups(who.key.groups)
    return the.app.objects.page("connection", after=after, limit=limit, name=name, links=links, any_of=either)


def _used(the: ServerContext, who: Caller, kind: ObjectKind) -> Collection[str]:
    """Return the objects that the connections of a key use."""
    project, found = the.project, set[str]()
    of: Mapping[str, Callable[[str], Collection[str]]] = {
        "source": lambda name: [project.source_of(name)],
        "destination": lambda name: [project.destination_of(name)],
        "policy": lambda name: [project.connection(name).policy],
        "channel": lambda name: [notice.to for notice in project.connection(name).notify],
    }
    for name in the.names(who) or ():
        found.update(of[kind](name))
    return found


def find(the: ServerContext, kind: ObjectKind, name: str) -> Managed | None:
    try:
        return the.app.objects.get(kind, name)
    except InstepError:
        return None


def known(the: ServerContext, who: Caller, kind: ObjectKind, name: str) -> Managed:
    """Return the object, or Problem 404: also if the key is not for it."""
    seen = the.sees(who, name) if kind == "connection" else not who.scoped or name in _used(the, who, kind)
    found = find(the, kind, name) if seen else None
    if found is None:
        raise unknown(kind, name)
    return found


def create(
    the: ServerContext, kind: ObjectKind, name: str, spec: Mapping[str, Any], tags: Any, writes: Write
) -> Response:
    def do() -> WriteAnswer:
        made = the.app.objects.put(
            kind, name, spec, who=writes.caller.who, tags=tags, expected=0, dry_run=writes.dry_run
        )
        return _answer(made, 201)

    return writes.run(f"{kind}.create", name, do)


def replace(
    the: ServerContext, kind: ObjectKind, name: str, spec: Mapping[str, Any], tags: Any, writes: Write
) -> Response:
    """Return the whole document; 201 where there was none."""
    policies = _policies(the, kind, writes)

    def do() -> WriteAnswer:
        before = _before(the, kind, name, writes)
        made = _put(the, kind, name, spec, tags, before, writes, policies)
        return _answer(made, 200 if before else 201)

    return writes.run(f"{kind}.replace", name, do)


def change(
    the: ServerContext, kind: ObjectKind, name: str, patch: Mapping[str, Any], tags: Any, writes: Write
) -> Response:
    """Return a merge patch (RFC 7396) of the document."""
    policies = _policies(the, kind, writes)

    def do() -> WriteAnswer:
        before = _before(the, kind, name, writes)
        if before is None:
            raise unknown(kind, name)
        return _answer(_put(the, kind, name, merged(before.spec, patch), tags, before, writes, policies), 200)

    return writes.run(f"{kind}.change", name, do)


def delete(the: ServerContext, kind: ObjectKind, name: str, writes: Write) -> Response:
    """Refused while others use it."""

    def do() -> WriteAnswer:
        before = _before(the, kind, name, writes)
        if before is None:
            raise unknown(kind, name)
        the.app.objects.delete(kind, name, dry_run=writes.dry_run)
        return WriteAnswer({"deleted": name}, detail={"id": before.id, "version": before.version})

    return writes.run(f"{kind}.delete", name, do)


def _before(the: ServerContext, kind: ObjectKind, name: str, writes: Write) -> Managed | None:
    """Return the object as the client has read it; Problem 412 if it is another by now."""
    before = find(the, kind, name)
    if before is not None:
        writes.check(document(before))
    elif writes.match is not None:
        raise ApiProblem(412, "precondition_failed", f"there is no {kind} {name!r} any more", "read the list again")
    return before


def _put(
    the: ServerContext,
    kind: ObjectKind,
    name: str,
    spec: Mapping[str, Any],
    tags: Any,
    before: Managed | None,
    writes: Write,
    policies: Collection[str],
) -> Managed:
    if writes.caller.scoped and (tied := [f for f in _TIED if before is None or spec.get(f) != before.spec.get(f)]):
        why = f"{', '.join(tied)} of {kind} {name} cannot be set by API key {writes.caller.key.id}, which is for "
        raise ApiProblem(403, "forbidden", why + ", ".join(writes.caller.key.groups), "use a key without groups")
    _check_policy(the, kind, name, spec, tags, before, writes, policies)
    expected = before.version if before else 0
    return the.app.objects.put(
        kind, name, spec, who=writes.caller.who, tags=tags, expected=expected, dry_run=writes.dry_run
    )


def _policies(the: ServerContext, kind: ObjectKind, writes: Write) -> Collection[str]:
    """Return the policies that a key with groups sees. Looked for before the transaction: it takes a look at all
    connections of these groups, which would hold up all writers of the store."""
    if kind != "connection" or not writes.caller.scoped:
        return ()
    return {one for one in _used(the, writes.caller, "policy") if one in the.project.model.policies}


def _check_policy(
    the: ServerContext,
    kind: ObjectKind,
    name: str,
    spec: Mapping[str, Any],
    tags: Any,
    before: Managed | None,
    writes: Write,
    seen: Collection[str],
) -> None:
    """InvalidObject for a key with groups that names a policy which it does not see, whether there is one or not. What
    else is wrong with the document is told first, as it would be without the policy."""
    policy = spec.get("policy")
    if kind != "connection" or not writes.caller.scoped or not isinstance(policy, str) or not policy:
        return
    if policy in seen or (is_word(policy) and policy not in the.project.model.policies):
        return
    rest = {key: value for key, value in spec.items() if key != "policy"}
    expected = before.version if before else 0
    the.app.objects.put(kind, name, rest, who=writes.caller.who, tags=tags, expected=expected, dry_run=True)
    raise InvalidObject(kind, name, [(("policy",), f"unknown policy {policy!r}{near(policy, seen)}")])


def _answer(made: Managed, status: int) -> WriteAnswer:
    """The audit log has what was written but not its content: the object itself says that."""
    return WriteAnswer({"object": document(made)}, status, {"id": made.id, "version": made.version})
