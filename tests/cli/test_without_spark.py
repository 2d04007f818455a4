"""`instep[local]`: without pyspark, py4j and pandas every command of a project with `engine: local` works."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

BLOCKER = """\
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import importlib.util
_find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else _find(name, package)
"""
PROJECT = """\
version: 1
project: shop
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: %s}}
connections: {shop: {source: db, destination: lake}}
"""
LAKES = {
    "iceberg": "iceberg, warehouse: lake",
    "delta": "delta, warehouse: lake",
    "duckdb": "duckdb, path: lake.duckdb",
}
COMMANDS = (
    "validate", "source test", "destination test", "sync", "status", "detect", "plan", "changes list", "apply", "sync",
    "verify", "sync --full", "backfill main.item", "repair main.item", "tables", "maintain", "history",
    "selection show", "schema show", "quarantine list", "doctor",
)  # fmt: skip


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    import shlex

    path = os.pathsep.join(filter(None, [str(folder / "blocked"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "instep.cli.main", *shlex.split(line)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCKER)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript("create table item (id integer primary key, n int); insert into item values (1, 2)")
    return tmp_path


@pytest.mark.sampled
@pytest.mark.parametrize("lake", LAKES)
def test_every_command_of_the_local_engine_works(folder: Path, lake: str) -> None:
    (folder / "instep.yml").write_text(PROJECT % LAKES[lake])
    for line in COMMANDS:
        if line == "detect":
            with closing(sqlite3.connect(folder / "shop.db")) as database:
                database.executescript("alter table item add column note text; insert into item values (2, 3, 'new')")
        done = run(folder, line)
        said = done.stdout + done.stderr
        assert "pyspark" not in said
        assert "Traceback" not in said
        assert done.returncode in (0, 3), f"{line}: {said}"
    done = run(folder, "query 'select count(*) from shop.item'")
    assert "2" in done.stdout


@pytest.mark.parametrize("line", ["sync", "backfill main.item"])
def test_the_engine_spark_says_what_to_install(folder: Path, line: str) -> None:
    (folder / "instep.yml").write_text((PROJECT % LAKES["iceberg"]).replace("engine: local", "engine: spark"))
    done = run(folder, line)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Spark is not installed here" in done.stderr
    assert "pip install 'instep[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_python_api_works_and_says_so_too(folder: Path) -> None:
    (folder / "instep.yml").write_text(PROJECT % LAKES["duckdb"])
    script = (
        "import instep\nwith instep.open('.') as project:\n"
        "    project.connection().sync().raise_for_failure()\n"
        "    found = project.query('select id from shop.item')\n    print(found.rows)\n"
        "    try: found.to_spark()\n    except instep.python.project.ProjectError: raise\n"
        "    except Exception as error: print(error)\n"
    )
    path = os.pathsep.join(filter(None, [str(folder / "blocked"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[(1,)]" in done.stdout
    assert "there is no Spark session" in done.stdout
