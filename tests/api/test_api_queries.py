"""Every query: its specification holds together, and its route answers the record that a project answers itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from api_world import Api, project, recorded, serve
from fastapi.encoders import jsonable_encoder

from instep.backends.decode import record
from instep.control.queries.context import QueryContext
from instep.events import ChangeSnoozed
from instep.model import Member, TableRun
from instep.operations.queries.changes import CountChanges, ListComments, ListFilters
from instep.operations.queries.comparison import CompareTable, ListChangedTables
from instep.operations.queries.decisions import (
    ExplainDecision,
    GetChange,
    GetPolicy,
    GetRollout,
    GetSelection,
    ListChanges,
    ListRolloutConnections,
    ListRollouts,
    RunPolicyCases,
    SimulatePolicy,
)
from instep.operations.queries.govern import (
    CheckAudit,
    GetChannelState,
    GetDelivery,
    GetKey,
    GetMe,
    ListAudit,
    ListDeliveries,
    ListKeys,
    ListNotificationRoutes,
)
from instep.operations.queries.health import CheckHealth, ListReferences
from instep.operations.queries.history import (
    CompareVersions,
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
from instep.operations.queries.objects import (
    GetChannelDocument,
    GetDestinationDocument,
    GetPolicyDocument,
    GetSettings,
    GetSourceDocument,
    ListChannels,
    ListDestinations,
    ListPolicies,
    ListSources,
)
from instep.operations.queries.quarantine import CountQuarantined, ListQuarantined, MatchQuarantined
from instep.operations.queries.schema_tree import ListSelectedColumns, ListSelectedTables, MatchPattern
from instep.operations.queries.work import (
    CountConnections,
    EstimateBackfill,
    GetConnection,
    GetDetector,
    GetQueuedJob,
    GetStatus,
    ListBackfills,
    ListConnections,
    ListQueue,
    ListStatus,
    ListTableStatus,
)
from instep.operations.registry import query_for, query_specs, result_of, work_of
from instep.operations.spec import Query, QuerySpec, QueryWork
from instep.operations.values import leads_to
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.requests import texts_of
from instep.store.work.rollouts import RolloutDraft

SPECS = pytest.mark.parametrize("spec", query_specs().values(), ids=query_specs())


@SPECS
def test_its_path_names_fields_and_each_field_has_a_text(spec: QuerySpec) -> None:
    names, texts = {one.name for one in fields(spec.query)}, texts_of(spec.query)
    assert spec.route.startswith(("GET /", "POST /"))
    assert {*re.findall(r"{(\w+)}", spec.path)} <= names
    hints = get_type_hints(spec.query, include_extras=True)
    for name in names:
        assert leads_to(hints[name])
        assert texts.get(name), f"{spec.query.__name__}.{name}"


@SPECS
def test_a_list_says_where_its_items_stand(spec: QuerySpec) -> None:
    work: QueryWork = work_of(spec)()
    assert bool(work.place_types) is spec.paged
    assert result_of(spec)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with project(tmp_path_factory.mktemp("queries")) as app:
        columns = [Column("id", parse("int64"), nullable=False, key=1), Column("note", parse("string"))]
        for number in (1, 2):
            app.store.accepted.add(
                "eu", Catalog.of([Table("main", "item", tuple(columns[:number]))]), who="ann", why=""
            )
        run = app.store.runs.claim("eu", "sync")
        app.store.runs.record_tables(TableRun(run.id, ("main", "item"), "done", "upsert", 3, 2, 1))
        app.store.runs.finish(run, "done")
        app.store.backfills.request("eu", ("main", "item"), column="note", why="new")
        app.store.events.add(ChangeSnoozed("eu", "c-1", "ann", "2999-01-01"))
        app.store.audit.add("ann", "key.create", "k", {"role": "admin"})
        [review, *_] = recorded(app.store, "eu", "other", "third")
        app.store.comments.add(review, "ann", "wait for Monday")
        app.store.jobs.enqueue("eu", "detect", why="a test")
        members, what = (Member("", "eu", 1, "waiting", "applies"),), {"selection": [["off", "main.item"]]}
        app.store.rollouts.add(RolloutDraft(what, {"names": ["eu"]}, ("rest",), {}, members, "ann"))
        yield serve(app)


def asked(api: Api) -> Iterator[Query]:
    """One query of each kind, about what is there."""
    store = api.store
    yield ListChanges(connection="eu", status=("open",))
    yield ListChanges(view="review", search="re:main.*", tag="europe")
    yield CountChanges(view="review", search="other")
    yield ListComments(store.reviews.find("eu", ("open",))[0].id)
    yield ListFilters()
    yield ListChangedTables("eu")
    yield CompareTable("eu", "item", "main")
    yield GetChange(store.reviews.find("eu")[0].id)
    yield ListRuns(kind=("sync", "detect"))
    yield GetRun(store.runs.history("eu")[0].id)
    yield ListRunTables(store.runs.history("eu")[0].id, ("done",))
    yield ListRunSteps(store.runs.history("eu")[0].id)
    yield ListTableStatus("eu", "ITEM", ("done",))
    yield ListEvents(connection="eu")
    yield ListEvents(who="ann", since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2999, 1, 1, tzinfo=UTC))
    yield ListLoads("eu", "main.item")
    yield ListPlans("eu")
    yield ListVersions("eu")
    yield GetVersion("eu", 1)
    yield GetSchema("eu", at="1")
    yield CompareVersions("eu", 1, 2)
    yield ListSelectedTables("eu", "ITEM", "enabled")
    yield ListSelectedColumns("eu", "main.item")
    yield MatchPattern("eu", "main.*")
    yield GetObjectHistory("eu", "main.item.note")
    yield GetPolicy("eu")
    yield ExplainDecision("eu", "main.item.note", "column.removed")
    yield GetSelection("eu", columns=True)
    yield ListBackfills("eu", status=("requested",))
    yield ListConnections(tag="europe", search="e", status="waiting")
    yield ListConnections(policy="strict")
    yield GetConnection("eu")
    yield ListKeys()
    yield ListQueue(connection="eu")
    yield GetKey(store.api_keys.page()[0].id)
    yield GetDetector("eu")
    yield ListRollouts(status=("ready",))
    yield GetRollout(store.rollouts.find()[0].id)
    yield ListRolloutConnections(store.rollouts.find()[0].id)
    yield ListAudit()
    yield ListAudit("k")
    yield ListNotificationRoutes()
    yield ListReferences()
    yield CheckAudit()
    yield ListDeliveries(status="sent")
    yield CountQuarantined("eu")
    yield ListStatus()
    yield GetStatus("eu")
    yield RunPolicyCases("eu", ({"change": "column.added", "table": "main.item", "column": "x", "expect": "apply"},))
    yield SimulatePolicy("eu", "other", {"preset": "block_all"})
    yield ListSources()
    yield GetSourceDocument("db")
    yield ListDestinations()
    yield GetDestinationDocument("lake")
    yield ListPolicies()
    yield ListChannels()
    yield GetSettings("eu")
    yield CountConnections()
    yield CountConnections(search="e")


def test_a_server_answers_what_the_project_answers(api: Api) -> None:
    seen: set[type[Query]] = set()
    context = QueryContext(api.app.project, lambda: api.store, open_connection=api.app.sync_context)
    steps = ListRunSteps(api.store.runs.history("eu")[0].id)
    empty = (
        ListFilters(), ListPlans("eu"), ListDeliveries(status="sent"), ListChannels(), ListNotificationRoutes(), steps,
    )  # fmt: skip
    for query in asked(api):
        spec = query_for(query)
        seen.add(type(query))
        values: dict[str, Any] = query.options()
        in_path = {name: values.pop(name) for name in re.findall(r"{(\w+)}", spec.path)}
        path = spec.path.format(**in_path)
        told = api.call("POST", path, body=values).json() if spec.has_body else api.get(path, params=values)
        work, kind = work_of(spec)(), result_of(spec)
        if spec.paged:
            here = list(work.shown(context, work.items(context, query, None, 100)))
            assert [record(kind, one) for one in told["items"]] == here, spec.name
            assert here or query in empty, f"{spec.name} answers nothing"
        else:
            found = work.find(context, query)
            assert told == jsonable_encoder(found), spec.name
            assert kind is dict or record(kind, told) == found, spec.name
    left = {spec.query for spec in query_specs().values()} - seen
    others = {ListQuarantined, MatchQuarantined, GetPolicyDocument, GetChannelDocument, GetChannelState, CheckHealth}
    assert left - others == {GetPlan, GetQueuedJob, GetDelivery, GetMe, EstimateBackfill}, "tested by their own routes"


@pytest.mark.sampled
@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/v1/openapi.json"])
def test_many_may_ask_for_the_description_at_the_same_time(path: str, tmp_path: Path) -> None:
    """It is made once, by the first one, while the others wait."""
    interval = sys.getswitchinterval()
    with project(tmp_path) as app:
        served = serve(app)
        headers = served.key("admin")
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda _: served.client.get(path, headers=headers), range(8)))
        finally:
            sys.setswitchinterval(interval)
    assert {one.status_code for one in found} == {200}
    assert len({one.text for one in found}) == 1
