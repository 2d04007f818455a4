"""kill -9 while a previewed change is published: publishing it again, or the next sync, finishes it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from crash_cases import PUBLISH

import instep
from instep.errors import StalePlan

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
policies: {strict: {preset: approve}}
connections: {shop: {source: db, destination: lake, policy: strict}}
"""
CODE = """
import sys, instep
with instep.open(sys.argv[1]) as project:
    shop = project.connection("shop")
    shop.publish_change(shop.preview_change(sys.argv[2]))
"""


def run(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.executescript(script)


@pytest.mark.sampled
@pytest.mark.parametrize("point", PUBLISH)
def test_a_publication_that_dies_is_finished(tmp_path: Path, point: str) -> None:
    (tmp_path / "instep.yml").write_text(PROJECT)
    run(tmp_path, "create table item (id integer primary key, name text); insert into item values (1, 'a'), (2, 'b')")
    with instep.open(tmp_path) as project:
        project.connection("shop").sync()
        run(tmp_path, "alter table item add column colour text default 'red'")
        project.connection("shop").detect()
        [change] = project.connection("shop").changes()
        shown = project.connection("shop").preview_change(change)
    named = point if point.startswith("publish") else f"{point}@2"  # the preview passes the others once
    died = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), change.id],
        env={**os.environ, "INSTEP_CRASH": f"{named}=kill"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    with instep.open(tmp_path) as project:
        shop = project.connection("shop")
        try:
            shop.publish_change(shown)
        except StalePlan:  # the table is done already: the approval stands, and any apply or sync goes on
            shop.sync()
            shop.table("main.item").backfill(["colour"])
        assert shop.changes() == []
        assert project.query("select count(colour), count(*) from shop.item").rows[0] == (2, 2)
