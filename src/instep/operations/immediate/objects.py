"""Objects of a server: made, written, changed, and deleted.

Secrets come in and never go out: whoever sends the stars back keeps what is there. What the project file says is
changed there: such a write is refused, with the YAML to paste.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from instep.operations.spec import ImmediateRequest, ImmediateSpec, Role
from instep.operations.values import LeadsTo, Length, Name, ObjectKind

Document = Annotated[dict[str, Any], LeadsTo("spec")]
Tags = Annotated[tuple[Name, ...], Length(0, 100), LeadsTo("name")]


@dataclass(frozen=True)
class CreateObjectRequest(ImmediateRequest):
    """Make a {kind}; refused if the name is in use."""

    kind: ClassVar[ObjectKind]
    name: Annotated[Name, Length(1, 63)]
    """Its name."""
    spec: Document = field(repr=False)
    """As the object's section in instep.yml."""
    tags: Tags | None = None
    """Its tags. A connection's stand in `spec`: those here are meant where it says nothing of them."""


@dataclass(frozen=True)
class PutObjectRequest(ImmediateRequest):
    """Write the whole document of a {kind}; it is made if there is none."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""
    spec: Document = field(repr=False)
    """As the object's section in instep.yml; stars keep a secret."""
    tags: Tags | None = None
    """Its tags; null: as they are."""


@dataclass(frozen=True)
class PatchObjectRequest(ImmediateRequest):
    """Change some keys of a {kind}."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""
    spec: Document = field(default_factory=dict, repr=False)
    """A merge patch (RFC 7396) of the object's section: null takes a key away; stars keep a secret."""
    tags: Tags | None = None
    """Its tags; null: as they are."""


@dataclass(frozen=True)
class DeleteObjectRequest(ImmediateRequest):
    """Delete a {kind}; refused while others use it."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""


@dataclass(frozen=True)
class PutSettingsRequest(ImmediateRequest):
    """Write all settings of a connection. A key that is for some groups cannot change what ties it to others."""

    connection: Name
    """The connection."""
    spec: Document = field(repr=False)
    """As the connection's section in instep.yml; stars keep a secret."""
    tags: Tags | None = None
    """Its tags, where `spec` says nothing of them."""


@dataclass(frozen=True)
class PatchSettingsRequest(ImmediateRequest):
    """Change some settings of a connection. A key that is for some groups cannot change what ties it to others."""

    connection: Name
    """The connection."""
    spec: Document = field(default_factory=dict, repr=False)
    """A merge patch (RFC 7396) of the connection's section: null takes a key away; stars keep a secret."""
    tags: Tags | None = None
    """Its tags, where `spec` says nothing of them."""


_WRITTEN = "instep.control.immediate.objects:WrittenObject"
_MADE = "instep.control.immediate.objects:MadeObject"


_WORKS: Mapping[str, tuple[type[ImmediateRequest], str, dict[str, Any]]] = {
    "create": (CreateObjectRequest, "ObjectCreation", {"result": _WRITTEN, "status": 201}),
    "put": (PutObjectRequest, "ObjectReplacement", {"result": _MADE, "status": 201, "fresh": "created"}),
    "patch": (PatchObjectRequest, "ObjectChanging", {"result": _WRITTEN}),
    "delete": (DeleteObjectRequest, "ObjectDeletion", {"result": "instep.control.immediate.objects:DeletedObject"}),
}
"""By verb: the request of any kind of object, the work, and the rest of the specification."""
_METHODS = {"create": "POST", "put": "PUT", "patch": "PATCH", "delete": "DELETE"}
_AUDIT = {"create": "create", "put": "replace", "patch": "change", "delete": "delete"}


def _spec(verb: str, kind: ObjectKind, plural: str, role: Role) -> ImmediateSpec:
    """Return the specification of what is done with the objects of a kind, with a request class of its own."""
    base, work, more = _WORKS[verb]
    members = {"kind": kind, "__doc__": (base.__doc__ or "").format(kind=kind), "__module__": __name__}
    return ImmediateSpec(
        f"{verb}_{kind}",
        role=role,
        route=f"{_METHODS[verb]} /{plural}{'' if verb == 'create' else '/{name}'}",
        request=type(f"{verb.title()}{kind.title()}Request", (base,), members),
        work=f"instep.control.immediate.objects:{work}",
        audit=f"{kind}.{_AUDIT[verb]}",
        target="name",
        match="" if verb == "create" else kind,
        whole=True,
        **more,
    )


_KINDS: tuple[tuple[ObjectKind, str, Role], ...] = (
    ("source", "sources", "admin"),
    ("destination", "destinations", "admin"),
    ("policy", "policies", "approver"),
    ("channel", "channels", "admin"),
)

SPECS = (
    *(_spec(verb, *kind) for kind in _KINDS for verb in _WORKS),
    _spec("create", "connection", "connections", "admin"),
    ImmediateSpec(
        "put_settings",
        role="approver",
        route="PUT /connections/{connection}/settings",
        request=PutSettingsRequest,
        result=_WRITTEN,
        work="instep.control.immediate.objects:SettingsReplacement",
        audit="connection.replace",
        target="connection",
        match="settings",
    ),
    ImmediateSpec(
        "patch_settings",
        role="approver",
        route="PATCH /connections/{connection}/settings",
        request=PatchSettingsRequest,
        result=_WRITTEN,
        work="instep.control.immediate.objects:SettingsChanging",
        audit="connection.change",
        target="connection",
        match="settings",
    ),
)
"""Whoever writes a document sends secrets, or decides what is let in."""
