"""A store that a newer program has changed is used no more by the older ones that have it open."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from instep.bootstrap import open_project
from instep.cli.main import main
from instep.errors import Conflict
from instep.server.app import create_app
from instep.worker import worker
from instep.worker.worker import JobWorker, WorkerLimits

PROJECT = "sources: {db: {type: sqlite, path: s.db}}\ndestinations: {lake: {type: duckdb, path: l.duckdb}}\n"


def newer(folder: Path) -> None:
    with closing(sqlite3.connect(folder / ".instep" / "state.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "instep.yml").write_text(PROJECT + "connections: {shop: {}}\n")
    return tmp_path


def test_a_server_is_not_ready_then(folder: Path) -> None:
    with open_project(folder) as app:
        client = TestClient(create_app(app))
        assert client.get("/readyz").status_code == 200
        newer(folder)
        found = client.get("/readyz")
        assert found.status_code == 503
        assert "version 9999" in found.json()["detail"]
        assert client.get("/healthz").status_code == 200


def test_a_worker_ends_then_and_another_does_not_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SCHEDULE", 0.0)
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        if text.startswith("worker "):
            newer(folder)

    JobWorker(partial(open_project, folder), WorkerLimits(lanes=1, poll=0.05), hear).run()
    assert any("version 9999" in text for text in said)
    with pytest.raises(Conflict, match="newer instep"):
        JobWorker(partial(open_project, folder), WorkerLimits(lanes=1), said.append).run()


def test_the_doctor_tells_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_project(folder) as app:
        assert app.store.reason_unusable() == ""
    newer(folder)
    assert main(["--project", str(folder), "doctor", "--output", "json"]) == 1
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert found["store"]["state"] == "bad"
    assert "9999" in found["store"]["detail"]
    assert found["store"]["hint"] != ""


def test_a_plan_file_of_another_version_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(folder / "s.db")) as database:
        database.execute("create table item (id integer primary key)")
    file = folder / "plan.json"
    words = ["--project", str(folder)]
    assert main([*words, "plan", "--out", str(file)]) in (0, 2)
    data = json.loads(file.read_text())
    file.write_text(file.read_text().replace('"format_version": 1', '"format_version": 7').replace(
        '"format_version":1', '"format_version":7'))  # fmt: skip
    assert json.loads(file.read_text()) != data
    capsys.readouterr()
    assert main([*words, "apply", str(file), "--yes"]) == 1
    assert "format version 7" in capsys.readouterr().err
