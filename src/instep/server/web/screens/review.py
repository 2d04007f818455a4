"""One change: what it is, what it would do, and what a person says to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from instep.operations.values import EXISTING
from instep.schema.changes.describe import change_from_dict
from instep.schema.changes.version import BREAKING
from instep.schema.planning.explain import meanwhile, when_applied
from instep.schema.policy.policy import Decision, Modifiers
from instep.schema.policy.similarity import PROPOSAL
from instep.server.problems import ApiProblem
from instep.server.web.forms import action_of
from instep.server.web.rendering import query, quoted
from instep.server.web.screens.lineage import level_of, picture_of, was_judged
from instep.server.web.undo import undo_address
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
TABS = (
    ("Table", "table"),
    ("Impact", "impact"),
    ("DDL", "ddl"),
    ("Backfill", "backfill"),
    ("Conversation", "conversation"),
    ("Checks", "checks"),
    ("Lineage", "lineage"),
    ("JSON", "json"),
)


@pages.page("/changes/{change}")
async def review(visit: Visit) -> Response:
    """Show one change under one of its tabs."""
    return await show_review(visit)


async def show_review(visit: Visit, problem: ApiProblem | None = None) -> Response:
    """Show one change, and why what was asked for about it is refused."""
    answer = await visit.api.send("GET", f"/changes/{quoted(visit.path['change'])}")
    change, tab = answer.document, visit.query("tab", "table")
    tab = tab if tab in dict(map(reversed, TABS)) else "table"  # type: ignore[arg-type]
    connection = f"/connections/{quoted(change['connection'])}"
    page = f"/changes/{quoted(change['id'])}"
    listed = await _listed_change(visit, change)
    jobs = await latest_jobs(visit, change["connection"])
    plan = await _job(visit, visit.query("plan") or jobs.get("plan", ""))
    comparison = await _comparison(visit, connection, change)
    values: dict[str, Any] = {"impact": None, "comments": [], "estimate": None, "backfills": [], "sample": None}
    if tab in ("impact", "lineage"):
        values["impact"] = found_impact = await _job(visit, visit.query("impact") or jobs.get("impact", ""))
        values["judged"] = was_judged(change, (found_impact or {}).get("result") or {})
    proposal = _pair(change)
    effect = None
    if tab == "table" and change["status"] in EXISTING:
        checked = await _job(visit, jobs.get("impact", ""))
        effect = effect_of(change, (checked or {}).get("result") or {})
    if tab == "table" and proposal and change["column"]:
        values |= await _samples(visit, change)
    if tab == "conversation":
        values["comments"] = (await visit.api.get(f"{page}/comments", limit=200))["items"]
    if tab == "backfill":
        values |= await _backfill(visit, connection, change)
    if tab == "lineage":
        result = (values["impact"] or {}).get("result") or {}
        values["picture"] = picture_of(change, result, _at_destination(change, comparison))
    return await visit.render(
        "change.html",
        problem.status if problem else 200,
        problem=problem,
        change={**change, "breaking": change["kind"] in BREAKING},
        listed=listed,
        etag=answer.etag,
        tab=tab,
        page=page,
        tabs=[(label, query(page, tab=name), name == tab) for label, name in TABS],
        states=await _states(visit, connection, change, jobs),
        tree=await _tree(visit, connection),
        comparison=comparison,
        proposal=proposal,
        effect=effect,
        plan=plan,
        stale=await _stale(visit, connection, change, plan),
        drops=(plan or {}).get("result", {}).get("drops", []),
        checks=checks_of((plan or {}).get("result") or {}),
        answerable=change["status"] in EXISTING,
        **values,
    )


@pages.form("/changes/{change}/plan")
async def ask_plan(visit: Visit) -> Response:
    """Queue a dry run: a plan of the connection with its costs."""
    return await _ask(visit, "plan", "plans", {"sample": 1000}, visit.sent("tab", "ddl"))


@pages.form("/changes/{change}/samples")
async def ask_samples(visit: Visit) -> Response:
    """Queue a look at values of both columns of a suspected rename."""
    change = {"change": visit.path["change"]}
    return await _ask(visit, "sample_rename", "changes/sample-rename", change, "table")


@pages.form("/changes/{change}/impact")
async def ask_impact(visit: Visit) -> Response:
    """Queue a look at the models that read the connection's tables."""
    return await _ask(visit, "impact", "impact", {"configured": True}, visit.sent("tab", "impact"))


async def _ask(visit: Visit, kind: str, path: str, body: Mapping[str, Any], tab: str) -> Response:
    change = await visit.api.get(f"/changes/{quoted(visit.path['change'])}")
    job = (await visit.api.send("POST", f"/connections/{quoted(change['connection'])}/{path}", body)).document
    place = query(f"/changes/{quoted(change['id'])}", tab=tab, **{kind: job["id"]})
    what = kind.replace("_", " ")
    return visit.go(place, f"The {what} of {change['connection']} is queued. {job.get('note') or ''}".strip())


@pages.form("/changes/{change}/apply")
async def apply(visit: Visit) -> Response:
    """Queue the application of the plan that was shown. What it drops has to be named."""
    change = await visit.api.get(f"/changes/{quoted(visit.path['change'])}")
    connection = f"/connections/{quoted(change['connection'])}"
    plan = await _job(visit, visit.sent("plan"))
    drops = (plan or {}).get("result", {}).get("drops", [])
    if why := await _stale(visit, connection, change, plan):
        problem = ApiProblem(409, "conflict", f"this plan is stale: {why}", "press Dry run: it plans again")
        return await show_review(visit, problem)
    typed = [one.strip() for one in visit.form.get("allow", [])]
    if missing := [drop for drop in drops if drop not in typed]:
        text = f"{', '.join(missing)} would be dropped, and was not named"
        return await show_review(visit, ApiProblem(409, "blocked", text, "type the name of each object, or cancel"))
    body = {"plan": visit.sent("plan"), **({"allow": drops} if drops else {})}
    try:
        job = (await visit.api.send("POST", f"{connection}/apply", body)).document
    except ApiProblem as problem:
        return await show_review(visit, problem)
    return visit.go(f"/jobs/{quoted(job['id'])}", f"The plan of {change['connection']} is queued to be applied.")


@pages.form("/changes/{change}/comments")
async def comment(visit: Visit) -> Response:
    """Comment on the change, or name who looks after it."""
    path = f"/changes/{quoted(visit.path['change'])}"
    back = query(path, tab="conversation")
    if visit.sent("button") == "assign":
        name = visit.sent("assignee").strip()
        before = (await visit.api.get(path))["assignee"]
        await visit.api.send("POST", f"{path}/assign", {"assignee": name}, headers={"If-Match": visit.sent("etag")})
        undo = undo_address(action_of("assign_change"), {"change": visit.path["change"]}, before)
        return visit.go(back, f"The change is assigned to {name or 'nobody'}.", undo)
    if not visit.sent("text").strip():
        return visit.go(back, "The comment is empty: write a text.")
    await visit.api.send("POST", f"{path}/comments", {"text": visit.sent("text")})
    return visit.go(back, "The comment is added.")


async def latest_jobs(visit: Visit, connection: str) -> dict[str, str]:
    """Return the id of the newest job of each kind among the last ones of a connection."""
    jobs = (await visit.api.get("/queue", connection=connection, limit=100))["items"]
    return {one["kind"]: one["id"] for one in reversed(jobs)}


async def _job(visit: Visit, id: str) -> dict[str, Any] | None:
    if not id:
        return None
    try:
        job: dict[str, Any] = await visit.api.get(f"/jobs/{quoted(id)}")
    except ApiProblem:
        return None
    return job


async def _samples(visit: Visit, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest job that has sampled the columns of a suspected rename; None if there is none."""
    jobs = (await visit.api.get("/queue", connection=change["connection"], limit=100))["items"]
    samples = (job for job in jobs if job["kind"] == "sample_rename" and job["options"].get("change") == change["id"])
    return {"sample": await _job(visit, next((one["id"] for one in samples), ""))}


async def _listed_change(visit: Visit, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change as lists have it, with what stands beside it."""
    changes = (await visit.api.get("/changes", id=change["id"], connection=change["connection"], limit=1))["items"]
    return next(iter(changes), {"elsewhere": 0, "comments": 0, "rows": None})


async def _tree(visit: Visit, connection: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the changed tables by schema."""
    tables = (await visit.api.get(f"{connection}/changed-tables", limit=100))["items"]
    schemas: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        schemas.setdefault(table["schema"], []).append(table)
    return list(schemas.items())


async def _comparison(visit: Visit, connection: str, change: Mapping[str, Any]) -> dict[str, Any] | None:
    schema, name = change["table"]
    if not name:
        return None
    comparison: dict[str, Any] = await visit.api.get(f"{connection}/comparison", table=name, table_schema=schema)
    return comparison


def _at_destination(change: Mapping[str, Any], comparison: Mapping[str, Any] | None) -> str:
    """Return the path of the change's column, or of its table, at the destination; "" where it has none."""
    if comparison is None or not comparison["destination"] or not change["column"]:
        return comparison["destination"] if comparison else ""
    columns = (
        column["after"] or column["before"] for column in comparison["columns"] if change["id"] in column["changes"]
    )
    side = next((one for one in columns if one), None)
    return f"{comparison['destination']}.{side['name'] if side else change['column']}"


async def _states(
    visit: Visit, connection: str, change: Mapping[str, Any], jobs: Mapping[str, str]
) -> list[tuple[str, str, Any, bool]]:
    """Return the steps of the change as far as they are recorded: word, by whom, when, and True for the last one."""
    events: list[tuple[str, str, Any]] = [("Detected", "", change["first_seen"]), ("Decided", change["rule"], None)]
    if change["decided_by"] and change["status"] != "open":
        word = "Rejected" if change["status"] == "rejected" else "Approved"
        events.append((word, change["decided_by"], change["decided_at"]))
    if change["status"] == "applied":
        plans = (await visit.api.get(f"{connection}/plans", limit=100))["items"]
        plan = next((one for one in plans if change["id"] in one["changes"]), None)
        ended = plan and plan["ended"]
        events.append(("Applied", f"schema version {plan['version']}" if plan else "", ended))
        fills = (await visit.api.get(f"{connection}/backfills", limit=100))["items"]
        fill = next((one for one in fills if one["change"] == change["id"]), None)
        if fill:
            word = "Backfilled" if fill["status"] == "done" else f"Backfill {fill['status']}"
            events.append((word, "", fill["ended"]))
        verify = await _job(visit, jobs.get("verify", ""))
        if verify and ended and verify["status"] == "done" and verify["ended"] > ended:
            events.append(("Verified", "", verify["ended"]))
    elif change["status"] == "obsolete":
        events.append(("Obsolete", "the source shows it no more", None))
    elif change["status"] != "rejected":
        events.append(("Waits to be applied" if change["status"] == "approved" else "Waits", "", None))
    return [(*one, at == len(events) - 1) for at, one in enumerate(events)]


async def _backfill(visit: Visit, connection: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the estimate of a backfill of the change's table, and the recorded backfills."""
    table = ".".join(filter(None, change["table"]))
    every = (await visit.api.get(f"{connection}/backfills", limit=100))["items"]
    backfills = [
        backfill for backfill in every if backfill["table"] == change["table"] or backfill["change"] == change["id"]
    ]
    column = [change["column"]] if change["column"] and change["status"] == "applied" else []
    estimate, why = None, ""
    try:
        estimate = await visit.api.get(f"{connection}/backfills/estimate", table=table, column=column)
    except ApiProblem as problem:
        why = problem.detail
    return {"backfills": backfills, "estimate": estimate, "no_estimate": why, "columns": column}


async def _stale(visit: Visit, connection: str, change: Mapping[str, Any], plan: Mapping[str, Any] | None) -> str:
    """Return why a plan that was made is not the one of now; "" if nothing on record says so."""
    if plan is None or plan["status"] != "done" or not plan["result"].get("plan"):
        return ""
    made = datetime.fromisoformat(plan["started"] or plan["created"])
    versions = (await visit.api.get(f"{connection}/history", limit=1))["items"]
    if versions and datetime.fromisoformat(versions[0]["at"]) > made:
        return f"schema version {versions[0]['version']} was accepted since it was made"
    if change["decided_at"] and datetime.fromisoformat(change["decided_at"]) > made:
        return "the change was answered since it was made"
    return ""


def effect_of(change: Mapping[str, Any], impact: Mapping[str, Any]) -> dict[str, Any]:
    """Return what approving an open change does, what holds until then, and the models that it breaks: None if they
    were not looked at since. `impact`: the result of the last look at models; {} before the first."""
    how = Modifiers().with_changes(change["modifiers"])
    decision = Decision(change_from_dict(change["change"]), change["action"], change["rule"], "", how)
    breaks = None
    if was_judged(change, impact):
        breaks = [one["name"] for one in impact["models"] if level_of(one, change["id"]) == "breaks"]
    return {"applied": when_applied(change["kind"], how), "meanwhile": meanwhile(decision), "breaks": breaks}


def _pair(change: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the old and the new path that a suspected rename is about; None for any other change."""
    if change["rule"] != PROPOSAL:
        return None
    detail = change["change"]
    if change["kind"] == "table.renamed":
        old, new = ([detail[side].get("schema", ""), detail[side]["name"]] for side in ("before", "after"))
    else:
        old, new = ([*change["table"], detail[side]["name"]] for side in ("before", "after"))
    return ".".join(filter(None, old)), ".".join(filter(None, new))


def checks_of(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the checks of a plan: `blocks`, `warning` or `passed`, and the subject; the gravest first."""
    if not result.get("plan"):
        return []
    plan, costs = result["plan"], result.get("costs") or {}
    remarks = [("blocks", f"{'.'.join(one['table'])}: {one['why']}") for one in plan["refused"]]
    remarks += [("blocks", one) for one in result.get("missing", ())]
    remarks += [("warning", f"{one} would be dropped: apply needs its name") for one in result.get("drops", ())]
    for step in plan["steps"]:
        remarks += [("warning", f"{step['text']}: {one['text']}") for one in step.get("hazards", ())]
    remarks += [("warning", one["text"]) for one in _tried(costs) if one.get("invalid_values") or one.get("why_not")]
    remarks += [("warning", text) for text, style in result.get("downstream", ()) if style in ("red", "yellow")]
    remarks += [("warning", one) for one in (*result.get("keys", ()), *result.get("notes", ()))]
    remarks += [
        ("passed", one["text"]) for one in _tried(costs) if not (one.get("invalid_values") or one.get("why_not"))
    ]
    if not any(level == "blocks" for level, _ in remarks):
        remarks.append(("passed", "the destination can take every step of the plan"))
    if not result.get("drops"):
        remarks.append(("passed", "nothing is dropped"))
    return remarks


def _tried(costs: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*costs.get("lossy", ()), *costs.get("held", ())]
