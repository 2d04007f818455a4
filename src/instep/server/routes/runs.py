"""Runs, and the plans that runs have carried out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from instep.errors import InstepError
from instep.model import RunKind, RunStatus, TableRun
from instep.server.access import CallerDep, ServerDep
from instep.server.models import Page, PlanOut, PlanWithSteps, RunOut, RunWithTables, StepOut, TableRunOut
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import unknown
from instep.server.responses import ConnectionName, name, router
from instep.server.writes import tagged
from instep.store.server.pages import Only

routes = router("runs")


@routes.get("/runs", response_model=Page[RunOut])
def list_runs(
    who: CallerDep,
    the: ServerDep,
    limit: Limit = 100,
    cursor: Cursor = None,
    connection: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[tuple[RunStatus, ...], Query(max_length=6)] = (),
    kind: Annotated[tuple[RunKind, ...], Query(max_length=10)] = (),
) -> Any:
    """Newest first."""
    behind = place(cursor, datetime, str)
    only = Only(the.only(who, connection), status, kind)
    found = the.store.pages.runs(only, (behind[0], behind[1]) if behind else None, limit + 1)
    return paged(found, limit, lambda one: (one.started, one.id), RunOut.model_validate)


@routes.get("/runs/{run}", response_model=RunWithTables)
def get_run(
    request: Request, who: CallerDep, the: ServerDep, run: Annotated[str, name("A run's id, r-...")]
) -> Response:
    """With what it did to each table."""
    try:
        found = the.store.runs.get(run)
    except InstepError:
        raise unknown("run", run) from None
    if found.id != run or not the.sees(who, found.connection):
        raise unknown("run", run)
    tables = [_table(one).model_dump(mode="json") for one in the.store.runs.tables(run)]
    return tagged(request, {**RunOut.model_validate(found).model_dump(mode="json"), "tables": tables})


def _table(found: TableRun) -> TableRunOut:
    values = {k: v for k, v in vars(found).items() if k not in ("run", "table")}
    return TableRunOut(table=".".join(filter(None, found.table)), ref=list(found.table), **values)


@routes.get("/connections/{connection}/plans", response_model=Page[PlanOut])
def list_plans(
    who: CallerDep, the: ServerDep, connection: ConnectionName, limit: Limit = 100, cursor: Cursor = None
) -> Any:
    """Newest first."""
    behind = place(cursor, int)
    found = the.store.pages.plans(the.connection(who, connection), behind[0] if behind else None, limit + 1)
    return paged(found, limit, lambda one: (one[0],), lambda one: PlanOut.model_validate(one[1]))


@routes.get("/plans/{plan}", response_model=PlanWithSteps)
def get_plan(request: Request, who: CallerDep, the: ServerDep, plan: Annotated[str, name("A plan's id.")]) -> Response:
    """With its steps."""
    try:
        found = the.store.plans.get(plan)
    except InstepError:
        raise unknown("plan", plan) from None
    if not the.sees(who, found.connection):
        raise unknown("plan", plan)
    steps = [StepOut(**{k: v for k, v in asdict(s).items() if k != "plan"}) for s in the.store.steps.of(plan)]
    shown = PlanWithSteps(**{**vars(found), "changes": list(found.changes), "steps": steps})
    return tagged(request, shown.model_dump(mode="json"))
