"""Policies: rules in their order, what another policy would have decided, explanations, test cases."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from instep.control.resources.resources import TO_WRITE
from instep.schema.policy.presets import ACTIONS, KINDS, PRESET_TEXTS, PRESETS, choice
from instep.server.problems import ApiProblem
from instep.server.web.copies import copies, yaml_of
from instep.server.web.forms import action_of
from instep.server.web.policy_drafts import MODIFIERS, PolicyDraft, difference, digest_of, dumped, rest_of
from instep.server.web.rendering import query, quoted
from instep.server.web.undo import undo_address
from instep.server.web.visit import PageRoutes, Visit
from instep.server.web.yaml_fields import read_yaml

pages = PageRoutes()
MOST_NAMES = 100
"""The connections of a policy that are named."""
SIMULATED = 10
"""The connections whose recorded changes one preview decides again."""


@pages.page("/policies")
async def policies(visit: Visit) -> Response:
    """Show all policies, and what each preset decides."""
    page = await visit.api.get("/policies", search=visit.query("search"), cursor=visit.query("cursor"), limit=100)
    return await visit.render(
        "policies.html",
        items=page["items"],
        next_cursor=page["next_cursor"],
        search=visit.query("search"),
        presets=PRESET_TEXTS,
        kinds=[(kind, [choice(kind, preset).action for preset in PRESETS]) for kind in KINDS],
    )


@pages.page("/policies/~new")
async def ask(visit: Visit) -> Response:
    """Show the form of a new policy."""
    draft = PolicyDraft(visit.query("preset", "approve"))
    return await _form(visit, "", {}, draft, as_yaml=visit.query("as") == "yaml")


@pages.form("/policies/~new")
async def create(visit: Visit) -> Response:
    """Change the draft of a new policy, preview it, or save it."""
    return await _pressed(visit, visit.sent("name").strip(), {})


@pages.page("/policies/{name}")
async def policy(visit: Visit) -> Response:
    """Show one policy: its rules, YAML, an explanation, test cases or versions."""
    name, tab = visit.path["name"], visit.query("tab", "rules")
    document = (await visit.api.send("GET", f"/policies/{quoted(name)}")).document
    values: dict[str, Any] = {}
    connections = await _connections(visit, name)
    if tab == "explain":
        values = await _explained(visit, connections)
    elif tab == "versions" and visit.may("admin") and not visit.caller.key.groups:
        values["entries"] = (await visit.api.get("/audit", target=name, limit=50))["items"]
    return await _show(visit, name, document, tab, connections, **values)


@pages.form("/policies/{name}")
async def test(visit: Visit) -> Response:
    """Decide sample changes by the policy, and compare with what is expected of each."""
    name = visit.path["name"]
    document = (await visit.api.send("GET", f"/policies/{quoted(name)}")).document
    connections, results, problem = await _connections(visit, name), None, None
    try:
        cases = read_yaml(visit.sent("cases"), "the cases are not YAML")
        path = f"/connections/{quoted(visit.sent('connection'))}/policy/test"
        results = (await visit.api.send("POST", path, {"cases": cases})).document["results"]
    except ApiProblem as error:
        problem = error
    return await _show(visit, name, document, "cases", connections, results=results, problem=problem)


async def _connections(visit: Visit, policy: str) -> list[str]:
    """Return the first connections that have this policy."""
    page = await visit.api.get("/connections", policy=policy, limit=MOST_NAMES) if policy else {"items": ()}
    return [one["name"] for one in page["items"]]


async def _explained(visit: Visit, connections: list[str]) -> dict[str, Any]:
    question = {name: visit.query(name) for name in ("path", "kind", "before", "after")}
    connection = visit.query("connection") or (connections[0] if connections else "")
    if not (connection and question["path"] and question["kind"]):
        return {}
    try:
        path = f"/connections/{quoted(connection)}/policy/explain"
        return {"explained": (await visit.api.send("GET", path, parameters=question)).document}
    except ApiProblem as problem:
        return {"problem": problem}


async def _show(
    visit: Visit, name: str, document: dict[str, Any], tab: str, connections: list[str], **values: Any
) -> Response:
    tabs = [
        ("Rules", "rules"),
        ("YAML", "yaml"),
        ("Explain a decision", "explain"),
        ("Test cases", "cases"),
        ("Versions", "versions"),
    ]
    problem = values.get("problem")
    return await visit.render(
        "policy.html",
        problem.status if problem else 200,
        policy=document,
        tab=tab,
        tabs=[(text, query(f"/policies/{quoted(name)}", tab=one), one == tab) for text, one in tabs],
        connections=connections,
        asked={one: visit.query(one) for one in ("connection", "path", "kind", "before", "after")},
        cases=visit.sent("cases") or _CASES,
        chosen=visit.sent("connection"),
        kinds=KINDS,
        presets=PRESET_TEXTS,
        yaml=yaml_of("policy", name, document["spec"]),
        **{"explained": None, "results": None, "entries": None, **values},
    )


_CASES = """\
- {change: column.removed, table: public.order, column: note, expect: review}
- {change: column.added, table: public.order, column: colour, expect: apply}
"""


@pages.page("/policies/{name}/edit")
async def edit(visit: Visit) -> Response:
    """Show the form of a policy that the server keeps."""
    name = visit.path["name"]
    answer = await visit.api.send("GET", f"/policies/{quoted(name)}")
    spec = answer.document["spec"]
    return await _form(visit, name, spec, PolicyDraft.of(spec), etag=answer.etag, as_yaml=visit.query("as") == "yaml")


@pages.form("/policies/{name}/edit")
async def change(visit: Visit) -> Response:
    """Change the draft of a policy, preview it, or save it."""
    name = visit.path["name"]
    return await _pressed(visit, name, (await visit.api.get(f"/policies/{quoted(name)}"))["spec"])


async def _pressed(visit: Visit, name: str, before: dict[str, Any]) -> Response:
    """Run the pressed button. Nothing is saved that was not previewed as it is."""
    button, as_yaml = visit.sent("button"), "yaml" in visit.form
    etag, draft = visit.sent("etag"), PolicyDraft.of(before)
    try:
        draft = PolicyDraft.parse(visit.sent("yaml")) if as_yaml else PolicyDraft.read(visit.form, before)
        if button not in ("preview", "save"):
            return await _form(visit, name, before, draft.changed(button), etag=etag, as_yaml=as_yaml)
        if button == "save" and visit.sent("previewed") == digest_of(draft.spec()):
            return await _save(visit, name, draft, etag, before)
        return await _form(
            visit, name, before, draft, etag=etag, as_yaml=as_yaml, preview=await _preview(visit, name, before, draft)
        )
    except ApiProblem as problem:
        return await _form(visit, name, before, draft, etag=etag, as_yaml=as_yaml, problem=problem)


async def _save(visit: Visit, name: str, draft: PolicyDraft, etag: str, before: dict[str, Any]) -> Response:
    values = {"name": name, "spec": draft.spec()}
    if not before:
        await visit.api.send("POST", "/policies", values)
    else:
        headers = {"If-Match": etag} if etag else {}
        await visit.api.send("PUT", f"/policies/{quoted(name)}", {"spec": draft.spec()}, headers=headers)
    action = action_of("put_policy" if before else "create_policy")
    note = f"The policy {name} is saved. The next detections decide by it."
    return visit.go(f"/policies/{quoted(name)}", note, undo_address(action, values, before))


async def _preview(visit: Visit, name: str, before: dict[str, Any], draft: PolicyDraft) -> dict[str, Any]:
    """Return the recorded decisions that the draft would change. Nothing is written."""
    method, path = ("PUT", f"/policies/{quoted(name)}") if before else ("POST", "/policies")
    body = {"spec": draft.spec()} | ({} if before else {"name": name})
    refused = await _refusal(visit, method, path, body) if visit.may("approver") else None
    only = visit.sent("connection").strip()
    connections = [only] if only else await _connections(visit, name)
    then: dict[str, list[int]] = {}
    recorded, different = 0, []
    for connection in connections[:SIMULATED]:
        request = {"name": name or "draft", "policy": draft.spec()}
        answer = await visit.api.send("POST", f"/connections/{quoted(connection)}/policy/simulation", request)
        recorded += answer.document["recorded"]
        different += [{**decision, "connection": connection} for decision in answer.document["different"]]
        for count in answer.document["counts"]:
            numbers = then.setdefault(count["outcome"], [0, 0])
            numbers[0] += count["then"]
            numbers[1] += count["now"]
    return {
        "counts": then,
        "recorded": recorded,
        "different": different[:100],
        "number": len(different),
        "connections": connections[:SIMULATED],
        "others": len(connections) - SIMULATED,
        "lines": difference(before, draft.spec()),
        "digest": digest_of(draft.spec()),
        "refused": refused,
    }


async def _refusal(visit: Visit, method: str, path: str, body: dict[str, Any]) -> ApiProblem | None:
    """Return why a policy is not saved here but written into instep.yml: what it decides can be seen before. Raises
    ApiProblem for what is wrong with it."""
    try:
        await visit.api.send(method, path, body, parameters={"dry_run": True})
    except ApiProblem as problem:
        if problem.code in ("blocked", "conflict") and problem.hint.startswith(TO_WRITE):
            return problem
        raise
    return None


async def _form(
    visit: Visit,
    name: str,
    before: dict[str, Any],
    draft: PolicyDraft,
    *,
    etag: str = "",
    as_yaml: bool = False,
    preview: dict[str, Any] | None = None,
    problem: ApiProblem | None = None,
) -> Response:
    base = str(visit.request.base_url).rstrip("/")
    action = action_of("put_policy" if before else "create_policy")
    text = visit.sent("yaml") if as_yaml and visit.sent("yaml") else dumped(draft.spec())
    return await visit.render(
        "policy_edit.html",
        problem.status if problem else 200,
        name=name,
        new=not before,
        draft=draft,
        rules=[{**{one: _text(rule.get(one)) for one in _SHOWN}, "rest": rest_of(rule)} for rule in draft.rules],
        as_yaml=as_yaml,
        text=text,
        etag=etag,
        preview=preview,
        problem=problem,
        presets=PRESET_TEXTS,
        actions=ACTIONS,
        modifiers=MODIFIERS,
        kinds=KINDS,
        connection=visit.sent("connection"),
        copies=copies(action, {"name": name or "careful", "spec": draft.spec()}, base),
        allowed=visit.may(action.role),
    )


_SHOWN = ("on", "match", "tags", "decide", *MODIFIERS)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
