"""API keys, and the key of a request."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Name


@dataclass(frozen=True)
class ListKeys(Query):
    """List API keys by id."""


@dataclass(frozen=True)
class GetKey(Query):
    """Return one API key, without its secrets."""

    key: Name
    """The key's id, k-..."""


@dataclass(frozen=True)
class GetMe(Query):
    """Return the API key of this request."""


SPECS = (
    QuerySpec(
        "list_keys",
        role="admin",
        route="GET /keys",
        query=ListKeys,
        result="instep.store.server.api_keys:ApiKey",
        work="instep.control.queries.keys:KeyList",
        paged=True,
        whole=True,
    ),
    QuerySpec(
        "get_key",
        role="admin",
        route="GET /keys/{key}",
        query=GetKey,
        result="instep.store.server.api_keys:ApiKey",
        work="instep.control.queries.keys:KeyLookup",
        whole=True,
    ),
    QuerySpec(
        "get_me",
        role="viewer",
        route="GET /me",
        query=GetMe,
        result="instep.control.queries.keys:KeyOfRequest",
        work="instep.control.queries.keys:OwnKeyLookup",
    ),
)
