"""The set-up: a source, its test, its tables, a connection, the first plan. Each step has an address of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from instep.loopback import is_loopback
from instep.operations.values import ObjectKind
from instep.schema.policy.presets import PRESET_TEXTS
from instep.server.problems import ApiProblem
from instep.server.web.copies import copies
from instep.server.web.forms import action_of
from instep.server.web.rendering import query, quoted
from instep.server.web.section_forms import form_of, types_of
from instep.server.web.undo import undo_address
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
STEPS = ("Source", "Test", "Tables", "Connection", "First plan")
_ABOUT = {
    "postgres": "A PostgreSQL database: its tables, or its log by logical replication",
    "mysql": "A MySQL database",
    "mariadb": "A MariaDB database",
    "sqlite": "An SQLite file",
    "files": "CSV, JSON Lines or Parquet in a folder or a bucket",
    "jdbc": "Any database with a JDBC driver, by Spark",
    "connector": "A program of yours that brings rows",
    "airbyte": "A connector that speaks Airbyte's protocol",
    "iceberg": "Iceberg tables in a folder, a bucket or a catalog",
    "delta": "Delta tables in a folder or a bucket",
    "duckdb": "A DuckDB file",
}
"""Explanations of the types; a type without one is shown by its name."""
_KINDS: Mapping[str, ObjectKind] = {"sources": "source", "destinations": "destination"}


@pages.page("/setup", "operator")
async def begin(visit: Visit) -> Response:
    """Show the sources to begin with, the types of new ones, and what was left half done."""
    search = visit.query("search")
    sources = await visit.api.get("/sources", search=search, cursor=visit.query("cursor"), limit=50)
    connections = (await visit.api.get("/connections", limit=200))["items"]
    return await _show(
        visit,
        "setup.html",
        0,
        sources=sources["items"],
        next_cursor=sources["next_cursor"],
        search=search,
        types=_choices("sources"),
        left=[connection for connection in connections if connection["status"] == "new"][:20],
        empty=not (sources["items"] or connections or search),
        at_home=is_loopback(visit.request.url.hostname or "") and visit.may("admin"),
    )


@pages.form("/setup/demo", "admin")
async def create_demo(visit: Visit) -> Response:
    """Create the demo's connection, and go to its first plan."""
    made = (await visit.api.send("POST", "/demo")).document
    note = "A till with 5,000 sales is made, and its first plan. Nothing is written before you press Sync now."
    return visit.go(query(f"/setup/connections/{quoted(made['connection'])}", plan=made["plan"]), note)


def _choices(plural: str) -> list[tuple[str, str, str]]:
    """Return the types of new objects: name, address and what each is."""
    kind = _KINDS[plural]
    return [(one, query(f"/setup/{plural}/~new", type=one), _ABOUT.get(one, "")) for one in types_of(kind)]


@pages.page("/setup/{plural}/~new", "admin")
async def ask_object(visit: Visit) -> Response:
    """Show the form of a source or destination of one type."""
    plural = _plural(visit)
    return await _object_form(visit, plural, visit.query("type") or next(iter(types_of(_KINDS[plural]))), {})


@pages.form("/setup/{plural}/~new", "admin")
async def create_object(visit: Visit) -> Response:
    """Create a source or a destination."""
    plural, type, name = _plural(visit), visit.sent("type"), visit.sent("name").strip()
    form = form_of(_KINDS[plural], type)
    spec = form.spec(visit.form)
    try:
        await visit.api.send("POST", f"/{plural}", {"name": name, "spec": spec})
    except ApiProblem as problem:
        return await _object_form(visit, plural, type, form.values(spec), name, problem)
    undo = undo_address(action_of(f"create_{_KINDS[plural]}"), {"name": name})
    return visit.go(_after_object(visit, plural, name), f"The {_KINDS[plural]} {name} is saved.", undo)


def _after_object(visit: Visit, plural: str, name: str) -> str:
    if plural == "sources":
        return f"/setup/sources/{quoted(name)}"
    back = visit.sent("back") or "/setup/connection"
    return f"{back}{'&' if '?' in back else '?'}{query('', destination=name)[1:]}"


def _plural(visit: Visit) -> str:
    if (plural := visit.path["plural"]) not in _KINDS:
        raise ApiProblem(404, "not_found", f"there is no set-up of {plural}", "go to /setup")
    return plural


async def _object_form(
    visit: Visit,
    plural: str,
    type: str,
    values: dict[str, Any],
    name: str = "",
    problem: ApiProblem | None = None,
) -> Response:
    form, back = form_of(_KINDS[plural], type), visit.query("back") or visit.sent("back")
    action = action_of(f"create_{_KINDS[plural]}")
    base = str(visit.request.base_url).rstrip("/")
    return await _show(
        visit,
        "setup_object.html",
        0 if plural == "sources" else 3,
        problem.status if problem else 200,
        kind=_KINDS[plural],
        plural=plural,
        form=form,
        values=values,
        name=name,
        exists=False,
        problem=problem,
        back=back,
        types=[
            (one, query(f"/setup/{plural}/~new", type=one, back=back), one == type) for one in types_of(_KINDS[plural])
        ],
        copies=copies(action, {"name": name or "shop", "spec": {"type": type, **values}}, base),
    )


@pages.page("/setup/sources/{source}", "operator")
async def source(visit: Visit) -> Response:
    """Show a source, and the checks of its test."""
    name = visit.path["source"]
    document = await visit.api.get(f"/sources/{quoted(name)}")
    return await _show(visit, "setup_test.html", 1, source=document, **await _job(visit, "test"))


@pages.form("/setup/sources/{source}/test", "operator")
async def test_source(visit: Visit) -> Response:
    """Queue a test of the source."""
    path = f"/sources/{quoted(visit.path['source'])}"
    made = (await visit.api.send("POST", f"{path}/test")).document
    return visit.go(query(f"/setup{path}", test=made["job"]))


@pages.page("/setup/sources/{source}/tables", "operator")
async def tables(visit: Visit) -> Response:
    """Show which tables a source has, as far as they match the patterns."""
    name = visit.path["source"]
    await visit.api.get(f"/sources/{quoted(name)}")
    discovery = await _job(visit, "discover")
    result = discovery["job"]["result"] if discovery["job"] and discovery["job"]["status"] == "done" else {}
    at = int(visit.query("from", "0")) if visit.query("from", "0").isdecimal() else 0
    every, matching = result.get("tables", []), visit.query_all("matching")
    same = {"matching": matching, "discover": visit.query("discover")}
    here = f"/setup/sources/{quoted(name)}/tables"
    return await _show(
        visit,
        "setup_tables.html",
        2,
        source=name,
        matching=matching,
        found=result,
        shown=every[at : at + 100],
        first=at,
        later=query(here, **same, **{"from": at + 100}) if len(every) > at + 100 else "",
        **discovery,
    )


@pages.form("/setup/sources/{source}/discover", "operator")
async def discover(visit: Visit) -> Response:
    """Queue a discovery of the source's tables."""
    path, matching = f"/sources/{quoted(visit.path['source'])}", _lines(visit.sent("matching"))
    body = {"matching": matching} if matching else {}
    made = (await visit.api.send("POST", f"{path}/discover", body)).document
    return visit.go(query(f"/setup{path}/tables", matching=matching, discover=made["job"]))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


async def _job(visit: Visit, name: str) -> dict[str, Any]:
    """Return the job that the address names, and whether a worker is there who does it."""
    id = visit.query(name)
    job = await visit.api.get(f"/jobs/{quoted(id)}") if id else None
    waits = job is not None and job["status"] in ("queued", "running")
    workers = (await visit.api.get("/queue", limit=1))["workers"] if waits else ()
    return {"job": job, "waits": waits, "worker": bool(workers) or not waits}


@pages.page("/setup/connection", "operator")
async def ask_connection(visit: Visit) -> Response:
    """Show the form of a connection."""
    given = {name: visit.query(name) for name in _CONNECTION}
    given["include"] = "\n".join(visit.query_all("include"))
    given["exclude"] = "\n".join(visit.query_all("exclude"))
    return await _connection_form(visit, given)


_CONNECTION = ("name", "source", "destination", "policy", "include", "exclude", "sync", "tags")


@pages.form("/setup/connection", "operator")
async def create_connection(visit: Visit) -> Response:
    """Create a connection. It reads nothing until it is synced."""
    given = {name: visit.sent(name).strip() for name in _CONNECTION}
    if visit.sent("button") == "preview":
        return await _connection_form(visit, given)
    try:
        await visit.api.send("POST", "/connections", {"name": given["name"], "spec": connection_of(given)})
    except ApiProblem as problem:
        return await _connection_form(visit, given, problem)
    note = f"The connection {given['name']} is made. Nothing was read yet: look at its first plan."
    undo = undo_address(action_of("create_connection"), given)
    return visit.go(f"/setup/connections/{quoted(given['name'])}", note, undo)


def connection_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the section of a connection that a form stands for."""
    spec: dict[str, Any] = {name: given[name] for name in ("source", "destination", "policy") if given.get(name)}
    spec |= {name: {"tables": texts} for name in ("include", "exclude") if (texts := _lines(given.get(name, "")))}
    if tags := _lines(given.get("tags", "").replace(",", "\n")):
        spec["tags"] = tags
    return spec | ({"schedule": {"sync": given["sync"]}} if given.get("sync") else {})


async def _connection_form(visit: Visit, given: Mapping[str, str], problem: ApiProblem | None = None) -> Response:
    here = query(
        "/setup/connection", **{**given, "include": _lines(given["include"]), "exclude": _lines(given["exclude"])}
    )
    policies = (await visit.api.get("/policies", limit=100))["items"]
    action = action_of("create_connection")
    base = str(visit.request.base_url).rstrip("/")
    return await _show(
        visit,
        "setup_connection.html",
        3,
        problem.status if problem else 200,
        values={**given, "policy": given["policy"] or "approve"},
        sources=(await visit.api.get("/sources", limit=100))["items"],
        destinations=(await visit.api.get("/destinations", limit=100))["items"],
        policies=policies,
        presets=PRESET_TEXTS,
        new_destination=query("/setup/destinations/~new", back=here),
        copies=copies(action, {"name": given["name"] or "shop_to_lake", "spec": connection_of(given)}, base),
        problem=problem,
        allowed=visit.may(action.role),
    )


@pages.page("/setup/connections/{connection}", "operator")
async def first_plan(visit: Visit) -> Response:
    """Show the first plan of a connection."""
    name = visit.path["connection"]
    connection = await visit.api.get(f"/connections/{quoted(name)}")
    return await _show(visit, "setup_plan.html", 4, connection=connection, **await _job(visit, "plan"))


@pages.form("/setup/connections/{connection}/plan", "operator")
async def plan(visit: Visit) -> Response:
    """Queue the plan."""
    path = f"/connections/{quoted(visit.path['connection'])}"
    made = (await visit.api.send("POST", f"{path}/plans", {})).document
    return visit.go(query(f"/setup{path}", plan=made["id"]))


async def _show(visit: Visit, template: str, step: int, status: int = 200, **values: Any) -> Response:
    return await visit.render(template, status, steps=STEPS, step=step, **values)
