"""Runs: the list, and one run with its steps, tables and live log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from starlette.responses import Response

from instep.operations.values import RunKind, RunStatus
from instep.server.web.charts import span
from instep.server.web.rendering import duration, quoted
from instep.server.web.screens.timeline import event_types
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
STATUSES: tuple[str, ...] = get_args(RunStatus)
KINDS: tuple[str, ...] = get_args(RunKind)
LEVELS = ("info", "warning")
LOG_LINES = 200
ROWS = 100


@pages.page("/runs")
async def runs(visit: Visit) -> Response:
    """Show runs, newest first."""
    status, kind = visit.query("status"), visit.query("kind")
    filters = {
        "connection": visit.query("connection").strip(),
        "status": status if status in STATUSES else "",
        "kind": kind if kind in KINDS else "",
    }
    page = await visit.api.get("/runs", **filters, cursor=visit.query("cursor"), limit=100)
    return await visit.render(
        "runs.html",
        items=page["items"],
        next_cursor=page["next_cursor"],
        filters=filters,
        statuses=STATUSES,
        kinds=KINDS,
        filtered=any(filters.values()),
    )


@pages.page("/runs/{run}")
async def run(visit: Visit) -> Response:
    """Show one run."""
    found = await visit.api.get(f"/runs/{quoted(visit.path['run'])}")
    search, level = visit.query("search").strip(), visit.query("level")
    log = (await visit.api.get("/events", connection=found["connection"], run=found["id"], limit=LOG_LINES))["items"]
    lines = [line_of(one) for one in log]
    job = await _job_of(visit, found)
    return await visit.render(
        "run.html",
        run=found,
        job=job,
        running=found["status"] == "running",
        steps=steps_of(found, log),
        tables=found["tables"][:ROWS],
        table_count=len(found["tables"]),
        engine=found["detail"].get("engine") or {},
        received=received_rows(found),
        lines=[one for one in lines if _fits(one, search, level)],
        last=log[0]["number"] if log else 0,
        search=search,
        level=level if level in LEVELS else "",
        types=event_types(),
        took=duration(found["started"], found["ended"]),
    )


@pages.page("/runs/{run}/log")
async def log(visit: Visit) -> Response:
    """Stream the events of a run's connection, from a number on, as server-sent events."""
    found = await visit.api.get(f"/runs/{quoted(visit.path['run'])}")
    last = visit.request.headers.get("last-event-id", "")
    headers = {"last-event-id": last} if last else {}
    parameters = {"connection": found["connection"], "after": visit.query("after")}
    return visit.api.stream("/events/stream", parameters, headers)


def received_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a connector has sent in a run that is under way: in all, then those tables that have the most to
    come."""
    if found["status"] != "running":
        return []
    received, begun = found["detail"].get("received") or {}, datetime.fromisoformat(found["started"])
    seconds = max((datetime.now(UTC) - begun).total_seconds(), 1.0)
    rows = [{"table": path, **one, "rate": round(one["rows"] / seconds)} for path, one in received.items()]
    return sorted(rows, key=lambda one: (one["table"] != "", one["rows"] - one["expected"]))[:ROWS]


async def _job_of(visit: Visit, found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the job that made a run; None for a run that was not queued, or long ago."""
    page = await visit.api.get("/queue", connection=found["connection"], limit=200)
    return next((one for one in page["items"] if one["run"] == found["id"]), None)


def line_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as a line of a log."""
    data = {name: value for name, value in event["data"].items() if name not in ("connection", "run")}
    problem = data.get("error") or (data.get("reason") if event["type"] != "connection.resumed" else "")
    text = ", ".join(f"{name} {value}" for name, value in data.items() if value not in ("", None, [], {}))
    level = "warning" if problem else "info"
    return {"number": event["number"], "at": event["at"], "type": event["type"], "text": text, "level": level}


def _fits(line: Mapping[str, Any], search: str, level: str) -> bool:
    named = f"{line['type']} {line['text']}".casefold()
    return search.casefold() in named and (level != "warning" or line["level"] == "warning")


def steps_of(found: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps of a run with their place on its time: those of its plans, then the loads of its tables."""
    ends = {one["data"].get("table"): one["at"] for one in events if one["type"] in ("table.loaded", "table.failed")}
    steps = []
    for plan in found["plans"]:
        for one in plan["steps"]:
            place = _bar(found, one["text"], _at(one["started"]), _at(one["ended"]))
            steps.append({**one, "what": one["text"], "plan": plan["id"], **place})
    for one in found["tables"]:
        ended, lasted = _at(ends.get(one["table"])), timedelta(seconds=one["seconds"])
        what = f"load {one['table']}"
        place = _bar(found, what, ended - lasted if ended else None, ended)
        rows = one["inserted"] + one["updated"] + one["deleted"]
        took = {} if ended else {"took": f"{one['seconds']:.2f} s"}
        steps.append({**one, "what": what, "plan": "", "rows": rows, **place, **took})
    return steps[:ROWS]


def _bar(found: Mapping[str, Any], what: str, started: datetime | None, ended: datetime | None) -> dict[str, Any]:
    """Return how long a step took, in words and as a bar on the time of its run."""
    begin, end = _at(found["started"]), _at(found["ended"]) or datetime.now(UTC)
    if started is None or begin is None:
        return {"took": "", "bar": ""}
    whole = max((end - begin).total_seconds(), 0.001)
    seconds = ((ended or end) - started).total_seconds()
    share = min(max(0.0, (started - begin).total_seconds() / whole), 1.0)
    took = f"{seconds:.2f} s"
    return {"took": took, "bar": span(share, seconds / whole, f"{what}: {took}")}


def _at(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
