"""Objects of a server as documents: what the project file says of them, and what the server keeps.

Secrets come in and never go out: whoever reads a document sees stars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import LeadsTo, Length, Name, ObjectKind

Text = Annotated[str, Length(0, 200), LeadsTo("name")]


@dataclass(frozen=True)
class ListObjects(Query):
    """Objects of one kind by name."""

    kind: ClassVar[ObjectKind]
    search: Text | None = None
    """A part of the name."""
    tag: Text | None = None
    """Only those with this tag."""


@dataclass(frozen=True)
class GetObject(Query):
    """An object, shaped as its section in instep.yml; stars stand for secrets."""

    kind: ClassVar[ObjectKind]
    name: Name
    """The object."""


class ListSources(ListObjects):
    """Sources by name."""

    kind = "source"


class GetSourceDocument(GetObject):
    """A source, shaped as its section in instep.yml; stars stand for secrets."""

    kind = "source"


class ListDestinations(ListObjects):
    """Destinations by name."""

    kind = "destination"


class GetDestinationDocument(GetObject):
    """A destination, shaped as its section in instep.yml; stars stand for secrets."""

    kind = "destination"


class ListPolicies(ListObjects):
    """Policies by name."""

    kind = "policy"


class GetPolicyDocument(GetObject):
    """A policy, shaped as its section in instep.yml; stars stand for secrets."""

    kind = "policy"


class ListChannels(ListObjects):
    """Channels by name."""

    kind = "channel"


class GetChannelDocument(GetObject):
    """A channel, shaped as its section in instep.yml; stars stand for secrets."""

    kind = "channel"


@dataclass(frozen=True)
class GetSettings(Query):
    """The settings of a connection, shaped as its section in instep.yml; stars stand for secrets."""

    connection: Name
    """The connection."""


_OBJECT = "instep.control.queries.objects:ObjectDocument"
_KINDS: tuple[tuple[str, type[ListObjects], type[GetObject]], ...] = (
    ("sources", ListSources, GetSourceDocument),
    ("destinations", ListDestinations, GetDestinationDocument),
    ("policies", ListPolicies, GetPolicyDocument),
    ("channels", ListChannels, GetChannelDocument),
)
SPECS = (
    *(
        QuerySpec(
            f"list_{plural}",
            role="viewer",
            route=f"GET /{plural}",
            query=listed,
            result=_OBJECT,
            work="instep.control.queries.objects:ObjectList",
            paged=True,
        )
        for plural, listed, _ in _KINDS
    ),
    *(
        QuerySpec(
            f"get_{found.kind}",
            role="viewer",
            route=f"GET /{plural}/{{name}}",
            query=found,
            result=_OBJECT,
            work="instep.control.queries.objects:ObjectLookup",
        )
        for plural, _, found in _KINDS
    ),
    QuerySpec(
        "get_settings",
        role="viewer",
        route="GET /connections/{connection}/settings",
        query=GetSettings,
        result=_OBJECT,
        work="instep.control.queries.objects:SettingsLookup",
    ),
)
