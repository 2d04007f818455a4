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
    """Sample changes as files of `instep policy test` have them."""

    cases: Annotated[list[SampleCase], Field(min_length=1, max_length=1000)]


class CasesDecided(ResponseModel):
    """Parallel to the cases; `problem` of one says why it can be no such change."""

    results: list[dict[str, Any]]


class Another(RequestModel):
    """`policy` is what stands under one name of `policies:`; `since`: only changes first seen then or
    later, in UTC where it does not say otherwise."""

    name: Name
    policy: dict[str, Any]
    since: Annotated[datetime, AfterValidator(aware)] | None = None


routes = router("policies")


@routes.post("/connections/{connection}/policy/test", response_model=CasesDecided)
def run_policy_cases(who: CallerDep, the: ServerDep, connection: ConnectionName, asked: Cases) -> Any:
    """Decides sample changes and compares with what is expected. Nothing is written."""
    found = run_cases(the.project, the.connection(who, connection), asked.cases)
    return jsonable_encoder({"results": [tested(one) for one in found]})


@routes.post("/connections/{connection}/policy/simulation", response_model=dict[str, Any])
def simulate_policy(who: CallerDep, the: ServerDep, connection: ConnectionName, asked: Another) -> Any:
    """What this policy would have decided on every recorded change, beside what was decided then. Nothing is
    written."""
    name = the.connection(who, connection)
    check_storable("policy", asked.name, asked.policy)
    section = section_of("policy", asked.name, asked.policy)
    assert isinstance(section, PolicySection)
    return jsonable_encoder(simulated(simulate(the.project, the.store, name, asked.name, section, asked.since)))
