"""Connections, their jobs and runs."""

from __future__ import annotations

from starlette.responses import Response

from instep.server.web.visit import Pages, Visit

pages = Pages()


@pages.page("/jobs/{job}")
async def job(visit: Visit) -> Response:
    """Show one job until it has ended."""
    return await visit.render("job.html", job=await visit.api.get(f"/jobs/{visit.path['job']}"))


@pages.page("/connections")
async def connections(visit: Visit) -> Response:
    """Show all connections."""
    page = await visit.api.get("/status", cursor=visit.asked("cursor"))
    return await visit.render("connections.html", items=page["items"], columns=("name", "document"))
