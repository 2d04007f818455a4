"""The destination's server, or the driver of tasks that copy, is killed during a sync into PostgreSQL. The sync itself:
test_crash_matrix.py."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from crash_cases import POSTGRES_COPY
from crash_shop import BEFORE, CHANGE

from forks import Forks
from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.operations.verify import verify
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync
from postgres_server import Database, Server, launch, make_database

pytestmark = [pytest.mark.slow, pytest.mark.drawn(1)]

PROJECT = """\
version: 1
project: crash
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations:
  lake: {{type: postgres, host: 127.0.0.1, port: {c.port}, database: {c.database}, user: {c.user},
    password: "${{env:PG_PASSWORD}}", lock_timeout: 2, copy_rows: 0}}
policies: {{fills: {{preset: propagate_all, backfill: column}}}}
connections: {{shop: {{policy: fills, tables: {{main.b: {{cursor: at}}}}}}}}
"""
STANDING = "SELECT count(*), count(*) FILTER (WHERE name = 'other') FROM shop.a WHERE NOT _instep_deleted"


def synced(folder: Path) -> SyncReport:
    with open_project(folder) as app:
        return sync(app.sync_context("shop"), RunScope(), engine=LocalEngine(threads=1))


def by_spark(folder: str) -> None:
    """A sync whose rows are copied by tasks."""
    with open_project(Path(folder)) as app:
        assert sync(app.sync_context("shop"), RunScope()).status == "done"


def sql(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        db.executescript(script)


def loaded(folder: Path, postgres: Database) -> Path:
    """A project whose tables are loaded, and which has changes waiting."""
    folder.joinpath("instep.yml").write_text(PROJECT.format(c=postgres.config))
    folder.joinpath(".env").write_text(f"PG_PASSWORD={postgres.config.password}\n")
    sql(folder, BEFORE)
    assert synced(folder).status == "done"
    sql(folder, CHANGE)
    return folder


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that the test may kill."""
    place = Path(tempfile.mkdtemp(prefix="instep-pg-"))
    place.chmod(0o755)
    server = launch(place / "server")
    yield server
    server.stop()
    shutil.rmtree(place, ignore_errors=True)


def armed(folder: str) -> None:
    synced(Path(folder))


def check_equal(folder: Path, postgres: Database) -> None:
    with open_project(folder) as app:
        assert {v.table: v.differences for v in verify(app.sync_context("shop")) if not v.equal} == {}
        assert [name for _, name in app.destination().schema.tables()] == ["a", "b", "c", "k"]
    assert postgres.execute("SELECT count(*) FROM shop.a WHERE color IS NULL AND NOT _instep_deleted") == [(0,)]


def check_clean(folder: Path, postgres: Database) -> None:
    left = postgres.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = '_instep'::regnamespace AND relkind = 'r'"
    )
    assert sorted(left) == [("dropped",), ("tables",)], "no staging table is left behind"
    assert list(folder.joinpath(".instep/staging").rglob("*.parquet")) == [], "nothing staged is left behind"


@pytest.mark.server
@pytest.mark.parametrize("point", ["sync.commit.before@2", "sql.commit.before@2", "sql.commit.after@2"])
def test_a_server_that_is_killed_has_all_of_a_load_or_nothing(
    forked: Forks, tmp_path: Path, own: Server, point: str
) -> None:
    database = make_database(own, "warehouse")
    loaded(tmp_path, database)
    late = forked.run("test_crash_postgres.armed", str(tmp_path), crash=f"{point}=stop")
    assert late.code is None, late.said
    own.kill()
    own.start()
    forked.go_on(late)
    assert database.execute(STANDING) in ([(100, 0)], [(116, 11)]), "all of a load or nothing"
    assert synced(tmp_path).status == "done"
    check_equal(tmp_path, database)
    check_clean(tmp_path, database)


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("point", POSTGRES_COPY)
def test_a_driver_that_is_killed_leaves_nothing_of_what_its_tasks_copied(
    forked: Forks, tmp_path: Path, postgres: Database, point: str
) -> None:
    loaded(tmp_path, postgres)
    died = forked.run("test_crash_postgres.by_spark", str(tmp_path), crash=f"{point}=kill")
    assert died.code == -signal.SIGKILL, f"it never came to {point}: {died.said}"
    assert postgres.execute(STANDING) in ([(100, 0)], [(116, 11)]), "all of a load or nothing"
    assert synced(tmp_path).status == "done"
    check_equal(tmp_path, postgres)
    check_clean(tmp_path, postgres)
