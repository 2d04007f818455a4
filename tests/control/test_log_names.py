"""Slots and publications: of two connections of one source, none has the other's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.bootstrap import App, open_project, open_server
from instep.cli.main import main
from instep.control.resources.log_names import check_log_names
from instep.errors import Blocked, ProjectError
from instep.project.documents import InvalidObject
from instep.project.load import load
from instep.sync.operations.delete import log_of, owned_objects
from instep.sync.run import sync

FILE = """\
sources:
  pg: {type: postgres, host: db, database: shop, user: u}
  other: {type: postgres, host: db2, database: shop, user: u}
destinations: {lake: {type: duckdb, path: a.duckdb}}
connections:
  theirs: {source: pg, mode: cdc, log: {slot: shop_slot, publication: shop_tables}}
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    (tmp_path / "instep.yml").write_text(FILE)
    with open_server(tmp_path, insecure_dev=True) as opened:
        yield opened


def put(app: App, name: str, source: str = "pg", **log: str) -> None:
    spec: dict[str, Any] = {"source": source, "destination": "lake", "mode": "cdc", "log": log}
    app.objects.put("connection", name, spec, who="test")


def read_from(app: App, name: str, slot: str) -> None:
    """A table of the connection was read from this slot."""
    run = app.store.runs.claim(name, "sync")
    cursor = json.dumps({"log": {"slot": slot, "at": "0/1", "server": "s", "shape": {}}})
    app.store.cursors.save(name, {("public", "t"): cursor}, run=run.id, fence=run.fence)
    app.store.runs.finish(run, "done")


def test_what_another_connection_names_is_refused(app: App) -> None:
    with pytest.raises(InvalidObject, match=r"log\.slot: connection theirs of source pg has the slot 'shop_slot'"):
        put(app, "mine", slot="shop_slot")
    with pytest.raises(InvalidObject, match=r"log\.publication: connection theirs .* publication 'shop_tables'"):
        put(app, "mine", slot="mine_slot", publication="shop_tables")
    put(app, "mine", slot="mine_slot", publication="mine_tables")
    put(app, "mine", slot="mine_slot", publication="mine_tables")  # its own
    with pytest.raises(InvalidObject, match="connection mine of source pg"):
        put(app, "third", publication="mine_tables")
    put(app, "afar", source="other", slot="shop_slot", publication="shop_tables")


def test_the_name_that_another_has_without_saying_so(app: App) -> None:
    """Whether it was made with the store's own id, or by an earlier version."""
    put(app, "plain")
    names = app.log_names("plain")
    assert names is not None
    for given in (names.slot, app.project.own_log_name("plain")):
        with pytest.raises(InvalidObject, match="connection plain of source pg has the slot"):
            put(app, "mine", slot=given)
        with pytest.raises(InvalidObject, match="connection plain of source pg has the publication"):
            put(app, "mine", publication=given)


def test_a_slot_that_another_connection_reads(app: App) -> None:
    """Whatever its settings say by now: it is neither given, nor read, nor dropped."""
    read_from(app, "theirs", "former_slot")
    with pytest.raises(InvalidObject, match="connection theirs of source pg reads the slot 'former_slot'"):
        put(app, "mine", slot="former_slot")
    put(app, "mine", slot="mine_slot")
    assert (app.log_taken("mine", "mine_slot"), owned_objects(app.sync_context("mine")).log) == ("", "mine_slot")
    assert log_of(app.sync_context("mine")) is not None
    read_from(app, "theirs", "mine_slot")
    assert app.log_taken("mine", "mine_slot") == "theirs"
    assert app.log_taken("theirs", "mine_slot") == ""
    with pytest.raises(Blocked, match="connection mine: the slot mine_slot is that of connection theirs"):
        sync(app.sync_context("mine"))
    assert (log_of(app.sync_context("mine")), owned_objects(app.sync_context("mine")).log) == (None, "")
    read_from(app, "gone", "left_slot")
    put(app, "heir", slot="left_slot")  # nobody has it by now


@pytest.mark.parametrize("field", ["slot", "publication"])
def test_the_project_file(tmp_path: Path, field: str) -> None:
    file = tmp_path / "instep.yml"
    file.write_text(FILE + f"  mine: {{source: pg, mode: cdc, log: {{{field}: shop_it}}}}\n")
    load(file)
    file.write_text(file.read_text() + f"  third: {{mode: cdc, source: pg, log: {{{field}: shop_it}}}}\n")
    said = f"connections.third.log.{field}: connections.mine of source pg has the {field} 'shop_it' already"
    with pytest.raises(ProjectError, match=said):
        load(file)
    file.write_text(file.read_text().replace("third: {mode: cdc, source: pg", "third: {mode: cdc, source: other"))
    load(file)


def test_validate_and_log_drop_look_at_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "instep.yml").write_text(FILE + "  mine: {source: pg, mode: cdc, log: {slot: mine_slot}}\n")
    at = ["--project", str(tmp_path)]
    assert main([*at, "validate"]) == 0
    with open_project(tmp_path) as app:
        check_log_names(app.project, app.store, "mine")
        read_from(app, "theirs", "mine_slot")
    capsys.readouterr()
    assert main([*at, "validate"]) != 0
    said = "".join(capsys.readouterr())
    for part in ("instep.yml:7: connections.mine.log.slot", "connection theirs", "mine_slot"):
        assert part in said
    assert main([*at, "source", "log", "drop", "mine", "--yes"]) == 3
    assert "the slot mine_slot belongs to connection theirs, not to mine" in "".join(capsys.readouterr())
