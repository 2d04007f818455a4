"""Who may do what: the role that each route needs. A route that is missing here does not start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instep.control.resources.api_keys import ROLES
from instep.model import Job
from instep.operations.registry import immediate_specs, query_specs, spec_of, specs
from instep.operations.spec import Role

PREFIX = "/api/v1"


NEEDS: Mapping[str, Role] = {
    "GET /metrics": "viewer",
    "GET /jobs/{job}": "viewer",
    "GET /events/stream": "viewer",
    **{spec.route: spec.role for spec in specs().values()},
    **{spec.route: spec.role for spec in query_specs().values()},
    **{spec.route: spec.role for spec in immediate_specs().values()},
}
CONSENTS = ("drop_columns", "drop_retained", "allow")
"""The options of jobs that say what may be dropped, which takes an approver."""


def again(job: Job) -> Role:
    """Return what trying a job again takes: what asking for it takes. Some are told what may be dropped, too."""
    if any(job.options.get(name) for name in CONSENTS):
        return "approver"
    return spec_of(job.kind).role


OPEN = frozenset(
    {"GET /healthz", "GET /readyz", f"GET {PREFIX}/openapi.json", f"GET {PREFIX}/docs", f"GET {PREFIX}/docs.css"}
)
"""Routes without a key: they tell nothing of what the server keeps."""

WHOLE = frozenset(
    {
        "GET /metrics",
        *(spec.route for spec in query_specs().values() if spec.whole),
        *(spec.route for spec in immediate_specs().values() if spec.whole),
    }
)
"""Routes that are about the whole server: a key that is for some groups is not let in."""


@dataclass(frozen=True)
class Need:
    """Rights that a request needs."""

    role: Role
    whole: bool = False
    """True if it is about the whole server: a key that is limited to groups is refused."""


def need(*routes: str) -> Need:
    """Return what doing all that these routes do takes: the highest role, and a key without groups if one needs it."""
    return Need(max((NEEDS[route] for route in routes), key=ROLES.index), not WHOLE.isdisjoint(routes))
