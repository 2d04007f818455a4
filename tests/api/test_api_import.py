"""An import over HTTP: the project is answered, connections adopt states, and no secret is stored or shown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, project, serve

SECRET = "canary-4711-of-a-key"
PROJECT = """\
version: 1
sources: {crm: {type: airbyte, package: airbyte-source-crm==1.0.0}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {crm_to_lake: {}}
"""
STREAM = {"name": "users", "jsonSchema": {"properties": {"id": {"type": "integer"}}}}
EXPORT = {
    "sources": [{
        "sourceId": "s-1", "name": "CRM", "sourceType": "crm", "dockerImageTag": "1.0.0",
        "configuration": {"api_key": SECRET, "deep": {"client_secret": SECRET}},
    }],
    "destinations": [{
        "destinationId": "d-1", "name": "Lake", "destinationType": "duckdb",
        "configuration": {"destination_path": "/local/lake.duckdb"},
    }],
    "connections": [{
        "connectionId": "c-1", "name": "CRM to Lake", "sourceId": "s-1", "destinationId": "d-1", "status": "active",
        "syncCatalog": {"streams": [{"stream": STREAM, "config": {"syncMode": "incremental"}}]},
    }],
    "states": {
        "c-1": {
            "stateType": "stream",
            "streamState": [{"streamDescriptor": {"name": "users"}, "streamState": {"at": 7}}],
        },
    },
}  # fmt: skip


@pytest.fixture
def crm(tmp_path: Path) -> Iterator[Api]:
    with project(tmp_path, PROJECT) as app:
        yield serve(app)


def asked(**more: Any) -> dict[str, Any]:
    return {"product": "airbyte", "files": {"export.json": EXPORT}, **more}


def test_a_dry_run_shows_it_and_the_import_is_adopted_once(crm: Api) -> None:
    shown = crm.call("POST", "/import", body=asked(), params={"dry_run": True})
    assert (shown.status_code, shown.json()["states_adopted"]) == (200, ["crm_to_lake"])
    assert crm.store.connectors.get("crm_to_lake").state == {}
    done = crm.call("POST", "/import", body=asked()).json()
    assert (done["states_adopted"], done["catalogs_adopted"]) == (["crm_to_lake"], ["crm_to_lake"])
    assert "package: airbyte-source-crm==1.0.0" in done["text"]
    assert {one["variable"] for one in done["secrets"]} == {
        "AIRBYTE_SOURCE_CRM_API_KEY",
        "AIRBYTE_SOURCE_CRM_DEEP_CLIENT_SECRET",
    }
    state = crm.store.connectors.get("crm_to_lake").state
    assert state["streams"] == [{"namespace": "", "name": "users", "state": {"at": 7}}]
    again = crm.call("POST", "/import", body=asked()).json()
    assert (again["states_adopted"], again["catalogs_adopted"]) == ([], [])


def test_no_secret_is_answered_logged_or_stored(crm: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bodies = (
        asked(),
        asked(files={"export.json": {"sources": EXPORT["sources"]}}),
        asked(files={"export.json": SECRET}),
        asked(files={"export.json": {"api_key": SECRET}}),
        asked(files=SECRET),
        asked(files={}),
        asked(product="dms"),
        asked(connectors=["no version"]),
    )
    with caplog.at_level(logging.DEBUG):
        answers = [
            crm.call("POST", "/import", body=body, headers={"Idempotency-Key": f"k-{number}"})
            for number, body in enumerate(bodies)
        ]
    assert [one.status_code for one in answers] == [200, 200, 422, 422, 422, 422, 422, 422]
    assert not any(SECRET in one.text for one in answers)
    assert SECRET not in caplog.text
    for file in (one for one in tmp_path.rglob("*") if one.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file


def test_it_takes_an_admin_of_the_whole_server(crm: Api) -> None:
    for role in ("viewer", "operator", "approver"):
        assert crm.call("POST", "/import", role, body=asked()).status_code == 403
    headers = crm.key("admin", "europe")
    assert crm.client.post("/api/v1/import", json=asked(), headers=headers).status_code == 403


def test_what_is_here_is_not_replaced(crm: Api) -> None:
    crm.store.connectors.save("crm_to_lake", {"airbyte": 1, "type": "STREAM", "streams": [], "generations": []})
    done = crm.call("POST", "/import", body=asked()).json()
    assert (done["states_adopted"], done["catalogs_adopted"]) == ([], [])
    assert "catalog" not in json.dumps(crm.store.connectors.get("crm_to_lake").state)
