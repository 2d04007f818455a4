"""Connections: list, create, read, change, delete."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from instep.control.compat import SERVICES, CompatDocuments
from instep.control.pauses import pause, resume
from instep.control.resync import ask, chosen
from instep.errors import Blocked, Conflict, InstepError, RunInProgress
from instep.events import OperationConfirmed
from instep.server.fivetran_api.connection import instant, network, shown, sync_line, times
from instep.server.fivetran_api.connection_bodies import (
    ConnectionChange,
    NewConnection,
    check_config,
    check_frequency,
    check_permanent,
    check_way,
    left_out,
    note,
    noted,
)
from instep.server.fivetran_api.http.envelope import Refusal, not_found, page, success, window
from instep.server.fivetran_api.http.models import ConnectionDocument, TestedConnection
from instep.server.fivetran_api.http.ports import Item
from instep.server.fivetran_api.http.request_body import MAX_NAMED, TEST_ONLY, fields_of, no_effect, parse, without_null
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, lists, of_change, route_options
from instep.server.fivetran_api.http.services import NAMES, TYPES, cron, is_set_up, settings_without_effect, source_spec
from instep.server.fivetran_api.syncs import at_once, connection_tests

if TYPE_CHECKING:
    from instep.sync.two_people import Act

router = APIRouter()
DIRECTLY = "Directly"
WAITS = "make it with `paused`, edit its schemas, then resume it"
LISTED = "Connections list retrieved successfully"
_OURS = {"id", "failed_at", "tasks"}
"""Keys that are noted of a connection without a source."""
_TIED = {"group_id", "service"}


@router.get("/connections", **lists(ConnectionDocument, "group_id", "schema"))
def connections(request: Request, context: RequestContextDep) -> JSONResponse:
    return listing(request, context, request.query_params.get("group_id") or "")


def listing(request: Request, context: RequestContext, group: str) -> JSONResponse:
    """Return a page of the connections of a group, or of all that the key may see."""
    seen = window(request)
    stored = context.ports.objects.connections(
        after=seen.after,
        limit=seen.limit + 1,
        group=group,
        groups=context.caller.groups,
        namespace=request.query_params.get("schema") or "",
    )
    items, cursor = seen.cut(stored, lambda item: item.name)
    return page(LISTED, shown(context.ports, items), cursor)


@router.get("/connections/{id}", **route_options(ConnectionDocument))
def retrieve(id: Name, context: RequestContextDep) -> JSONResponse:
    return success("", _view(context, context.connection(id)))


@router.post("/connections", **route_options(TestedConnection, takes=NewConnection, status=201))
def create(context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(NewConnection, body)
    group = parsed.group_id
    ready = context.ports.objects.get("destination", group) is not None
    if not context.sees(group) or not (ready or context.ports.objects.get("group", group)):
        raise not_found("Group", group)
    check_frequency(parsed.sync_frequency)
    check_config(parsed.service, parsed.config)
    known = is_set_up(parsed.service, parsed.config)
    if known:
        check_way(parsed, DIRECTLY)
    known = known and ready
    with context.ports.store.transaction():  # two at the same time get two names
        name = _free_name(context, parsed.service, parsed.config)
        item = _create_ours(context, name, parsed) if known else _create_foreign(context, name, parsed, body)
        context.record(id=name, fields=fields_of(body))
    tests = at_once(connection_tests, context, item.name) if known and parsed.run_setup_tests is not False else []
    strange = left_out(parsed.service, parsed, parsed.config)
    return _answer("Connection has been created", {**_view(context, item), "setup_tests": tests}, strange, 201)


@router.patch("/connections/{id}", **route_options(TestedConnection, takes=ConnectionChange))
def change(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Change all of the connection, or nothing. It is tested again only on request."""
    item = context.connection(id)
    parsed = parse(ConnectionChange, body)
    context.allow(of_change(set(body) if item.kind == "foreign" else parsed.model_fields_set))  # all of it is kept
    if not set(body) - TEST_ONLY:
        raise Refusal(400, "The body names no field that is kept.", hint="name one, such as paused or sync_frequency")
    check_frequency(parsed.sync_frequency)
    with context.write(body):
        ours = item.kind == "connection"
        item = _change_ours(context, item, parsed) if ours else _change_foreign(context, item, parsed, body)
    tests = at_once(connection_tests, context, id) if parsed.run_setup_tests and item.kind == "connection" else []
    view = {**_view(context, item), "setup_tests": tests}
    return _answer("Connection has been updated", view, left_out(view["service"], parsed, parsed.config), 200)


@router.delete("/connections/{id}", **route_options())
def delete(id: Name, context: RequestContextDep) -> JSONResponse:
    item = context.connection(id)
    act = _act(context, item)
    if act is not None:
        context.agree(act)

    def along() -> None:
        context.record()
        if act is not None:
            context.ports.store.events.add(OperationConfirmed(act.connection, act.name, act.what, context.caller.name))

    if item.kind == "connection" and not item.in_file and context.ports.project(id).follows_log(id):
        _leave_log(context, id)
    else:
        context.ports.objects.delete(item.kind, id, context.caller.name, along)
    return success(f"Connection with id '{id}' has been deleted")


def _act(context: RequestContext, item: Item) -> Act | None:
    """Return the act for which four_eyes needs two people: deleting what has run."""
    if item.kind != "connection" or item.in_file or not context.ports.project(item.name).model.four_eyes:
        return None
    from instep.sync.two_people import DELETION, Act, leaving

    return Act(item.name, DELETION, leaving("keep", abandon=False))


def _leave_log(context: RequestContext, name: str) -> None:
    """Queue the deletion of a connection with a log: a worker removes its slot at the source, which would otherwise
    keep its log for ever, and then the connection."""
    source = context.ports.project(name).source_of(name)
    for job in context.ports.jobs.unfinished([name])[name]:
        if job.status == "running" and job.kind != "delete_connection":
            raise RunInProgress(f"connection {name}: job {job.id} is running", hint="stop it first")
    context.run(name, "delete_connection", {"tables": "keep", "named": name}, recorded=True)
    with suppress(Blocked, Conflict):  # others use it, or the file says it
        context.ports.objects.delete("source", source, context.caller.name)


@router.post("/connections/{id}/connect-card", **route_options())
def connect_card(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Refuse a card: it is a page of the service that runs connections for others, where its customers type their
    secrets."""
    context.connection(id)
    hint = f'set it up by PATCH /v1/connections/{id} with {{"config": ...}}'
    raise Refusal(405, f"Connection '{id}' has no connect card: nothing is hosted here.", hint=hint)


def _answer(message: str, view: dict[str, Any], strange: list[str], status: int) -> JSONResponse:
    """Return the answer, with a warning that names what was left out."""
    if not strange:
        return success(message, view, status=status)
    keys = ", ".join(strange[:MAX_NAMED])
    remark = no_effect(strange)
    view["status"]["warnings"].append({"code": "settings_not_known", "message": remark, "details": keys})
    return success(f"{message}. {remark}", view, status=status)


def _view(context: RequestContext, item: Item) -> dict[str, Any]:
    [connection] = shown(context.ports, [item])
    return connection


def _create_ours(context: RequestContext, name: str, fields: NewConnection, since: Item | None = None) -> Item:
    objects, who = context.ports.objects, context.caller.name
    namespace = next((str(fields.config[key]) for key in NAMES if fields.config.get(key)), name)
    manual = fields.schedule_type == "manual"
    schedule = {} if manual else {"schedule": {"sync": cron(fields.sync_frequency, fields.daily_sync_time)}}
    spec = {"source": name, "destination": fields.group_id, "namespace": namespace, **schedule}
    with context.ports.store.transaction():
        objects.create("source", name, source_spec(fields.service, fields.config), who)
        item = objects.create("connection", name, spec, who, since)
        word = {} if fields.service in SERVICES.values() else {"service": fields.service}
        note(context, "connection", name, {**word, **fields.echoed(), **_extra_fields(fields.config, fields)})
    if fields.paused:
        pause(context.ports.store, name, f"paused by {who}")
    return item


def _create_foreign(context: RequestContext, name: str, fields: NewConnection, body: Mapping[str, Any]) -> Item:
    """Create a foreign connection; all fields are stored as they were sent."""
    spec = _stored_fields(body, fields, TEST_ONLY | _OURS)
    return context.ports.objects.create("foreign", name, spec, context.caller.name)


def _free_name(context: RequestContext, service: str, config: Mapping[str, Any]) -> str:
    """Return a name that is not in use, made from the name at the destination."""
    text = next((str(config[key]) for key in NAMES if config.get(key)), service)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:50] or "connection"
    plain = plain if plain[0].isalpha() else f"c_{plain}"
    number = 1
    while _is_name_taken(context, name := plain if number == 1 else f"{plain}_{number}"):
        number += 1
    return name


def _is_name_taken(context: RequestContext, name: str) -> bool:
    get = context.ports.objects.get
    return bool(get("connection", name) or get("foreign", name) or get("source", name))


def _change_ours(context: RequestContext, item: Item, change: ConnectionChange) -> Item:
    """Change a connection with a source. Call it in a transaction: what is refused at the end is not half done."""
    objects, who, store = context.ports.objects, context.caller.name, context.ports.store
    source = str(item.spec["source"])
    check_permanent(change, item.group, _service(context, item), item.namespace)
    check_way(change, network(objects.get("source", source)))
    if change.schema_status == "blocked_on_capture":
        raise Refusal(400, "schema_status: no connection here waits for its schema to be edited.", hint=WAITS)
    again = chosen(context.place(item.name), None) if change.is_historical_sync else []
    if change.config:
        type = _service(context, item)
        check_config(type, change.config)
        if config := {k: v for k, v in source_spec(type, change.config).items() if k != "type"}:
            objects.change("source", source, config, who)
    fields = noted(context.ports, "connection", [item.name]).get(item.name, {})
    frequency, time = times(item, fields)
    if settings := _schedule(change, item, fields):
        item = objects.change("connection", item.name, settings, who)
    before = {"sync_frequency": frequency, "daily_sync_time": time} if change.schedule_type == "manual" else {}
    note(context, "connection", item.name, {**before, **change.echoed(), **_extra_fields(change.config or {}, change)})
    if change.paused is True and item.name not in store.pauses.paused_connections([item.name]):
        pause(store, item.name, f"paused by {who}")
    elif change.paused is False:
        resume(store, item.name, who)
    if change.is_historical_sync:
        ask(store, item.name, again, who, whole=True)
    return item


def _service(context: RequestContext, item: Item) -> str:
    source = context.ports.objects.get("source", str(item.spec["source"]))
    type = source.spec["type"] if source else ""
    return next((service for service, of in TYPES.items() if of == type), "postgres")


def _schedule(change: ConnectionChange, item: Item, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schedule's fields. A connection that was set to manual stays so until it is set to auto again, and
    keeps its frequency meanwhile."""
    is_manual = not sync_line(item) and fields.get("schedule_type") == "manual"
    if change.schedule_type == "manual" or (is_manual and change.schedule_type is None):
        return {"schedule": {"sync": None}} if sync_line(item) else {}
    if (change.sync_frequency, change.daily_sync_time, change.schedule_type) == (None, None, None):
        return {}
    frequency, time = times(item, fields)
    minutes = change.sync_frequency or (1440 if change.daily_sync_time else frequency)
    return {"schedule": {"sync": cron(minutes, change.daily_sync_time or time or "00:00")}}


def _extra_fields(config: Mapping[str, Any], parsed: NewConnection | ConnectionChange) -> dict[str, Any]:
    """Return the parts of a schedule that the project file cannot hold for a manual connection, and settings without
    effect."""
    names = ("schedule_type", "sync_frequency", "daily_sync_time")
    values = parsed.model_dump(include=set(names), exclude_none=True, exclude_unset=True)
    return {**values, **({"config": echoed} if (echoed := settings_without_effect(config)) else {})}


def _change_foreign(context: RequestContext, item: Item, change: ConnectionChange, body: Mapping[str, Any]) -> Item:
    """Change a foreign connection. One of a service that has sources gets its own once it has settings; an earlier
    request may have brought them."""
    with context.ports.store.transaction():
        item = context.connection(item.name)
        if item.kind == "foreign":
            return _change_stored(context, item, change, body)
    return _change_ours(context, item, change)


def _change_stored(context: RequestContext, item: Item, change: ConnectionChange, body: Mapping[str, Any]) -> Item:
    service = str(item.spec.get("service"))
    check_permanent(change, item.group, service)
    check_config(service, change.config or {})
    patch = _stored_fields(body, change, TEST_ONLY | _OURS | _TIED)
    documents = CompatDocuments(context.ports.store)
    changed = context.ports.objects.change("foreign", item.name, patch, context.caller.name)
    if service not in TYPES:
        return changed
    whole = parse(NewConnection, documents.opened("foreign", item.name))
    if not is_set_up(whole.service, whole.config):
        return changed
    check_way(whole, DIRECTLY)
    if context.ports.objects.get("destination", item.group) is None:
        return changed
    documents.delete("foreign", item.name)
    return _create_ours(context, item.name, whole, item)


def complete_waiting(context: RequestContext, group: str) -> None:
    """Create the sources of a group's connections once it has a destination; one that cannot have it says why in a
    task."""
    after = ""
    while items := context.ports.objects.connections(after=after, limit=100, group=group):
        after = items[-1].name
        for item in (i for i in items if i.kind == "foreign" and i.spec.get("service") in TYPES):
            try:
                with context.ports.store.transaction():
                    _change_stored(context, item, ConnectionChange(), {})
            except (InstepError, Refusal) as error:
                task = {"code": "reconnect", "message": error.message, "details": error.message}
                context.ports.objects.change("foreign", item.name, {"tasks": [task]}, context.caller.name)


def _stored_fields(
    body: Mapping[str, Any], read: NewConnection | ConnectionChange, without: Set[str]
) -> dict[str, Any]:
    """Return a body as it was sent, but for what was understood of it, for nulls, which leave a field as it is, and for
    fields that are not its sender's."""
    body = without_null(body)
    nested = {name for name, value in body.items() if isinstance(value, Mapping)}
    known = read.model_dump(exclude_unset=True, exclude=nested)
    return {k: known.get(k, v) for k, v in body.items() if k not in without}


__all__ = ["instant", "listing", "router"]
