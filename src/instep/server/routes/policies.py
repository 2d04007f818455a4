"""Tests and simulations of policies. Nothing is written."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi.encoders import jsonable_encoder
from pydantic import AfterValidator, Field

from instep.control.policy.policies import run_cases, simulated, tested
from instep.control.policy.simulation import simulate
from instep.control.times import aware
from instep.project.documents import check_storable, section_of
from instep.project.files.policy_files import SampleCase
from instep.project.sections.policies import PolicySection
from instep.server.access import CallerDep, ServerDep
from instep.server.models import Name, RequestModel, ResponseModel
from instep.server.responses import ConnectionName, router


class Cases(RequestModel):
    """Sample changes, in the format of `instep policy test`."""

    cases: Annotated[list[SampleCase], Field(min_length=1, max_length=1000)]


class CasesDecided(ResponseModel):
    """Decisions in the order of the cases. `problem` is the reason why a case is not a valid change."""

    results: list[dict[str, Any]]


class Another(RequestModel):
    """Policy to simulate. `policy` has the form of an entry of `policies:`; `since` limits the simulation to changes
    first seen at that time or later (UTC without an offset)."""

    name: Name
    policy: dict[str, Any]
    since: Annotated[datetime, AfterValidator(aware)] | None = None


routes = router("policies")


@routes.post("/connections/{connection}/policy/test", response_model=CasesDecided)
def run_policy_cases(who: CallerDep, the: ServerDep, connection: ConnectionName, asked: Cases) -> Any:
    """Decide sample changes and compare the decisions with the expected ones. Nothing is written."""
    found = run_cases(the.project, the.connection(who, connection), asked.cases)
    return jsonable_encoder({"results": [tested(one) for one in found]})


@routes.post("/connections/{connection}/policy/simulation", response_model=dict[str, Any])
def simulate_policy(who: CallerDep, the: ServerDep, connection: ConnectionName, asked: Another) -> Any:
    """Compare what this policy would have decided on every recorded change with the decisions made then. Nothing is
    written."""
    name = the.connection(who, connection)
    check_storable("policy", asked.name, asked.policy)
    section = section_of("policy", asked.name, asked.policy)
    assert isinstance(section, PolicySection)
    return jsonable_encoder(simulated(simulate(the.project, the.store, name, asked.name, section, asked.since)))
