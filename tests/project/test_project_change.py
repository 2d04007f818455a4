"""One value of instep.yml is changed in place: all else stays as people wrote it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from instep.errors import ProjectError
from instep.project.load import changed_text, load, replace_text

PATH = ("sources", "a", "path")
REST = "destinations: {lake: {type: duckdb, path: lake.duckdb}}\n"


@pytest.mark.parametrize(
    "text",
    [
        "sources:\n  a:  # é\n    type: sqlite\n    path: OLD   # why\n",
        "sources: {a: {path: OLD, type: sqlite}}  # é\n",
        "sources: {b: {type: sqlite, path: é}, a: {path: OLD, type: sqlite}}\n",
        "\r\nsources:\r\n  a:\r\n    path: OLD\r\n    type: sqlite\r\n",
    ],
)
@pytest.mark.parametrize("old", ["x.db", "'x.db'", '"x.db"'])
def test_one_value_is_replaced(tmp_path: Path, text: str, old: str) -> None:
    file = tmp_path / "instep.yml"
    file.write_bytes(f"{text.replace('OLD', old)}{REST}".encode())
    file.chmod(0o640)
    project = load(file)
    replace_text(project, changed_text(project, PATH, "new.db"))
    assert file.read_bytes().decode() == f"{text.replace('OLD', 'new.db')}{REST}"
    assert (file.stat().st_mode & 0o777, os.listdir(tmp_path)) == (0o640, ["instep.yml"])  # noqa: PTH208
    assert load(file).source("a").type == "sqlite"


@pytest.mark.parametrize("value", ["1e3", "yes: no", "# x", "", "a 'b' \"c\"", "${env:X}", "null"])
def test_texts_that_yaml_reads_otherwise_are_quoted_or_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "instep.yml"
    file.write_text(f"sources: {{a: {{type: sqlite, path: x}}}}\n{REST}")
    project = load(file)
    try:
        replace_text(project, changed_text(project, PATH, value))
    except ProjectError:
        assert value.startswith("${")
        return
    assert load(file).tree.data["sources"]["a"]["path"] == value


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("{type: sqlite, path: '${env:A}'}", "is a reference"),
        ("{type: sqlite, path: &p x}\n  b: {type: sqlite, path: *p}", "its own text"),
        ("\n    type: sqlite\n    path: >-\n      long\n      text", "on one line"),
    ],
)
def test_what_is_not_a_text_of_its_own_is_left(tmp_path: Path, section: str, why: str) -> None:
    file = tmp_path / "instep.yml"
    file.write_text(text := f"sources:\n  a: {section}\n{REST}")
    with pytest.raises(ProjectError, match=why) as raised:
        changed_text(load(file), PATH, "new.db")
    assert "new.db" in raised.value.hint
    assert file.read_text() == text
