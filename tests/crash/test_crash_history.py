"""kill -9 during a sync of a table that keeps its history: the next one makes the same versions, and no others."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forks import Ended, Forks
from instep.bootstrap import open_project
from instep.errors import RunInProgress
from instep.sync.loading.engine import LocalEngine
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync

pytestmark = [pytest.mark.slow, pytest.mark.drawn(1)]

PROJECT = """\
version: 1
project: crash
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {lake}}}
connections: {{shop: {{tables: {{main.a: {{cursor: at, history: {on}}}}}}}}}
"""
LAKES = {
    "duckdb": "{type: duckdb, path: shop.duckdb}",
    "iceberg": "{type: iceberg, warehouse: lake}",
    "delta": "{type: delta, warehouse: lake}",
}
BEFORE = """
CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT, at INTEGER NOT NULL);
WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 50) INSERT INTO a SELECT i, 'v' || i, i FROM s;
"""
CHANGE = """
UPDATE a SET v = 'other', at = 100 WHERE id % 10 = 0;
DELETE FROM a WHERE id % 25 = 1;
INSERT INTO a VALUES (60, 'new', 101);
"""
LATER = "UPDATE a SET v = 'later', at = 200 WHERE id = 2;"
POINTS = ("history.begun", "history.written", "sync.commit.after")
OWN = {
    "duckdb": ("sql.commit.before",),
    "iceberg": ("merge.merged", "merge.published"),
    "delta": ("delta.commit.before@2",),
}
CASES = [(kind, point) for kind, own in OWN.items() for point in (*(POINTS if kind == "duckdb" else POINTS[:1]), *own)]


def synced(folder: Path) -> SyncReport:
    with open_project(folder) as app:
        return sync(app.sync_context("shop"), RunScope(), engine=LocalEngine(threads=1))


def sql(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        db.executescript(script)


def written(folder: Path, kind: str, *, on: bool) -> None:
    folder.joinpath("instep.yml").write_text(PROJECT.format(lake=LAKES[kind], on=str(on).lower()))


def versions(folder: Path) -> list[tuple[Any, ...]]:
    """Key, value, which moment from which up to which, deleted."""
    with open_project(folder) as app:
        rows = app.destination().write.read(("shop", "a")).read_all().to_pylist()
    names = ("_instep_valid_from", "_instep_valid_to")
    moments = {m: i for i, m in enumerate(sorted({r[n] for r in rows for n in names if r[n] is not None}), 1)}
    marks = ("_instep_current", "_instep_deleted")
    return sorted((r["id"], r["v"], *(moments.get(r[n], 0) for n in names), *(bool(r[m]) for m in marks)) for r in rows)


def loaded(folder: Path, kind: str) -> None:
    """Without a history, which begins with the sync to come."""
    written(folder, kind, on=False)
    sql(folder, BEFORE)
    assert synced(folder).status == "done"
    written(folder, kind, on=True)
    sql(folder, CHANGE)


def armed(folder: str) -> None:
    synced(Path(folder))


def start(forked: Forks, folder: Path, crash: str) -> Ended:
    return forked.run("test_crash_history.armed", str(folder), crash=crash)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What a sync makes that nobody kills."""
    folder = tmp_path_factory.mktemp("expected")
    loaded(folder, "duckdb")
    assert synced(folder).status == "done"
    found = versions(folder)
    assert len(found) == 56
    assert sum(v[4] for v in found) == 49
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "point"), CASES)
def test_a_killed_sync_makes_no_other_versions(
    forked: Forks, tmp_path: Path, kind: str, point: str, expected: list[tuple[Any, ...]]
) -> None:
    loaded(tmp_path, kind)
    died = start(forked, tmp_path, f"{point}=kill")
    assert died.code == -signal.SIGKILL, died.said
    assert synced(tmp_path).status == "done"
    assert versions(tmp_path) == expected
    assert synced(tmp_path).status == "done"
    assert versions(tmp_path) == expected


@pytest.mark.parametrize(("kind", "point"), [("iceberg", "history.written"), ("delta", "history.begun")])
def test_a_late_sync_is_refused(forked: Forks, tmp_path: Path, kind: str, point: str) -> None:
    """It stands still while another one takes over and goes on."""
    loaded(tmp_path, kind)
    late = start(forked, tmp_path, f"{point}=stop")
    assert late.code is None, late.said
    with pytest.raises(RunInProgress):
        synced(tmp_path)
    with closing(sqlite3.connect(tmp_path / ".instep" / "state.db", timeout=30)) as store, store:
        store.execute("UPDATE runs SET lease_until = '2000-01-01 00:00:00.000000' WHERE status = 'running'")
    sql(tmp_path, LATER)
    assert synced(tmp_path).status == "done"
    found = versions(tmp_path)
    assert [v[1] for v in found if v[0] == 2] == ["later", "v2"]
    assert forked.go_on(late).code != 0
    assert versions(tmp_path) == found
    assert synced(tmp_path).status == "done"
    assert versions(tmp_path) == found
