"""Queries about the whole server: the audit log, API keys, notification routes and deliveries.

API keys, and the key of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import DeliveryStatus, Length, Name, NameText, NumberRange


@dataclass(frozen=True)
class ListAudit(Query):
    """List entries of the audit log, newest first."""

    target: Annotated[NameText, Length(0, 200)] = ""
    """Only entries about this object."""


@dataclass(frozen=True)
class CheckAudit(Query):
    """Check that every entry of the audit log follows from the one before it."""


@dataclass(frozen=True)
class ListDeliveries(Query):
    """List deliveries of notifications, newest first."""

    channel: Name | None = None
    """Only deliveries to this channel."""
    status: DeliveryStatus | None = None
    """Only items with this status."""


@dataclass(frozen=True)
class GetDelivery(Query):
    """Return one delivery of a notification with its attempts."""

    delivery: Annotated[int, NumberRange(1, 2**31 - 1)]
    """The delivery's number."""


@dataclass(frozen=True)
class GetChannelState(Query):
    """Return what waits for a channel, and whether it is closed because its receiver is gone for good."""

    name: Name
    """The channel."""


@dataclass(frozen=True)
class ListNotificationRoutes(Query):
    """List the routes of notifications: those of the project, then those of each connection."""


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
        "list_audit",
        role="admin",
        route="GET /audit",
        query=ListAudit,
        result="instep.store.server.audit:AuditEntry",
        work="instep.control.queries.govern:AuditList",
        paged=True,
        whole=True,
    ),
    QuerySpec(
        "check_audit",
        role="admin",
        route="GET /audit/check",
        query=CheckAudit,
        result="instep.store.server.audit:Chain",
        work="instep.control.queries.govern:AuditCheck",
        whole=True,
    ),
    QuerySpec(
        "list_deliveries",
        role="viewer",
        route="GET /deliveries",
        query=ListDeliveries,
        result="instep.store.history.outbox:Delivery",
        work="instep.control.queries.govern:DeliveryList",
        paged=True,
        whole=True,
    ),
    QuerySpec(
        "get_delivery",
        role="viewer",
        route="GET /deliveries/{delivery}",
        query=GetDelivery,
        result="instep.control.queries.govern:DeliveryWithAttempts",
        work="instep.control.queries.govern:DeliveryDetails",
        whole=True,
    ),
    QuerySpec(
        "get_channel_state",
        role="viewer",
        route="GET /channels/{name}/state",
        query=GetChannelState,
        result="instep.control.queries.govern:ChannelState",
        work="instep.control.queries.govern:ChannelLookup",
    ),
    QuerySpec(
        "list_notification_routes",
        role="viewer",
        route="GET /notification-routes",
        query=ListNotificationRoutes,
        result="instep.control.queries.govern:NotificationRoute",
        work="instep.control.queries.govern:RouteList",
        paged=True,
    ),
    QuerySpec(
        "list_keys",
        role="admin",
        route="GET /keys",
        query=ListKeys,
        result="instep.store.server.api_keys:ApiKey",
        work="instep.control.queries.govern:KeyList",
        paged=True,
        whole=True,
    ),
    QuerySpec(
        "get_key",
        role="admin",
        route="GET /keys/{key}",
        query=GetKey,
        result="instep.store.server.api_keys:ApiKey",
        work="instep.control.queries.govern:KeyLookup",
        whole=True,
    ),
    QuerySpec(
        "get_me",
        role="viewer",
        route="GET /me",
        query=GetMe,
        result="instep.control.queries.govern:KeyOfRequest",
        work="instep.control.queries.govern:OwnKeyLookup",
    ),
)
