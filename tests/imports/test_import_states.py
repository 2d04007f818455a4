"""An imported connection of an Airbyte connector reads on from the state that Airbyte had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from import_world import airbyte, connection, destination, source

import instep
from airbyte_wheels import TEXT, connector_wheel, stream
from command_runs import run

USERS = {"name": "users", "syncMode": "incremental_deduped_history"}
STATE = {
    "stateType": "stream",
    "streamState": [{"streamDescriptor": {"name": "users"}, "streamState": {"at": 7}}],
}


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A connection of a connector whose package is there; its rows follow the number in its state."""
    connector_wheel(tmp_path / "packages", "1.0.0", streams=[stream(name=TEXT)])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setenv("INSTEP_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "export.json"
    crm = source({"api_key": "**********"}, "shop", dockerImageTag="1.0.0")
    file.write_text(json.dumps(airbyte(crm, destination(), connection(USERS), states={"c-1": STATE})))
    return file


def ids(folder: Path) -> list[int]:
    with instep.open(folder) as opened:
        assert opened.connection("shop_to_lake").sync().status == "done"
        found = opened.query("select id from main.users order by id").to_arrow()
        return [int(one) for one in found.column("id").to_pylist()]


def test_the_next_sync_reads_on(export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "project"
    words = ("--project", str(folder), "import", "airbyte", str(export))
    assert run(capsys, *words, "--dry-run", "--output", "json").json["states_adopted"] == []
    shown = run(capsys, *words)
    assert (shown.code, "connection shop_to_lake: its next sync reads on" in shown.out) == (0, True), shown
    (folder / ".env").write_text("AIRBYTE_SOURCE_SHOP_API_KEY=a-key-of-tests\n")
    assert ids(folder) == [8, 9, 10]
    assert run(capsys, *words, "--output", "json").json["states_adopted"] == [], "a state of its own stays"
    assert ids(folder) == [8, 9, 10, 11, 12, 13]
