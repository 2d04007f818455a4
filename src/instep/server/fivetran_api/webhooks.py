"""Webhooks: created, listed, changed, tested, deleted. What is delivered to them is the part of `notify.hooks`."""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.control.compat import CompatDocuments, Identity
from instep.egress.guard import EgressGuard
from instep.egress.http import check_url as refuse_unsendable
from instep.egress.http import place
from instep.errors import ConnectError
from instep.notify.channel import NotDelivered
from instep.notify.hooks import EVENTS, OURS, PREFIX, HookChannel, HookConfig, trial
from instep.server.fivetran_api.connection import instant
from instep.server.fivetran_api.http.envelope import Refusal, not_found, page, success, window
from instep.server.fivetran_api.http.models import TriedOut, WebhookOut
from instep.server.fivetran_api.http.ports import Item
from instep.server.fivetran_api.http.request_body import RequestBody, Truth, fields_of, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, lists, route_options
from instep.server.fivetran_api.http.services import MASK


@dataclass(frozen=True)
class WebhookTestResult:
    """The result of a webhook's test."""

    succeed: bool
    status: int
    """The receiver's answer, 0 if there was none."""
    message: str


def check_url(guard: EgressGuard, url: str) -> None:
    """Raise Refusal (400) for a URL that is not https; http is for hosts that the server's own settings list."""
    to = place(url)
    if to.scheme == "http" and not _listed(guard, to.host, to.port):
        hint = "for a receiver in your own network list it: `egress: {allow: [ADDRESS]}`"
        raise Refusal(400, "The url of a webhook must be https.", hint=hint)


def _listed(guard: EgressGuard, host: str, port: int) -> bool:
    try:
        return guard.target(host, port).trusted
    except ConnectError:
        return False


def tried(guard: EgressGuard, url: str, secret: str, event: str) -> WebhookTestResult:
    """Send a test at once, past the outbox."""
    channel = HookChannel(HookConfig(url, secret), guard, lambda name: Identity())
    try:
        status = channel.post(trial(event, datetime.now(UTC)))
    except ConnectError as error:
        return WebhookTestResult(False, error.code if isinstance(error, NotDelivered) else 0, error.message)
    return WebhookTestResult(True, status, f"The receiver answered {status}.")


router = APIRouter(prefix="/webhooks")


class NewWebhook(RequestBody):
    url: str = Field(min_length=1, max_length=2000)
    events: list[str] = Field(min_length=1)
    active: Truth = True
    secret: str = ""


class WebhookChange(RequestBody):
    url: str | None = Field(default=None, max_length=2000)
    events: list[str] | None = Field(default=None, min_length=1)
    active: Truth | None = None
    secret: str | None = None


class WebhookTest(RequestBody):
    event: str = Field(min_length=1)


@router.get("", **lists(WebhookOut))
def webhooks(request: Request, context: RequestContextDep) -> JSONResponse:
    seen = window(request)
    stored = context.ports.objects.page("webhook", after=seen.after, limit=seen.limit + 1)
    items, cursor = seen.cut(stored, lambda item: item.name)
    closed = context.ports.store.outbox.closed()
    return page("Webhooks retrieved successfully", [_view(item, closed) for item in items], cursor)


@router.post("/account", **route_options(WebhookOut, takes=NewWebhook))
def create(context: RequestContextDep, body: Body) -> JSONResponse:
    return _create(context, parse(NewWebhook, body), {"type": "account"}, body)


@router.post("/group/{group}", **route_options(WebhookOut, takes=NewWebhook))
def create_for(group: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    if context.ports.objects.get("destination", group) is None:
        raise not_found("Group", group)
    return _create(context, parse(NewWebhook, body), {"type": "group", "group_id": group}, body)


@router.get("/{id}", **route_options(WebhookOut))
def retrieve(id: Name, context: RequestContextDep) -> JSONResponse:
    return _shown(context, "", _found(context, id))


@router.patch("/{id}", **route_options(WebhookOut, takes=WebhookChange))
def change(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Change a webhook; one that is active, or becomes it, is tried with its new settings first."""
    item, parsed = _found(context, id), parse(WebhookChange, body)
    _check_events(parsed.events or ())
    patch = {k: v for k, v in parsed.model_dump(exclude_none=True).items() if v != MASK}
    will = {**CompatDocuments(context.ports.store).opened("webhook", id), **patch}
    if "url" in patch:
        check_url(context.ports.egress(), will["url"])
    if parsed.active or (item.spec["active"] and {"url", "secret"} & set(patch)):
        _try(context, will)
    elif "url" in patch:
        refuse_unsendable(context.ports.egress(), will["url"])
    with context.write(body):
        made = context.ports.objects.change("webhook", id, patch, context.caller.name)
        if parsed.active:
            context.ports.store.outbox.open(PREFIX + id)
    return _shown(context, parsed.remark("Webhook has been updated"), made)


@router.post("/{id}/test", **route_options(TriedOut, takes=WebhookTest))
def test(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    _found(context, id)
    parsed = parse(WebhookTest, body)
    _check_events([parsed.event])
    webhook = CompatDocuments(context.ports.store).opened("webhook", id)
    attempt = tried(context.ports.egress(), webhook["url"], webhook.get("secret", ""), parsed.event)
    context.record(event=parsed.event, succeed=attempt.succeed)
    return success(parsed.remark("Webhook has been tested"), asdict(attempt))


@router.delete("/{id}", **route_options())
def delete(id: Name, context: RequestContextDep) -> JSONResponse:
    _found(context, id)
    with context.write():
        context.ports.objects.delete("webhook", id, context.caller.name)
        context.ports.store.outbox.drop(PREFIX + id)
    return success(f"Webhook with id '{id}' has been deleted")


def _create(context: RequestContext, parsed: NewWebhook, kind: Mapping[str, str], body: Any) -> JSONResponse:
    _check_events(parsed.events)
    check_url(context.ports.egress(), parsed.url)
    spec = {**parsed.model_dump(), **kind}
    if parsed.active:
        _try(context, spec)
    else:
        refuse_unsendable(context.ports.egress(), parsed.url)
    name = f"webhook_{secrets.token_hex(6)}"
    with context.ports.store.transaction():
        made = context.ports.objects.create("webhook", name, spec, context.caller.name)
        context.record(id=name, fields=fields_of(body))
    return _shown(context, parsed.remark("Webhook has been created"), made)


def _try(context: RequestContext, webhook: Mapping[str, Any]) -> None:
    """Raise Refusal (400) if the receiver does not accept a test."""
    attempt = tried(context.ports.egress(), webhook["url"], webhook.get("secret", ""), webhook["events"][0])
    if not attempt.succeed:
        hint = 'create it with {"active": false}, and activate it once its receiver answers'
        raise Refusal(400, f"The test of the webhook has failed: {attempt.message}", hint=hint)


def _check_events(events: Sequence[str]) -> None:
    if unknown := [event for event in events if event not in (*EVENTS, *OURS)]:
        raise Refusal(400, f"There is no event {unknown[0]}.", hint=f"there are {', '.join((*EVENTS, *OURS))}")


def _found(context: RequestContext, id: str) -> Item:
    item = context.ports.objects.get("webhook", id)
    if item is None:
        raise not_found("Webhook", id)
    return item


def _shown(context: RequestContext, message: str, item: Item) -> JSONResponse:
    return success(message, _view(item, context.ports.store.outbox.closed()))


def _view(item: Item, closed: Container[str]) -> dict[str, Any]:
    """Return a webhook for the API, without its secret. One whose receiver was not reached for days is not active
    any more."""
    spec = item.spec
    group = {"group_id": spec["group_id"]} if spec.get("group_id") else {}
    return {
        "id": item.name,
        "type": spec["type"],
        **group,
        "url": spec["url"],
        "events": list(spec["events"]),
        "active": bool(spec["active"]) and PREFIX + item.name not in closed,
        "secret": MASK,
        "created_at": instant(item.created),
        "created_by": item.created_by,
    }
