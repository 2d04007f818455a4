"""A connector in a sandbox, as those of the Connector SDK run in one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import instep
from airbyte_wheels import CODE, TEXT, stream
from instep.errors import InstepError, SetupError
from programs import program

PROJECT = """\
version: 1
engine: local
sources:
  shop: {{type: airbyte, command: {command}, sandbox: true}}
destinations:
  lake: {{type: duckdb, path: lake.duckdb}}
connections:
  shop: {{source: shop, destination: lake}}
"""
LOOKS = """
def look(path, mode):
    try:
        open(path, mode)
    except OSError as error:
        return type(error).__name__
    return "opened"

if sys.argv[1] == "read":
    SCRIPT["seen"] = [look(%r, "r"), look(%r, "w")]
    SCRIPT["messages"] = {"read": [{"type": "RECORD", "record": {"stream": "users", "emitted_at": 1,
        "data": {"id": 0, "name": " ".join(SCRIPT["seen"])}}}]}
run()
"""


def test_it_sees_little_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(program('bwrap')).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "project"
    (folder / "connector").mkdir(parents=True)
    beside, ours = tmp_path / "beside.txt", f"/var/tmp/instep-airbyte-{os.getpid()}"
    beside.write_text("nobody's business")
    script = CODE % '{"streams": [], "version": "1"}' + LOOKS % (str(beside), ours)
    script = script.replace('SCRIPT["streams"]', repr([stream(name=TEXT)]))
    (folder / "connector" / "run.py").write_text(script)
    (folder / "instep.yml").write_text(PROJECT.format(command=f"[{sys.executable}, connector/run.py]"))
    with instep.open(folder) as opened:
        try:
            assert opened.connection("shop").sync().status == "done"
        except InstepError as error:
            if "namespace" in str(error):
                pytest.skip("bubblewrap may make no namespaces here")
            raise
        rows = opened.query("select id, name from shop.users order by id").to_arrow().to_pylist()
    assert rows[0] == {"id": 0, "name": "FileNotFoundError FileNotFoundError"}
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert not Path(ours).exists()


def test_without_bubblewrap_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "instep.yml").write_text(PROJECT.format(command=f"[{sys.executable}, run.py]"))
    (tmp_path / "run.py").write_text("")
    monkeypatch.setenv("PATH", "")
    with instep.open(tmp_path) as opened, pytest.raises(SetupError, match="bwrap"):
        opened.connection("shop").sync()
