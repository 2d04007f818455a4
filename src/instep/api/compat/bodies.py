"""What is said of a connection when it is made or changed, what of it is refused, and what is only told back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from instep.api.compat.body import Truth, Wire
from instep.api.compat.envelope import Refusal
from instep.api.compat.frequency import DEFAULT, FREQUENCIES
from instep.api.compat.services import TYPES, not_understood, understood, unknown

Delay = Literal["LOW", "NORMAL", "HIGH", "CUSTOM", "SYNC_FREQUENCY"]
Schedule = Literal["auto", "manual"]
MAX_DELAY = 1_000_000
_HOUR = r"^([01]\d|2[0-3]):00$"
TEST_ONLY = {"run_setup_tests", "trust_certificates", "trust_fingerprints"}
TOLD = (
    "pause_after_trial", "data_delay_sensitivity", "data_delay_threshold", "destination_schema_names",
    "destination_configuration", "connect_card_config",
)  # fmt: skip
"""What has no effect here, and is kept because clients read it back."""
WAYS = ("private_link_id", "proxy_agent_id", "hybrid_deployment_agent_id")
"""Ways to a source that there are none of here."""


class Said(Wire):
    """What may be said at any time."""

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
    auth: dict[str, Any] | None = None
    run_setup_tests: Truth | None = None

    def told(self) -> dict[str, Any]:
        """The fields that are told back, those that were said."""
        return {name: value for name in TOLD if (value := getattr(self, name)) is not None}


class NewConnection(Said):
    group_id: str = Field(min_length=1)
    service: str = Field(min_length=1, max_length=100)
    config: dict[str, Any] = Field(default_factory=dict)
    paused: Truth = False
    sync_frequency: int = DEFAULT
    daily_sync_time: str = Field(default="00:00", pattern=_HOUR)
    schedule_type: Schedule = "auto"


class Change(Said):
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


def check_way(said: Said, way: str) -> None:
    """Refusal for what would have its source reached otherwise than by `way`, the networking method that it has."""
    if ids := [name for name in WAYS if getattr(said, name)]:
        text = "the worker connects by itself: there are no agents and no private links"
        raise Refusal(400, f"{', '.join(ids)}: {text}.", hint="leave it out")
    if said.networking_method not in (None, "", way):
        hint = "say so, or leave it out"
        if said.networking_method == "SshTunnel":
            hint = "an `ssh` section in the settings of its source (PATCH /api/v1/sources/NAME) makes it SshTunnel"
        text = f"networking_method {said.networking_method}: the source of this connection is reached {way}"
        raise Refusal(400, f"{text}.", hint=hint)


def left_out(service: str, said: Said, config: Mapping[str, Any] | None) -> list[str]:
    """What was sent and means nothing here, by name."""
    return [*unknown(service, config or {}), *(["auth"] if said.auth and service in TYPES else [])]
