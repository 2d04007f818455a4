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
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.column_lineage_dataset import Fields, InputField, Transformation
from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

from instep.bootstrap import App, open_project
from instep.ops.lineage import AGAIN, TURN, NotTaken
from instep.project.load import load
from instep.store.store import Store
from instep.sync.run import Wanted, sync
from receivers import Web, web

FILE = """\
project: demo
engine: inline
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
URL = '{{url: "http://127.0.0.1:{port}/api/v1/lineage", headers: {{authorization: "${{env:SALT}}"}}}}'
KINDS: Mapping[str, type] = {
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "columnLineage": facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
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


def _facets(facets: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _facet(name, dict(said)) for name, said in facets.items()}


def _facet(name: str, said: dict[str, Any]) -> Any:
    url = said.pop("_schemaURL")
    if name == "schema":
        said["fields"] = [SchemaDatasetFacetFields(**one) for one in said["fields"]]
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
        return sync(self.app.pipe("shop"), Wanted(), engine=self.app.engine("shop")).run

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
    assert lake.send() == 2
    assert lake.send() == 0, "each is told once"
    start, end = map(judged, receiver.documents)
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
    documents = on_file.lines()
    assert [judged(one).eventType.value for one in documents] == ["START", "COMPLETE"] * 2
    item = next(d for d in documents[-1]["outputs"] if d["name"] == "shop.item")
    assert "size" in [f["name"] for f in item["facets"]["schema"]["fields"]]
    assert documents[-1]["job"]["namespace"] == "ours"
    versions = [d["facets"]["version"]["datasetVersion"] for one in documents for d in one["outputs"][:1]]
    assert versions == sorted(versions)
    assert len(set(versions)) == 2


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
    events = [judged(one) for one in on_file.lines()]
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
    assert lake.send() == 1
    assert [d["eventType"] for d in receiver.documents] == ["START", "COMPLETE", "COMPLETE"]


def test_what_is_refused_for_good_holds_up_nothing(lake: Lake, receiver: Web, caplog: pytest.LogCaptureFixture) -> None:
    lake.sync()
    receiver.answers[:] = [(422, {})]
    assert lake.send() == 2
    assert "refuses an event" in caplog.text


def test_one_process_sends_at_a_time(lake: Lake, receiver: Web) -> None:
    lake.sync()
    assert lake.app.store.positions.take("lineage", TURN) == 0
    assert (lake.send(), receiver.got) == (0, [])
    lake.now += timedelta(seconds=TURN + 1)
    assert lake.send() == 2


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
    assert [judged(d).eventType.value for d in receiver.documents] == ["START", "COMPLETE"]
    with open_project(lake.folder) as app:
        assert app.store.positions.at("lineage") > 0
        assert all(name not in {"position", "turn"} for name, _ in app.store.totals.all())
