"""Destinations, each of which is a group, too; the tests of their set-up are a worker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.redaction import SECRET_NAME
from instep.server.fivetran_api.connection_bodies import AGENTS, note, noted
from instep.server.fivetran_api.connections import complete_waiting
from instep.server.fivetran_api.groups import existing, group_names, named, remove
from instep.server.fivetran_api.http.envelope import Refusal, page, success, window
from instep.server.fivetran_api.http.models import DestinationOut, TestedDestination
from instep.server.fivetran_api.http.ports import Item
from instep.server.fivetran_api.http.request_body import RequestBody, Truth, fields_of, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, lists, route_options
from instep.server.fivetran_api.http.services import MASK
from instep.server.fivetran_api.syncs import at_once, destination_tests
from instep.store.server.connection_tests import UNTESTED

TYPES: Mapping[str, str] = {
    **{type: type for type in ("postgres", "duckdb", "iceberg", "delta")},
    "postgres_warehouse": "postgres",
    "postgres_rds_warehouse": "postgres",
    "aurora_postgres_warehouse": "postgres",
    "azure_postgres_warehouse": "postgres",
    "postgres_gcp_warehouse": "postgres",
    "managed_data_lake": "iceberg",
    "new_s3_datalake": "iceberg",
}
"""Service to the type of a destination."""
NO_EFFECT = frozenset((
    "connection_type", "auth", "auth_type", "auth_method", "always_encrypted", "is_private_link_required",
    "table_format", "storage_provider", "fivetran_role_arn", "region", "snapshot_retention_period",
))  # fmt: skip
"""Settings that are kept and told back."""
_NO_EFFECT_PREFIXES = ("tunnel_", "client_")
_LAKE = ("bucket", "prefix_path")
DIRECTLY = "Directly"


@dataclass(frozen=True)
class ParsedSettings:
    """Settings of a destination, as far as they are understood."""

    spec: Mapping[str, Any]
    """Settings of ours."""
    echoed: Mapping[str, Any]
    """Keys that are stored only because the client reads them back."""


def type_of(service: str) -> str:
    """Return the type of a destination's service. Refusal: 400 for one that is not there."""
    if service not in TYPES:
        raise Refusal(400, f"There is no destination of service {service}; there are {', '.join(TYPES)}.")
    return TYPES[service]


def service_of(type: str, value: object) -> str:
    """Return the word for a type; of several, the one that its client sent as `value`."""
    return value if isinstance(value, str) and TYPES.get(value) == type else type


def understood(service: str, config: Mapping[str, Any]) -> ParsedSettings:
    """Return a config's settings by our names. Refusal: 400 for a destination that is not reached directly."""
    if (way := config.get("connection_type")) not in (None, "", DIRECTLY):
        raise Refusal(400, f"A destination is reached directly; connection_type {way} is not there.")
    echoed = {k: v for k, v in config.items() if k in NO_EFFECT or k.startswith(_NO_EFFECT_PREFIXES)}
    spec = {k: v for k, v in config.items() if k not in echoed and v != MASK and k != "type"}
    if isinstance(port := spec.get("port"), str) and port.isdecimal():
        spec["port"] = int(port)
    if service != TYPES[service] and TYPES[service] == "iceberg":
        parts = [str(spec.pop(key)).strip("/") for key in _LAKE if spec.get(key)]
        echoed |= {key: config[key] for key in _LAKE if key in config}
        spec |= {"warehouse": f"s3://{'/'.join(parts)}"} if parts else {}
    return ParsedSettings(spec, {k: v for k, v in echoed.items() if v != MASK})


router = APIRouter()
_OFFSET = r"^[+-]?(\d|1[0-2])$"
_NOTED = {"region", "time_zone_offset", "daylight_saving_time_enabled"}
"""Keys that have no meaning here, and are answered as they were sent."""


class DestinationChange(RequestBody):
    region: str = Field(default="", max_length=100)
    time_zone_offset: str = Field(default="0", pattern=_OFFSET)
    config: dict[str, Any] = Field(default_factory=dict)
    daylight_saving_time_enabled: Truth | None = None
    networking_method: str = Field(default="Directly", max_length=100)
    private_link_id: str = Field(default="", max_length=200)
    proxy_agent_id: str = Field(default="", max_length=200)
    hybrid_deployment_agent_id: str = Field(default="", max_length=200)
    trust_certificates: Truth | None = None
    trust_fingerprints: Truth | None = None
    run_setup_tests: Truth = True


class NewDestination(DestinationChange):
    group_id: str = Field(min_length=1)
    service: str = Field(min_length=1)


@router.get("/destinations", **lists(DestinationOut))
def destinations(request: Request, context: RequestContextDep) -> JSONResponse:
    seen = window(request)
    items, cursor = seen.cut(named(context, ("destination",), seen.after, seen.limit + 1), lambda item: item.name)
    return page("Destinations retrieved successfully", _shown(context, items), cursor)


@router.post("/destinations", **route_options(TestedDestination, takes=NewDestination, status=201))
def create(context: RequestContextDep, body: Body) -> JSONResponse:
    parsed, objects, who = parse(NewDestination, body), context.ports.objects, context.caller.name
    type, config = type_of(parsed.service), understood(parsed.service, parsed.config)
    _check_way(parsed)
    group = existing(context, "Group", parsed.group_id)
    if group.kind == "destination":
        raise Refusal(409, f"Group '{group.name}' has a destination already.")
    with context.ports.store.transaction():
        objects.delete("group", group.name, who)
        made = objects.create("destination", group.name, {**config.spec, "type": type}, who, group)
        named_otherwise = group.spec.get("name") not in (None, group.name)
        fields = {
            **({"name": group.spec["name"]} if named_otherwise else {}),
            **({} if parsed.service == type else {"service": parsed.service}),
        }
        note(context, "destination", made.name, {**fields, **_noted_of(parsed), **_echoed(config)})
        context.ports.store.setups.reached(made.name, UNTESTED)
        context.record(id=made.name, fields=fields_of(body))
    complete_waiting(context, made.name)
    tests = at_once(destination_tests, context, made.name) if parsed.run_setup_tests else []
    view = {**_view(context, made), "setup_tests": tests}
    return success(parsed.remark("Destination has been created"), view, status=201)


@router.get("/destinations/{id}", **route_options(DestinationOut))
def retrieve(id: Name, context: RequestContextDep) -> JSONResponse:
    return success("", _view(context, existing(context, "Destination", id)))


@router.patch("/destinations/{id}", **route_options(TestedDestination, takes=DestinationChange))
def change(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Change a destination; test it if its settings change or a test is requested."""
    item, parsed = existing(context, "Destination", id), parse(DestinationChange, body)
    _check_way(parsed)
    fields = noted(context.ports, "destination", [id]).get(id, {})
    given = understood(service_of(str(item.spec.get("type", "")), fields.get("service")), parsed.config)
    config = dict(given.spec)
    with context.write(body):
        if config:
            item = context.ports.objects.change("destination", id, config, context.caller.name)
        note(context, "destination", id, {**_noted_of(parsed), **_echoed(given)})
    run_tests = parsed.run_setup_tests and (config or "run_setup_tests" in parsed.model_fields_set)
    tests = at_once(destination_tests, context, id) if run_tests else []
    view = {**_view(context, item), "setup_tests": tests}
    return success(parsed.remark("Destination has been updated"), view)


@router.delete("/destinations/{id}", **route_options())
def delete(id: Name, context: RequestContextDep) -> JSONResponse:
    """Delete a destination; its group stays without one."""
    item = existing(context, "Destination", id)
    name = group_names(context, [item])[id]
    with context.write():
        remove(context, item)
        context.ports.objects.create("group", id, {"name": name}, context.caller.name, item)
    return success(f"Destination with id '{id}' has been deleted")


@router.post("/destinations/{id}/test", **route_options(TestedDestination))
def test(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Test a destination: a scratch table is created, written, altered and dropped."""
    item = existing(context, "Destination", id)
    tests = destination_tests(context, id, recorded=True)
    return success("Setup tests have been completed", {**_view(context, item), "setup_tests": tests})


def _check_way(change: DestinationChange) -> None:
    if change.networking_method != "Directly":
        method = change.networking_method
        raise Refusal(400, f"A destination is reached directly; networking_method {method} is not there.")
    if ids := [name for name in AGENTS if getattr(change, name)]:
        text = "a destination is reached directly: there are no agents and no private links"
        raise Refusal(400, f"{', '.join(ids)}: {text}.", hint="leave it out")


def _noted_of(change: DestinationChange) -> dict[str, Any]:
    return change.model_dump(include=_NOTED, exclude_unset=True)


def _echoed(config: ParsedSettings) -> dict[str, Any]:
    return {"config": dict(config.echoed)} if config.echoed else {}


def _view(context: RequestContext, item: Item) -> dict[str, Any]:
    [destination] = _shown(context, [item])
    return destination


def _shown(context: RequestContext, items: Sequence[Item]) -> list[dict[str, Any]]:
    names = [item.name for item in items]
    notes, wrong = noted(context.ports, "destination", names), context.ports.store.setups.destinations(names)
    return [_destination(item, notes.get(item.name, {}), wrong.get(item.name, "")) for item in items]


def _destination(item: Item, fields: Mapping[str, Any], wrong: str) -> dict[str, Any]:
    """Return the destination for the API; `fields` is what is recorded of it, `wrong` why it does not work."""
    config = {**(fields.get("config") or {}), **{k: _masked(k, v) for k, v in item.spec.items() if k != "type"}}
    service = service_of(str(item.spec.get("type", "")), fields.get("service"))
    status = "incomplete" if wrong == UNTESTED else "broken" if wrong else "connected"
    return {
        "id": item.name,
        "group_id": item.name,
        "service": service,
        "region": fields.get("region") or "LOCAL",
        "time_zone_offset": fields.get("time_zone_offset", "0"),
        **{name: fields[name] for name in ("daylight_saving_time_enabled",) if name in fields},
        "setup_status": status,
        "networking_method": "Directly",
        "config": config,
    }


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _masked(k, v) for k, v in value.items()}
    return MASK if SECRET_NAME.search(name) else value
