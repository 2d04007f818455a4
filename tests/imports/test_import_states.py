"""An imported connection of an Airbyte connector reads on from the state that Airbyte had, and its source is compared
with the catalog that was accepted there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
SECRET = "canary-8302-of-a-key"


def accepted(name: str = "users", /, **columns: Any) -> dict[str, Any]:
    """A stream as a connection of the configuration API has it, with what was accepted there."""
    known = stream(name, **columns)
    return {
        "stream": {
            "name": name,
            "jsonSchema": known["json_schema"],
            "supportedSyncModes": known["supported_sync_modes"],
            "sourceDefinedCursor": True,
            "sourceDefinedPrimaryKey": known["source_defined_primary_key"],
        },
        "config": {"syncMode": "incremental", "destinationSyncMode": "append_dedup", "primaryKey": [["id"]]},
    }


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes an export of a connection whose connector's package is there; its rows follow the number in its state."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setenv("INSTEP_CACHE", str(tmp_path / "cache"))

    def write(*offered: Any, states: Mapping[str, Any] | None = None, **given: Any) -> Path:
        connector_wheel(tmp_path / "packages", "1.0.0", streams=[*offered] or [stream(name=TEXT)])
        file = tmp_path / "export.json"
        crm = source({"api_key": SECRET}, "shop", dockerImageTag="1.0.0")
        known = {"c-1": STATE} if states is None else states
        document = airbyte(crm, destination(), connection(USERS, **given), states=known)
        file.write_text(json.dumps(document))
        return file

    return write


def moved(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"syncCatalog": {"streams": [*entries]}, **more}


def make_project(capsys: pytest.CaptureFixture[str], folder: Path, export: Path) -> dict[str, Any]:
    shown = run(capsys, "--project", str(folder), "import", "airbyte", str(export), "--output", "json")
    assert shown.code == 0, shown
    (folder / ".env").write_text(f"AIRBYTE_SOURCE_SHOP_API_KEY={SECRET}\n")
    found: dict[str, Any] = shown.json
    return found


def ids(folder: Path) -> list[int]:
    with instep.open(folder) as opened:
        assert opened.connection("shop_to_lake").sync().status == "done"
        found = opened.query("select id from main.users order by id").to_arrow()
        return [int(one) for one in found.column("id").to_pylist()]


def columns(folder: Path) -> set[str]:
    with instep.open(folder) as opened:
        return {name for name in opened.query("select * from main.users").to_arrow().column_names if name[0] != "_"}


def changes(folder: Path, *, all: bool = False) -> set[tuple[str, str, str]]:
    with instep.open(folder) as opened:
        return {(one.kind, one.column or one.table[1], one.status) for one in opened.changes(all=all)}


def test_the_next_sync_reads_on(
    exported: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, export = tmp_path / "project", exported()
    words = ("--project", str(folder), "import", "airbyte", str(export))
    assert run(capsys, *words, "--dry-run", "--output", "json").json["states_adopted"] == []
    shown = run(capsys, *words)
    assert (shown.code, "connection shop_to_lake: its next sync reads on" in shown.out) == (0, True), shown
    (folder / ".env").write_text(f"AIRBYTE_SOURCE_SHOP_API_KEY={SECRET}\n")
    assert ids(folder) == [8, 9, 10]
    assert run(capsys, *words, "--output", "json").json["states_adopted"] == [], "a state of its own stays"
    assert ids(folder) == [8, 9, 10, 11, 12, 13]


# setting for changes | columns that the destination has after the first sync | changes then
POLICIES: list[tuple[str, set[str], set[tuple[str, str, str]]]] = [
    ("ignore", {"id", "name"}, {("column.added", "since", "open"), ("column.removed", "before", "open")}),
    ("propagate_columns", {"id", "name", "since"}, {("column.added", "since", "applied")}),
]


@pytest.mark.parametrize(("setting", "there", "found"), POLICIES, ids=[one[0] for one in POLICIES])
def test_what_has_come_since_the_export_is_a_change_and_the_state_goes_on(
    setting: str,
    there: set[str],
    found: set[tuple[str, str, str]],
    exported: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "project"
    now = stream(name=TEXT, since=TEXT)
    known = accepted(name=TEXT, before=TEXT)
    shown = make_project(
        capsys, folder, exported(now, **moved(known, nonBreakingSchemaUpdatesBehavior=setting, backfillPreference=None))
    )
    assert (shown["states_adopted"], shown["catalogs_adopted"]) == (["shop_to_lake"], ["shop_to_lake"])
    assert ids(folder) == [8, 9, 10]
    assert there <= columns(folder)
    assert ("since" in columns(folder)) == ("since" in there)
    assert found <= changes(folder, all=True)
    assert ids(folder) == [8, 9, 10, 11, 12, 13], "nothing is read twice"


def test_a_detection_before_the_first_sync_finds_the_same(
    exported: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    make_project(capsys, folder, exported(stream(name=TEXT, since=TEXT), **moved(accepted(name=TEXT))))
    with instep.open(folder) as opened:
        shop = opened.connection("shop_to_lake")
        assert [one.column for one in shop.detect().changes] == ["since"]
        [waiting] = opened.changes()
        opened.approve(waiting)
    assert ids(folder) == [8, 9, 10]
    assert {"id", "name", "since"} <= columns(folder)


def test_a_stream_that_has_come_since_is_no_table_and_one_without_a_state_begins(
    exported: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    offered = (stream(name=TEXT), stream("orders", name=TEXT), stream("invoices", name=TEXT))
    entries = (accepted(name=TEXT), accepted("orders", name=TEXT))
    make_project(capsys, folder, exported(*offered, **moved(*entries)))
    assert ids(folder) == [8, 9, 10]
    with instep.open(folder) as opened:
        found = opened.query("select id from main.orders order by id").to_arrow()
        assert found.column("id").to_pylist() == [1, 2, 3]
        tables = {table.table for table in opened.connection("shop_to_lake").tables()}
    assert "invoices" not in {name.rpartition(".")[2] for name in tables}


def test_a_catalog_alone_is_adopted_too(
    exported: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    given = exported(stream(name=TEXT, since=TEXT), states={}, **moved(accepted(name=TEXT)))
    shown = make_project(capsys, folder, given)
    assert (shown["states_adopted"], shown["catalogs_adopted"]) == ([], ["shop_to_lake"])
    assert ids(folder) == [1, 2, 3]
    assert changes(folder) == {("column.added", "since", "open")}


def test_the_store_of_an_import_has_no_secret_and_its_audit_says_what_was_adopted(
    exported: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    make_project(capsys, folder, exported(**moved(accepted(name=TEXT))))
    (folder / ".env").unlink()
    for file in (one for one in folder.rglob("*") if one.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file
    entries = run(capsys, "--project", str(folder), "audit", "list", "--output", "json").json
    assert "import.airbyte" in json.dumps(entries)
