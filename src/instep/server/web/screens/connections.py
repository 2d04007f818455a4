"""All connections at a glance, and how one of them stands: freshness, loads, pauses, quarantine, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from instep.operations.registry import policy_of
from instep.operations.spec import Role
from instep.server.problems import ApiProblem
from instep.server.web.charts import Bar, bars
from instep.server.web.rendering import count, query, quoted, size
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
STATES = {
    "failing": "bad",
    "paused": "wait",
    "waiting": "wait",
    "processing": "info",
    "running": "info",
    "idle": "good",
    "new": "",
}
"""The states of connections, those to look at first, with the class of their colour."""
FRESHNESS = {
    "late": ("late", "bad"),
    "not_loaded": ("not loaded yet", "wait"),
    "on_time": ("on time", "good"),
    "paused": ("paused", ""),
}
"""The states of tables against their freshness targets, in words and with the class of their colour."""
ROWS = 50
CHART_RUNS = 40
TABS: tuple[tuple[str, str, Role], ...] = (
    ("Status", "", "viewer"),
    ("Schema", "/schema", "viewer"),
    ("Schema history", "/schema/history", "viewer"),
    ("Timeline", "/timeline", "viewer"),
    ("Quarantine", "/quarantine", "operator"),
    ("Detector", "/detector", "viewer"),
)


def tabs_of(visit: Visit, name: str, current: str) -> list[tuple[str, str, bool]]:
    """Return the tabs that the pages of one connection share, as far as the caller may see them."""
    base = f"/connections/{quoted(name)}"
    own = [(text, base + path, path == current) for text, path, role in TABS if visit.may(role)]
    more = [("Changes", query("/changes", connection=name), False), ("Runs", query("/runs", connection=name), False)]
    return [*own, *more]


@pages.page("/connections")
async def connections(visit: Visit) -> Response:
    """Show connections by name, how many there are in each state, and a search."""
    search, tag, status = visit.query("search").strip(), visit.query("tag").strip(), visit.query("status")
    filters = {"search": search, "tag": tag, "status": status if status in STATES else ""}
    page = await visit.api.get("/connections", **filters, cursor=visit.query("cursor"), limit=100)
    counts = await visit.api.get("/connection-counts", search=search, tag=tag)
    numbers = {"": counts["total"], **counts["states"]}
    shown = ["", *(one for one in STATES if numbers.get(one) or one == filters["status"])]
    return await visit.render(
        "connections.html",
        items=page["items"],
        next_cursor=page["next_cursor"],
        filters=filters,
        tabs=[(one or "all", one, numbers.get(one, 0)) for one in shown],
        states=STATES,
        freshness=FRESHNESS,
        filtered=any(filters.values()),
    )


@pages.page("/connections/{connection}")
async def connection(visit: Visit) -> Response:
    """Show how one connection stands."""
    name = visit.path["connection"]
    base = f"/connections/{quoted(name)}"
    shown = await visit.api.send("GET", base, parameters={"freshness": False})  # its status has it, by table
    report = await visit.api.get(f"{base}/status")
    table = visit.query("table")
    loads = (await visit.api.get(f"{base}/loads", table=table, limit=CHART_RUNS))["items"]
    queue = await visit.api.get("/queue", connection=name, status=["queued", "running"], limit=50)
    queued = queue["items"]
    search, cursor = visit.query("search").strip(), visit.query("cursor")
    tables = await visit.api.get(f"{base}/status/tables", search=search, cursor=cursor, limit=ROWS)
    details = shown.document
    live = bool(queued) or details["status"] in ("running", "processing")
    answer = await visit.render(
        "connection.html",
        live=live,
        name=name,
        connection=details,
        etag=shown.etag,
        report=report,
        states=STATES,
        tabs=tabs_of(visit, name, ""),
        table=table,
        loads=loads,
        charts=charts_of(loads, table or name),
        queued=queued,
        workers=queue["workers"],
        tables=[{**one, "path": ".".join(filter(None, one["table"]))} for one in tables["items"]],
        next_cursor=tables["next_cursor"],
        late=[one for one in report["freshness"] if one["state"] == "late"],
        late_tables=report["freshness_counts"].get("late", 0),
        freshness=FRESHNESS,
        search=search,
        quarantined=report["quarantined"],
        blocked=blockers(details),
        pausing=pausing(details, queued),
        resuming=resuming(details, report, queued),
    )
    if not live and visit.request.headers.get("hx-target") == "now":
        answer.headers["HX-Refresh"] = "true"  # what ran has ended: its tables, charts and buttons are others
    return answer


def charts_of(loads: Sequence[Mapping[str, Any]], of: str) -> dict[str, Any]:
    """Return charts of the rows and bytes that runs wrote, oldest first."""
    oldest = loads[::-1]
    rows = [one["inserted"] + one["updated"] + one["deleted"] for one in oldest]

    def made(title: str, values: Sequence[int], shown: Any) -> Any:
        marks = [
            Bar(one["started"][5:16].replace("T", " "), value, shown(value), one["status"] == "failed")
            for one, value in zip(oldest, values, strict=True)
        ]
        return bars(f"{title} of {of} in the last {len(marks)} runs", marks, shown(max(values, default=0)))

    return {
        "Rows written": made("Rows written", rows, lambda value: f"{count(value)} rows"),
        "Bytes written": made("Bytes written", [one["bytes"] for one in oldest], size),
    }


def blockers(details: Mapping[str, Any]) -> dict[str, str]:
    """Return why an operation cannot be done now, by its name."""
    reasons = {}
    pause = next((detail for detail in details["pauses"] if detail["table"] is None), None)
    if pause is not None:
        for operation in ("sync", "detect", "backfill", "verify", "replay_quarantine"):
            if not policy_of(operation).runs_while_paused:
                reasons[operation] = f"the connection is paused: {pause['reason']}"
        reasons["pause"] = "it is paused already"
    if not details["pauses"]:
        reasons["resume"] = "nothing is paused"
    if details["managed_by"] == "file":
        reasons["delete"] = "it is managed by the project file: take it out of instep.yml"
    return reasons


def pausing(details: Mapping[str, Any], queued: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the effects of pausing, in sentences."""
    runs = [one for one in queued if one["status"] == "running"]
    lines = ["No sync starts until the connection is resumed; the destination keeps its rows."]
    lines.append("Detection goes on, so that changes are still found.")
    if runs:
        lines.append(f"What runs now ({runs[0]['kind']}) goes on to its end.")
    return lines


def resuming(details: Mapping[str, Any], report: Mapping[str, Any], queued: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the effects of resuming, in sentences."""
    lines = ["The next sync goes on from where the last one stopped; no row is read twice or left out."]
    waiting = [one for one in queued if one["status"] == "queued"]
    if waiting:
        lines.append(f"{len(waiting)} queued jobs start as workers are free.")
    if report["backfills"]:
        number = len(report["backfills"]) + report["more"].get("backfills", 0)
        lines.append(f"{number:,} backfills that wait are taken up.")
    if open_ := [detail["change"] for detail in details["pauses"] if detail["change"]]:
        lines.append(f"It is refused while a change that caused the pause is open: {', '.join(open_)}.")
    return lines


@pages.page("/connections/{connection}/quarantine", "operator")
async def quarantine(visit: Visit) -> Response:
    """Show values and rows that did not fit, with what can be done with them."""
    name = visit.path["connection"]
    base, table = f"/connections/{quoted(name)}", visit.query("table")
    every = visit.query("all") == "true"
    page = await visit.api.get(f"{base}/quarantine", table=table, all=every, cursor=visit.query("cursor"), limit=100)
    return await visit.render(
        "quarantine.html",
        name=name,
        tabs=tabs_of(visit, name, "/quarantine"),
        table=table,
        every=every,
        items=page["items"],
        unreadable=page["unreadable"],
        next_cursor=page["next_cursor"],
        counts=page["waiting"],
    )


@pages.page("/connections/{connection}/delete", "admin")
async def ask_delete(visit: Visit) -> Response:
    """Show the form that deletes a connection."""
    return await _delete_form(visit)


@pages.form("/connections/{connection}/delete", "admin")
async def delete(visit: Visit) -> Response:
    """Preview the deletion of a connection, or queue it once its name is typed."""
    name, rehearsed = visit.path["connection"], visit.sent("button") == "preview"
    parameters = {
        "confirm": visit.sent("confirm").strip(),
        "tables": visit.sent("tables", "keep"),
        "abandon": visit.sent("abandon") == "true",
        "dry_run": rehearsed,
    }
    try:
        details = await visit.api.get(f"/connections/{quoted(name)}")
        if visit.sent("unused") == "true" and details["last_run"] is not None:
            raise ApiProblem(409, "conflict", f"{name} has run since it was made", "delete it here, by its name")
        answer = await visit.api.send("DELETE", f"/connections/{quoted(name)}", parameters=parameters)
    except ApiProblem as problem:
        return await _delete_form(visit, problem=problem, status=problem.status)
    if rehearsed:
        return await _delete_form(visit, result=answer.document)
    return visit.go(f"/jobs/{answer.document['id']}", f"The deletion of {name} is queued.")


async def _delete_form(
    visit: Visit, *, problem: ApiProblem | None = None, result: Any = None, status: int = 200
) -> Response:
    name = visit.path["connection"]
    details = await visit.api.get(f"/connections/{quoted(name)}")
    values = {one: visit.sent(one) for one in ("confirm", "tables", "abandon")}
    return await visit.render(
        "connection_delete.html",
        status,
        name=name,
        connection=details,
        values=values,
        why_not=blockers(details).get("delete", ""),
        problem=problem,
        result=result,
    )
