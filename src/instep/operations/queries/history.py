"""Queries for events, runs, applied plans, versions of schemas, and the history of one table or column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import (
    Length,
    Name,
    NameList,
    NumberRange,
    RunKind,
    RunStatus,
    SettingText,
    Side,
    TableOutcomeStatus,
)


@dataclass(frozen=True)
class ListEvents(Query):
    """List events, newest first."""

    connection: Name | None = None
    """Only items of this connection."""
    type: NameList = ()
    """Only events of these types."""
    run: Name | None = None
    """Only events of the run with this id."""
    who: Name | None = None
    """Only events with this actor."""
    status: Name | None = None
    """Only events that ended with this status."""
    since: datetime | None = None
    """Only events at this time or later, in UTC where it does not say otherwise."""
    until: datetime | None = None
    """Only events before this time, in UTC where it does not say otherwise."""


@dataclass(frozen=True)
class ListRuns(Query):
    """List runs, newest first."""

    connection: Name | None = None
    """Only items of this connection."""
    status: Annotated[tuple[RunStatus, ...], Length(0, 6)] = ()
    """Only items with one of these statuses."""
    kind: Annotated[tuple[RunKind, ...], Length(0, 20)] = ()
    """Only runs of one of these kinds."""
    id: Name | None = None
    """Only runs whose ids begin with this."""


@dataclass(frozen=True)
class GetRun(Query):
    """Return one run with the number of its tables by outcome, and the plans that it applied."""

    run: Name
    """The run's id."""


@dataclass(frozen=True)
class ListRunTables(Query):
    """List the outcomes of a run for its tables, by schema and name."""

    run: Name
    """The run's id."""
    status: Annotated[tuple[TableOutcomeStatus, ...], Length(0, 5)] = ()
    """Only tables with one of these outcomes."""


@dataclass(frozen=True)
class ListRunSteps(Query):
    """List the steps of the plans that a run applied, in the order of their execution."""

    run: Name
    """The run's id."""


@dataclass(frozen=True)
class ListLoads(Query):
    """List the runs that loaded tables of a connection with their rows and bytes, newest first."""

    connection: Name
    """The connection."""
    table: Annotated[Name, Length(1, 500)] | None = None
    """Only this accepted table (`schema.table`); none: all tables of a run together."""


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


@dataclass(frozen=True)
class GetSchema(Query):
    """Return a schema, now or at an earlier time, with the copies retained beside its tables."""

    connection: Name
    """The connection."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""
    at: Annotated[SettingText, Length(0, 50)] | None = None
    """A time (ISO 8601), or a version: 7 or 2.1."""


@dataclass(frozen=True)
class ListVersions(Query):
    """List versions of a connection's schemas, newest first."""

    connection: Name
    """The connection."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""


@dataclass(frozen=True)
class GetVersion(Query):
    """Return one version of a schema."""

    connection: Name
    """The connection."""
    version: Annotated[int, NumberRange(0, 2**31 - 1)]
    """The version's number on its side."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""


@dataclass(frozen=True)
class CompareVersions(Query):
    """List the changes from one version of a schema to another one, in the order of their tables."""

    connection: Name
    """The connection."""
    before: Annotated[int, NumberRange(0, 2**31 - 1)]
    """The number of the first version on its side; 0 for the empty schema before all versions."""
    after: Annotated[int, NumberRange(0, 2**31 - 1)]
    """The number of the other version."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""


@dataclass(frozen=True)
class GetObjectHistory(Query):
    """Return the names and all changes of one table or column, oldest first."""

    connection: Name
    """The connection."""
    of: Annotated[Name, Length(1, 500)]
    """`schema.table` or `schema.table.column`."""


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
        result="instep.control.queries.history:RunWithPlans",
        work="instep.control.queries.history:RunDetails",
    ),
    QuerySpec(
        "list_run_tables",
        role="viewer",
        route="GET /runs/{run}/tables",
        query=ListRunTables,
        result="instep.control.queries.history:TableOutcome",
        work="instep.control.queries.history:RunTableList",
        paged=True,
        largest_page=200,
    ),
    QuerySpec(
        "list_run_steps",
        role="viewer",
        route="GET /runs/{run}/steps",
        query=ListRunSteps,
        result="instep.store.catalogs.plans:StepRecord",
        work="instep.control.queries.history:RunStepList",
        paged=True,
        largest_page=200,
    ),
    QuerySpec(
        "list_loads",
        role="viewer",
        route="GET /connections/{connection}/loads",
        query=ListLoads,
        result="instep.control.queries.history:RunLoad",
        work="instep.control.queries.history:LoadList",
        paged=True,
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
    QuerySpec(
        "get_schema",
        role="viewer",
        route="GET /connections/{connection}/schema",
        query=GetSchema,
        result="instep.control.queries.history:SchemaDocument",
        work="instep.control.queries.history:SchemaAsOf",
    ),
    QuerySpec(
        "list_versions",
        role="viewer",
        route="GET /connections/{connection}/history",
        query=ListVersions,
        result="instep.control.schema_history:SchemaVersion",
        work="instep.control.queries.history:VersionList",
        paged=True,
    ),
    QuerySpec(
        "get_version",
        role="viewer",
        route="GET /connections/{connection}/history/{version}",
        query=GetVersion,
        result="instep.control.queries.history:SchemaDocument",
        work="instep.control.queries.history:VersionDetails",
    ),
    QuerySpec(
        "compare_versions",
        role="viewer",
        route="GET /connections/{connection}/version-comparison",
        query=CompareVersions,
        result="instep.control.queries.version_comparison:ComparedChange",
        work="instep.control.queries.version_comparison:VersionComparison",
        paged=True,
        page_summary="instep.control.queries.version_comparison:ComparedVersions",
    ),
    QuerySpec(
        "get_object_history",
        role="viewer",
        route="GET /connections/{connection}/trail",
        query=GetObjectHistory,
        result="instep.control.object_history:ObjectHistory",
        work="instep.control.queries.history:ObjectDetails",
    ),
)
