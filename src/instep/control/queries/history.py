"""Answers about what happened, from the store alone.

Answers about schemas, from the store alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from instep.control import object_history, schema_history
from instep.control.queries.context import QueryContext
from instep.control.times import aware
from instep.errors import NotFound
from instep.model import Run, TableRun
from instep.operations.queries.history import (
    GetObjectHistory,
    GetPlan,
    GetRun,
    GetSchema,
    GetVersion,
    ListEvents,
    ListLoads,
    ListPlans,
    ListRuns,
    ListRunSteps,
    ListRunTables,
    ListVersions,
)
from instep.operations.spec import QueryWork
from instep.operations.values import RunKind
from instep.schema.catalog.catalog import catalog_to_dict
from instep.store.catalogs.clones import Copy
from instep.store.catalogs.plans import PlanStatus, StepRecord, StoredPlan
from instep.store.history.recorded_event import LoggedEvent
from instep.store.server.pages import RowFilter
from instep.store.store import Store


@dataclass(frozen=True)
class TableOutcome:
    """The outcome of a run for one table."""

    table: str
    """`schema.table`, or the text of a pattern of the project file that fits nothing."""
    ref: tuple[str, str]
    """The table's schema and name."""
    status: str
    mode: str
    read: int
    inserted: int
    updated: int
    deleted: int
    invalid_values: int
    bytes: int
    seconds: float
    error: str

    @classmethod
    def of(cls, table_run: TableRun) -> TableOutcome:
        """Return the outcome that the store has on record."""
        counted = {name: value for name, value in vars(table_run).items() if name not in ("run", "table")}
        return cls(".".join(filter(None, table_run.table)), table_run.table, **counted)


@dataclass(frozen=True)
class PlanSummary:
    """An applied plan without its steps and document."""

    id: str
    connection: str
    at: datetime
    status: PlanStatus
    run: str
    who: str
    version: int
    """The accepted version that it led to; 0 while there is none."""
    changes: tuple[str, ...]
    """The ids of the changes that it applied."""
    ended: datetime | None
    error: str
    base_accepted: str
    base_destination: str

    @classmethod
    def of(cls, plan: StoredPlan, **more: Any) -> Self:
        """Return the record of a stored plan."""
        return cls(**{name: value for name, value in vars(plan).items() if name != "plan"}, **more)


@dataclass(frozen=True)
class AppliedPlan(PlanSummary):
    """An applied plan with its steps, without the plan document."""

    steps: tuple[StepRecord, ...] = ()


@dataclass(frozen=True)
class PlanWithDocument(AppliedPlan):
    """An applied plan with its steps and the plan document."""

    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunWithPlans(Run):
    """A run with its number of tables by outcome, and the plans that it applied."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Number of tables by outcome."""
    plans: tuple[PlanSummary, ...] = ()


@dataclass(frozen=True)
class RunLoad:
    """Loads of one run."""

    run: str
    kind: RunKind
    number: int
    """Grows with each run of the connection."""
    started: datetime
    status: Literal["done", "failed"]
    """failed: at least one table was not loaded."""
    read: int
    inserted: int
    updated: int
    deleted: int
    invalid_values: int
    bytes: int
    seconds: float


class EventList(QueryWork):
    """Events by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListEvents, after: Sequence[Any] | None, limit: int
    ) -> Sequence[LoggedEvent]:
        """Return events, newest first."""
        named = {"run": query.run, "who": query.who, "status": query.status}
        return context.store.events.latest(
            types=query.type,
            limit=limit,
            connections=context.only(query.connection),
            before=after[0] if after else None,
            since=aware(query.since) if query.since else None,
            until=aware(query.until) if query.until else None,
            data={name: value for name, value in named.items() if value is not None},
        )

    def place(self, item: LoggedEvent) -> Sequence[Any]:
        """Return the event's number."""
        return (item.number,)


class RunList(QueryWork):
    """Runs by their start."""

    place_types = (datetime, str)

    def items(self, context: QueryContext, query: ListRuns, after: Sequence[Any] | None, limit: int) -> Sequence[Run]:
        """Return runs, newest first."""
        only = RowFilter(context.only(query.connection), query.status, query.kind, query.id or "")
        return context.store.pages.runs(only, (after[0], after[1]) if after else None, limit)

    def place(self, item: Run) -> Sequence[Any]:
        """Return the run's start and id."""
        return (item.started, item.id)


class RunDetails(QueryWork):
    """One run by its whole id."""

    def find(self, context: QueryContext, query: GetRun) -> RunWithPlans:
        """Return the run with its plans."""
        run = context.owned("run", query.run, context.store.runs.get)
        plans = map(PlanSummary.of, context.store.plans.of_run(run.connection, run.id))
        return RunWithPlans(**vars(run), outcomes=context.store.runs.outcomes_of_run(run.id), plans=tuple(plans))


class RunTableList(QueryWork):
    """Tables of one run by schema and name."""

    place_types = (str, str)

    def items(
        self, context: QueryContext, query: ListRunTables, after: Sequence[Any] | None, limit: int
    ) -> Sequence[TableOutcome]:
        """Return what the run did to each table."""
        run = context.owned("run", query.run, context.store.runs.get)
        behind = (after[0], after[1]) if after else None
        return [TableOutcome.of(table) for table in context.store.runs.tables(run.id, query.status, behind, limit)]

    def place(self, item: TableOutcome) -> Sequence[Any]:
        """Return the table's schema and name."""
        return item.ref


class RunStepList(QueryWork):
    """Steps of one run's plans, by the plans' numbers and their own."""

    place_types = (int, int)

    def items(
        self, context: QueryContext, query: ListRunSteps, after: Sequence[Any] | None, limit: int
    ) -> Sequence[StepRecord]:
        """Return steps."""
        run = context.owned("run", query.run, context.store.runs.get)
        behind = (after[0], after[1]) if after else None
        steps = context.store.steps.of_run(run.connection, run.id, behind, limit)
        self._plans = {step.plan: number for number, step in steps}
        return [step for _, step in steps]

    def place(self, item: StepRecord) -> Sequence[Any]:
        """Return the number of the plan and of the step."""
        return (self._plans[item.plan], item.number)


class LoadList(QueryWork):
    """Loads of one connection, by the runs' numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListLoads, after: Sequence[Any] | None, limit: int
    ) -> Sequence[RunLoad]:
        """Return loads, newest first."""
        name = context.connection(query.connection)
        loads = context.store.runs.loads(name, query.table, after[0] if after else None, limit)
        counted = ("read", "inserted", "updated", "deleted", "invalid_values", "bytes", "seconds", "status")
        return [
            RunLoad(run.id, run.kind, run.fence, run.started, **{one: getattr(sums, one) for one in counted})
            for run, sums in loads
        ]

    def place(self, item: RunLoad) -> Sequence[Any]:
        """Return the run's number."""
        return (item.number,)


class PlanList(QueryWork):
    """Applied plans by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListPlans, after: Sequence[Any] | None, limit: int
    ) -> Sequence[AppliedPlan]:
        """Return plans with their steps, newest first."""
        name = context.connection(query.connection)
        plans = context.store.pages.plans(name, after[0] if after else None, limit)
        steps = context.store.steps.of_many([plan.id for _, plan in plans])
        self._numbers = {plan.id: number for number, plan in plans}
        return [AppliedPlan.of(plan, steps=steps.get(plan.id, ())) for _, plan in plans]

    def place(self, item: AppliedPlan) -> Sequence[Any]:
        """Return the plan's number."""
        return (self._numbers[item.id],)


class PlanDetails(QueryWork):
    """One applied plan by its whole id."""

    def find(self, context: QueryContext, query: GetPlan) -> PlanWithDocument:
        """Return the plan with its steps and its document."""
        plan = context.owned("plan", query.plan, context.store.plans.get)
        return PlanWithDocument(**vars(plan), steps=context.store.steps.of(plan.id))


@dataclass(frozen=True)
class SchemaDocument(schema_history.SchemaVersion):
    """A version of a schema, with its tables."""

    catalog: Mapping[str, Any] = field(default_factory=dict)
    """The tables, as `catalog_from_dict` reads them."""
    copies: tuple[Copy, ...] = ()
    """The clones that the destination retains, where the schema is the one of now."""

    @classmethod
    def of(cls, store: Store, version: schema_history.SchemaVersion, copies: Sequence[Copy] = ()) -> SchemaDocument:
        """Return the document of a version."""
        catalog = catalog_to_dict(schema_history.catalog_of(store, version))
        return cls(**vars(version), catalog=catalog, copies=tuple(copies))

    @property
    def known(self) -> schema_history.SchemaVersion:
        """The version without its tables."""
        own = {name: value for name, value in vars(self).items() if name not in ("catalog", "copies")}
        return schema_history.SchemaVersion(**own)


class SchemaAsOf(QueryWork):
    """A schema as of now, or as of some time."""

    def find(self, context: QueryContext, query: GetSchema) -> SchemaDocument:
        """Return the schema. Raises InstepError where nothing is known of that time."""
        store, name = context.store, context.connection(query.connection)
        when = schema_history.moment(query.at) if query.at is not None else None
        version = schema_history.version_at(store, name, query.side, when)
        copies = store.copies.existing(name) if query.at is None and query.side != "source" else ()
        return SchemaDocument.of(store, version, copies)


class VersionList(QueryWork):
    """Versions of one side's schemas by their numbers."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListVersions, after: Sequence[Any] | None, limit: int
    ) -> Sequence[schema_history.SchemaVersion]:
        """Return versions, newest first."""
        known = schema_history.versions(context.store, context.connection(query.connection), query.side)[::-1]
        return [one for one in known if after is None or one.version < after[0]][:limit]

    def place(self, item: schema_history.SchemaVersion) -> Sequence[Any]:
        """Return the version's number on its side."""
        return (item.version,)


class VersionDetails(QueryWork):
    """One version of a side's schema by its number."""

    def find(self, context: QueryContext, query: GetVersion) -> SchemaDocument:
        """Return the schema that the version is."""
        for version in schema_history.versions(context.store, context.connection(query.connection), query.side):
            if version.version == query.version:
                return SchemaDocument.of(context.store, version)
        raise NotFound.of("version", str(query.version))


class ObjectDetails(QueryWork):
    """One table or column through all accepted versions."""

    def find(self, context: QueryContext, query: GetObjectHistory) -> object_history.ObjectHistory:
        """Return the history. Raises InstepError for an object that no version has."""
        return object_history.object_history(context.store, context.connection(query.connection), query.of)
