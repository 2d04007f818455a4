"""The role that each route of `/v1` needs, as `api.matrix` gives the same deed at `/api/v1`. Reads take any key."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from instep.api.compat.bodies import TEST_ONLY
from instep.api.compat.ports import Role

_SCHEMAS = "/connections/{id}/schemas"
NEEDS: Mapping[str, Role] = {
    "POST /connections": "admin",
    "PATCH /connections/{id}": "operator",  # and more by what it changes: `of_change`
    "DELETE /connections/{id}": "admin",
    "POST /connections/{id}/connect-card": "admin",
    "POST /connections/{id}/sync": "operator",
    "POST /connections/{id}/force": "operator",
    "POST /connections/{id}/resync": "operator",
    "POST /connections/{id}/test": "operator",
    "PATCH /connections/{id}/state": "approver",
    f"POST {_SCHEMAS}": "approver",
    f"PATCH {_SCHEMAS}": "approver",
    f"POST {_SCHEMAS}/reload": "operator",  # and more by what it switches: `of_reload`
    f"POST {_SCHEMAS}/drop-columns": "approver",
    f"POST {_SCHEMAS}/tables/resync": "operator",
    f"PATCH {_SCHEMAS}/{{schema}}": "approver",
    f"PATCH {_SCHEMAS}/{{schema}}/tables/{{table}}": "approver",
    f"POST {_SCHEMAS}/{{schema}}/tables/{{table}}/resync": "operator",
    f"PATCH {_SCHEMAS}/{{schema}}/tables/{{table}}/columns/{{column}}": "approver",
    f"DELETE {_SCHEMAS}/{{schema}}/tables/{{table}}/columns/{{column}}": "approver",
    "POST /groups": "admin",
    "PATCH /groups/{id}": "admin",
    "DELETE /groups/{id}": "admin",
    "POST /groups/{id}/users": "admin",
    "DELETE /groups/{id}/users/{user}": "admin",
    "POST /destinations": "admin",
    "PATCH /destinations/{id}": "admin",
    "DELETE /destinations/{id}": "admin",
    "POST /destinations/{id}/test": "operator",
    "POST /users": "admin",
    "PATCH /users/{id}": "admin",
    "DELETE /users/{id}": "admin",
    "POST /webhooks/account": "admin",
    "POST /webhooks/group/{group}": "admin",
    "PATCH /webhooks/{id}": "admin",
    "POST /webhooks/{id}/test": "admin",
    "DELETE /webhooks/{id}": "admin",
}
_WORK = TEST_ONLY | {"paused", "is_historical_sync"}
"""Fields of a connection that start and stop it; the others are its settings."""
_PERMANENT = frozenset(("group_id", "service"))
"""What may be said again."""


def of_change(fields: Collection[str]) -> Role:
    """What changing these fields of a connection takes: its `config` may hold another source, and secrets."""
    if "config" in fields or "auth" in fields:
        return "admin"
    return "operator" if set(fields) <= _WORK | _PERMANENT else "approver"


def of_reload(mode: str) -> Role:
    """What a look at the source takes that leaves switches as they are (PRESERVE), or sets them all."""
    return "operator" if mode == "PRESERVE" else "approver"
