"""Files that are no export, names that try YAML and paths, and what is written where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from import_world import DUCK, ORDERS, PG, airbyte, connection, destination, imported, loaded, source, the_connection

from instep.control.imports import ImportedFiles, import_files
from instep.errors import ProjectError
from instep.operations.immediate.imports import ImportConfigurationRequest
from instep.operations.values import ImportedProduct
from instep.project.imports import documents
from instep.project.imports.imported_project import project_text


def write_project(product: ImportedProduct, files: list[Path], folder: Path, **more: Any) -> ImportedFiles:
    return import_files(ImportConfigurationRequest(product, documents.read_files(files)), folder, **more)


# content of a file | what its error says
WRONG: list[tuple[bytes, str]] = [
    (b"", "is not JSON (line 1, column 1)"),
    (b"{", "is not JSON (line 1"),
    (b"sources: []", "YAML is not read"),
    (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
    (b'{"a": NaN}', "it has NaN"),
    (b"[" * 200_000, "is nested too deeply"),
    (b'{"a":' * 300 + b"1" + b"}" * 300, "is nested too deeply"),
    (b"1" * 10_000, "a number that is too long"),
    (b"[]", "no "),
    (b'"text"', "no "),
    (b'{"sources": 7, "destinations": null, "connections": "x"}', "no "),
    (b'{"version": 4, "terraform_version": "1", "resources": [7, null, {"type": "x"}]}', "no "),
]


@pytest.mark.parametrize("product", ["airbyte", "fivetran"])
@pytest.mark.parametrize(("content", "said"), WRONG, ids=[w[1] for w in WRONG])
def test_files_that_are_no_export(product: ImportedProduct, content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_bytes(content)
    with pytest.raises(ProjectError) as raised:
        write_project(product, [file], tmp_path)
    assert said in str(raised.value)
    assert raised.value.hint
    assert list(tmp_path.iterdir()) == [file]


def test_files_that_are_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, said in ((tmp_path / "x.json", "does not exist"), (tmp_path, "is not a file")):
        with pytest.raises(ProjectError, match=said):
            write_project("airbyte", [path], tmp_path)
    monkeypatch.setattr(documents, "MAX_BYTES", 10)
    tmp_path.joinpath("large.json").write_text(json.dumps(airbyte()))
    with pytest.raises(ProjectError, match="is larger than"):
        write_project("airbyte", [tmp_path / "large.json"], tmp_path)


NAMES = [
    "a: b\nc: d",
    "- x",
    "*anchor",
    "../../etc/passwd",
    "${env:HOME}",
    "#",
    "",
    "\x1b[2J",
    "é" * 300,
    "null",
    "'\"",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_stay_names(name: str, tmp_path: Path) -> None:
    stream = {**ORDERS, "name": name or "t", "cursorField": [name or "c"], "primaryKey": [[name or "k"]]}
    given = airbyte(
        source({**PG, "database": name, "username": name or "u", "host": name}, name=name),
        destination(name=name),
        connection(stream, name=name, prefix=name, namespaceFormat=name, namespaceDefinition="custom_format"),
        connection(connectionId="c-2", name="plain"),
    )
    found = imported(given)
    for said in (*found.notes, *(f"{one.object} {one.reason} {one.next}" for one in found.left_out)):
        assert said.isprintable()
    if found.sections["sources"]:
        loaded(found, tmp_path)
    assert all("/" not in path and ".." not in path for path in (*found.states, *found.sections["connections"]))
    assert "${env:HOME}" not in project_text(found)


@pytest.mark.parametrize("wrong", [7, None, [], {}, "x", [[]], [None], {"a": {"b": 1}}], ids=str)
@pytest.mark.parametrize(
    "key", ["configurations", "schedule", "tags", "status", "prefix", "name", "namespaceDefinition"]
)
def test_values_of_other_types_are_read_as_nothing_or_refused(key: str, wrong: Any, tmp_path: Path) -> None:
    found = imported(airbyte(connection(**{key: wrong}), connection(connectionId="c-2", name="plain")))
    assert loaded(found, tmp_path).connections


def test_what_the_project_does_not_take_is_left_out_with_its_reason(tmp_path: Path) -> None:
    bad = source({**PG, "port": 99999999, "database": None}, sourceId="s-2", name="Bad")
    found = imported(airbyte(source(), bad, connection(), connection(connectionId="c-2", name="lost", sourceId="s-2")))
    assert [one.object for one in found.left_out] == ["source bad", "connection lost"]
    assert list(found.sections["connections"]) == ["shop_to_lake"]
    assert [one.object for one in found.secrets] == ["source shop"]
    loaded(found, tmp_path)


def exported(folder: Path, *data: Any) -> list[Path]:
    files = [folder / f"export{at}.json" for at in range(len(data))]
    for file, one in zip(files, data, strict=True):
        file.write_text(json.dumps(one))
    return files


def test_a_project_is_written_once_and_never_over_another(tmp_path: Path) -> None:
    files, folder = exported(tmp_path, airbyte()), tmp_path / "project"
    rehearsed = write_project("airbyte", files, folder, dry_run=True)
    assert rehearsed.new == (folder / "instep.yml",)
    assert not folder.exists()
    assert write_project("airbyte", files, folder).new == rehearsed.new
    assert folder.joinpath(".instep/schema/project.json").exists()
    assert write_project("airbyte", files, folder).new == ()
    other = exported(tmp_path, airbyte(destination({**DUCK, "destination_path": "/local/other.duckdb"})))
    before = folder.joinpath("instep.yml").read_text()
    with pytest.raises(ProjectError, match="exists already and differs") as raised:
        write_project("airbyte", other, folder)
    assert "--into NEWFILE" in raised.value.hint
    assert folder.joinpath("instep.yml").read_text() == before
    into = tmp_path / "other.yml"
    assert write_project("airbyte", other, folder, into=into).new == (into,)
    exported(tmp_path, airbyte())
    with pytest.raises(ProjectError, match="exists already and differs"):
        write_project("airbyte", files, folder, into=into)


def test_a_large_export_is_read(tmp_path: Path) -> None:
    streams = [{**ORDERS, "name": f"t{number}"} for number in range(3000)]
    found = imported(airbyte(connection(*streams)))
    assert len(the_connection(found)["tables"]) == 3000
    loaded(found, tmp_path)
