"""Destinations in an object store: what a project file says of them reaches their configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.errors import ProjectError
from instep.project.load import load
from instep.project.sections.values import as_text

KEY = "properties: {s3.secret-access-key: '${env:LAKE_SECRET}', s3.force-virtual-addressing: true}"
PLAIN = {"s3.secret-access-key": "hush", "s3.force-virtual-addressing": "true"}


def said(folder: Path, section: str) -> Any:
    file = folder / "instep.yml"
    file.write_text(f"version: 1\nproject: p\ndestinations:\n  d: {section}\n")
    return load(file).destination("d")


# section -> where its files are
PLACES = [
    ("{type: delta, warehouse: 's3://b/lake', KEY}", {"warehouse": "s3://b/lake"}),
    ("{type: delta, warehouse: lake, KEY}", {"warehouse": "ROOT/lake"}),
    ("{type: duckdb, path: a.duckdb, staging: 's3://b/x', KEY}", {"path": "ROOT/a.duckdb", "staging": "s3://b/x"}),
    ("{type: duckdb, path: a.duckdb, staging: x, KEY}", {"staging": "ROOT/x"}),
    ("{type: duckdb, path: a.duckdb, KEY}", {"staging": ""}),
    ("{type: postgres, database: d, user: u, staging: 's3://b/x', KEY}", {"staging": "s3://b/x"}),
    ("{type: postgres, database: d, user: u, KEY}", {"staging": "ROOT/.instep/staging"}),
]


@pytest.mark.parametrize(("section", "expected"), PLACES)
def test_where_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, expected: dict[str, str]
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hush")
    found = said(tmp_path, section.replace("KEY", KEY))
    assert {k: getattr(found, k) for k in expected} == {
        k: v.replace("ROOT", str(tmp_path)) for k, v in expected.items()
    }
    assert as_text(found.properties) == PLAIN
    assert "hush" not in repr(found)


# the catalog's file, as it is written and as it is opened
FILES = [
    ("sqlite:///catalog.db", "sqlite:///ROOT/catalog.db"),
    ("sqlite:////var/catalog.db", "sqlite:////var/catalog.db"),
    ("https://catalog.example", "https://catalog.example"),
]


@pytest.mark.parametrize(("uri", "expected"), FILES)
def test_a_catalog_s_file_begins_at_the_project(tmp_path: Path, uri: str, expected: str) -> None:
    found = said(tmp_path, f"{{type: iceberg, warehouse: 's3://b/lake', properties: {{uri: '{uri}'}}}}")
    assert found.properties["uri"] == expected.replace("ROOT", str(tmp_path))


@pytest.mark.parametrize("section", ["type: delta", "type: duckdb, path: x", "type: postgres, database: d, user: u"])
def test_a_secret_in_the_file_is_refused(tmp_path: Path, section: str) -> None:
    with pytest.raises(ProjectError, match="a secret must not be in the file") as caught:
        said(tmp_path, f"{{{section}, properties: {{s3.secret-access-key: geheim}}}}")
    assert "geheim" not in str(caught.value)
