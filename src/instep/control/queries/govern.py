"""Answers about the whole server, from the store alone.

Answers about API keys, from the store alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from instep.control.queries.context import QueryContext
from instep.control.queries.objects import managed
from instep.control.queries.work import managed_page
from instep.errors import InstepError, NotFound
from instep.notify.hooks import PREFIX as HOOKS
from instep.operations.queries.govern import (
    CheckAudit,
    GetChannelState,
    GetDelivery,
    GetKey,
    GetMe,
    ListAudit,
    ListDeliveries,
    ListKeys,
    ListNotificationRoutes,
)
from instep.operations.queries.work import ListConnections
from instep.operations.spec import QueryWork, Role
from instep.project.sections.channels import Notify, Route
from instep.store.history.outbox import Attempt, Delivery
from instep.store.server.api_keys import ApiKey
from instep.store.server.audit import AuditEntry, Chain


class AuditList(QueryWork):
    """Entries of the audit log by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListAudit, after: Sequence[Any] | None, limit: int
    ) -> Sequence[AuditEntry]:
        """Return entries, newest first."""
        return context.store.audit.page(after[0] if after else None, limit, query.target)

    def place(self, item: AuditEntry) -> Sequence[Any]:
        """Return the entry's number."""
        return (item.number,)


class AuditCheck(QueryWork):
    """The check of the whole audit log."""

    def find(self, context: QueryContext, query: CheckAudit) -> Chain:
        """Return how far the log holds together."""
        return context.store.audit.check()


@dataclass(frozen=True)
class DeliveryWithAttempts(Delivery):
    """A delivery, with its attempts."""

    attempts: tuple[Attempt, ...] = ()


class DeliveryList(QueryWork):
    """Deliveries by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListDeliveries, after: Sequence[Any] | None, limit: int
    ) -> Sequence[Delivery]:
        """Return deliveries, newest first. Raises NotFound for a channel of which nothing is on record."""
        outbox, channel = context.store.outbox, query.channel
        if channel and not channel.startswith(HOOKS) and not outbox.knows(channel):  # it may be gone since
            try:
                context.project.channel(channel)
            except InstepError:
                raise NotFound.of("channel", channel) from None
        return outbox.log(channel, limit=limit, before=after[0] if after else None, status=query.status)

    def place(self, item: Delivery) -> Sequence[Any]:
        """Return the delivery's number."""
        return (item.number,)


class DeliveryDetails(QueryWork):
    """One delivery by its number."""

    def find(self, context: QueryContext, query: GetDelivery) -> DeliveryWithAttempts:
        """Return the delivery with its attempts."""
        try:
            delivery = context.store.outbox.get(query.delivery)
        except InstepError as error:
            raise NotFound(error.message, hint=error.hint) from None
        return DeliveryWithAttempts(**vars(delivery), attempts=tuple(context.store.outbox.attempts(delivery.number)))


@dataclass(frozen=True)
class ChannelState:
    """The state of a channel: its waiting notices, and whether it is closed."""

    channel: str
    waiting: int
    """Notices that are not delivered yet."""
    closed: str
    """The reason for which nothing is sent, "" if it is."""


class ChannelLookup(QueryWork):
    """The state of one channel."""

    def find(self, context: QueryContext, query: GetChannelState) -> ChannelState:
        """Return the state. Raises NotFound for a channel that is not there, or that the asker may not see."""
        outbox, name = context.store.outbox, managed(context, "channel", query.name).name
        return ChannelState(name, outbox.waiting().get(name, 0), outbox.closed().get(name, ""))


@dataclass(frozen=True)
class NotificationRoute:
    """One route: which notifications a channel gets."""

    connection: str
    """The connection that has it; "" for one of the project."""
    number: int
    """Its place in the list of the project or connection, from 0 on."""
    to: str
    """The channel."""
    on: tuple[str, ...]
    """The events."""
    severity: str
    """The least severity."""
    kinds: tuple[str, ...]
    """Kinds of changes; none: all."""
    tags: tuple[str, ...] = ()
    """Only connections with one of these tags; none: all."""
    groups: tuple[str, ...] = ()
    """Only connections into one of these destinations; none: all."""
    connections: tuple[str, ...] = ()
    """Only connections that match one of these patterns; none: all."""


class RouteList(QueryWork):
    """Routes of the project, then of its connections by name. An asker with groups sees those of its connections."""

    place_types = (str, int)

    def items(
        self, context: QueryContext, query: ListNotificationRoutes, after: Sequence[Any] | None, limit: int
    ) -> Sequence[NotificationRoute]:
        """Return routes in their order."""
        behind = (after[0], after[1]) if after else ("", -1)
        later = (route for route in _routes(context, behind[0]) if (route.connection, route.number) > behind)
        return list(islice(later, limit))

    def place(self, item: NotificationRoute) -> Sequence[Any]:
        """Return the route's connection and number."""
        return (item.connection, item.number)


def _routes(context: QueryContext, first: str) -> Iterator[NotificationRoute]:
    if not first and context.scope is None:
        yield from _numbered("", context.project.model.notify)
    one = context.resources.find("connection", first) if first and context.sees(first) else None
    page = [one] if one else managed_page(context, ListConnections(), (first,), _AT_ONCE)
    while page:
        for resource in page:
            yield from _numbered(resource.name, [Notify.model_validate(one) for one in resource.spec.get("notify", ())])
        page = managed_page(context, ListConnections(), (page[-1].name,), _AT_ONCE)


_AT_ONCE = 500
"""Connections that are read by one statement."""


def _numbered(connection: str, routes: Sequence[Notify]) -> Iterator[NotificationRoute]:
    for number, one in enumerate(routes):
        names = ("tags", "groups", "connections") if isinstance(one, Route) else ()
        more = {name: getattr(one, name) for name in names}
        yield NotificationRoute(connection, number, one.to, one.on, one.severity, one.kinds, **more)


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
