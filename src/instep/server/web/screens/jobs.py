"""Jobs: the queue, and one job until it has ended."""

from __future__ import annotations

from starlette.responses import Response

from instep.server.web.rendering import query
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
STATUSES = ("queued", "running", "done", "failed", "dead", "cancelled")


@pages.page("/queue")
async def queue(visit: Visit) -> Response:
    """Show jobs by their state, newest first."""
    status, connection = visit.query("status"), visit.query("connection").strip()
    filters = {"status": status if status in STATUSES else "", "connection": connection}
    page = await visit.api.get("/queue", **filters, cursor=visit.query("cursor"), limit=100)
    tabs = [("All", query("/queue", connection=connection), not filters["status"])]
    for one in STATUSES:
        number = page["counts"].get(one)
        text = f"{one.capitalize()} ({number})" if number else one.capitalize()
        tabs.append((text, query("/queue", status=one, connection=connection), one == filters["status"]))
    return await visit.render(
        "queue.html",
        items=page["items"],
        workers=page["workers"],
        next_cursor=page["next_cursor"],
        tabs=tabs,
        filters=filters,
    )


@pages.page("/jobs/{job}")
async def job(visit: Visit) -> Response:
    """Show one job until it has ended."""
    return await visit.render("job.html", job=await visit.api.get(f"/jobs/{visit.path['job']}"))
