"""Runs: the list, and one run with its steps, tables and live log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from starlette.responses import Response

from instep.operations.values import RunKind, RunStatus
from instep.server.web.charts import span
from instep.server.web.rendering import count, duration, query, quoted
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
    base = f"/runs/{quoted(visit.path['run'])}"
    page = await visit.api.get(base)
    search, level, outcome = visit.query("search").strip(), visit.query("level"), visit.query("outcome")
    steps = await visit.api.get(f"{base}/steps", cursor=visit.query("steps"), limit=ROWS)
    tables = await visit.api.get(
        f"{base}/tables",
        status=outcome if outcome in page["outcomes"] else "",
        cursor=visit.query("cursor"),
        limit=ROWS,
    )
    log = (await visit.api.get("/events", connection=page["connection"], run=page["id"], limit=LOG_LINES))["items"]
    lines = [line_of(one) for one in log]
    job = await _job_of(visit, page)
    return await visit.render(
        "run.html",
        run=page,
        job=job,
        running=page["status"] == "running",
        steps=steps_of(page, steps["items"]),
        loads=loads_of(page, tables["items"], log),
        next_steps=steps["next_cursor"],
        next_tables=tables["next_cursor"],
        outcome=outcome,
        outcomes=outcomes_of(base, page["outcomes"], outcome),
        address=base,
        engine=page["detail"].get("engine") or {},
        received=received_rows(page),
        lines=[line for line in lines if _fits(line, search, level)],
        last=log[0]["number"] if log else 0,
        search=search,
        level=level if level in LEVELS else "",
        types=event_types(),
        took=duration(page["started"], page["ended"]),
    )


@pages.page("/runs/{run}/log")
async def log(visit: Visit) -> Response:
    """Stream the events of a run's connection, from a number on, as server-sent events."""
    document = await visit.api.get(f"/runs/{quoted(visit.path['run'])}")
    last = visit.request.headers.get("last-event-id", "")
    headers = {"last-event-id": last} if last else {}
    parameters = {"connection": document["connection"], "after": visit.query("after")}
    return visit.api.stream("/events/stream", parameters, headers)


def received_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a connector has sent in a run that is under way: in all, then those tables that have the most to
    come."""
    if document["status"] != "running":
        return []
    received, begun = document["detail"].get("received") or {}, datetime.fromisoformat(document["started"])
    seconds = max((datetime.now(UTC) - begun).total_seconds(), 1.0)
    rows = [{"table": path, **one, "rate": round(one["rows"] / seconds)} for path, one in received.items()]
    return sorted(rows, key=lambda row: (row["table"] != "", row["rows"] - row["expected"]))[:ROWS]


async def _job_of(visit: Visit, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the job that made a run; None for a run that was not queued, or long ago."""
    page = await visit.api.get("/queue", connection=document["connection"], limit=200)
    return next((one for one in page["items"] if one["run"] == document["id"]), None)


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


def outcomes_of(address: str, counts: Mapping[str, int], chosen: str) -> list[tuple[str, str, bool]]:
    """Return the tabs of a run's tables by outcome; none where all fared alike."""
    if len(counts) < 2:
        return []
    one_each = [(f"{status} ({count(number)})", status) for status, number in counts.items()]
    tabs = [(f"all ({count(sum(counts.values()))})", ""), *one_each]
    return [(text, query(address, outcome=status) + "#tables", status == chosen) for text, status in tabs]


def steps_of(document: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return steps of a run's plans with their place on its time."""
    return [{**step, **_bar(document, step["text"], _at(step["started"]), _at(step["ended"]))} for step in steps]


def loads_of(
    document: Mapping[str, Any], tables: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what a run did to tables, with the place of each on its time where an event of the log tells it."""
    ends = {
        event["data"].get("table"): event["at"] for event in events if event["type"] in ("table.loaded", "table.failed")
    }
    loads = []
    for table in tables:
        ended, lasted = _at(ends.get(table["table"])), timedelta(seconds=table["seconds"])
        place = _bar(document, f"load {table['table']}", ended - lasted if ended else None, ended)
        loads.append({**table, **place, "took": place["took"] or f"{table['seconds']:.2f} s"})
    return loads


def _bar(document: Mapping[str, Any], what: str, started: datetime | None, ended: datetime | None) -> dict[str, Any]:
    """Return how long a step took, in words and as a bar on the time of its run."""
    begin, end = _at(document["started"]), _at(document["ended"]) or datetime.now(UTC)
    if started is None or begin is None:
        return {"took": "", "bar": ""}
    whole = max((end - begin).total_seconds(), 0.001)
    seconds = ((ended or end) - started).total_seconds()
    share = min(max(0.0, (started - begin).total_seconds() / whole), 1.0)
    took = f"{seconds:.2f} s"
    return {"took": took, "bar": span(share, seconds / whole, f"{what}: {took}")}


def _at(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
