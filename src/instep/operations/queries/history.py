"""What happened: events, runs and applied plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import RunKind, RunStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name, NameList


@dataclass(frozen=True)
class ListEvents(Query):
    """List events, newest first."""

    connection: Name | None = None
    """Only items of this connection."""
    type: NameList = ()
    """Only events of these types."""


@dataclass(frozen=True)
class ListRuns(Query):
    """List runs, newest first."""

    connection: Name | None = None
    """Only items of this connection."""
    status: Annotated[tuple[RunStatus, ...], Length(0, 6)] = ()
    """Only items with one of these statuses."""
    kind: Annotated[tuple[RunKind, ...], Length(0, 20)] = ()
    """Only runs of one of these kinds."""


@dataclass(frozen=True)
class GetRun(Query):
    """Return one run with its outcome per table."""

    run: Name
    """The run's id."""


@dataclass(frozen=True)
class ListPlans(Query):
    """List applied plans of a connection with their steps, newest first, without the plan documents."""

    connection: Name
    """The connection."""


@dataclass(frozen=True)
class GetPlan(Query):
    """Return one applied plan with its steps."""

    plan: Name
    """The plan's id."""


SPECS = (
    QuerySpec(
        "list_events",
        role="viewer",
        route="GET /events",
        query=ListEvents,
        result="instep.store.history.recorded_event:LoggedEvent",
        work="instep.control.queries.history:EventList",
        paged=True,
    ),
    QuerySpec(
        "list_runs",
        role="viewer",
        route="GET /runs",
        query=ListRuns,
        result="instep.model:Run",
        work="instep.control.queries.history:RunList",
        paged=True,
    ),
    QuerySpec(
        "get_run",
        role="viewer",
        route="GET /runs/{run}",
        query=GetRun,
        result="instep.control.queries.history:RunWithTables",
        work="instep.control.queries.history:RunDetails",
    ),
    QuerySpec(
        "list_plans",
        role="viewer",
        route="GET /connections/{connection}/plans",
        query=ListPlans,
        result="instep.control.queries.history:AppliedPlan",
        work="instep.control.queries.history:PlanList",
        paged=True,
    ),
    QuerySpec(
        "get_plan",
        role="viewer",
        route="GET /plans/{plan}",
        query=GetPlan,
        result="instep.control.queries.history:PlanWithDocument",
        work="instep.control.queries.history:PlanDetails",
    ),
)
