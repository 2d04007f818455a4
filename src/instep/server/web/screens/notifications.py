"""Notifications: channels, the routes to them, digests and quiet hours, tests, and what became of each delivery."""

from __future__ import annotations

from typing import Any

from starlette.responses import RedirectResponse, Response

from instep.server.problems import ApiProblem
from instep.server.web.copies import copies, yaml_of
from instep.server.web.forms import action_of
from instep.server.web.rendering import query, quoted
from instep.server.web.section_forms import form_of, types_of
from instep.server.web.undo import undo_address
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
_TABS = (
    ("Channels", "/notifications/channels"),
    ("Routes", "/notifications/routes"),
    ("Deliveries", "/notifications/deliveries"),
)
_STATUSES = (("All", ""), ("Waiting", "waiting"), ("Sent", "sent"), ("Dead", "dead"))


@pages.page("/notifications")
async def notifications(visit: Visit) -> Response:
    """Redirect to the channels."""
    return RedirectResponse("/notifications/channels", 303)


@pages.page("/notifications/channels")
async def channels(visit: Visit) -> Response:
    """Show all channels with what waits for them."""
    page = await visit.api.get("/channels", cursor=visit.query("cursor"), limit=50)
    items = [{**one, "state": await visit.api.get(f"/channels/{quoted(one['name'])}/state")} for one in page["items"]]
    return await _show(
        visit, "notifications_channels.html", items=items, next_cursor=page["next_cursor"], types=types_of("channel")
    )


@pages.page("/notifications/channels/~new")
async def ask(visit: Visit) -> Response:
    """Show the form of a channel of one type."""
    return await _form(visit, visit.query("type", "email"), {})


@pages.form("/notifications/channels/~new")
async def create(visit: Visit) -> Response:
    """Create a channel."""
    type, name = visit.sent("type"), visit.sent("name").strip()
    spec = form_of("channel", type).spec(visit.form)
    return await _written(visit, type, spec, "POST", "/channels", {"name": name, "spec": spec})


@pages.page("/notifications/channels/{name}")
async def channel(visit: Visit) -> Response:
    """Show one channel: its settings, the message that a test sends, and its last deliveries."""
    name = visit.path["name"]
    document = await visit.api.get(f"/channels/{quoted(name)}")
    shown = None
    if visit.query("test") and visit.may("operator"):
        shown = (await visit.api.send("POST", f"/channels/{quoted(name)}/test", parameters={"dry_run": True})).document
    return await _show(
        visit,
        "notifications_channel.html",
        channel=document,
        state=await visit.api.get(f"/channels/{quoted(name)}/state"),
        shown=shown,
        deliveries=await _deliveries(visit, name),
        yaml=yaml_of("channel", name, document["spec"]),
    )


async def _deliveries(visit: Visit, channel: str) -> list[dict[str, Any]]:
    """Return the last deliveries to a channel; none for a key that is for some groups, which may not read them."""
    if visit.caller.key.groups:
        return []
    latest: list[dict[str, Any]] = (await visit.api.get("/deliveries", channel=channel, limit=10))["items"]
    return latest


@pages.page("/notifications/channels/{name}/edit")
async def edit(visit: Visit) -> Response:
    """Show the form of a channel that the server keeps."""
    answer = await visit.api.send("GET", f"/channels/{quoted(visit.path['name'])}")
    spec = answer.document["spec"]
    values = form_of("channel", spec["type"]).values(spec)
    return await _form(visit, spec["type"], values, name=visit.path["name"], etag=answer.etag)


@pages.form("/notifications/channels/{name}/edit")
async def write(visit: Visit) -> Response:
    """Write a channel; secrets that are left empty stay."""
    name = visit.path["name"]
    before = (await visit.api.get(f"/channels/{quoted(name)}"))["spec"]
    spec = form_of("channel", before["type"]).spec(visit.form, before)
    body = {"spec": spec}
    return await _written(visit, before["type"], spec, "PUT", f"/channels/{quoted(name)}", body, before=before)


async def _written(
    visit: Visit,
    type: str,
    spec: dict[str, Any],
    method: str,
    path: str,
    body: dict[str, Any],
    *,
    before: dict[str, Any] | None = None,
) -> Response:
    name = body.get("name") or visit.path.get("name", "")
    matched = {"If-Match": visit.sent("etag")} if visit.sent("etag") else {}
    try:
        await visit.api.send(method, path, body, headers=matched)
    except ApiProblem as problem:
        values = form_of("channel", type).values(spec)
        new = method == "POST"
        return await _form(visit, type, values, name=name, etag=visit.sent("etag"), problem=problem, new=new)
    action = action_of("put_channel" if before else "create_channel")
    undo = undo_address(action, {"name": name, "spec": spec}, before)
    return visit.go(f"/notifications/channels/{quoted(name)}", f"The channel {name} is saved. Send a test next.", undo)


async def _form(
    visit: Visit,
    type: str,
    values: dict[str, Any],
    *,
    name: str = "",
    etag: str = "",
    problem: ApiProblem | None = None,
    new: bool = False,
) -> Response:
    made, exists = form_of("channel", type), bool(name) and not new
    action = action_of("put_channel" if exists else "create_channel")
    base = str(visit.request.base_url).rstrip("/")
    shown = {"name": name or "ops", "spec": made.spec({}) | values}
    return await _show(
        visit,
        "notifications_form.html",
        problem.status if problem else 200,
        form=made,
        values=values,
        name=name,
        etag=etag,
        exists=exists,
        problem=problem,
        types=[(one, query("/notifications/channels/~new", type=one), one == type) for one in types_of("channel")],
        copies=copies(action, shown, base),
        allowed=visit.may(action.role),
    )


@pages.page("/notifications/routes")
async def routes(visit: Visit) -> Response:
    """Show which notifications each channel gets."""
    page = await visit.api.get("/notification-routes", cursor=visit.query("cursor"), limit=100)
    return await _show(visit, "notifications_routes.html", items=page["items"], next_cursor=page["next_cursor"])


@pages.page("/notifications/deliveries")
async def deliveries(visit: Visit) -> Response:
    """Show what was sent, newest first."""
    channel, status = visit.query("channel"), visit.query("status")
    page = await visit.api.get("/deliveries", channel=channel, status=status, cursor=visit.query("cursor"), limit=100)
    return await _show(
        visit,
        "notifications_deliveries.html",
        items=page["items"],
        next_cursor=page["next_cursor"],
        channel=channel,
        only=status,
        statuses=[
            (text, query("/notifications/deliveries", channel=channel, status=name), name == status)
            for text, name in _STATUSES
        ],
    )


@pages.page("/notifications/deliveries/{delivery}")
async def delivery(visit: Visit) -> Response:
    """Show one delivery with its attempts."""
    answer = await visit.api.send("GET", f"/deliveries/{quoted(visit.path['delivery'])}")
    return await _show(visit, "notifications_delivery.html", delivery=answer.document, etag=answer.etag)


async def _show(visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
    here = visit.request.url.path
    tabs = [(text, address, here.startswith(address)) for text, address in _TABS]
    return await visit.render(template, status, tabs=tabs, **values)
