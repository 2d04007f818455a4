"""The health of the server, and the references of its sources, destinations and channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import ObjectKind


@dataclass(frozen=True)
class CheckHealth(Query):
    """Return findings on the server, its store, workers and queue. Nothing is changed."""


@dataclass(frozen=True)
class HealthFinding:
    """One finding. `state`: warn is worth a look, bad keeps something from working."""

    name: str
    state: Literal["ok", "warn", "bad"]
    detail: str
    hint: str
    """The next step, also of what is well."""


@dataclass(frozen=True)
class HealthReport:
    """The server's version, and what was found."""

    version: str
    """The version of instep."""
    healthy: bool
    """True if nothing keeps it from working."""
    findings: tuple[HealthFinding, ...]
    """The store, keys, workers, queue and notifications."""


@dataclass(frozen=True)
class ListReferences(Query):
    """List sources, destinations and channels with the references in them, and whether each has a value. No value is
    shown, and nothing is opened."""


@dataclass(frozen=True)
class ReferenceCheck:
    """The references of one object."""

    kind: ObjectKind
    name: str
    references: tuple[str, ...]
    """As they are written, such as ${env:PASSWORD}; a secret of the server as stars."""
    state: Literal["ok", "bad"]
    """bad: one of them has no value, so that the object cannot be opened."""
    detail: str
    hint: str


SPECS = (
    QuerySpec(
        "check_health",
        role="admin",
        route="GET /health",
        query=CheckHealth,
        result="instep.operations.queries.health:HealthReport",
        work="instep.bootstrap.health:HealthCheck",
        whole=True,
    ),
    QuerySpec(
        "list_references",
        role="admin",
        route="GET /references",
        query=ListReferences,
        result="instep.operations.queries.health:ReferenceCheck",
        work="instep.bootstrap.health:ReferenceList",
        paged=True,
        whole=True,
    ),
)
