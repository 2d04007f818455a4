"""What each route of `/v1` takes of a key: what the same deed takes over `/api/v1`, whose matrix says it for both."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from instep.server.fivetran_api.http.request_body import TEST_ONLY
from instep.server.roles import Need, need

_AT = "POST /connections/{connection}"
_PAUSE, _SYNC, _DETECT, _BACKFILL = f"{_AT}/pause", f"{_AT}/sync", f"{_AT}/detect", f"{_AT}/backfills"
_SWITCH, _SETTINGS = f"{_AT}/selection", "PATCH /connections/{connection}/settings"
_SOURCE = "PATCH /sources/{name}"
_SCHEMAS = "/connections/{id}/schemas"
_TABLE = f"{_SCHEMAS}/{{schema}}/tables/{{table}}"
_READS: Mapping[str, tuple[str, ...]] = {
    "/connections": ("/connections",),
    "/connections/{connection}": ("/connections/{id}",),
    "/connections/{connection}/selection": (_SCHEMAS, f"{_TABLE}/columns"),
    "/connections/{connection}/schema": tuple(
        f"/metadata/{word}/{{id}}/{what}" for word in ("connectors", "connections")
        for what in ("schemas", "tables", "columns")
    ),
    "/destinations": ("/destinations", "/groups"),
    "/destinations/{name}": (
        "/destinations/{id}", "/groups/{id}", "/groups/{id}/connections", "/groups/{id}/users",
    ),
    "/me": (
        "/account/info", "/users", "/metadata/connector-types", "/metadata/connector-types/{service}",
        "/proxy", "/external-logging", "/transformations/package-metadata", "/connector-sdk/packages", "/dbt/projects",
        "/{any:plural}", "/{parents:plural}/{id}/{any:plural}",
    ),
}  # fmt: skip
SAME: Mapping[str, tuple[str, ...]] = {
    **{f"GET {path}": (f"GET {there}",) for there, paths in _READS.items() for path in paths},
    "POST /connections": ("POST /connections", "POST /sources"),
    "PATCH /connections/{id}": (_PAUSE,),  # and more by what it changes: `of_change`
    "DELETE /connections/{id}": ("DELETE /connections/{connection}",),
    "POST /connections/{id}/connect-card": ("POST /connections",),
    "POST /connections/{id}/sync": (_SYNC,),
    "POST /connections/{id}/force": (_SYNC,),
    "POST /connections/{id}/resync": (_BACKFILL,),
    "POST /connections/{id}/test": (_DETECT,),
    "GET /connections/{id}/state": (_SETTINGS,),  # a connector may keep a token in it
    "PATCH /connections/{id}/state": (_SETTINGS,),
    f"POST {_SCHEMAS}": (_SWITCH,),
    f"PATCH {_SCHEMAS}": (_SWITCH,),
    f"POST {_SCHEMAS}/reload": (_DETECT,),  # and more by what it switches: `of_reload`
    f"POST {_SCHEMAS}/drop-columns": (_SWITCH,),
    f"POST {_SCHEMAS}/tables/resync": (_BACKFILL,),
    f"PATCH {_SCHEMAS}/{{schema}}": (_SWITCH,),
    f"PATCH {_TABLE}": (_SWITCH,),
    f"POST {_TABLE}/resync": (_BACKFILL,),
    f"PATCH {_TABLE}/columns/{{column}}": (_SWITCH,),
    f"DELETE {_TABLE}/columns/{{column}}": (_SWITCH,),
    "POST /groups": ("POST /destinations",),
    "PATCH /groups/{id}": ("PATCH /destinations/{name}",),
    "DELETE /groups/{id}": ("DELETE /destinations/{name}",),
    "POST /groups/{id}/users": ("POST /keys",),
    "DELETE /groups/{id}/users/{user}": ("DELETE /keys/{key}",),
    "POST /destinations": ("POST /destinations",),
    "PATCH /destinations/{id}": ("PATCH /destinations/{name}",),
    "DELETE /destinations/{id}": ("DELETE /destinations/{name}",),
    "POST /destinations/{id}/test": (_DETECT,),
    "GET /users/{id}": ("GET /me",),  # and more for another one than who asks
    "POST /users": ("POST /keys",),
    "PATCH /users/{id}": ("POST /keys",),
    "DELETE /users/{id}": ("DELETE /keys/{key}",),
    "GET /webhooks": ("POST /channels",),  # a receiver's address is often all that keeps others out of it
    "GET /webhooks/{id}": ("POST /channels",),
    "POST /webhooks/account": ("POST /channels",),
    "POST /webhooks/group/{group}": ("POST /channels",),
    "PATCH /webhooks/{id}": ("PATCH /channels/{name}",),
    "POST /webhooks/{id}/test": ("POST /channels",),
    "DELETE /webhooks/{id}": ("DELETE /channels/{name}",),
}
"""The routes of `/api/v1` that together do what a route of `/v1` does."""
NEEDS: Mapping[str, Need] = {route: need(*same) for route, same in SAME.items()}
_WORK = TEST_ONLY | {"paused", "is_historical_sync"}
"""Fields of a connection that start and stop it; the others are its settings."""
_PERMANENT = frozenset(("group_id", "service"))
"""What may be said again."""


def of_change(fields: Collection[str]) -> Need:
    """Return what changing these fields of a connection takes: its `config` may hold another source, and secrets."""
    if "config" in fields or "auth" in fields:
        return need(_SOURCE)
    return need(_PAUSE) if set(fields) <= _WORK | _PERMANENT else need(_SETTINGS)


def of_reload(mode: str) -> Need:
    """Return what a look at the source takes that leaves switches as they are (PRESERVE), or sets them all."""
    return need(_DETECT) if mode == "PRESERVE" else need(_SWITCH)
