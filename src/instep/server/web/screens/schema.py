"""The schema of a connection as a tree with switches, and what a pattern matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from starlette.responses import Response

from instep.server.problems import ApiProblem
from instep.server.web.copies import copies
from instep.server.web.forms import action_of
from instep.server.web.rendering import count, query, quoted
from instep.server.web.screens.connections import tabs_of
from instep.server.web.undo import undo_of_switches
from instep.server.web.visit import PageRoutes, Visit, local

pages = PageRoutes()
TABLES, COLUMNS = 50, 100
STATES = {
    "all": "All",
    "enabled": "Enabled",
    "disabled": "Disabled",
    "new": "New",
    "excluded": "Excluded",
    "unsupported": "Unsupported",
    "switched": "Switched",
}
ABOUT = {
    "new": "Found at the source; neither accepted nor rejected yet. Columns that are new count too.",
    "excluded": "Kept out by the project file: by a pattern, by name, or views that are not included by name.",
    "unsupported": "Listed by the source, and impossible to read or to name at the destination.",
    "switched": "A person has switched the table or a column of it.",
}
"""Explanations of the states that need one."""

NO_COLUMNS: Mapping[str, Any] = {"items": [], "next_cursor": None}
NO_TABLES: Mapping[str, Any] = {**NO_COLUMNS, "tables": 0, "matching": 0, "schemas": [], "seen": None, "states": {}}


@pages.page("/connections/{connection}/schema")
async def tree(visit: Visit) -> Response:
    """Show schemas and tables of a page, and the columns of the table that is open."""
    return await _show(visit)


async def _show(visit: Visit, problem: ApiProblem | None = None) -> Response:
    name, opened = visit.path["connection"], visit.query("open")
    base = f"/connections/{quoted(name)}"
    search, state = visit.query("search").strip(), visit.query("state", "all")
    filters = {"search": search, "state": state if state in STATES else "all"}
    page, columns = NO_TABLES, NO_COLUMNS
    matches = None
    try:
        tables = f"{base}/selection/tables"
        page = await visit.api.get(tables, **filters, cursor=visit.query("cursor"), limit=TABLES)
        if opened:
            cursor = visit.query("columns")
            columns = await visit.api.get(f"{base}/selection/columns", table=opened, cursor=cursor, limit=COLUMNS)
        if pattern := visit.query("pattern").strip():
            matches = await visit.api.get(f"{base}/selection/matches", pattern=pattern)
    except ApiProblem as error:
        if error.status not in (400, 404, 422) or not (search or opened or visit.query("pattern")):
            raise
        problem = error
    about = {one["name"]: one for one in page["schemas"]}
    address = f"{base}/schema"
    return await visit.render(
        "schema.html",
        problem.status if problem else 200,
        problem=problem,
        name=name,
        tabs=tabs_of(visit, name, "/schema"),
        filters=filters,
        address=address,
        states=states_of(address, filters, page["states"]),
        about=ABOUT.get(filters["state"], ""),
        page=page,
        groups=[(about[schema], list(rows)) for schema, rows in groupby(page["items"], lambda one: one["schema"])],
        opened=opened,
        columns=columns,
        pattern=visit.query("pattern").strip(),
        matches=matches,
        may_switch=visit.may(action_of("switch_selection").role),
    )


def states_of(address: str, filters: Mapping[str, str], counts: Mapping[str, int]) -> list[tuple[str, str, bool]]:
    """Return the tabs of the states, with the number of tables that the search fits in each."""
    return [
        (
            f"{text} ({count(counts[state])})" if state in counts else text,
            query(address, search=filters["search"], state="" if state == "all" else state),
            state == filters["state"],
        )
        for state, text in STATES.items()
    ]


@pages.form("/connections/{connection}/schema", "approver")
async def switch(visit: Visit) -> Response:
    """Preview what the switches of a page would do, or turn them."""
    name, back = visit.path["connection"], local(visit.sent("back", "/connections"))
    on, off = switched_objects(visit.form)
    if not (on or off):
        return visit.go(back, "No switch is set otherwise than it was.")
    rehearsed = visit.sent("button") != "do"
    done = []
    try:
        for verb, objects in (("on", on), ("off", off)):
            if objects:
                done.append(await _send(visit, verb, objects, rehearsed))
    except ApiProblem as problem:
        return await _preview(visit, name, back, on, off, [], problem)
    if rehearsed:
        return await _preview(visit, name, back, on, off, done, None)
    undo = undo_of_switches(name, done, back)
    changed = sum(one["changed"] for answer in done for one in answer["objects"])
    return visit.go(back, f"Done: {changed} switches of {name} turned. The next sync follows them.", undo)


def switched_objects(form: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return the objects to switch on and off: those set otherwise than when the page was made."""
    if "turn_on" in form or "turn_off" in form:
        return list(form.get("turn_on", ())), list(form.get("turn_off", ()))
    was, now = set(form.get("was", ())), set(form.get("on", ()))
    return sorted(now - was), sorted(was - now)


async def _send(visit: Visit, verb: str, objects: Sequence[str], rehearsed: bool) -> Any:
    answer = await visit.api.send(
        "POST",
        f"/connections/{quoted(visit.path['connection'])}/selection",
        {"verb": verb, "objects": list(objects)},
        parameters={"dry_run": rehearsed},
    )
    return answer.document


async def _preview(
    visit: Visit,
    name: str,
    back: str,
    on: Sequence[str],
    off: Sequence[str],
    done: Sequence[Mapping[str, Any]],
    problem: ApiProblem | None,
) -> Response:
    action, server = action_of("switch_selection"), str(visit.request.base_url).rstrip("/")
    verb, objects = ("on", on) if on else ("off", off)
    return await visit.render(
        "schema_switch.html",
        problem.status if problem else 200,
        problem=problem,
        name=name,
        tabs=tabs_of(visit, name, "/schema"),
        back=back,
        on=on,
        off=off,
        done=done,
        undoable=bool(undo_of_switches(name, done, back)),
        copies=copies(action, {"connection": name, "verb": verb, "objects": list(objects)}, server),
    )
