"""Answers about objects as documents: what the project file says of them, and what the server keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from instep.control.queries.context import QueryContext
from instep.control.resources.resources import Managed
from instep.errors import NotFound
from instep.operations.queries.objects import GetObject, GetSettings, ListObjects
from instep.operations.spec import QueryWork
from instep.operations.values import ObjectKind
from instep.store.server.resources import Link


@dataclass(frozen=True)
class ObjectDocument:
    """An object. What the project file says has version 0 and no times."""

    id: str
    kind: ObjectKind
    name: str
    spec: Mapping[str, Any]
    """The object's section, stars for secrets."""
    managed_by: Literal["file", "server"]
    version: int
    tags: tuple[str, ...]
    created: datetime | None
    created_by: str
    updated: datetime | None
    updated_by: str

    @classmethod
    def of(cls, resource: Managed) -> ObjectDocument:
        """Return the document of an object."""
        fields = {name: value for name, value in vars(resource).items() if name != "by"}
        return cls(**{**fields, "tags": tuple(resource.tags)}, managed_by=resource.by)


class ObjectList(QueryWork):
    """Objects of one kind by their names."""

    place_types = (str,)

    def items(
        self, context: QueryContext, query: ListObjects, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ObjectDocument]:
        """Return objects by name: all, or those that the connections of the asker use."""
        behind, part, kind = after[0] if after else "", query.search or "", query.kind
        if context.scope is None:
            links: list[Link] = [("tag", query.tag)] if query.tag is not None else []
            resources = context.resources.page(kind, after=behind, limit=limit, name=part, links=links)
            return list(map(ObjectDocument.of, resources))
        names = (one for one in sorted(used(context, kind)) if one > behind and part.lower() in one.lower())
        known = (one for one in (context.resources.find(kind, name) for name in names) if one is not None)
        fitting = (one for one in known if query.tag is None or query.tag in one.tags)
        return [ObjectDocument.of(one) for one in islice(fitting, limit)]

    def place(self, item: ObjectDocument) -> Sequence[Any]:
        """Return the object's name."""
        return (item.name,)


class ObjectLookup(QueryWork):
    """One object by its name."""

    def find(self, context: QueryContext, query: GetObject) -> ObjectDocument:
        """Return the object."""
        return ObjectDocument.of(managed(context, query.kind, query.name))


class SettingsLookup(QueryWork):
    """The settings of one connection."""

    def find(self, context: QueryContext, query: GetSettings) -> ObjectDocument:
        """Return the settings."""
        return ObjectDocument.of(managed(context, "connection", query.connection))


def managed(context: QueryContext, kind: ObjectKind, name: str) -> Managed:
    """Return an object; NotFound if there is none, or the asker may not see it."""
    is_seen = context.sees(name) if kind == "connection" else context.scope is None or name in used(context, kind)
    resource = context.resources.find(kind, name) if is_seen else None
    if resource is None:
        raise NotFound.of(kind, name)
    return resource


def used(context: QueryContext, kind: ObjectKind) -> Collection[str]:
    """Return the objects that the connections of the asker use."""
    project, names = context.project, set[str]()
    of: Mapping[str, Callable[[str], Collection[str]]] = {
        "source": lambda name: [project.source_of(name)],
        "destination": lambda name: [project.destination_of(name)],
        "policy": lambda name: [project.connection(name).policy],
        "channel": lambda name: [notice.to for notice in project.connection(name).notify],
    }
    for name in context.scope or ():
        names.update(of[kind](name))
    return names
