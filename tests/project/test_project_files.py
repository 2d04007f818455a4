"""A source of files in instep.yml: what it says reaches the source, and what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.bootstrap import open_project
from instep.errors import ProjectError
from instep.project.sections.file_settings import FileOptions
from instep.sources.files.config import options_digest
from instep.sources.files.source import FilesSource

REST = "destinations: {lake: {type: iceberg}}\nconnections: {shop: {}}\n"


def source(folder: Path, text: str) -> FilesSource:
    folder.joinpath("instep.yml").write_text(f"sources:\n  drop: {text}\n{REST}")
    with open_project(folder) as app:
        found = app.source()
    assert isinstance(found, FilesSource)
    return found


def test_the_defaults(tmp_path: Path) -> None:
    config = source(tmp_path, "{type: files, path: drop}").config
    assert (config.path, config.name, config.settle) == (str(tmp_path / "drop"), "drop", 5)
    assert config.options_of("t") == FileOptions()


def test_everything_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_KEY", "hush")
    text = (
        "{type: files, path: 's3://drop/in', tables: '{table}/*', metadata: [_file], delimiter: ';', nulls: [NA],"
        " properties: {s3.secret-access-key: '${env:S3_KEY}'}, include: ['files.o*'],"
        " options: {orders: {key: id, types: {n: 'decimal(12,2)'}}, 'o*': {delimiter: '|', header: false}}}"
    )
    config = source(tmp_path, text).config
    assert (config.path, config.metadata, config.properties) == (
        "s3://drop/in", ("_file",), {"s3.secret-access-key": "hush"}
    )  # fmt: skip
    assert "hush" not in repr(config)
    common = FileOptions(nulls=("NA",))
    assert config.options_of("x") == FileOptions(delimiter=";", nulls=("NA",))
    assert config.options_of("orders") == FileOptions(
        delimiter="|", header=False, nulls=("NA",), key=("id",), types={"n": "decimal(12,2)"}
    )
    assert options_digest(config.options_of("offers")) != options_digest(common)
    assert [config.is_selected(name) for name in ("orders", "stock")] == [True, False]


WRONG = [
    ("no table in the glob", "tables: 'x/*.csv'", "{table}"),
    ("a delimiter that is none", "delimiter: '||'", "delimiter"),
    ("an unknown encoding", "encoding: klingon", "encoding"),
    ("an unknown type", "types: {n: number}", "unknown type"),
    ("an unknown format", "format: xml", "format"),
    ("an unknown metadata column", "metadata: [_name]", "metadata"),
    ("an unknown option", "options: {t: {delimeter: ';'}}", "delimiter"),
    ("a secret in the file", "properties: {s3.secret-access-key: abc}", "secret"),
]


@pytest.mark.parametrize(("text", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_wrong_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ProjectError) as error:
        source(tmp_path, f"{{type: files, path: drop, {text}}}")
    assert said in str(error.value)
    assert "abc" not in str(error.value)
