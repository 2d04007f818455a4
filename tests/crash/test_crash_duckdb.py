"""kill -9 during a sync into a DuckDB file: what a reader finds is whole, and the next sync makes it equal."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crash_cases import DUCKDB

from instep.bootstrap import open_project
from instep.crash import VARIABLE
from instep.sync.progress import Report
from instep.sync.query import ask
from instep.sync.rows.engine import Inline
from instep.sync.run import Wanted, sync
from instep.sync.verify import verify

pytestmark = pytest.mark.slow

PROJECT = """\
version: 1
project: crash
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: shop.duckdb}}
policies: {fills: {preset: propagate_all, backfill: column}}
connections: {shop: {policy: fills, tables: {main.b: {cursor: at}}}}
"""
BEFORE = """
CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT, n INTEGER);
CREATE TABLE b (id INTEGER PRIMARY KEY, v TEXT, at INTEGER NOT NULL);
CREATE TABLE k (v INTEGER);
WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 100)
  INSERT INTO a SELECT i, 'name ' || i, i FROM s;
INSERT INTO b SELECT id, name, id FROM a;
INSERT INTO k SELECT n % 7 FROM a;
"""
CHANGE = """
ALTER TABLE a ADD COLUMN color TEXT DEFAULT 'red';
UPDATE a SET name = 'other' WHERE id % 10 = 0;
DELETE FROM a WHERE id % 50 = 1;
INSERT INTO a SELECT id + 200, name, n, 'blue' FROM a WHERE id < 20;
ALTER TABLE b ADD COLUMN extra INTEGER;
UPDATE b SET extra = id WHERE id < 30;
UPDATE b SET v = 'later', at = 200 WHERE id = 5;
DELETE FROM k WHERE v = 3;
CREATE TABLE c (id INTEGER PRIMARY KEY);
INSERT INTO c VALUES (1), (2);
"""
SYNC = "import sys; sys.path[:0] = sys.argv[2:]; import test_crash_duckdb as t; t.synced(t.Path(sys.argv[1]))"


def synced(folder: Path) -> Report:
    with open_project(folder) as app:
        return sync(app.pipe("shop"), Wanted(), engine=Inline(threads=1))


def sql(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        db.executescript(script)


def seen(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """What a reader of the file finds."""
    with open_project(folder) as app:
        return ask(app.destination(), query).rows


STANDING = "SELECT count(*), count(*) FILTER (name = 'other') FROM shop.a WHERE NOT _instep_deleted"


@pytest.mark.parametrize("point", DUCKDB)
def test_a_killed_sync_converges(tmp_path: Path, point: str) -> None:
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    sql(tmp_path, BEFORE)
    assert synced(tmp_path).status == "done"
    sql(tmp_path, CHANGE)
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    died = subprocess.run(
        [sys.executable, "-c", SYNC, str(tmp_path), *here], capture_output=True, text=True, check=False,
        env=os.environ | {VARIABLE: f"{point}=kill"},
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert seen(tmp_path, STANDING) in ([(100, 0)], [(116, 11)]), "all of a load or nothing"
    assert seen(tmp_path, "SELECT count(*) FROM shop.k") in ([(100,)], [(86,)])
    assert synced(tmp_path).status == "done"
    with open_project(tmp_path) as app:
        assert {v.table: v.differences for v in verify(app.pipe("shop")) if not v.equal} == {}
        assert [name for _, name in app.destination().tables()] == ["a", "b", "c", "k"]
    assert seen(tmp_path, "SELECT count(*) FROM shop.a WHERE color IS NULL AND NOT _instep_deleted") == [(0,)]
    left = list(tmp_path.joinpath("shop.duckdb.files").rglob("*.parquet"))
    assert left == [], "nothing staged is left behind"
