"""Connections that share tables: a namespace in common, a name each."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.errors import ProjectError
from instep.project.load import load

BASE = """\
version: 1
sources:
  eu: {type: sqlite, path: eu.db}
  us: {type: sqlite, path: us.db}
destinations:
  lake: {type: duckdb, path: lake.duckdb}
connections:
"""
GOOD = """\
  a: {source: eu, namespace: shop, shard: eu}
  b: {source: us, namespace: shop, shard: us}
"""
BAD = [
    ("a name twice", GOOD.replace("shard: us", "shard: eu"), "connections.a is shard 'eu' of shop already"),
    ("no namespace", GOOD.replace("namespace: shop, ", ""), "needs a `namespace`"),
    ("odd name", GOOD.replace("shard: us", "shard: 'u s'"), "connections.b.shard"),
]


def test_shards_of_a_namespace(tmp_path: Path) -> None:
    file = tmp_path / "instep.yml"
    file.write_text(BASE + GOOD)
    project = load(file)
    assert [project.connection(n).shard for n in "ab"] == ["eu", "us"]
    file.write_text(BASE + GOOD.replace("namespace: shop, shard: us", "namespace: other, shard: eu"))
    load(file)


@pytest.mark.parametrize(("name", "text", "said"), BAD)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    file = tmp_path / "instep.yml"
    file.write_text(BASE + text)
    with pytest.raises(ProjectError, match=said.replace(".", r"\.")):
        load(file)
