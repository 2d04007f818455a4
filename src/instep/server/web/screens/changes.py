"""The inbox of changes, one change's review, and answers to many."""

from __future__ import annotations

from itertools import groupby

from starlette.responses import RedirectResponse, Response

from instep.server.web.rendering import query
from instep.server.web.visit import Pages, Visit

pages = Pages()
TABS = (
    ("Needs review", "open", ("open",)),
    ("Approved", "approved", ("approved",)),
    ("Applied", "applied", ("applied",)),
    ("Rejected", "rejected", ("rejected",)),
    ("Obsolete", "obsolete", ("obsolete",)),
)


@pages.page("/")
async def home(visit: Visit) -> Response:
    """Go to the inbox."""
    return RedirectResponse("/changes", 303)


@pages.page("/changes")
async def inbox(visit: Visit) -> Response:
    """Show the changes of one state, by connection."""
    tab, search, connection = visit.asked("tab", "open"), visit.asked("search"), visit.asked("connection")
    statuses = next((found for _, name, found in TABS if name == tab), ("open",))
    page = await visit.api.get(
        "/changes", status=statuses, connection=connection, cursor=visit.asked("cursor"), limit=100
    )
    items = page["items"]
    return await visit.render(
        "changes.html",
        tab=tab,
        search=search,
        connection=connection,
        tabs=[(text, query("/changes", tab=name), name == tab) for text, name, _ in TABS],
        items=items,
        groups=[(name, list(rows)) for name, rows in groupby(items, lambda one: one["connection"])],
        next_cursor=page["next_cursor"],
    )


@pages.page("/changes/{change}")
async def review(visit: Visit) -> Response:
    """Show one change."""
    found = await visit.api.send("GET", f"/changes/{visit.path['change']}")
    return await visit.render("change.html", change=found.document, etag=found.etag)
