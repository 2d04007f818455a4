"""The starter project and the JSON Schema that editors read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instep.errors import ProjectError
from instep.project.files.starter import SCHEMA_FILE, schema_json, starter, write_project
from instep.project.load import load

GOLDEN = Path(__file__).parent / "project.schema.json"


def test_the_schema_is_the_recorded_one() -> None:
    """After a wanted change: python -m instep.project.files.starter > tests/project/project.schema.json"""
    assert schema_json() == GOLDEN.read_text(encoding="utf-8")


def test_the_schema_forbids_unknown_keys_and_marks_secrets() -> None:
    schema = json.loads(schema_json())
    definitions = schema["$defs"]
    objects = {name: d for name, d in definitions.items() if d.get("type") == "object"}
    open_ones = [name for name, d in objects.items() if d.get("additionalProperties") is not False]
    assert open_ones == []
    assert schema["additionalProperties"] is False
    fields = definitions["PostgresSourceSection"]["properties"]
    assert "pattern" in fields["password"]
    assert "secret" in fields["password"]["description"]
    assert {"type": "integer", "minimum": 1, "maximum": 65535} in fields["port"]["anyOf"]


def test_the_starter_project_is_valid(tmp_path: Path) -> None:
    file = write_project(tmp_path / "new")
    assert file == tmp_path / "new" / "instep.yml"
    project = load(file, {"PG_PASSWORD": "x"})
    assert project.name == "new"
    assert project.connections == ("shop_to_lake",)
    assert project.policy("shop_to_lake").rules
    assert project.source("shop").host == "localhost"
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE.as_posix()}"
    assert (file.parent / SCHEMA_FILE).read_text(encoding="utf-8") == schema_json()
    assert ".env" in (file.parent / ".gitignore").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ['a "b" c', "on", "5", "x: y", "é🙂", "{}"])
def test_any_folder_name(tmp_path: Path, name: str) -> None:
    assert load(write_project(tmp_path / name), {}).name == name


def test_a_text_of_ones_own(tmp_path: Path) -> None:
    text = starter("x").replace("shop_to_lake:", "pg_to_lake:")
    assert load(write_project(tmp_path, text), {}).connections == ("pg_to_lake",)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine")
    with pytest.raises(ProjectError, match="exists already"):
        write_project(tmp_path)
    assert (tmp_path / "instep.yml").read_text() == "mine"
    (tmp_path / "instep.yml").unlink()
    write_project(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProjectError, match="cannot be written") as error:
        write_project(tmp_path / "file" / "project")
    assert error.value.hint
