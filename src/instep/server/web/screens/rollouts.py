"""Rollouts: one change, policy or selection over many connections, wave by wave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from instep.control.rollouts.gates import gates_of
from instep.control.rollouts.machine import status_word
from instep.control.rollouts.waves import group_of
from instep.operations.immediate.rollouts import SIZES
from instep.operations.values import MemberStatus, Verb
from instep.schema.policy.presets import PRESET_TEXTS
from instep.server.problems import ApiProblem
from instep.server.web.copies import copies
from instep.server.web.forms import action_of
from instep.server.web.rendering import query
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
SIGNS: Mapping[MemberStatus, str] = {
    "waiting": "…",
    "running": "▶",
    "done": "✓",
    "already": "=",
    "failed": "✗",
    "blocked": "!",
    "skipped": "»",
    "rolled_back": "↶",
}
"""The sign beside the word of each status."""
FITS = {
    "applies": "applies",
    "undecided": "needs a decision",
    "conflict": "conflict",
    "already": "already applied",
}
TABS = (
    ("All", ""),
    ("Running", "running"),
    ("Ready", "ready"),
    ("Halted", "halted"),
    ("Stopped", "stopped"),
    ("Done", "done"),
)
_WORDS: Mapping[Verb, str] = {"on": "select", "off": "deselect", "hash": "hash", "unhash": "unhash"}
_LISTS = ("connections", "tags", "matching", "destinations")


@pages.page("/rollouts")
async def rollouts(visit: Visit) -> Response:
    """Show all rollouts, newest first."""
    status = visit.query("status")
    page = await visit.api.get("/rollouts", status=status, cursor=visit.query("cursor"), limit=100)
    return await visit.render(
        "rollouts.html",
        items=[{**one, "parts": parts_of(one["what"])} for one in page["items"]],
        next_cursor=page["next_cursor"],
        only=status,
        tabs=[(text, query("/rollouts", status=name), name == status) for text, name in TABS],
    )


def parts_of(what: Mapping[str, Any]) -> list[str]:
    """Return the parts of a rollout, one text for each column of its matrix."""
    if change := what.get("change"):
        verb = "approve" if change["verdict"] == "approved" else "reject"
        return [f"{verb}: {change.get('summary') or change['kind'] + ' ' + change['object']}"]
    if policy := what.get("policy"):
        return [f"policy {policy['preset']}"]
    return [f"{_WORDS.get(verb, verb)} {path}" for verb, path in what.get("selection", ())]


@pages.page("/rollouts/new")
async def ask(visit: Visit) -> Response:
    """Show the form of a rollout, and how it fits each connection once the form is filled."""
    return await _show_form(visit, {name: visit.query_all(name) for name in _FIELDS})


@pages.form("/rollouts/new")
async def create(visit: Visit) -> Response:
    """Create the rollout that was previewed."""
    given = {name: visit.form.get(name, []) for name in _FIELDS}
    try:
        made = (await visit.api.send("POST", "/rollouts", request_of(given))).document["rollout"]
    except ApiProblem as problem:
        return await _show_form(visit, given, problem)
    note = f"The rollout of {made['text']} is made; nothing has changed yet. Advance it to begin wave 1."
    return visit.go(f"/rollouts/{made['id']}", note)


_FIELDS = ("what", "change", "verdict", "preset", "verb", "object", *_LISTS, "sizes", "gates", "canary")


def request_of(given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the request that a form stands for."""
    first = {name: (given.get(name) or [""])[0].strip() for name in _FIELDS}
    lists = {name: _lines(given.get(name, ())) for name in (*_LISTS, "sizes", "gates", "canary", "object")}
    made: dict[str, Any] = {"group": {name: lists[name] for name in _LISTS if lists[name]}}
    match first["what"]:
        case "preset":
            made["preset"] = first["preset"]
        case "selection":
            made["selection"] = [{"verb": first["verb"], "object": one} for one in lists["object"]]
        case _:
            made["change"] = {"change": first["change"], "verdict": first["verdict"] or "approved"}
    return {**made, **{name: lists[name] for name in ("sizes", "gates", "canary") if lists[name]}}


def _lines(values: Sequence[str]) -> list[str]:
    """Return the items between commas; a regular expression, which may contain some, is the last one."""
    names: list[str] = []
    for text in values:
        expression = _EXPRESSION.search(text)
        plain = text[: expression.start()] if expression else text
        names += [one.strip() for one in plain.split(",") if one.strip()]
        names += [expression[1].strip()] if expression else []
    return names


_EXPRESSION = re.compile(r"(?:^|,)\s*(re:.*)$")


async def _show_form(visit: Visit, given: Mapping[str, Sequence[str]], problem: ApiProblem | None = None) -> Response:
    values = {name: ", ".join(given.get(name, ())) for name in _FIELDS}
    values["sizes"] = values["sizes"] or ", ".join(SIZES)
    values["what"] = values["what"] or ("preset" if values["preset"] else "selection" if values["object"] else "change")
    drafted = None
    request = request_of(given) if any(given.values()) else {}
    if visit.query("preview") and problem is None:
        try:
            drafted = (await visit.api.send("POST", "/rollouts", request, parameters={"dry_run": True})).document
        except ApiProblem as found:
            problem = found
    lines, fit = (drafted or {}).get("connections", []), visit.query("fit")
    shown = sorted((line for line in lines if not fit or line["fit"] == fit), key=_urgency)
    begin = int(visit.query("from", "0")) if visit.query("from", "0").isdecimal() else 0
    filled = {name: list(given.get(name, ())) for name in _FIELDS}
    base = str(visit.request.base_url).rstrip("/")
    return await visit.render(
        "rollout_new.html",
        problem.status if problem else 200,
        problem=problem,
        values=values,
        given=filled,
        drafted=drafted,
        lines=shown[begin : begin + 100],
        later=query("/rollouts/new", **filled, preview="1", fit=fit, **{"from": begin + 100})
        if len(shown) > begin + 100
        else "",
        fits=[
            (FITS[name], query("/rollouts/new", **filled, preview="1", fit=name), fit == name, number)
            for name, number in ((drafted or {}).get("fits") or {}).items()
        ],
        every=query("/rollouts/new", **filled, preview="1"),
        fit=fit,
        words=FITS,
        presets=PRESET_TEXTS,
        verbs=_WORDS,
        copies=copies(action_of("create_rollout"), request, base) if drafted else {},
        allowed=visit.may("approver"),
    )


def _urgency(connection: Mapping[str, Any]) -> tuple[int, int, str]:
    return (
        ("conflict", "undecided", "applies", "already").index(connection["fit"]),
        connection["wave"],
        connection["connection"],
    )


@pages.page("/rollouts/{rollout}")
async def rollout(visit: Visit) -> Response:
    """Show one rollout: its waves, and the matrix of connections and what they get."""
    id, status = visit.path["rollout"], visit.query_all("status")
    answer = await visit.api.send("GET", f"/rollouts/{id}")
    members = await visit.api.get(f"/rollouts/{id}/connections", status=status, cursor=visit.query("cursor"), limit=100)
    made = answer.document
    return await visit.render(
        "rollout.html",
        rollout=made,
        etag=answer.etag,
        parts_of_it=parts_of(made["what"]),
        members=members["items"],
        next_cursor=members["next_cursor"],
        only=status,
        signs=SIGNS,
        status_word=status_word,
        group=group_of(made["group"]).text,
        limits=gates_of(made["gates"]).lines,
        words=FITS,
        counts=[
            (name, sign, number, query(f"/rollouts/{id}", status=name), [name] == status)
            for name, sign in SIGNS.items()
            if (number := made["counts"].get(name))
        ],
        moving=made["job"] is not None,
    )
