"""Notifications (channels and the routes to them), the addresses that users may let the product connect to, and the
receivers of traces and lineage.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from instep.egress.guard import check_allowed
from instep.errors import ProjectError
from instep.operations.spec import Role
from instep.project.sections.schedule import of_the_day, time_zone
from instep.project.sections.values import Patterns, Port, Seconds, Secret, Section, Text, Url, Words
from instep.schema.catalog.globs import fits_glob
from instep.schema.changes.kinds import KINDS

Occasion = Literal[
    "detected",
    "review_needed",
    "breaking",
    "ignored",
    "applied",
    "paused",
    "resumed",
    "failed",
    "done",
    "late",
    "rollout",
]
Severity = Literal["info", "warning", "error"]
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_ADDRESS = re.compile(r"[^\s@<>,;\"\\\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,255}")


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("notice", "{text}", {"text": text})


def _digest(value: str) -> str:
    if value and value != "daily" and not _TIME.fullmatch(value):
        raise _wrong(f"{value!r} is not a time of day: write daily (at 08:00), or a time such as 17:30")
    return value


def _address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise _wrong(f"{value!r} is not an address: write name@example.org")
    return value


def _allowed(value: str) -> str:
    try:
        return check_allowed(value)
    except ProjectError as error:
        raise _wrong(f"{error.message}: {error.hint}") from None


def _server(value: str) -> str:
    if value and not re.fullmatch(r"https?://[^\s<>\"'\\@]+", value):
        raise _wrong("must be the address of the server's pages, such as https://instep.example.org")
    return value.rstrip("/")


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    for glob in value:
        if not any(fits_glob(kind, glob) for kind in KINDS):
            raise _wrong(
                f"{glob!r} is not a kind of change: write one such as column.added, or a glob such as column.*"
            )
    return value


ServerUrl = Annotated[str, AfterValidator(_server)]
Address = Annotated[str, AfterValidator(_address)]


class Notify(Section):
    """Notifications that a channel gets: `on` these events, from this `severity` up, about changes of these `kinds`
    (globs such as `column.*`)."""

    on: Annotated[tuple[Occasion, ...], Field(min_length=1)]
    to: str
    severity: Severity = "info"
    kinds: Annotated[Words, AfterValidator(_kinds)] = ()


class Route(Notify):
    """Notifications of all connections with one of the `tags`, into one of the `groups` (destinations), or whose name
    matches a pattern of `connections`; a filter that is not set matches all."""

    tags: Words = ()
    groups: Words = ()
    connections: Patterns = ()


class Egress(Section):
    """`allow` lists private networks, addresses and host names that notifications may be sent to."""

    allow: Annotated[tuple[Annotated[str, AfterValidator(_allowed)], ...], Field(max_length=200)] = ()


class ChannelSection(Section):
    """Delivery times of a channel: one message a day (`digest`: at that time), or at once except in `quiet` hours.
    Pauses and failures are sent at once."""

    digest: Annotated[str, AfterValidator(_digest)] = ""
    quiet: Annotated[str, AfterValidator(of_the_day)] = ""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"
    timeout: Annotated[Seconds, Field(gt=0, le=30)] = 10


class EmailChannelSection(ChannelSection):
    """`tls`: `starttls` and `tls` (from the first byte) verify the server's certificate, against the authorities in
    `ca` if given."""

    files: ClassVar[tuple[str, ...]] = ("ca",)
    type: Literal["email"]
    to: Annotated[tuple[Address, ...], Field(min_length=1, max_length=100)]
    sender: Address
    host: Text = "localhost"
    port: Port = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: Text = ""
    password: Secret = ""
    ca: Text = ""

    @model_validator(mode="after")
    def _not_in_clear(self) -> EmailChannelSection:
        if self.password and self.tls == "none":
            raise _wrong("a password is not sent without TLS: set tls to starttls or tls")
        return self


class PostChannelSection(ChannelSection):
    """An incoming webhook, or the address of a workflow."""

    type: Literal["slack", "teams"]
    url: Secret


class WebhookChannelSection(ChannelSection):
    """`secret` (whsec_...) signs the messages; during a rotation `former_secret` signs them too. `ca` has the
    authorities for the receiver's certificate."""

    files: ClassVar[tuple[str, ...]] = ("ca",)
    type: Literal["webhook"]
    url: Secret
    secret: Secret
    former_secret: Secret = ""
    ca: Text = ""


class AppriseChannelSection(ChannelSection):
    """A channel for any service that Apprise supports (extra `apprise`); `url` is an Apprise URL."""

    type: Literal["apprise"]
    url: Secret


Channel = Annotated[
    EmailChannelSection | PostChannelSection | WebhookChannelSection | AppriseChannelSection,
    Field(discriminator="type"),
]


Timeout = Annotated[Seconds, Field(gt=0, le=30)]


class TracesSection(Section):
    """Traces, sent to the `url` of a collector that accepts OTLP over HTTP, such as https://collector:4318/v1/traces;
    empty: no traces. `headers` are secrets. `sample` is the share of runs that is traced."""

    files: ClassVar[tuple[str, ...]] = ("ca",)
    url: Url = ""
    headers: dict[str, Secret] = Field(default_factory=dict)
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    timeout: Timeout = 10
    ca: Text = ""


class LineageSection(Section):
    """OpenLineage events, sent to a `url` such as https://marquez/api/v1/lineage or appended to a `file`; without
    either none are written. `namespace` of the jobs; empty: the project's name."""

    files: ClassVar[tuple[str, ...]] = ("ca", "file")
    url: Url = ""
    file: Text = ""
    namespace: Text = ""
    headers: dict[str, Secret] = Field(default_factory=dict)
    timeout: Timeout = 10
    ca: Text = ""

    @model_validator(mode="after")
    def _one_way(self) -> LineageSection:
        if self.url and self.file:
            raise PydanticCustomError("lineage", "lineage goes to a url or to a file: name one of them")
        return self

    @property
    def on(self) -> bool:
        return bool(self.url or self.file)


class OidcSection(Section):
    """Sign-in to the page at an OpenID Connect provider: the `issuer` is its address, such as https://login.example.org;
    empty: none. `roles` gives the roles of its groups, which the claim `groups` of its ID token names; `*` stands for
    everybody."""

    files: ClassVar[tuple[str, ...]] = ("ca",)
    issuer: Url = ""
    client_id: Text = ""
    client_secret: Secret = ""
    groups: Text = "groups"
    roles: dict[str, Role] = Field(default_factory=dict)
    timeout: Timeout = 10
    ca: Text = ""

    @model_validator(mode="after")
    def _whole(self) -> OidcSection:
        if self.issuer and not (self.client_id and self.roles):
            raise PydanticCustomError("oidc", "`client_id` and `roles` are required beside `issuer`")
        return self


_DAY = 86_400.0
RetentionSeconds = Annotated[Seconds, Field(ge=_DAY)]


class RetentionSection(Section):
    """Ages after which records are deleted: `runs` with their tables, `events` that are not history, `deliveries` of
    notifications and `jobs` after their end; `rollouts` after their last change. At least one day each."""

    runs: RetentionSeconds = 90 * _DAY
    events: RetentionSeconds = 90 * _DAY
    deliveries: RetentionSeconds = 90 * _DAY
    jobs: RetentionSeconds = 30 * _DAY
    rollouts: RetentionSeconds = 90 * _DAY

    def period(self, what: str) -> timedelta:
        return timedelta(seconds=float(getattr(self, what)))
