"""`source upgrade` over a server: a worker compares the versions and writes the server's instep.yml."""

from __future__ import annotations

import json

import pytest
from remote_world import Twins

from airbyte_wheels import TEXT, connector_wheel, stream

PROJECT = """\
engine: local
sources: {crm: {type: airbyte, package: airbyte-source-crm==1.0.0}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {shop: {}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("twins", [PROJECT], indirect=True)
def test_a_source_is_upgraded_and_brought_back(
    twins: Twins, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path_factory.mktemp("packages")
    connector_wheel(packages, "1.0.0", "airbyte-source-crm", streams=[stream(name=TEXT)])
    connector_wheel(packages, "2.0.0", "airbyte-source-crm", streams=[stream(name=TEXT, note=TEXT)])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    monkeypatch.setenv("INSTEP_CACHE", str(tmp_path_factory.mktemp("cache")))
    for run in (twins.near.here, twins.far.there):
        assert run("sync").code == 0
    metadata = tmp_path_factory.mktemp("metadata") / "metadata.yaml"
    metadata.write_text(json.dumps({"releases": {"breakingChanges": {"2.0.0": {"message": "notes"}}}}))
    words = ("source", "upgrade", "crm", "--to", "2.0.0", "--metadata", str(metadata))
    here, _ = twins.both(*words, "--dry-run")
    assert "users: new column note (string)" in here.out
    assert "version 2.0.0: notes" in here.out
    twins.both(*words, "--output", "json")
    for world in (twins.near, twins.far):
        assert "airbyte-source-crm==2.0.0}" in (world.folder / "instep.yml").read_text()
    twins.both("source", "upgrade", "--rollback")
    for world in (twins.near, twins.far):
        assert (world.folder / "instep.yml").read_text() == PROJECT
    twins.both("source", "upgrade", "till", code=1)


@pytest.mark.parametrize("twins", [PROJECT], indirect=True)
def test_an_export_is_imported_at_the_server_and_its_states_are_adopted_there(twins: Twins) -> None:
    there = twins.far
    source = {"sourceId": "s", "name": "CRM", "sourceType": "crm", "dockerImageTag": "1.0.0", "configuration": {}}
    configuration = {"destination_path": "/local/lake.duckdb"}
    destination = {"destinationId": "d", "name": "Lake", "destinationType": "duckdb", "configuration": configuration}
    connection = {"connectionId": "c", "name": "shop", "sourceId": "s", "destinationId": "d", "configurations": {}}
    state = {"stateType": "stream", "streamState": [{"streamDescriptor": {"name": "users"}, "streamState": {"at": 7}}]}
    parts = {"sources": [source], "destinations": [destination], "connections": [connection], "states": {"c": state}}
    export, into = there.folder / "export.json", there.folder / "imported.yml"
    export.write_text(json.dumps(parts))
    words = ("import", "airbyte", str(export), "--into", str(into), "--output", "json")
    shown = there.there(*words, "--dry-run")
    assert (shown.json["states_adopted"], into.exists()) == (["shop"], False), shown
    done = there.there(*words)
    assert (done.json["states_adopted"], done.json["written"]) == (["shop"], [str(into)]), done
    assert "package: airbyte-source-crm==1.0.0" in into.read_text()
    with there.store() as store:
        assert store.connectors.get("shop").state["streams"][0]["state"] == {"at": 7}
    assert there.there(*words).json["states_adopted"] == []
