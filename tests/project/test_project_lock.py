"""The lock file: written, read back, compared, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.errors import ProjectError
from instep.project.documents import InvalidObject
from instep.project.files.lock import lock_diff, lock_file, lock_text, read_lock, write_lock

COLUMNS = [{"name": "id", "type": "int64", "nullable": False}, {"name": "no", "type": "decimal(10,2)"}]
DOCUMENT = {
    "format_version": 1, "connection": "c",
    "tables": [{"schema": "s", "name": "né: #1", "destination": "ne_1", "key": ["id"], "columns": COLUMNS}],
}  # fmt: skip
TEXT = """\
# What connection c has accepted. Written by `instep schema lock`: review it, do not edit it.
format_version: 1
connection: c
tables:
- schema: s
  name: 'né: #1'
  destination: ne_1
  key: [id]
  columns:
  - {name: id, type: int64, nullable: false}
  - {name: 'no', type: 'decimal(10,2)'}
"""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_lock(tmp_path, "c") is None
    path = write_lock(tmp_path, DOCUMENT)
    assert path == lock_file(tmp_path, "c") == tmp_path / "schemas" / "c.lock.yml"
    assert path.read_text(encoding="utf-8") == lock_text(DOCUMENT) == TEXT
    assert read_lock(tmp_path, "c") == DOCUMENT
    write_lock(tmp_path, {**DOCUMENT, "tables": []})
    assert read_lock(tmp_path, "c") == {**DOCUMENT, "tables": []}
    assert [p.name for p in path.parent.iterdir()] == ["c.lock.yml"]


def test_one_line_a_column_differs() -> None:
    now = {**DOCUMENT, "tables": [{**DOCUMENT["tables"][0], "columns": COLUMNS[:1]}]}  # type: ignore[index]
    diff = lock_diff(DOCUMENT, now, locked_as="a", now_as="b")
    assert [line for line in diff if line[0] in "+-"] == ["--- a", "+++ b", "-  - {name: 'no', type: 'decimal(10,2)'}"]
    assert lock_diff(DOCUMENT, DOCUMENT, locked_as="a", now_as="b") == []
    assert len(lock_diff(None, DOCUMENT, locked_as="a", now_as="b")) == len(TEXT.splitlines()) + 3


BROKEN = [
    ("conflict marks", "<<<<<<< HEAD\ntables: [}\n", "is not YAML"),
    ("not UTF-8", b"name: \xff\xfe", "is not YAML"),
    ("a list", "- 1\n", "is not a lock file of format version 1"),
    ("empty", "", "is not a lock file"),
    ("another format", "format_version: 2\nconnection: c\ntables: []\n", "is not a lock file of format version 1"),
    ("no columns", "format_version: 1\nconnection: c\ntables: [{name: a}]\n", "is not a lock file"),
    ("columns of text", "format_version: 1\nconnection: c\ntables: [{columns: [a]}]\n", "is not a lock file"),
    ("an object", "!!python/object/apply:os.system ['true']", "is not YAML"),
]


@pytest.mark.parametrize(("name", "text", "said"), BROKEN, ids=[b[0] for b in BROKEN])
def test_a_file_that_is_none(tmp_path: Path, name: str, text: str | bytes, said: str) -> None:
    path = lock_file(tmp_path, "c")
    path.parent.mkdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProjectError, match=said) as error:
        read_lock(tmp_path, "c")
    assert "instep schema lock" in error.value.hint
    assert str(path) in error.value.message


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.joinpath("schemas").write_text("a file")
    with pytest.raises(ProjectError, match="cannot be written"):
        write_lock(tmp_path, DOCUMENT)


@pytest.mark.parametrize("name", ["../c", "/tmp/c", "a/b", "", ".."])
def test_a_name_that_is_none_leads_out_of_no_folder(tmp_path: Path, name: str) -> None:
    """It may be what a server answers."""
    with pytest.raises(InvalidObject):
        write_lock(tmp_path, {**DOCUMENT, "connection": name})
    with pytest.raises(InvalidObject):
        read_lock(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
