"""Objects of a server: made, written, changed, and deleted.

Secrets come in and never go out: whoever sends the stars back keeps what is there. What the project file says is
changed there: such a write is refused, with the YAML to paste.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from instep.operations.spec import ImmediateRequest, ImmediateSpec, Role
from instep.operations.values import LeadsTo, Length, Name, ObjectKind

Document = Annotated[dict[str, Any], LeadsTo("spec")]
Tags = Annotated[tuple[Name, ...], Length(0, 100), LeadsTo("name")]


@dataclass(frozen=True)
class CreateObjectRequest(ImmediateRequest):
    """Make an object; refused if the name is in use."""

    kind: ClassVar[ObjectKind]
    name: Annotated[Name, Length(1, 63)]
    """Its name."""
    spec: Document = field(repr=False)
    """As the object's section in instep.yml."""
    tags: Tags | None = None
    """Its tags. A connection's stand in `spec`: those here are meant where it says nothing of them."""


@dataclass(frozen=True)
class PutObjectRequest(ImmediateRequest):
    """Write the whole document of an object; it is made if there is none."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""
    spec: Document = field(repr=False)
    """As the object's section in instep.yml; stars keep a secret."""
    tags: Tags | None = None
    """Its tags; null: as they are."""


@dataclass(frozen=True)
class PatchObjectRequest(ImmediateRequest):
    """Change some keys of an object."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""
    spec: Document = field(default_factory=dict, repr=False)
    """A merge patch (RFC 7396) of the object's section: null takes a key away; stars keep a secret."""
    tags: Tags | None = None
    """Its tags; null: as they are."""


@dataclass(frozen=True)
class DeleteObjectRequest(ImmediateRequest):
    """Delete an object; refused while others use it."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""


class CreateSourceRequest(CreateObjectRequest):
    """Make a source; refused if the name is in use."""

    kind = "source"


class PutSourceRequest(PutObjectRequest):
    """Write the whole document of a source; it is made if there is none."""

    kind = "source"


class PatchSourceRequest(PatchObjectRequest):
    """Change some keys of a source."""

    kind = "source"


class DeleteSourceRequest(DeleteObjectRequest):
    """Delete a source; refused while others use it."""

    kind = "source"


class CreateDestinationRequest(CreateObjectRequest):
    """Make a destination; refused if the name is in use."""

    kind = "destination"


class PutDestinationRequest(PutObjectRequest):
    """Write the whole document of a destination; it is made if there is none."""

    kind = "destination"


class PatchDestinationRequest(PatchObjectRequest):
    """Change some keys of a destination."""

    kind = "destination"


class DeleteDestinationRequest(DeleteObjectRequest):
    """Delete a destination; refused while others use it."""

    kind = "destination"


class CreatePolicyRequest(CreateObjectRequest):
    """Make a policy; refused if the name is in use."""

    kind = "policy"


class PutPolicyRequest(PutObjectRequest):
    """Write the whole document of a policy; it is made if there is none."""

    kind = "policy"


class PatchPolicyRequest(PatchObjectRequest):
    """Change some keys of a policy."""

    kind = "policy"


class DeletePolicyRequest(DeleteObjectRequest):
    """Delete a policy; refused while others use it."""

    kind = "policy"


class CreateChannelRequest(CreateObjectRequest):
    """Make a channel; refused if the name is in use."""

    kind = "channel"


class PutChannelRequest(PutObjectRequest):
    """Write the whole document of a channel; it is made if there is none."""

    kind = "channel"


class PatchChannelRequest(PatchObjectRequest):
    """Change some keys of a channel."""

    kind = "channel"


class DeleteChannelRequest(DeleteObjectRequest):
    """Delete a channel; refused while others use it."""

    kind = "channel"


class CreateConnectionRequest(CreateObjectRequest):
    """Make a connection; refused if the name is in use."""

    kind = "connection"


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


def _create(plural: str, role: Role, request: type[CreateObjectRequest]) -> ImmediateSpec:
    return ImmediateSpec(
        f"create_{request.kind}",
        role=role,
        route=f"POST /{plural}",
        request=request,
        result=_WRITTEN,
        work="instep.control.immediate.objects:ObjectCreation",
        audit=f"{request.kind}.create",
        target="name",
        status=201,
        whole=True,
    )


def _put(plural: str, role: Role, request: type[PutObjectRequest]) -> ImmediateSpec:
    return ImmediateSpec(
        f"put_{request.kind}",
        role=role,
        route=f"PUT /{plural}/{{name}}",
        request=request,
        result=_MADE,
        work="instep.control.immediate.objects:ObjectReplacement",
        audit=f"{request.kind}.replace",
        target="name",
        match=request.kind,
        status=201,
        fresh="created",
        whole=True,
    )


def _patch(plural: str, role: Role, request: type[PatchObjectRequest]) -> ImmediateSpec:
    return ImmediateSpec(
        f"patch_{request.kind}",
        role=role,
        route=f"PATCH /{plural}/{{name}}",
        request=request,
        result=_WRITTEN,
        work="instep.control.immediate.objects:ObjectChanging",
        audit=f"{request.kind}.change",
        target="name",
        match=request.kind,
        whole=True,
    )


def _delete(plural: str, role: Role, request: type[DeleteObjectRequest]) -> ImmediateSpec:
    return ImmediateSpec(
        f"delete_{request.kind}",
        role=role,
        route=f"DELETE /{plural}/{{name}}",
        request=request,
        result="instep.control.immediate.objects:DeletedObject",
        work="instep.control.immediate.objects:ObjectDeletion",
        audit=f"{request.kind}.delete",
        target="name",
        match=request.kind,
        whole=True,
    )


SPECS = (
    _create("sources", "admin", CreateSourceRequest),
    _put("sources", "admin", PutSourceRequest),
    _patch("sources", "admin", PatchSourceRequest),
    _delete("sources", "admin", DeleteSourceRequest),
    _create("destinations", "admin", CreateDestinationRequest),
    _put("destinations", "admin", PutDestinationRequest),
    _patch("destinations", "admin", PatchDestinationRequest),
    _delete("destinations", "admin", DeleteDestinationRequest),
    _create("policies", "approver", CreatePolicyRequest),
    _put("policies", "approver", PutPolicyRequest),
    _patch("policies", "approver", PatchPolicyRequest),
    _delete("policies", "approver", DeletePolicyRequest),
    _create("channels", "admin", CreateChannelRequest),
    _put("channels", "admin", PutChannelRequest),
    _patch("channels", "admin", PatchChannelRequest),
    _delete("channels", "admin", DeleteChannelRequest),
    _create("connections", "admin", CreateConnectionRequest),
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
