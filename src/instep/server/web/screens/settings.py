"""Settings: one's own account, keys and people, the audit log, the server's health, references to secrets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import RedirectResponse, Response

from instep.operations.spec import Role
from instep.server.web.visit import PageRoutes, Visit
from instep.store.server.api_keys import PAGE_COMMAND

pages = PageRoutes()
_TABS: tuple[tuple[str, str, Role], ...] = (
    ("You", "/settings/you", "viewer"),
    ("Keys and people", "/settings/keys", "admin"),
    ("Audit log", "/settings/audit", "admin"),
    ("Health", "/settings/health", "admin"),
    ("Secrets", "/settings/secrets", "admin"),
)
ROLES = (
    ("viewer", "reads everything that its groups have"),
    ("operator", "also runs work: syncs, detections, pauses, tests"),
    ("approver", "also decides changes, and what may be lost"),
    ("admin", "also manages sources, destinations, channels and keys"),
)


@pages.page("/settings")
async def settings(visit: Visit) -> Response:
    """Redirect to the first tab."""
    return RedirectResponse("/settings/keys" if visit.may("admin") else "/settings/you", 303)


@pages.page("/settings/you")
async def you(visit: Visit) -> Response:
    """Show one's own key, and how to change its password."""
    return await _show(visit, "settings_you.html", me=await visit.api.get("/me"), session=visit.session)


@pages.page("/settings/keys", "admin")
async def keys(visit: Visit) -> Response:
    """Show all keys: the programs and people that may use this server."""
    page = await visit.api.get("/keys", cursor=visit.query("cursor"), limit=100)
    items = [{**one, "state": _state(one), "last_used": _last_used(one)} for one in page["items"]]
    return await _show(visit, "settings_keys.html", items=items, next_cursor=page["next_cursor"], roles=ROLES)


def _state(key: dict[str, Any]) -> str:
    if key["ended"]:
        return "revoked"
    if key["created_by"] == PAGE_COMMAND:
        return "session"
    now = datetime.now(UTC)
    ends = [one["expires"] for one in key["secrets"]]
    return "active" if any(end is None or datetime.fromisoformat(end) > now for end in ends) else "expired"


def _last_used(key: dict[str, Any]) -> str | None:
    return max((one["last_used"] for one in key["secrets"] if one["last_used"]), default=None)


@pages.page("/settings/audit", "admin")
async def audit(visit: Visit) -> Response:
    """Show who did what, newest first, and check that nothing was changed or taken out."""
    target = visit.query("target")
    page = await visit.api.get("/audit", target=target, cursor=visit.query("cursor"), limit=100)
    chain = await visit.api.get("/audit/check") if visit.query("check") else None
    return await _show(
        visit,
        "settings_audit.html",
        items=page["items"],
        next_cursor=page["next_cursor"],
        target=target,
        chain=chain,
    )


@pages.page("/settings/health", "admin")
async def health(visit: Visit) -> Response:
    """Show the version, the store, workers and the queue."""
    return await _show(visit, "settings_health.html", health=await visit.api.get("/health"))


@pages.page("/settings/secrets", "admin")
async def secrets(visit: Visit) -> Response:
    """Show which references have a value; no value is shown."""
    page = await visit.api.get("/references", cursor=visit.query("cursor"), limit=100)
    return await _show(visit, "settings_secrets.html", items=page["items"], next_cursor=page["next_cursor"])


async def _show(visit: Visit, template: str, **values: Any) -> Response:
    here = visit.request.url.path
    tabs = [(text, address, address == here) for text, address, role in _TABS if visit.may(role)]
    return await visit.render(template, tabs=tabs, **values)
