"""Answers about API keys, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instep.control.queries.context import QueryContext
from instep.errors import InstepError, NotFound
from instep.operations.queries.keys import GetKey, GetMe, ListKeys
from instep.operations.spec import QueryWork, Role
from instep.store.server.api_keys import ApiKey


@dataclass(frozen=True)
class KeyOfRequest:
    """The API key that sent the request."""

    id: str
    name: str
    role: Role
    groups: tuple[str, ...]
    """Tags of the connections that the key may access; none: all."""


class KeyList(QueryWork):
    """API keys by their ids."""

    place_types = (str,)

    def items(
        self, context: QueryContext, query: ListKeys, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ApiKey]:
        """Return keys by id."""
        return context.store.api_keys.page(after[0] if after else "", limit)

    def place(self, item: ApiKey) -> Sequence[Any]:
        """Return the key's id."""
        return (item.id,)


class KeyLookup(QueryWork):
    """One API key by its id."""

    def find(self, context: QueryContext, query: GetKey) -> ApiKey:
        """Return the key."""
        try:
            return context.store.api_keys.get(query.key)
        except InstepError as error:
            raise NotFound(error.message, hint=error.hint) from None


class OwnKeyLookup(QueryWork):
    """The key of a request."""

    def find(self, context: QueryContext, query: GetMe) -> KeyOfRequest:
        """Return the key; NotFound at the project, where no key is needed."""
        if (key := context.key) is None:
            raise NotFound("no API key is used here", hint="a request to a server has one")
        return KeyOfRequest(key.id, key.name, key.role, key.groups)
