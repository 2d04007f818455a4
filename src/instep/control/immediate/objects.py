"""Making, writing, changing and deleting objects that a server keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.objects import ObjectDocument, managed, used
from instep.control.resources.api_keys import may
from instep.control.resources.resources import Managed, merged
from instep.errors import Forbidden
from instep.operations.immediate.objects import (
    CreateObjectRequest,
    DeleteObjectRequest,
    PatchObjectRequest,
    PatchSettingsRequest,
    PutObjectRequest,
    PutSettingsRequest,
)
from instep.operations.spec import ImmediateWork
from instep.operations.values import ObjectKind
from instep.project.documents import InvalidObject
from instep.project.sections.policies import is_word
from instep.project.text.problems import suggestion_or_list

_TIED = ("source", "destination", "namespace", "tags", "shard", "notify", "log")
"""The keys that tie a connection to others: an API key that is for some groups may not change them."""
_ENDS = ("source", "destination", "namespace", "shard", "salt")
"""The keys that say which rows go where, and how hashes are made: an admin gives them to a new connection, and only an
admin changes them. A salt where there is none may come from whoever may hash columns."""


@dataclass(frozen=True)
class WrittenObject:
    """An object that was written."""

    object: ObjectDocument
    """The object as it is now."""


@dataclass(frozen=True)
class MadeObject(WrittenObject):
    """An object that was written as a whole."""

    created: bool = False
    """True if there was none before."""


@dataclass(frozen=True)
class DeletedObject:
    """An object that is gone."""

    deleted: str
    """Its name."""
    id: str
    """Its id."""
    version: int
    """The version that it had."""


class _ObjectWriting(ImmediateWork):
    """Write one object."""

    def detail(self, request: Any, result: WrittenObject) -> Mapping[str, Any]:
        """Return the id and version that were written, not the content: the object has it."""
        return {"id": result.object.id, "version": result.object.version}


class ObjectCreation(_ObjectWriting):
    """Make one object."""

    def execute(self, context: WriteContext, request: CreateObjectRequest, prepared: None) -> WrittenObject:
        """Make it; Conflict if the name is in use."""
        if request.kind == "connection":
            spec = _with_tags(request.spec, request.tags)
            return WrittenObject(_put(context, "connection", request.name, spec, None, None))
        return WrittenObject(_put(context, request.kind, request.name, request.spec, request.tags, None))


class ObjectReplacement(_ObjectWriting):
    """Write the whole document of one object."""

    def execute(self, context: WriteContext, request: PutObjectRequest, prepared: None) -> MadeObject:
        """Write it, or make it."""
        before = context.resources.find(request.kind, request.name)
        made = _put(context, request.kind, request.name, request.spec, request.tags, before)
        return MadeObject(made, created=before is None)


class ObjectChanging(_ObjectWriting):
    """Change some keys of one object."""

    def execute(self, context: WriteContext, request: PatchObjectRequest, prepared: None) -> WrittenObject:
        """Change them; NotFound for an object that there is not."""
        before = managed(context, request.kind, request.name)
        spec = merged(before.spec, request.spec)
        return WrittenObject(_put(context, request.kind, request.name, spec, request.tags, before))


class ObjectDeletion(ImmediateWork):
    """Delete one object."""

    def execute(self, context: WriteContext, request: DeleteObjectRequest, prepared: None) -> DeletedObject:
        """Delete it; Blocked while others use it, Conflict for an object of the project file."""
        before = managed(context, request.kind, request.name)
        context.resources.delete(request.kind, request.name, dry_run=context.rehearsed)
        return DeletedObject(request.name, before.id, before.version)

    def detail(self, request: DeleteObjectRequest, result: DeletedObject) -> Mapping[str, Any]:
        """Return the version that was deleted."""
        return {"id": result.id, "version": result.version}


class _SettingsWriting(_ObjectWriting):
    """Write the settings of one connection."""

    def prepare(self, context: WriteContext, request: Any) -> Collection[str]:
        """Return the policies that an asker with groups sees: it takes a look at all connections of these groups, which
        would hold up all writers of the store."""
        if context.scope is None:
            return ()
        return {one for one in used(context, "policy") if one in context.project.model.policies}

    def write(
        self, context: WriteContext, before: Managed, spec: Mapping[str, Any], policies: Collection[str]
    ) -> WrittenObject:
        """Write them; Forbidden for an asker with groups who changes what ties the connection to others, and for one
        who is no admin and changes what it reads or where it loads."""
        _check_ends(context, before, spec)
        if context.scope is not None:
            _check_ties(context, before, spec)
            _check_policy(context, before, spec, policies)
        return WrittenObject(_put(context, "connection", before.name, spec, None, before))


class SettingsReplacement(_SettingsWriting):
    """Write all settings of one connection."""

    def execute(
        self, context: WriteContext, request: PutSettingsRequest, prepared: Collection[str] | None
    ) -> WrittenObject:
        """Write them."""
        before = managed(context, "connection", request.connection)
        return self.write(context, before, _with_tags(request.spec, request.tags), prepared or ())


class SettingsChanging(_SettingsWriting):
    """Change some settings of one connection."""

    def execute(
        self, context: WriteContext, request: PatchSettingsRequest, prepared: Collection[str] | None
    ) -> WrittenObject:
        """Change them."""
        before = managed(context, "connection", request.connection)
        patch = _with_tags(request.spec, request.tags, none={"tags": None})
        return self.write(context, before, merged(before.spec, patch), prepared or ())


def _with_tags(
    spec: Mapping[str, Any], tags: tuple[str, ...] | None, none: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Return the document of a connection with the tags that stand beside it, where it says nothing of them; `none`:
    what says that there are no tags."""
    if tags is None or "tags" in spec:
        return spec
    return {**spec, "tags": list(tags)} if tags else {**spec, **(none or {})}


def _put(
    context: WriteContext,
    kind: ObjectKind,
    name: str,
    spec: Mapping[str, Any],
    tags: tuple[str, ...] | None,
    before: Managed | None,
) -> ObjectDocument:
    """Write an object that has the version of `before`. Blocked for a project that would not see it."""
    context.resources.check_seen(kind, name, spec)
    expected = before.version if before else 0
    made = context.resources.put(
        kind, name, spec, who=context.who, tags=tags, expected=expected, dry_run=context.rehearsed
    )
    return ObjectDocument.of(made)


def _check_ties(context: WriteContext, before: Managed, spec: Mapping[str, Any]) -> None:
    if tied := [one for one in _TIED if spec.get(one) != before.spec.get(one)]:
        assert context.key is not None, "who is for some groups has a key"
        key, groups = context.key.id, ", ".join(context.key.groups)
        message = f"{', '.join(tied)} of connection {before.name} cannot be set by API key {key}, which is for {groups}"
        raise Forbidden(message, hint="use a key without groups")


def _check_ends(context: WriteContext, before: Managed, spec: Mapping[str, Any]) -> None:
    if context.key is None or may(context.key.role, "admin"):
        return
    first = {"salt"} - before.spec.keys()
    if ends := [one for one in _ENDS if one not in first and spec.get(one) != before.spec.get(one)]:
        message = f"{', '.join(ends)} of connection {before.name} cannot be set by the role {context.key.role}"
        raise Forbidden(message, hint="use a key with the role admin")


def _check_policy(context: WriteContext, before: Managed, spec: Mapping[str, Any], seen: Collection[str]) -> None:
    """Raise InvalidObject for a policy that the asker does not see, whether there is one or not.

    What else is wrong with the document is told first, as it would be without the policy.
    """
    policy, known = spec.get("policy"), context.project.model.policies
    if not isinstance(policy, str) or not policy or policy in seen or (is_word(policy) and policy not in known):
        return
    rest = {key: value for key, value in spec.items() if key != "policy"}
    context.resources.put("connection", before.name, rest, who=context.who, expected=before.version, dry_run=True)
    raise InvalidObject(
        "connection", before.name, [(("policy",), f"unknown policy {policy!r}{suggestion_or_list(policy, seen)}")]
    )
