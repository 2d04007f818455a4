"""Models of the answers of the compatible API, for its description; the tests check every answer against them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Out(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Done(Out):
    """The envelope without `data`."""

    code: Literal["Success"]
    message: str = ""


class One(Out, Generic[T]):
    code: Literal["Success"]
    message: str = ""
    data: T


class Items(Out, Generic[T]):
    items: list[T]
    next_cursor: str | None
    nextCursor: str | None


class RefusedAnswer(Out):
    """The body of a refusal."""

    code: str = Field(description="The word to compare.")
    message: str
    request_id: str = Field(description="The request's id in the server's log.")
    hint: str = ""


class TaskDocument(Out):
    code: str
    message: str
    details: str


class StatusOut(Out):
    setup_state: Literal["incomplete", "connected", "broken"]
    schema_status: Literal["ready"]
    sync_state: Literal["scheduled", "syncing", "paused", "rescheduled"]
    update_state: Literal["on_schedule", "delayed"]
    is_historical_sync: bool
    rescheduled_for: datetime | None
    tasks: list[TaskDocument]
    warnings: list[TaskDocument]


class ConnectionDocument(Out):
    """Document of a connection. The fields at the end were sent by a client and have no effect."""

    id: str
    group_id: str
    service: str
    service_version: int
    schema_: str = Field(alias="schema")
    connected_by: str | None
    created_at: datetime
    succeeded_at: datetime | None
    failed_at: datetime | None
    paused: bool
    pause_after_trial: bool
    sync_frequency: int
    daily_sync_time: str = ""
    schedule_type: str
    data_delay_sensitivity: str
    data_delay_threshold: int
    networking_method: str
    status: StatusOut
    config: dict[str, Any]
    destination_schema_names: str = ""
    destination_configuration: dict[str, Any] = Field(default_factory=dict)
    connect_card_config: dict[str, Any] = Field(default_factory=dict)
    private_link_id: str = ""
    proxy_agent_id: str = ""
    hybrid_deployment_agent_id: str = ""
    vault: str = Field(default="", alias="external_secrets_manager_id")


class SetupTest(Out):
    title: str
    status: Literal["PASSED", "SKIPPED", "WARNING", "FAILED", "JOB_FAILED"]
    message: str
    details: str


class TestedConnection(ConnectionDocument):
    setup_tests: list[SetupTest]


class Locks(Out):
    allowed: bool
    reason_code: Literal["SYSTEM_TABLE", "SYSTEM_COLUMN", "DELETED", "OTHER"] = "OTHER"
    reason: str = ""


class ColumnOut(Out):
    name_in_destination: str
    enabled: bool
    hashed: bool
    is_primary_key: bool
    enabled_patch_settings: Locks


class ColumnsOut(Out):
    columns: dict[str, ColumnOut]


class TableOut(ColumnsOut):
    name_in_destination: str
    enabled: bool
    sync_mode: Literal["SOFT_DELETE", "HISTORY", "LIVE"] = "SOFT_DELETE"
    enabled_patch_settings: Locks
    supports_columns_config: bool
    supports_history_mode: bool


class SchemaOut(Out):
    name_in_destination: str
    enabled: bool
    tables: dict[str, TableOut]


class SchemasOut(Out):
    """Keys are the names at the source."""

    enable_new_by_default: bool
    schema_change_handling: Literal["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"]
    schemas: dict[str, SchemaOut]


class StateOut(Out):
    state: dict[str, Any]


class GroupOut(Out):
    id: str
    name: str
    created_at: datetime


class DestinationOut(Out):
    id: str
    group_id: str
    service: str
    region: str
    time_zone_offset: str
    daylight_saving_time_enabled: bool = False
    setup_status: Literal["incomplete", "connected", "broken"]
    networking_method: str
    config: dict[str, Any]


class TestedDestination(DestinationOut):
    setup_tests: list[SetupTest]


class UserOut(Out):
    id: str
    email: str
    given_name: str
    family_name: str
    verified: bool
    invited: bool
    picture: str | None
    phone: str | None
    logged_in_at: datetime | None
    created_at: datetime | None
    active: bool
    role: str | None


class AccountOut(Out):
    account_id: str
    account_name: str
    user_id: str


class WebhookOut(Out):
    id: str
    type: Literal["account", "group"]
    group_id: str = ""
    url: str
    events: list[str]
    active: bool
    secret: Literal["******"]
    created_at: datetime
    created_by: str


class TriedOut(Out):
    succeed: bool
    status: int
    message: str


class ConnectorTypeOut(Out):
    id: str
    name: str
    type: str
    description: str
    icon_url: str | None
    icons: list[str]
    link_to_docs: str | None
    connector_class: str
    service_status: str


class ConnectorTypeWhole(ConnectorTypeOut):
    config: dict[str, Any]


class NamedOut(Out):
    """A schema, or a table (`parent_id`: its schema)."""

    id: str
    name_in_source: str
    name_in_destination: str
    parent_id: str = ""


class NamedColumnOut(NamedOut):
    type_in_source: str
    type_in_destination: str
    is_primary_key: bool
    is_foreign_key: bool
