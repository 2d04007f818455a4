"""Every key of every request body of either API, and what it may lead to.

The keys of objects within them (`spec`, `config`) have a table of their own, with what is refused:
`instep.project.allowed.keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from instep.operations.registry import immediate_specs, query_specs, specs
from instep.operations.spec import Request, served_fields
from instep.operations.values import leads_to
from instep.project.allowed.keys import NAMES, PARTS, PUBLIC, SECRET, SETTING
from instep.server.fivetran_api import (
    connection_bodies,
    connection_state,
    destinations,
    groups,
    schemas,
    syncs,
    users,
    webhooks,
)
from instep.server.immediate_routes import body_of
from instep.server.query_routes import query_body
from instep.server.requests import parts_of, request_model

SPEC = "the object's keys, above"
NO_EFFECT = "stored and returned; it has no effect"
NOWHERE = "refused, unless it says what is so anyway"
REASON = "a text for people, in the log of audits"
CONSENT = "what of the destination may be dropped; nothing is opened"
STATE = "the connector's own state, which it reads as data"
_N, _S, _P = NAMES.words, SETTING.words, PARTS.words

Words = Mapping[str, str]


def _each(**words: str) -> Words:
    """Return words by the names that have them, which are separated by spaces."""
    return {name: KINDS[kind] for kind, names in words.items() for name in names.split()}


def _of_record(record: Any, body: type[BaseModel] | None = None) -> Words:
    """Return words by the fields of an operation's request that are in its body: their types say what they lead to."""
    names = served_fields(record) if body is None else body.model_fields
    return {name: KINDS[leads_to(served_fields(record)[name])] for name in names}


def _immediate() -> Mapping[type[BaseModel], Words]:
    """Return the words of the bodies of what is done at once, and of the objects within them."""
    words = dict[type[BaseModel], Words]()
    for spec in immediate_specs().values():
        if body := body_of(spec):
            words[body] = _of_record(spec.request, body)
            words |= {part: _of_record(record) for part, record in parts_of(body).items()}
    return words


KINDS = {
    "name": _N,
    "setting": _S,
    "parts": _P,
    "spec": SPEC,
    "told": NO_EFFECT,
    "nowhere": NOWHERE,
    "reason": REASON,
    "consent": CONSENT,
    "state": STATE,
    "secret": SECRET.words,
    "public": PUBLIC.words,
}
_SHARED_FIELDS = _each(
    told="pause_after_trial data_delay_sensitivity data_delay_threshold destination_schema_names "
    "destination_configuration connect_card_config",
    nowhere="networking_method private_link_id proxy_agent_id hybrid_deployment_agent_id vault",
    spec="auth",
    setting="trust_certificates trust_fingerprints run_setup_tests",
)
_DESTINATION = _each(
    spec="config",
    told="region time_zone_offset daylight_saving_time_enabled",
    nowhere="networking_method private_link_id proxy_agent_id hybrid_deployment_agent_id",
    setting="trust_certificates trust_fingerprints run_setup_tests",
)

COMPATIBLE: Mapping[type[BaseModel], Words] = {
    connection_bodies.ConnectionFields: _SHARED_FIELDS,
    connection_bodies.NewConnection: {
        **_SHARED_FIELDS,
        **_each(name="group_id", spec="service config", setting="paused sync_frequency daily_sync_time schedule_type"),
    },
    connection_bodies.ConnectionChange: {
        **_SHARED_FIELDS,
        **_each(
            nowhere="group_id service",
            spec="config",
            setting="paused sync_frequency daily_sync_time schedule_type is_historical_sync schema_status",
        ),
    },
    destinations.NewDestination: {**_DESTINATION, **_each(name="group_id", spec="service")},
    destinations.DestinationChange: _DESTINATION,
    groups.NewGroupBody: _each(name="name"),
    users.NewUser: _each(name="email given_name family_name", setting="role", told="phone picture"),
    users.UserChange: _each(name="given_name family_name", setting="role", told="phone picture"),
    users.NewMember: _each(name="email", setting="role"),
    schemas.ConfigBody: _each(parts="schemas", setting="schema_change_handling is_type_locked"),
    schemas.SchemaBody: _each(setting="enabled", parts="tables"),
    schemas.TableBody: _each(setting="enabled sync_mode", parts="columns"),
    schemas.ColumnBody: _each(setting="enabled hashed is_primary_key"),
    schemas.ReloadBody: _each(setting="exclude_mode"),
    schemas.DropBody: _each(parts="schemas"),
    schemas.DropSchemaBody: _each(parts="tables"),
    schemas.DropTableBody: _each(consent="columns"),
    connection_state.StateBody: _each(state="state"),
    syncs.SyncBody: _each(setting="force"),
    syncs.ResyncBody: _each(name="scope"),
    webhooks.NewWebhook: _each(public="url", name="events", setting="active", secret="secret"),
    webhooks.WebhookChange: _each(public="url", name="events", setting="active", secret="secret"),
    webhooks.WebhookTest: _each(name="event"),
}
"""The effects that each key of a body of `/v1` may have, by the body's class."""
OWN: Mapping[type[BaseModel], Words] = {
    **{
        request_model(spec.request): _of_record(spec.request)
        for spec in specs().values()
        if spec.request is not Request
    },
    **_immediate(),
    **{body: _of_record(spec.query, body) for spec in query_specs().values() if (body := query_body(spec))},
}
"""The effects that each key of a body of `/api/v1` may have, by the body's class."""
