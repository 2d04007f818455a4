"""The code of docs/reference/python.md runs: its blocks in order on a project, its test module by pytest, its Spark
session in a process of its own."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
SPARK = "## Your own Spark session"
PROJECT = """\
version: 1
project: page
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
policies: {careful: {preset: approve}}
connections: {shop: {policy: careful}}
"""
TABLES = """
create table orders (id integer primary key, total integer, updated_at integer not null);
insert into orders values (1, 10, 1), (2, 20, 2);
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "instep.yml").write_text(PROJECT)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript(TABLES)
    return tmp_path


def page() -> tuple[str, str]:
    """The section about Spark, and the page without it."""
    text = PAGE.read_text()
    begin = text.index(SPARK)
    end = text.index("\n## ", begin)
    return text[begin:end], text[:begin] + text[end:]


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, **env}, timeout=600, check=False
    )


def test_the_code_of_the_page_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    found = blocks(page()[1])
    assert len(found) > 7
    names: dict[str, Any] = {}
    try:
        for number, block in enumerate(found):
            exec(compile(block, f"{PAGE.name}, block {number + 1}", "exec"), names)
            if number == 0:
                with closing(sqlite3.connect("shop.db")) as connection:
                    connection.executescript("alter table orders add column note text")
    finally:
        names["project"].close()
    said = capsys.readouterr().out
    assert "done [(('main', 'orders'), 2)]" in said
    assert "True ['column.added']" in said
    assert "['id', 'total'] [(1, 10), (2, 20)]" in said
    assert "review preset approve" in said
    assert "main.orders True" in said


def policy_tests(folder: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    found = re.search(r'```python title="(test_policy\.py)"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert found
    (folder / found[1]).write_text(found[2])
    return lambda: run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", found[1])


def test_the_policy_tests_of_the_page_pass_and_fail_with_the_policy(folder: Path) -> None:
    tests = policy_tests(folder)
    passed = tests()
    assert (passed.returncode, "3 passed" in passed.stdout) == (0, True), passed.stdout
    (folder / "instep.yml").write_text(PROJECT.replace("preset: approve", "preset: allow_columns"))
    failed = tests()
    assert failed.returncode == 1
    assert "column.added of main.orders.note" in failed.stdout
    assert "(decided by preset allow_columns)" in failed.stdout


OTHERS = """
import pandas as pd
import pyarrow as pa


def converted(_):
    import pandas as pd
    import pyarrow as pa

    return pa.array([pd.NA, "x"], from_pandas=True).to_pylist()


print("here", converted(0))
print("workers", spark.sparkContext.parallelize(range(8), 4).map(converted).collect())
spark.stop()
"""
"""Code of others in the same process, and in the same workers: pyarrow must know pandas' NA there."""


@pytest.mark.drawn(5)
@pytest.mark.spark
@pytest.mark.slow
def test_the_spark_session_of_the_page(folder: Path) -> None:
    (folder / "instep.yml").write_text(PROJECT.replace("engine: local", "engine: spark"))
    code = "".join(blocks(page()[0]))
    (folder / "page.py").write_text(code + OTHERS)
    done = run(folder, "page.py", SPARK_LOCAL_IP="127.0.0.1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "here [None, 'x']" in done.stdout
    assert f"workers {[[None, 'x']] * 8}" in done.stdout
    assert "|sum(total)|" in done.stdout
    assert "|        30|" in done.stdout
    assert re.search(r"\| +1\| +10\| +1\|", done.stdout), done.stdout
