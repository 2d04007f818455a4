"""Webhooks as objects: created, listed, changed, deleted. What is delivered to them is the notices' part."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.api.compat.body import Truth, Wire, parse
from instep.api.compat.connection import instant
from instep.api.compat.desk import Desk
from instep.api.compat.envelope import Refusal, not_found, page, success
from instep.api.compat.paging import window
from instep.api.compat.ports import Item
from instep.api.compat.route import Asked, Body, Name
from instep.api.compat.services import MASK

router = APIRouter(prefix="/webhooks")
EVENTS = (
    "sync_start", "sync_end", "connection_successful", "connection_failure", "create_connector", "pause_connector",
    "resume_connector", "edit_connector", "delete_connector", "force_update_connector", "resync_connector",
    "resync_table", "dbt_run_start", "dbt_run_succeeded", "dbt_run_failed", "transformation_start",
    "transformation_succeeded", "transformation_failed", "status",
)  # fmt: skip
OURS = ("schema_change_detected", "schema_change_review", "schema_change_applied")
"""Events of ours, sent only to those that ask for them by name."""


class NewWebhook(Wire):
    url: str = Field(min_length=1, max_length=2000)
    events: list[str] = Field(min_length=1)
    active: Truth = True
    secret: str = ""


class WebhookChange(Wire):
    url: str | None = Field(default=None, max_length=2000)
    events: list[str] | None = Field(default=None, min_length=1)
    active: Truth | None = None
    secret: str | None = None


@router.get("")
def webhooks(request: Request, desk: Asked) -> JSONResponse:
    desk.allow("admin")
    seen = window(request)
    found = desk.ports.objects.page("webhook", after=seen.after, limit=seen.limit + 1)
    items, cursor = seen.cut(found, lambda item: item.name)
    return page("Webhooks retrieved successfully", list(map(_view, items)), cursor)


@router.post("/account")
def create(desk: Asked, body: Body) -> JSONResponse:
    return _create(desk, parse(NewWebhook, body), {"type": "account"})


@router.post("/group/{group}")
def create_for(group: Name, desk: Asked, body: Body) -> JSONResponse:
    if not desk.sees(group) or desk.ports.objects.get("destination", group) is None:
        raise not_found("Group", group)
    return _create(desk, parse(NewWebhook, body), {"type": "group", "group_id": group})


@router.get("/{id}")
def retrieve(id: Name, desk: Asked) -> JSONResponse:
    return success("", _view(_found(desk, id)))


@router.patch("/{id}")
def change(id: Name, desk: Asked, body: Body) -> JSONResponse:
    _found(desk, id)
    wanted = parse(WebhookChange, body)
    _check(wanted.url or "https:", wanted.events or ())
    patch = {k: v for k, v in wanted.model_dump(exclude_none=True).items() if v != MASK}
    return success("Webhook has been updated", _view(desk.ports.objects.change("webhook", id, patch, desk.caller.name)))


@router.delete("/{id}")
def delete(id: Name, desk: Asked) -> JSONResponse:
    _found(desk, id)
    desk.ports.objects.delete("webhook", id, desk.caller.name)
    return success(f"Webhook with id '{id}' has been deleted")


def _create(desk: Desk, wanted: NewWebhook, kind: Mapping[str, str]) -> JSONResponse:
    desk.allow("admin")
    _check(wanted.url, wanted.events)
    spec = {**wanted.model_dump(), **kind}
    name = f"webhook_{secrets.token_hex(6)}"
    return success(
        "Webhook has been created", _view(desk.ports.objects.create("webhook", name, spec, desk.caller.name))
    )


def _check(url: str, events: list[str] | tuple[str, ...]) -> None:
    if not url.startswith("https:"):
        raise Refusal(400, "The url of a webhook must be https.")
    if unknown := [event for event in events if event not in (*EVENTS, *OURS)]:
        raise Refusal(400, f"There is no event {unknown[0]}.", hint=f"there are {', '.join((*EVENTS, *OURS))}")


def _found(desk: Desk, id: str) -> Item:
    desk.allow("admin")
    found = desk.ports.objects.get("webhook", id)
    if found is None:
        raise not_found("Webhook", id)
    return found


def _view(item: Item) -> dict[str, Any]:
    """The secret is never told."""
    said = item.spec
    group = {"group_id": said["group_id"]} if said.get("group_id") else {}
    return {
        "id": item.name, "type": said["type"], **group, "url": said["url"], "events": list(said["events"]),
        "active": said["active"], "secret": MASK, "created_at": instant(item.created), "created_by": item.created_by,
    }  # fmt: skip
