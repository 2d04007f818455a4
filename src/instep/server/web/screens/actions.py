"""One page for every operation: its form, what it would do, and what it has done."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from instep.server.problems import ApiProblem
from instep.server.web.copies import copies
from instep.server.web.forms import Action, action_of
from instep.server.web.undo import before_of, undo_address, undo_note
from instep.server.web.visit import PageRoutes, Visit, local

pages = PageRoutes()


@pages.page("/do/{operation}")
async def ask(visit: Visit) -> Response:
    """Show the form of an operation, filled with what the address says."""
    action = action_of(visit.path["operation"])
    open_fields = [field.name for field in action.fields if field.control != "secret"]
    given = {name: visit.query_all(name) for name in open_fields if visit.query_all(name)}
    return await _show(visit, action, action.read(given), visit.query("back", "/"))


@pages.form("/do/{operation}")
async def do(visit: Visit) -> Response:
    """Preview an operation or carry it out, as the pressed button says."""
    action = action_of(visit.path["operation"])
    if not visit.may(action.role):  # before a document is read that only others may send
        why = f"{action.title.lower()} needs the role {action.role}; {visit.caller.key.name} is {visit.caller.key.role}"
        raise ApiProblem(403, "forbidden", why, "ask an admin for the role, or go back")
    values, back = action.read(visit.form), local(visit.sent("back", "/"))
    rehearsed = visit.sent("button") == "preview"
    if rehearsed and action.previews:
        values, rehearsed = {**values, "preview": True}, False
    try:
        before = None
        if not rehearsed and not values.get("preview"):
            _check_typed(action.name_to_type(values), visit.sent("typed").strip())
            before = await before_of(visit, action, values)
        answer = await visit.api.send(
            action.method,
            action.address(values),
            action.body(values) if action.method != "DELETE" else None,
            parameters={"dry_run": True} if rehearsed else {},
            headers={"If-Match": visit.sent("etag")} if action.match and visit.sent("etag") else {},
        )
    except ApiProblem as problem:
        return await _show(visit, action, values, back, problem=problem, status=problem.status)
    if rehearsed or action.secret_field or action.name in _ANSWERING:
        return await _show(visit, action, values, back, result=answer.document, rehearsed=rehearsed)
    document = answer.document or {}
    if not action.immediate and document.get("id"):
        note = f"{action.title} of {document['connection']} is queued. {document.get('note', '')}".strip()
        return visit.go(f"/jobs/{document['id']}", note)
    if action.name in _QUEUEING:
        return visit.go(f"/jobs/{document['job']}", f"{action.title} of {values['name']} is queued.")
    return visit.go(back, done_text(action, values, document), undo_address(action, values, before, document))


def _check_typed(name: str, typed: str) -> None:
    if name and name != typed:
        raise ApiProblem(
            422, "invalid", f"nothing was done: {name} was not typed", f"type {name} below, then press again"
        )


_QUEUEING = frozenset({"test_source", "test_destination", "discover_source"})
"""Operations whose answer is a job that people wait for."""
_ANSWERING = frozenset({"test_channel", "import_configuration"})
"""Operations whose answer is what people have asked for."""


def done_text(action: Action, values: dict[str, Any], document: dict[str, Any]) -> str:
    """Return what has happened, in one sentence."""
    names = ("change", "connection", "rollout", "name", "key")
    target = next((values[name] for name in names if values.get(name)), "")
    return f"Done: {action.title.lower()} {target}".strip() + "."


async def _show(
    visit: Visit,
    action: Action,
    values: dict[str, Any],
    back: str,
    *,
    problem: ApiProblem | None = None,
    result: Any = None,
    rehearsed: bool = False,
    status: int = 200,
) -> Response:
    complete = all(values.get(name) for name in action.in_path)
    base = str(visit.request.base_url).rstrip("/")
    return await visit.render(
        "action.html",
        status,
        action=action,
        values=values,
        back=local(back),
        problem=problem,
        result=result,
        rehearsed=rehearsed,
        etag=visit.sent("etag") or visit.query("etag"),
        copies=copies(action, values, base) if complete else {},
        allowed=visit.may(action.role),
        undo_note=undo_note(action),
    )
