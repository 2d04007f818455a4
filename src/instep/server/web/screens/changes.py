"""The inbox of changes: what waits, found and grouped, and answers to many of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from starlette.responses import HTMLResponse, RedirectResponse, Response

from instep.schema.changes.version import BREAKING
from instep.schema.policy.similarity import PROPOSAL
from instep.server.problems import ApiProblem
from instep.server.web.copies import copies
from instep.server.web.forms import action_of
from instep.server.web.rendering import query, render
from instep.server.web.undo import assignees_of, filter_fields, undo_of_answers, undo_of_filter
from instep.server.web.visit import HEADERS, PageRoutes, Visit

pages = PageRoutes()
TABS = (
    ("Needs review", "review"),
    ("Blocked", "blocked"),
    ("Snoozed", "snoozed"),
    ("To be applied", "pending"),
    ("Applied", "applied"),
    ("Auto-applied", "auto_applied"),
    ("Rejected", "rejected"),
    ("Ignored", "ignored"),
    ("Obsolete", "obsolete"),
)
ANSWERABLE = ("review", "blocked", "snoozed", "pending", "rejected", "ignored")
"""Views of changes that a person may still answer."""
ANSWERS = {
    "approved": "Approve",
    "rejected": "Reject",
    "ignored": "Ignore",
    "snoozed": "Snooze",
    "assigned": "Assign",
}
_PATHS = {"snoozed": "/changes/snoozes", "assigned": "/changes/assignments"}
_FILTER = ("search", "connection", "kind", "tag", "assignee")
SHOWN = 50
"""Changes that a preview lists."""
MOST_COPIED = 2000
"""Changes that a copied command names one by one."""


@pages.page("/")
async def home(visit: Visit) -> Response:
    """Redirect to the inbox."""
    return RedirectResponse("/changes", 303)


@pages.page("/changes")
async def inbox(visit: Visit) -> Response:
    """Show the changes of one view, by connection and detection."""
    view = visit.query("tab", "review")
    view = view if view in dict(map(reversed, TABS)) else "review"  # type: ignore[arg-type]
    chosen = {name: visit.query(name) for name in _FILTER}
    items, next_cursor, refusal = [], None, None
    counts: dict[str, Any] = {"views": {}, "kinds": {}, "total": 0}
    try:
        page = await visit.api.get("/changes", **chosen, view=view, cursor=visit.query("cursor"), limit=100)
        counts = await visit.api.get("/change-counts", **chosen, view=view)
        items, next_cursor = page["items"], page["next_cursor"]
    except ApiProblem as problem:  # an unknown connection, or a pattern that is not finished yet
        if problem.status not in (404, 422):
            raise
        refusal = problem
    filters = (await visit.api.get("/filters"))["items"]
    here = {"tab": view, **chosen}
    return await visit.render(
        "changes.html",
        refusal=refusal,
        tab=view,
        chosen=chosen,
        here_filter=here,
        filtered=any(chosen.values()),
        tabs=[(label, name, counts["views"].get(name, 0)) for label, name in TABS],
        counts=counts,
        kinds=sorted({*counts["kinds"], *filter(None, [chosen["kind"]])}),
        filters=[(one["name"], _address(one["filter"])) for one in filters],
        groups=_groups(items),
        next_cursor=next_cursor,
        answers=ANSWERS if view in ANSWERABLE else {},
        item_count=len(items),
    )


@pages.page("/changes/waiting")
async def waiting(visit: Visit) -> Response:
    """Return what every page asks for again: the number of changes that need a review, for its navigation, and whether
    jobs wait that no worker is there to run."""
    queue = await visit.api.get("/queue", limit=1)
    text = render(
        "waiting.html",
        request=visit.request,
        visit=visit,
        number=(await visit.api.get("/change-counts", view="review"))["views"].get("review", 0),
        jobs=0 if queue["workers"] else queue["counts"].get("queued", 0),
    )
    return HTMLResponse(text, headers=HEADERS)  # the notice of the last form is for the page that comes next


def _address(saved: dict[str, Any]) -> str:
    return query("/changes", **filter_fields(saved))


def _groups(items: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return the changes of each detection of a connection, by table."""
    parts = groupby(items, lambda one: (one["connection"], one["first_seen"]))
    return [(*of, sorted(rows, key=lambda one: (one["table"], one["column"], one["id"]))) for of, rows in parts]


@pages.form("/changes/filters")
async def save_filter(visit: Visit) -> Response:
    """Save the filter in use under a name, or delete the one of this name."""
    name = visit.sent("name").strip()
    chosen = {one: visit.sent(one) for one in _FILTER if visit.sent(one)}
    path = f"/filters/{query_name(name)}"
    before = next((one["filter"] for one in (await visit.api.get("/filters"))["items"] if one["name"] == name), None)
    if visit.sent("button") == "delete" or visit.sent("gone") == "true":
        await visit.api.send("DELETE", path)
        return visit.go(visit.sent("back", "/changes"), f"The filter {name} is deleted.", undo_of_filter(name, before))
    body = {**chosen, **({"kind": [chosen["kind"]]} if "kind" in chosen else {}), "view": visit.sent("tab") or None}
    await visit.api.send("PUT", path, body)
    replaced = f"The filter {name} is replaced." if before else f"The filter is saved as {name}."
    return visit.go(visit.sent("back", "/changes"), replaced, undo_of_filter(name, before))


def query_name(name: str) -> str:
    """Return a name as a part of a path. Raises ApiProblem for one that is empty or has a slash."""
    from urllib.parse import quote

    if not name or "/" in name or "\\" in name:
        raise ApiProblem(422, "invalid", "a filter needs a name without slashes", "go back and give one")
    return quote(name, safe="")


@pages.form("/changes/answers")
async def answer(visit: Visit) -> Response:
    """Show what an answer to many changes does, or give it, as the pressed button says."""
    given, back = visit.sent("answer"), visit.sent("back", "/changes")
    if given not in ANSWERS:
        raise ApiProblem(422, "invalid", f"there is no answer {given!r}", "go back and press one of the buttons")
    ids = [one for text in visit.form.get("ids", []) for one in text.split()]
    every = visit.sent("scope") == "all"
    if not ids and not every:
        return visit.go(back, "No change is selected: tick some, or choose all that match.")
    duration = visit.sent("duration", "1d").strip()
    body: dict[str, Any] = _all_that_match(visit) if every else {"ids": ids}
    confirmed = visit.sent("button") == "do"
    to, path = visit.sent("to").strip(), _PATHS.get(given, "/changes/answers")
    body |= {"snoozed": {"duration": duration}, "assigned": {"assignee": to}}.get(given, {"answer": given})
    if confirmed:
        before = await assignees_of(visit, ids) if given == "assigned" and not every else []
        done = (await visit.api.send("POST", path, body)).document
        undo = undo_of_answers(given, [one["id"] for one in done["items"] if one["ok"]], before)
        return visit.go(back, _done_text(given, done, to), undo)
    items = (await visit.api.send("POST", path, body, parameters={"dry_run": True})).document["items"]
    able = [item["change"] for item in items if item["ok"]]
    renames = [one for one in able if given == "approved" and one["rule"] == PROPOSAL]
    fine = [one for one in able if one not in renames]
    fine_ids = [one["id"] for one in fine]
    before = await assignees_of(visit, fine_ids) if given == "assigned" else []
    return await visit.render(
        "answers.html",
        answer=given,
        word=ANSWERS[given],
        duration=duration,
        to=to,
        back=back,
        every=every,
        fine=fine,
        renames=renames,
        undoable=bool(undo_of_answers(given, fine_ids, before)),
        refused=[one for one in items if not one["ok"]],
        copies=_copies(visit, given, body, fine_ids),
        kinds=Counter(one["kind"] for one in fine).most_common(),
        connections=Counter(one["connection"] for one in fine).most_common(),
        breaking=sum(one["kind"] in BREAKING for one in fine),
        shown=SHOWN,
        breaking_kinds=BREAKING,
    )


def _copies(visit: Visit, given: str, body: Mapping[str, Any], ids: Sequence[str]) -> dict[str, str]:
    """Return the answer as text for other faces: to these changes by id, or where they are too many by the filter,
    which a command does not have in all of its parts."""
    name = {"snoozed": "snooze_changes", "assigned": "assign_changes"}.get(given, "answer_changes")
    by_id = len(ids) <= MOST_COPIED
    filters = {"ids", "view", "search", "tag", "connection", "assigned_to", "kinds"}
    own = {field: value for field, value in body.items() if field not in filters}
    base = str(visit.request.base_url).rstrip("/")
    texts = copies(action_of(name), {**own, "ids": list(ids)} if by_id else body, base)
    return texts if by_id else {face: text for face, text in texts.items() if face != "CLI"}


def _all_that_match(visit: Visit) -> dict[str, Any]:
    """Return the filter of the inbox as the API takes it."""
    body: dict[str, Any] = {"view": visit.sent("tab", "review")}
    names = {"search": "search", "tag": "tag", "connection": "connection", "assignee": "assigned_to"}
    body |= {field: visit.sent(name) for name, field in names.items() if visit.sent(name)}
    return {**body, "kinds": [visit.sent("kind")]} if visit.sent("kind") else body


def _done_text(given: str, done: dict[str, Any], to: str) -> str:
    what = "1 change is" if done["answered"] == 1 else f"{done['answered']:,} changes are"
    then = ": the next plan, apply or sync carries that out" if given == "approved" else ""
    refused = f" {done['refused']:,} could not be answered." if done["refused"] else ""
    whom = f" to {to or 'nobody'}" if given == "assigned" else ""
    return f"{what} {given}{whom}{then}.{refused}"
