"""Versions of a connection's schemas: any two compared, exported, and one object through all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from starlette.responses import Response

from instep.schema.catalog.catalog import catalog_from_dict
from instep.schema.planning.explain import to_markdown, to_sql
from instep.server.problems import ApiProblem
from instep.server.web.rendering import quoted
from instep.server.web.screens.connections import tabs_of
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
SIDES = ("accepted", "source", "destination")
FORMS = {
    "json": ("application/json", "json"),
    "sql": ("text/plain; charset=utf-8", "sql"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
}
CHANGES = 100


@pages.page("/connections/{connection}/schema/history")
async def history(visit: Visit) -> Response:
    """Show the versions of one side, and the difference of the two that are chosen."""
    name, side = visit.path["connection"], visit.query("side", "accepted")
    base, side = f"/connections/{quoted(name)}", side if side in SIDES else "accepted"
    page = await visit.api.get(f"{base}/history", side=side, cursor=visit.query("cursor"), limit=100)
    versions = page["items"]
    newest = versions[0]["version"] if versions else 0
    after = _number(visit.query("after"), newest)
    before = _number(visit.query("before"), max(after - 1, 0))
    compared = None
    if newest:
        compared = await visit.api.get(
            f"{base}/version-comparison",
            side=side,
            before=before,
            after=after,
            cursor=visit.query("more"),
            limit=CHANGES,
        )
    return await visit.render(
        "schema_history.html",
        name=name,
        tabs=tabs_of(visit, name, "/schema/history"),
        address=f"{base}/schema/history",
        side=side,
        sides=SIDES,
        versions=versions,
        next_cursor=page["next_cursor"],
        before=before,
        after=after,
        compared=compared,
        groups=_by_table(compared["items"]) if compared else [],
        undo=await _later_plans(visit, base, before) if side == "accepted" and 0 < before < newest else [],
    )


def _number(text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ApiProblem(422, "invalid", f"{text[:50]!r} is no version", "choose two versions of the list")
    return int(text)


def _by_table(changes: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    return [(table, list(rows)) for table, rows in groupby(changes, lambda change: change["table"])]


async def _later_plans(visit: Visit, base: str, version: int) -> list[Mapping[str, Any]]:
    """Return the plans that led on from a version, newest first: undone in this order they lead back to it."""
    page = await visit.api.get(f"{base}/plans", limit=100)
    return [one for one in page["items"] if one["version"] > version and one["changes"]]


@pages.page("/connections/{connection}/schema/export")
async def export(visit: Visit) -> Response:
    """Return one version as JSON, SQL or Markdown."""
    name, side, form = visit.path["connection"], visit.query("side", "accepted"), visit.query("format", "json")
    if form not in FORMS:
        raise ApiProblem(422, "invalid", f"there is no format {form[:50]!r}", f"one of {', '.join(FORMS)}")
    number = _number(visit.query("version"), 0)
    version = await visit.api.get(f"/connections/{quoted(name)}/history/{number}", side=side)
    media, suffix = FORMS[form]
    catalog = catalog_from_dict(version["catalog"])
    title = f"{name}: {side} schema, version {number}, since {version['at']}"
    texts = {
        "json": lambda: json.dumps(version, indent=2, ensure_ascii=False),
        "sql": lambda: f"-- {title}\n{to_sql(catalog)}\n",
        "markdown": lambda: f"# {title}\n\n{to_markdown(catalog)}",
    }
    headers = {"Content-Disposition": f'attachment; filename="schema-{side}-{number}.{suffix}"'}
    return Response(texts[form](), media_type=media, headers=headers)


@pages.page("/connections/{connection}/schema/object")
async def object_history(visit: Visit) -> Response:
    """Show a table or column through all versions: since when, by whom, and why."""
    name, of = visit.path["connection"], visit.query("of").strip()
    if not of:
        raise ApiProblem(422, "invalid", "no table or column is named", "choose one in the schema")
    trail = await visit.api.get(f"/connections/{quoted(name)}/trail", of=of)
    return await visit.render(
        "schema_object.html",
        name=name,
        tabs=tabs_of(visit, name, "/schema/history"),
        of=of,
        found=trail,
        entries=trail["entries"][-100:],
        columns=trail["columns"][:100],
    )
