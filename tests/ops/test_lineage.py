"""Runs as OpenLineage events, judged by the classes that OpenLineage makes of its own schema."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from openlineage.client import facet_v2
from openlineage.client.event_v2 import (
    DatasetEvent,
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    StaticDataset,
)
from openlineage.client.generated.column_lineage_dataset import Fields, InputField, Transformation
from openlineage.client.generated.lifecycle_state_change_dataset import LifecycleStateChange, PreviousIdentifier
from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

from instep.bootstrap import App, open_project
from instep.monitoring.lineage import AGAIN, TURN, NotTaken
from instep.project.load import load
from instep.schema.catalog.catalog import Catalog
from instep.store.store import Store
from instep.sync.run import RunScope, sync
from postgres_server import Database
from receivers import Web, web

FILE = """\
project: demo
engine: local
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
connections: {{shop: {{hash: ["main.item.name"], salt: "${{env:SALT}}", exclude: {{columns: ["*.secret_note"]}}}}}}
egress: {{allow: [127.0.0.0/8]}}
lineage: {where}
"""
TABLES = """
    create table item (id integer primary key, name text, price decimal(10,2), secret_note text);
    insert into item values (1, 'canary-value', '2.50', 'x'), (2, 'b', '3', 'y');
    create table box (id integer primary key, n integer);
"""
FIRST_SYNC = 4
"""A start, two new tables and an end."""
URL = '{{url: "http://127.0.0.1:{port}/api/v1/lineage", headers: {{authorization: "${{env:SALT}}"}}}}'
KINDS: Mapping[str, type] = {
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "columnLineage": facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
    "lifecycleStateChange": facet_v2.lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
}


def judged(document: dict[str, Any]) -> RunEvent:
    """The event as their classes take it: an unknown field, a missing one or a wrong one raises."""
    said = dict(document)
    run, job = said.pop("run"), said.pop("job")
    inputs = [InputDataset(d["namespace"], d["name"], facets=_facets(d["facets"])) for d in said.pop("inputs")]
    outputs = [
        OutputDataset(d["namespace"], d["name"], facets=_facets(d["facets"]), outputFacets=_facets(d["outputFacets"]))
        for d in said.pop("outputs")
    ]
    url = said.pop("schemaURL")
    found = RunEvent(
        eventType=RunState(said.pop("eventType")),
        run=Run(run["runId"], _facets(run["facets"])),
        job=Job(job["namespace"], job["name"], _facets(job["facets"])),
        inputs=inputs, outputs=outputs, **said,
    )  # fmt: skip
    assert url == found.schemaURL
    return found


def runs(documents: list[Any]) -> list[RunEvent]:
    return [judged(one) for one in documents if "run" in one]


def judged_dataset(document: dict[str, Any]) -> DatasetEvent:
    said = dict(document)
    one, url = said.pop("dataset"), said.pop("schemaURL")
    found = DatasetEvent(dataset=StaticDataset(one["namespace"], one["name"], facets=_facets(one["facets"])), **said)
    assert url == found.schemaURL
    return found


def _facets(facets: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _facet(name, dict(said)) for name, said in facets.items()}


def _facet(name: str, said: dict[str, Any]) -> Any:
    url = said.pop("_schemaURL")
    if name == "schema":
        said["fields"] = [SchemaDatasetFacetFields(**one) for one in said["fields"]]
    if name == "lifecycleStateChange":
        said["lifecycleStateChange"] = LifecycleStateChange(said["lifecycleStateChange"])
        said |= {"previousIdentifier": PreviousIdentifier(**old)} if (old := said.get("previousIdentifier")) else {}
    if name == "columnLineage":
        said["fields"] = {of: Fields([_input(one) for one in f["inputFields"]]) for of, f in said["fields"].items()}
    made = KINDS[name](producer=said.pop("_producer"), **said)
    assert made._schemaURL == url
    return made


def _input(said: dict[str, Any]) -> InputField:
    return InputField(**{**said, "transformations": [Transformation(**one) for one in said["transformations"]]})


class Lake:
    """A project whose clock is the test's."""

    def __init__(self, folder: Path, where: str) -> None:
        self.now, self.folder = datetime.now(UTC), folder
        folder.joinpath("instep.yml").write_text(FILE.format(where=where))
        (folder / ".instep").mkdir()
        self.app = App(load(folder), Store(f"sqlite:///{folder / '.instep' / 'state.db'}", now=lambda: self.now))
        self.sql(TABLES)

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            connection.executescript(script)

    def sync(self) -> str:
        self.now += timedelta(seconds=1)
        return sync(self.app.sync_context("shop"), RunScope(), engine=self.app.engine("shop")).run

    def command(self, words: str) -> None:
        """`CHANGE` stands for the one that was applied last."""
        from instep.cli.main import main

        last = self.app.store.events.latest(connection="shop", types=("change.applied",), limit=1)[0].data["change"]
        said = words.replace("CHANGE", last).split()
        assert main(["--project", str(self.folder), *said, "--yes", "-c", "shop"]) == 0

    def send(self) -> int:
        lineage = self.app.lineage()
        assert lineage is not None
        return lineage.send()

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in (self.folder / "out" / "lineage.jsonl").read_text().splitlines()]


@pytest.fixture
def receiver() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALT", "very-secret-salt")


@pytest.fixture
def lake(tmp_path: Path, receiver: Web) -> Iterator[Lake]:
    made = Lake(tmp_path, URL.format(port=receiver.port))
    yield made
    made.app.store.close()


@pytest.fixture
def on_file(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path, "{file: out/lineage.jsonl, namespace: ours}")
    yield made
    made.app.store.close()


def test_a_sync_is_a_start_and_an_end_with_its_tables(lake: Lake, receiver: Web) -> None:
    lake.sync()
    assert lake.send() == FIRST_SYNC
    assert lake.send() == 0, "each is told once"
    assert ["run" in one for one in receiver.documents] == [True, False, False, True]
    start, end = runs(receiver.documents)
    assert (start.eventType, end.eventType) == (RunState.START, RunState.COMPLETE)
    assert (end.job.namespace, end.job.name, start.run.runId) == ("demo", "shop.sync", end.run.runId)
    assert UUID(end.run.runId)
    assert [(d.namespace.partition(":")[0], d.name) for d in end.inputs] == [
        ("sqlite", "main.box"),
        ("sqlite", "main.item"),
    ]
    item = next(d for d in end.outputs if d.name == "shop.item")
    assert item.namespace == f"duckdb:{lake.folder / 'lake.duckdb'}"
    assert [(f.name, f.type) for f in item.facets["schema"].fields] == [
        ("id", "int64"), ("name", "string"), ("price", "decimal(10,2)"),
    ]  # fmt: skip
    assert item.outputFacets["outputStatistics"].rowCount == 2
    origins = {name: f.inputFields[0] for name, f in item.facets["columnLineage"].fields.items()}
    assert {name: (o.name, o.field) for name, o in origins.items()} == {
        name: ("main.item", name) for name in ("id", "name", "price")
    }
    assert {name: o.transformations[0].masking for name, o in origins.items()} == {
        "id": False, "name": True, "price": False,
    }  # fmt: skip


def test_secrets_and_values_are_in_no_event(lake: Lake, receiver: Web) -> None:
    lake.sync()
    lake.send()
    assert {headers["authorization"] for _, headers, _ in receiver.got} == {"very-secret-salt"}
    raw = b"".join(body for _, _, body in receiver.got)
    assert not any(word in raw for word in (b"canary-value", b"very-secret-salt", b"secret_note"))


def test_names_follow_what_was_renamed_at_the_destination(on_file: Lake) -> None:
    on_file.sync()
    on_file.sql("alter table item rename column price to cost; alter table item add column size integer")
    on_file.sync()
    on_file.send()
    documents = [one for one in on_file.lines() if "run" in one]
    assert [one.eventType.value for one in runs(documents)] == ["START", "COMPLETE"] * 2
    item = next(d for d in documents[-1]["outputs"] if d["name"] == "shop.item")
    assert "size" in [f["name"] for f in item["facets"]["schema"]["fields"]]
    assert documents[-1]["job"]["namespace"] == "ours"
    versions = [d["facets"]["version"]["datasetVersion"] for one in documents for d in one["outputs"][:1]]
    assert versions == sorted(versions)
    assert len(set(versions)) == 2


CASES = [
    ("added", "alter table item add column size integer", "", ["ALTER item"], "+size"),
    ("removed and kept", "alter table item drop column price", "", ["ALTER item"], "-price"),
    ("table added", "create table bag (id integer primary key)", "", ["CREATE bag"], ""),
    ("table removed and kept", "drop table box", "", [], ""),
    ("taken back", "alter table item add column size integer", "undo CHANGE", ["ALTER item", "ALTER item"], "-size"),
    ("table taken back and kept", "create table bag (id integer primary key)", "undo CHANGE", ["CREATE bag"], ""),
    ("mapped", "alter table item rename price to cost", "changes map main.item.price main.item.cost",
     ["ALTER item", "ALTER item", "ALTER item"], "-price"),
    ("table mapped", "alter table box rename to crate", "changes map main.box main.crate",
     ["CREATE crate", "RENAME crate from box"], ""),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "change", "command", "told", "field"), CASES, ids=[c[0] for c in CASES])
def test_what_a_change_has_made_of_its_table_is_told(
    on_file: Lake, name: str, change: str, command: str, told: list[str], field: str
) -> None:
    on_file.sync()
    on_file.send()
    on_file.sql(change)
    for _ in range(2):  # a removal that a catalog cannot prove counts when it is seen again
        on_file.sync()
    if command:
        on_file.command(command)
    on_file.send()
    lines = on_file.lines()[FIRST_SYNC:]
    found = [judged_dataset(one) for one in lines if "dataset" in one]
    assert [_lifecycle(event) for event in found] == told
    if field:
        assert (field[1:] in [f.name for f in found[-1].dataset.facets["schema"].fields]) == field.startswith("+")
    versions = [event.dataset.facets["version"].datasetVersion for event in found]
    assert versions == sorted(versions)


def test_a_table_that_is_dropped_is_told(on_file: Lake) -> None:
    file = on_file.folder / "instep.yml"
    policy = "policies: {tidy: {rules: [{on: [table.removed], decide: apply, removed: drop}]}}\n"
    file.write_text(file.read_text().replace("{shop: {", "{shop: {policy: tidy, ") + policy)
    on_file.app.project = load(on_file.folder)
    on_file.sync()
    on_file.sql("drop table box")
    for _ in range(2):
        on_file.sync()
    on_file.send()
    assert _lifecycle(judged_dataset([one for one in on_file.lines() if "dataset" in one][-1])) == "DROP box"


def _told(lake: Lake, done: int) -> list[str]:
    lake.send()
    return [_lifecycle(judged_dataset(one)) for one in lake.lines()[done:] if "dataset" in one]


def test_a_renamed_table_whose_columns_change_is_not_a_new_one(on_file: Lake, postgres: Database) -> None:
    """Two tables swap their names, too: each change is told of its own table."""
    config = postgres.config
    place = f"{{type: postgres, host: 127.0.0.1, port: {config.port}, database: {config.database}, user: {config.user}"
    file = on_file.folder / "instep.yml"
    file.write_text(file.read_text().replace("{type: sqlite, path: shop.db}", f"{place}, password: '${{env:PG}}'}}"))
    on_file.folder.joinpath(".env").write_text(f"PG={config.password}\n")
    on_file.app.project = load(on_file.folder)
    postgres.execute("create table box (id int primary key, n int); create table a (id int primary key, of_a int)")
    postgres.execute("create table b (id int primary key, of_b text)")
    on_file.sync()
    on_file.send()
    done = len(on_file.lines())
    postgres.execute("alter table box rename to crate; alter table crate add column size int, add column height int")
    postgres.execute("alter table a rename to c; alter table b rename to a; alter table c rename to b")
    postgres.execute("alter table a add column more int")
    run = on_file.sync()
    told = ["RENAME a from b", "RENAME b from a", "RENAME crate from box", "ALTER a", "ALTER crate", "ALTER crate"]
    assert sorted(_told(on_file, done)) == sorted(told)
    done = len(on_file.lines())
    on_file.command(f"undo {run}")
    told = ["RENAME a from b", "RENAME b from a", "RENAME box from crate", "ALTER b", "ALTER box", "ALTER box"]
    assert sorted(_told(on_file, done)) == sorted(told)


def test_the_catalogs_of_one_version_are_read_once(on_file: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    on_file.sql(";".join(f"create table more_{n} (id integer primary key)" for n in range(4)))
    on_file.sync()
    read, catalog = list[int | None](), on_file.app.store.accepted.catalog

    def reading(connection: str, version: int | None = None) -> Catalog:
        read.append(version)
        return catalog(connection, version)

    monkeypatch.setattr(on_file.app.store.accepted, "catalog", reading)
    assert _told(on_file, 0) == [f"CREATE {name}" for name in ("box", "item", "more_0", "more_1", "more_2", "more_3")]
    assert read == [1, 1], "for the tables that came, and for the end of the run"


def _lifecycle(event: DatasetEvent) -> str:
    said = event.dataset.facets["lifecycleStateChange"]
    old = f" from {said.previousIdentifier.name}" if said.previousIdentifier else ""
    return f"{said.lifecycleStateChange.value} {event.dataset.name}{old}".replace("shop.", "")


def test_a_failed_table_and_a_stopped_run_say_why(on_file: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    on_file.sync()
    monkeypatch.setenv("INSTEP_CRASH", "sync.planned=raise")
    with pytest.raises(Exception, match="crash point"):
        on_file.sync()
    monkeypatch.delenv("INSTEP_CRASH")
    dead = on_file.app.store.runs.claim("shop", "sync")
    on_file.now += timedelta(minutes=5)
    on_file.sync()
    on_file.send()
    events = runs(on_file.lines())
    assert [e.eventType.value for e in events] == ["START", "COMPLETE", "START", "FAIL", "ABORT", "START", "COMPLETE"]
    assert events[3].run.facets["errorMessage"].message == "crash point sync.planned"
    assert events[4].run.facets["errorMessage"].message.startswith("interrupted: ")
    assert events[4].run.runId not in {e.run.runId for e in events[:4]}, dead.id


def test_what_is_not_taken_comes_later_and_in_order(lake: Lake, receiver: Web) -> None:
    lake.sync()
    receiver.answers[:] = [(200, {}), (503, {})]
    with pytest.raises(NotTaken, match="503"):
        lake.send()
    assert lake.send() == 0, "it has some time to recover"
    lake.now += timedelta(seconds=AGAIN + 1)
    assert lake.send() == FIRST_SYNC - 1
    assert [d.get("eventType", "dataset") for d in receiver.documents] == [
        "START", "dataset", "dataset", "dataset", "COMPLETE",
    ]  # fmt: skip


def test_what_is_refused_for_good_holds_up_nothing(lake: Lake, receiver: Web, caplog: pytest.LogCaptureFixture) -> None:
    lake.sync()
    receiver.answers[:] = [(422, {})]
    assert lake.send() == FIRST_SYNC
    assert "refuses an event" in caplog.text


def test_one_process_sends_at_a_time(lake: Lake, receiver: Web) -> None:
    lake.sync()
    assert lake.app.store.positions.claim("lineage", TURN) == 0
    assert (lake.send(), receiver.got) == (0, [])
    lake.now += timedelta(seconds=TURN + 1)
    assert lake.send() == FIRST_SYNC


def test_an_address_that_is_not_listed_is_not_reached(tmp_path: Path, receiver: Web) -> None:
    lake = Lake(tmp_path, URL.format(port=receiver.port))
    tmp_path.joinpath("instep.yml").write_text((tmp_path / "instep.yml").read_text().replace("127.0.0.0/8", "10.9.9.9"))
    lake.app.project = load(tmp_path)
    lake.sync()
    with pytest.raises(NotTaken, match="this machine itself"):
        lake.send()
    assert receiver.got == []
    lake.app.store.close()


def test_a_command_tells_what_it_did(lake: Lake, receiver: Web) -> None:
    from instep.cli.main import main

    lake.app.store.close()
    assert main(["--project", str(lake.folder), "sync"]) == 0
    assert [run.eventType.value for run in runs(receiver.documents)] == ["START", "COMPLETE"]
    with open_project(lake.folder) as app:
        assert app.store.positions.at("lineage") > 0
        assert all(name not in {"position", "turn"} for name, _ in app.store.totals.all())
