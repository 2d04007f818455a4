"""Bodies of requests that make or change a connection: what is read, what is refused, what is only answered again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from instep.control.compat import CompatDocuments, noted_of
from instep.operations.values import ObjectKind
from instep.project.documents import masked
from instep.server.fivetran_api.http.envelope import Refusal
from instep.server.fivetran_api.http.ports import Ports
from instep.server.fivetran_api.http.request_body import RequestBody, Truth
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.services import (
    DEFAULT,
    FREQUENCIES,
    NAMES,
    TYPES,
    not_understood,
    understood,
    unknown,
)
from instep.server.fivetran_api.objects import merged

Delay = Literal["LOW", "NORMAL", "HIGH", "CUSTOM", "SYNC_FREQUENCY"]
Schedule = Literal["auto", "manual"]
MAX_DELAY = 1_000_000
_HOUR = r"^([01]\d|2[0-3]):00$"
ECHOED = (
    "pause_after_trial",
    "data_delay_sensitivity",
    "data_delay_threshold",
    "destination_schema_names",
    "destination_configuration",
    "connect_card_config",
)
"""Keys without an effect here, which are stored because clients read them back."""
AGENTS = ("private_link_id", "proxy_agent_id", "hybrid_deployment_agent_id")
WAYS = (*AGENTS, "external_secrets_manager_id")
"""Ways to a source, or to its secrets, that there are none of here."""


class ConnectionFields(RequestBody):
    """Fields that may be set at any time."""

    pause_after_trial: Truth | None = None
    data_delay_sensitivity: Delay | None = None
    data_delay_threshold: int | None = Field(default=None, ge=0, le=MAX_DELAY)
    destination_schema_names: Literal["FIVETRAN_NAMING", "SOURCE_NAMING"] | None = None
    destination_configuration: dict[str, Any] | None = None
    connect_card_config: dict[str, Any] | None = None
    networking_method: str | None = Field(default=None, max_length=100)
    private_link_id: str | None = Field(default=None, max_length=200)
    proxy_agent_id: str | None = Field(default=None, max_length=200)
    hybrid_deployment_agent_id: str | None = Field(default=None, max_length=200)
    vault: str | None = Field(default=None, max_length=200, alias="external_secrets_manager_id")
    auth: dict[str, Any] | None = None
    trust_certificates: Truth | None = None
    trust_fingerprints: Truth | None = None
    run_setup_tests: Truth | None = None

    def echoed(self) -> dict[str, Any]:
        """Return the fields that are told back, those that were said."""
        return {name: value for name in ECHOED if (value := getattr(self, name)) is not None}


class NewConnection(ConnectionFields):
    group_id: str = Field(min_length=1)
    service: str = Field(min_length=1, max_length=100)
    config: dict[str, Any] = Field(default_factory=dict)
    paused: Truth = False
    sync_frequency: int = DEFAULT
    daily_sync_time: str = Field(default="00:00", pattern=_HOUR)
    schedule_type: Schedule = "auto"


class ConnectionChange(ConnectionFields):
    group_id: str | None = None
    service: str | None = None
    config: dict[str, Any] | None = None
    paused: Truth | None = None
    sync_frequency: int | None = None
    daily_sync_time: str | None = Field(default=None, pattern=_HOUR)
    schedule_type: Schedule | None = None
    is_historical_sync: Truth | None = None
    schema_status: Literal["ready", "blocked_on_capture"] | None = None


def check_frequency(minutes: int | None) -> None:
    if minutes is not None and minutes not in FREQUENCIES:
        raise Refusal(400, f"sync_frequency must be one of {', '.join(map(str, FREQUENCIES))} (minutes).")


def check_config(service: str, config: Mapping[str, Any]) -> None:
    if strange := not_understood(service, config):
        keys = ", ".join(strange[:10])
        raise Refusal(
            400, f"config of {service}: none of these keys is known: {keys}.", hint=f"known are {understood(service)}"
        )


def check_way(body: ConnectionFields, way: str) -> None:
    """Raise Refusal for a body that would have its source reached otherwise than by `way`, the connection's
    networking method."""
    fields = body.model_dump(by_alias=True)
    if ids := [name for name in WAYS if fields[name]]:
        text = "the worker connects by itself: there are no agents, no private links and no managers of secrets"
        raise Refusal(400, f"{', '.join(ids)}: {text}.", hint="leave it out")
    if body.networking_method not in (None, "", way):
        hint = "say so, or leave it out"
        if body.networking_method == "SshTunnel":
            hint = "an `ssh` section in the settings of its source (PATCH /api/v1/sources/NAME) makes it SshTunnel"
        text = f"networking_method {body.networking_method}: the source of this connection is reached {way}"
        raise Refusal(400, f"{text}.", hint=hint)


def check_permanent(body: ConnectionChange, group: str, service: str, namespace: str = "") -> None:
    """Raise Refusal for another value of what is fixed at creation; the namespace ("": not known yet) from when the
    connection has a source."""
    config = body.config or {}
    changed = [("group_id", body.group_id, group)]
    changed += [(f"config.{key}", str(config[key]), namespace) for key in NAMES if namespace and config.get(key)]
    if TYPES.get(body.service or "", body.service) != TYPES.get(service, service):
        changed.append(("service", body.service, service))
    for field, value, now in changed:
        if value not in (None, now):
            hint = "leave it out, or make another connection"
            raise Refusal(400, f"{field} of a connection is permanent: it is {now}.", hint=hint)


def left_out(service: str, body: NewConnection | ConnectionChange, config: Mapping[str, Any] | None) -> list[str]:
    """Return the names of what was sent and means nothing here; none for a service that is not read here."""
    if service not in TYPES:
        return []
    daily = "daily_sync_time" in body.model_fields_set and body.sync_frequency not in (None, 1440)
    more = [name for name, lost in (("auth", bool(body.auth)), ("daily_sync_time", daily)) if lost]
    return [*unknown(service, config or {}), *more, *body.unread]


def noted(ports: Ports, kind: ObjectKind, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the notes of these objects by name, in one query; objects without notes are left out."""
    by_document = {noted_of(kind, name): name for name in names}
    return {by_document[one.name]: masked(one.spec) for one in ports.store.objects.get_many("noted", [*by_document])}


def note(context: RequestContext, kind: ObjectKind, name: str, fields: Mapping[str, Any]) -> None:
    """Add to what is noted of an object, as a JSON merge patch does."""
    if fields:
        with context.ports.store.transaction():
            before = noted(context.ports, kind, [name]).get(name, {})
            CompatDocuments(context.ports.store).put(
                "noted", noted_of(kind, name), merged(before, fields), who=context.caller.name
            )
