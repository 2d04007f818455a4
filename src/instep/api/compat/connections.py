"""Connections: list, create, read, change, delete."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.api.compat.body import Truth, Wire, parse
from instep.api.compat.connection import instant, shown
from instep.api.compat.described import lists, says
from instep.api.compat.desk import Desk
from instep.api.compat.envelope import Refusal, not_found, page, success
from instep.api.compat.frequency import DEFAULT, FREQUENCIES, cron
from instep.api.compat.paging import window
from instep.api.compat.ports import Item
from instep.api.compat.route import Asked, Body, Name
from instep.api.compat.services import NAMES, TYPES, is_set_up, not_understood, source_spec, understood
from instep.api.compat.setup import at_once, connection_tests
from instep.api.compat.wire import ConnectionOut, TestedConnection
from instep.control.kept import Kept
from instep.control.pauses import pause, resume
from instep.control.resync import ask, chosen
from instep.errors import Blocked, Conflict, RunInProgress

router = APIRouter()
Delay = Literal["LOW", "NORMAL", "HIGH", "CUSTOM", "SYNC_FREQUENCY"]
Schedule = Literal["auto", "manual"]
MAX_DELAY = 1_000_000
LISTED = "Connections list retrieved successfully"
_TEST_ONLY = {"run_setup_tests", "trust_certificates", "trust_fingerprints"}
_OURS = {"id", "failed_at", "tasks"}
"""What is noted of a connection that has no source."""
_TIED = {"group_id", "service"}


class NewConnection(Wire):
    group_id: str = Field(min_length=1)
    service: str = Field(min_length=1, max_length=100)
    config: dict[str, Any] = Field(default_factory=dict)
    paused: Truth = False
    sync_frequency: int = DEFAULT
    daily_sync_time: str = Field(default="00:00", pattern=r"^([01]\d|2[0-3]):00$")
    schedule_type: Schedule = "auto"
    pause_after_trial: Truth = False
    data_delay_sensitivity: Delay = "NORMAL"
    data_delay_threshold: int = Field(default=0, ge=0, le=MAX_DELAY)
    networking_method: str = Field(default="Directly", max_length=100)
    run_setup_tests: Truth = True


class Change(Wire):
    config: dict[str, Any] | None = None
    paused: Truth | None = None
    sync_frequency: int | None = None
    daily_sync_time: str | None = Field(default=None, pattern=r"^([01]\d|2[0-3]):00$")
    schedule_type: Schedule | None = None
    is_historical_sync: Truth | None = None
    pause_after_trial: Truth | None = None
    data_delay_sensitivity: Delay | None = None
    data_delay_threshold: int | None = Field(default=None, ge=0, le=MAX_DELAY)
    networking_method: str | None = Field(default=None, max_length=100)


@router.get("/connections", **lists(ConnectionOut, "group_id", "schema"))
def connections(request: Request, desk: Asked) -> JSONResponse:
    return listing(request, desk, request.query_params.get("group_id") or "")


def listing(request: Request, desk: Desk, group: str) -> JSONResponse:
    """A page of the connections of a group, or of all that the key may see."""
    seen = window(request)
    found = desk.ports.objects.connections(
        after=seen.after, limit=seen.limit + 1, group=group, groups=desk.caller.groups,
        namespace=request.query_params.get("schema") or "",
    )  # fmt: skip
    items, cursor = seen.cut(found, lambda item: item.name)
    return page(LISTED, shown(desk.ports, items), cursor)


@router.get("/connections/{id}", **says(ConnectionOut))
def retrieve(id: Name, desk: Asked) -> JSONResponse:
    return success("", _view(desk, desk.connection(id)))


@router.post("/connections", **says(TestedConnection, takes=NewConnection, status=201))
def create(desk: Asked, body: Body) -> JSONResponse:
    wanted = parse(NewConnection, body)
    if not desk.sees(wanted.group_id) or desk.ports.objects.get("destination", wanted.group_id) is None:
        raise not_found("Group", wanted.group_id)
    _check_frequency(wanted.sync_frequency)
    _check_config(wanted.service, wanted.config)
    known = is_set_up(wanted.service, wanted.config)
    name = _free_name(desk, wanted.service, wanted.config)
    item = _create_ours(desk, name, wanted) if known else _create_foreign(desk, name, wanted, body)
    tests = at_once(connection_tests, desk, item.name) if known and wanted.run_setup_tests else []
    return success("Connection has been created", {**_view(desk, item), "setup_tests": tests}, status=201)


@router.patch("/connections/{id}", **says(ConnectionOut, takes=Change))
def change(id: Name, desk: Asked, body: Body) -> JSONResponse:
    item = desk.connection(id)
    wanted = parse(Change, body)
    if not set(body) - _TEST_ONLY:
        raise Refusal(400, "The body names no field that is kept.", hint="name one, such as paused or sync_frequency")
    _check_frequency(wanted.sync_frequency)
    item = _change_ours(desk, item, wanted) if item.kind == "connection" else _change_foreign(desk, item, wanted, body)
    return success("Connection has been updated", _view(desk, item))


@router.delete("/connections/{id}", **says())
def delete(id: Name, desk: Asked) -> JSONResponse:
    item = desk.connection(id)
    with _agreed(desk, item):
        if item.kind == "connection" and not item.in_file and desk.ports.project(id).log_names(id) is not None:
            _leave_log(desk, id)
        else:
            desk.ports.objects.delete(item.kind, id, desk.caller.name)
    return success(f"Connection with id '{id}' has been deleted")


def _agreed(desk: Desk, item: Item) -> AbstractContextManager[None]:
    """With four_eyes the second person's request deletes what has run."""
    if item.kind != "connection" or item.in_file or not desk.ports.project(item.name).model.four_eyes:
        return nullcontext()
    from instep.sync.leave import DELETION, leaving
    from instep.sync.two_people import Act, second_person

    return second_person(desk.ports.store, Act(item.name, DELETION, leaving("keep", abandon=False)), desk.caller.name)


def _leave_log(desk: Desk, name: str) -> None:
    """A worker takes its slot away at the source, which would keep its log for ever, and then the connection."""
    source = desk.ports.project(name).source_of(name)
    for job in desk.ports.jobs.unfinished([name])[name]:
        if job.status == "running" and job.kind != "delete":
            raise RunInProgress(f"connection {name}: job {job.id} is running", hint="stop it first")
    desk.run(name, "delete", {"tables": "keep", "named": name})
    with suppress(Blocked, Conflict):  # others use it, or the file says it
        desk.ports.objects.delete("source", source, desk.caller.name)


@router.post("/connections/{id}/connect-card", **says())
def connect_card(id: Name, desk: Asked, body: Body) -> JSONResponse:
    """A card is a page of the service that runs connections for others, where its customers type their secrets."""
    desk.connection(id)
    hint = f'set it up by PATCH /v1/connections/{id} with {{"config": ...}}'
    raise Refusal(405, f"Connection '{id}' has no connect card: nothing is hosted here.", hint=hint)


def _view(desk: Desk, item: Item) -> dict[str, Any]:
    [found] = shown(desk.ports, [item])
    return found


def _check_frequency(minutes: int | None) -> None:
    if minutes is not None and minutes not in FREQUENCIES:
        raise Refusal(400, f"sync_frequency must be one of {', '.join(map(str, FREQUENCIES))} (minutes).")


def _check_config(service: str, config: Mapping[str, Any]) -> None:
    if unknown := not_understood(service, config):
        keys = ", ".join(unknown[:10])
        raise Refusal(
            400, f"config of {service}: none of these keys is known: {keys}.", hint=f"known are {understood(service)}"
        )


def _create_ours(desk: Desk, name: str, wanted: NewConnection, since: Item | None = None) -> Item:
    objects, who = desk.ports.objects, desk.caller.name
    namespace = next((str(wanted.config[key]) for key in NAMES if wanted.config.get(key)), name)
    manual = wanted.schedule_type == "manual"
    schedule = {} if manual else {"schedule": {"sync": cron(wanted.sync_frequency, wanted.daily_sync_time)}}
    spec = {"source": name, "destination": wanted.group_id, "namespace": namespace, **schedule}
    with desk.ports.store.transaction():
        objects.create("source", name, source_spec(wanted.service, wanted.config), who)
        item = objects.create("connection", name, spec, who, since)
    if wanted.paused:
        pause(desk.ports.store, name, f"paused by {who}")
    return item


def _create_foreign(desk: Desk, name: str, wanted: NewConnection, body: Mapping[str, Any]) -> Item:
    """All fields are kept as they were sent."""
    spec = _kept_fields(body, wanted, _TEST_ONLY | _OURS)
    return desk.ports.objects.create("foreign", name, spec, desk.caller.name)


def _free_name(desk: Desk, service: str, config: Mapping[str, Any]) -> str:
    """From the name at the destination, made different from all names in use."""
    text = next((str(config[key]) for key in NAMES if config.get(key)), service)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:50] or "connection"
    plain = plain if plain[0].isalpha() else f"c_{plain}"
    number = 1
    while _taken(desk, name := plain if number == 1 else f"{plain}_{number}"):
        number += 1
    return name


def _taken(desk: Desk, name: str) -> bool:
    get = desk.ports.objects.get
    return bool(get("connection", name) or get("foreign", name) or get("source", name))


def _change_ours(desk: Desk, item: Item, wanted: Change) -> Item:
    objects, who, store = desk.ports.objects, desk.caller.name, desk.ports.store
    if wanted.config:
        source, type = str(item.spec["source"]), _service(desk, item)
        if desk.caller.groups and len(store.objects.users("source", source)) > 1:
            raise Refusal(403, f"Source '{source}' serves other connections, too.", hint="use a key without groups")
        _check_config(type, wanted.config)
        config = {k: v for k, v in source_spec(type, wanted.config).items() if k != "type"}
        objects.change("source", source, config, who)
    if settings := _schedule(wanted, item):
        item = objects.change("connection", item.name, settings, who)
    if wanted.paused is True and item.name not in store.pauses.whole([item.name]):
        pause(store, item.name, f"paused by {who}")
    elif wanted.paused is False:
        resume(store, item.name, who)
    if wanted.is_historical_sync:
        ask(store, item.name, chosen(desk.place(item.name), None), who, whole=True)
    return item


def _service(desk: Desk, item: Item) -> str:
    source = desk.ports.objects.get("source", str(item.spec["source"]))
    type = source.spec["type"] if source else ""
    return next((service for service, of in TYPES.items() if of == type), "postgres")


def _schedule(wanted: Change, item: Item) -> dict[str, Any]:
    if wanted.schedule_type == "manual":
        return {"schedule": {"sync": None}}
    if wanted.sync_frequency is None and wanted.daily_sync_time is None:
        return {}
    frequency = wanted.sync_frequency or 1440
    return {"schedule": {"sync": cron(frequency, wanted.daily_sync_time or "00:00")}}


def _change_foreign(desk: Desk, item: Item, wanted: Change, body: Mapping[str, Any]) -> Item:
    """One of a service that has sources gets its own as soon as it has settings. A request that came first may have
    brought them."""
    with desk.ports.store.transaction():
        item = desk.connection(item.name)
        if item.kind == "foreign":
            return _change_kept(desk, item, wanted, body)
    return _change_ours(desk, item, wanted)


def _change_kept(desk: Desk, item: Item, wanted: Change, body: Mapping[str, Any]) -> Item:
    _check_config(str(item.spec.get("service")), wanted.config or {})
    patch = _kept_fields(body, wanted, _TEST_ONLY | _OURS | _TIED)
    kept = Kept(desk.ports.store)
    found = desk.ports.objects.change("foreign", item.name, patch, desk.caller.name)
    if item.spec.get("service") not in TYPES:
        return found
    whole = parse(NewConnection, kept.opened("foreign", item.name))
    if not is_set_up(whole.service, whole.config):
        return found
    kept.delete("foreign", item.name)
    return _create_ours(desk, item.name, whole, item)


def _kept_fields(body: Mapping[str, Any], read: NewConnection | Change, without: Set[str]) -> dict[str, Any]:
    """A body as it was sent, but for what was understood of it, and for fields that are not its sender's."""
    known = read.model_dump(exclude_unset=True, exclude={"config"})
    return {k: known.get(k, v) for k, v in body.items() if k not in without}


__all__ = ["instant", "listing", "router"]
