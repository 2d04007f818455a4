"""The timeline of a connection: its events with their actors, as a page and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Mapping
from datetime import date, timedelta
from typing import Any

from starlette.responses import Response, StreamingResponse

from instep.events import Event
from instep.server.problems import ApiProblem
from instep.server.web.event_texts import sentence_of, title_of
from instep.server.web.rendering import query, quoted
from instep.server.web.screens.connections import tabs_of
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
COLUMNS = ("number", "at", "type", "actor", "status", "about", "data")
AT_ONCE = 1000
LINKS = {"run": "/runs/", "change": "/changes/", "job": "/jobs/", "rollout": "/rollouts/"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def event_types() -> list[str]:
    """Return the types of all events, by name."""
    types, left = set(), [Event]
    while left:
        kind = left.pop()
        types.add(kind.type)
        left += kind.__subclasses__()
    return sorted(types - {Event.type})


def filters_of(visit: Visit) -> dict[str, str]:
    """Return the filters in the address. Raises ApiProblem for a date that is none."""
    filters = {name: visit.query(name).strip() for name in ("type", "status", "who", "since", "until", "run")}
    for name in ("since", "until"):
        try:
            date.fromisoformat(filters[name] or "2000-01-01")
        except ValueError:
            raise ApiProblem(422, "invalid", f"{name} is no date: {filters[name]!r}", "write 2026-11-28") from None
    return filters


def _parameters(filters: Mapping[str, str]) -> dict[str, str]:
    """Return the filters as the API has them: until the end of the last day."""
    since, until = (date.fromisoformat(filters[name]) if filters[name] else None for name in ("since", "until"))
    after = until + timedelta(days=1) if until else None
    return {
        **filters,
        "since": f"{since}T00:00:00Z" if since else "",
        "until": f"{after}T00:00:00Z" if after else "",
    }


def shown(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as the page shows it: its actor, what it is about, and its links."""
    data = event["data"]
    return {
        "number": event["number"],
        "at": event["at"],
        "type": event["type"],
        "actor": actor_of(event),
        "status": data.get("status", ""),
        "title": title_of(event["type"]),
        "about": sentence_of(event["type"], data),
        "links": [(name, base + quoted(data[name])) for name, base in LINKS.items() if data.get(name)],
    }


def actor_of(event: Mapping[str, Any]) -> str:
    """Return who did it: a person, the policy, or the detector."""
    if who := event["data"].get("who"):
        return str(who)
    kind = str(event["type"])
    return "policy" if kind.startswith("change.") else "detector" if kind.startswith("detect") else "instep"


@pages.page("/connections/{connection}/timeline")
async def timeline(visit: Visit) -> Response:
    """Show the events of a connection, newest first."""
    name, filters = visit.path["connection"], filters_of(visit)
    page = await visit.api.get(
        "/events", connection=name, **_parameters(filters), cursor=visit.query("cursor"), limit=100
    )
    address = f"/connections/{quoted(name)}/timeline"
    return await visit.render(
        "timeline.html",
        name=name,
        tabs=tabs_of(visit, name, "/timeline"),
        address=address,
        filters=filters,
        filtered=any(filters.values()),
        types=[(event_type, title_of(event_type)) for event_type in event_types()],
        items=[shown(one) for one in page["items"]],
        next_cursor=page["next_cursor"],
        csv=query(f"{address}.csv", **filters),
    )


@pages.page("/connections/{connection}/timeline.csv")
async def as_csv(visit: Visit) -> Response:
    """Return all events that fit, as CSV."""
    name, parameters = visit.path["connection"], _parameters(filters_of(visit))
    first = await visit.api.get("/events", connection=name, **parameters, limit=AT_ONCE)
    headers = {"Content-Disposition": 'attachment; filename="timeline.csv"'}
    return StreamingResponse(_lines(visit, name, parameters, first), media_type="text/csv", headers=headers)


async def _lines(visit: Visit, name: str, parameters: Mapping[str, str], page: Any) -> AsyncIterator[str]:
    yield _line(COLUMNS)
    while True:
        for event in page["items"]:
            entry = shown(event)
            values = [entry["number"], entry["at"], entry["type"], entry["actor"], entry["status"], entry["about"]]
            yield _line([*values, json.dumps(event["data"], ensure_ascii=False)])
        if not page["next_cursor"]:
            return
        page = await visit.api.get("/events", connection=name, **parameters, cursor=page["next_cursor"], limit=AT_ONCE)


def _line(values: Any) -> str:
    """Return a line; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    csv.writer(out).writerow(f"'{value}" if str(value).startswith(_FORMULA) else value for value in values)
    return out.getvalue()
