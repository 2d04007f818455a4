"""One shop in SQLite, synced into each kind of destination, in line: what is run in forked processes, and what must
hold after a crash, after the sync that follows it, and after a late attempt has woken up."""

from __future__ import annotations

import json
import re
import resource
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from pyiceberg.table import Table as IcebergTable

from instep.bootstrap import App, open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.operations.verify import verify
from instep.sync.query import ask
from instep.sync.run import RunScope, sync

PROJECT = """\
version: 1
project: crash
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: DESTINATION}
policies: {fills: {preset: propagate_all, backfill: column}}
connections: {shop: {policy: fills, tables: {main.b: {cursor: at}}}}
"""
KINDS = {
    "iceberg": "{type: iceberg, warehouse: lake}",
    "delta": "{type: delta, warehouse: lake}",
    "duckdb": "{type: duckdb, path: shop.duckdb, lock_timeout: 1}",
    "postgres": '{type: postgres, host: 127.0.0.1, port: %d, database: %s, user: %s, password: "${env:PG}", '
    "lock_timeout: 1}",
}
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
SEEN = {
    "a": "SELECT count(*), sum(CASE WHEN name = 'other' THEN 1 ELSE 0 END) FROM shop.a WHERE NOT _instep_deleted",
    "b": 'SELECT count(*), max("at") FROM shop.b',
    "k": "SELECT count(*), min(v) FROM shop.k",
}
OLD, NEW = {"a": (100, 0), "b": (100, 100), "k": (100, 0)}, {"a": (116, 11), "b": (100, 200), "k": (86, 0)}


def execute(folder: str, script: str) -> None:
    """SQL at the source."""
    with closing(sqlite3.connect(Path(folder) / "shop.db")) as db:
        db.executescript(script)


def tables(folder: str) -> list[str]:
    """Those of the source."""
    with closing(sqlite3.connect(Path(folder) / "shop.db")) as db:
        return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]


def synced(folder: str) -> None:
    """Fails unless every table is done."""
    with open_project(Path(folder)) as app:
        report = sync(app.sync_context("shop"), RunScope(), engine=LocalEngine(threads=1))
    failed = {t.table: t.error for t in report.tables if t.status != "done"}
    assert report.status == "done", failed


def synced_within(folder: str, most: str) -> None:
    """On a disk where no file may be longer than `most` bytes; fails as `synced` does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
    synced(folder)


def whole(folder: str) -> None:
    """After a crash: each table wholly old or wholly new for a reader, and no cursor ahead of its rows."""
    with open_project(Path(folder)) as app:
        for name, query in SEEN.items():
            [row] = ask(app.destination(), query).rows
            assert tuple(map(int, row)) in (OLD[name], NEW[name]), f"{name} is neither old nor new: {row}"
            if name == "b":
                check_cursor(app, int(row[1]))


def check_cursor(app: App, highest: int) -> None:
    state = app.destination().schema.state(("shop", "b"))
    assert state is not None
    recorded = int(json.loads(state.cursor)["upper"])
    assert recorded <= highest, "the cursor is ahead of the rows"
    kept = [int(json.loads(c.cursor)["upper"]) for c in app.store.cursors.of("shop").values() if c.cursor]
    assert all(k <= recorded for k in kept), "the store's cursor is ahead of the destination's"


def converged(folder: str) -> None:
    """After the next sync: equal to the source, nothing left over, each change told once, no run or step under way."""
    with open_project(Path(folder)) as app:
        context, to = app.sync_context("shop"), app.destination()
        assert {v.table: v.differences for v in verify(context) if not v.equal} == {}
        assert sorted(name for _, name in to.schema.tables()) == tables(folder)
        assert ask(to, "SELECT count(*) FROM shop.a WHERE color IS NULL AND NOT _instep_deleted").rows == [(0,)]
        check_cursor(app, 200)
        check_told(app)
        assert app.store.runs.running("shop") is None
        assert not app.store.backfills.waiting("shop")
        assert [p.id for p in app.store.plans.history("shop") if p.status == "running"] == []
        assert LEFT[to.kind](Path(folder), to) == [], "something is left over"


def recovered(folder: str) -> None:
    """After a crash, and after the sync that follows it."""
    whole(folder)
    synced(folder)
    converged(folder)


def check_told(app: App) -> None:
    events = app.store.events.latest(connection="shop", limit=1000)
    for kind in ("change.detected", "change.applied"):
        told = Counter(e.data["change"] for e in events if e.type == kind)
        assert told
        assert not [c for c, times in told.items() if times > 1], f"{kind} was told twice"


def data_files(table: IcebergTable) -> set[Path]:
    """Every data and delete file that a snapshot of the table names."""
    return {
        file_of(entry.data_file.file_path)
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }


def file_of(uri: str) -> Path:
    return Path(uri.removeprefix("file:").removeprefix("//"))


def lake_files(folder: Path, to: Any) -> list[str]:
    """Data files of Iceberg tables that no snapshot names."""
    catalog = to.lake.catalog
    tables = [catalog.load_table(ref) for space in catalog.list_namespaces() for ref in catalog.list_tables(space)]
    known = {path for table in tables for path in data_files(table)}
    there = {p for p in (folder / "lake").rglob("*.parquet") if "quarantine" not in str(p)}
    return sorted(map(str, there - known))


def delta_files(folder: Path, to: Any) -> list[str]:
    """Data files that no version of a Delta table names, and what a writer left in a log."""
    from instep.destinations.delta.table_state import find

    left: list[str] = []
    for ref in to.warehouse.refs():
        held = find(to.warehouse, ref)
        assert held is not None
        known = {*held.snapshot.files, *held.snapshot.tombstones}
        there = {str(p.relative_to(held.folder)) for p in held.folder.joinpath("data").rglob("*.parquet")}
        left += sorted(there - known) + [p.name for p in held.folder.rglob("*.tmp")]
    return left


def duckdb_files(folder: Path, _: Any) -> list[str]:
    return sorted(map(str, folder.joinpath("shop.duckdb.files").rglob("*.parquet")))


def postgres_tables(folder: Path, to: Any) -> list[str]:
    """Staged files, and staging tables in the database."""
    with to.server.reading() as session:
        found = session.run(
            "SELECT relname FROM pg_class WHERE relnamespace = '_instep'::regnamespace AND relkind = 'r'"
        )
    own = {"tables", "dropped"}
    return [n for (n,) in found if n not in own] + sorted(
        map(str, folder.joinpath(".instep/staging").rglob("*.parquet"))
    )


LEFT = {"iceberg": lake_files, "delta": delta_files, "duckdb": duckdb_files, "postgres": postgres_tables}


def shown(folder: str) -> None:
    """Prints everything that a reader, the records and the store say: equal before and after means nothing was done."""
    with open_project(Path(folder)) as app:
        to = app.destination()
        print(app.store.runs.latest("shop"), app.store.cursors.of("shop"), app.store.accepted.catalog("shop"))
        for ref in sorted(to.schema.tables()):
            print(ref, to.schema.state(ref), to.schema.inspect([ref]).tables)
            print(sorted(map(repr, to.write.read(ref).read_all().to_pylist())))


def lease_ends(folder: str) -> None:
    """As after a minute without a sign of life."""
    with closing(sqlite3.connect(Path(folder) / ".instep" / "state.db", timeout=30)) as store, store:
        store.execute("UPDATE runs SET lease_until = '2000-01-01 00:00:00.000000' WHERE status = 'running'")


def is_free(folder: Path) -> bool:
    """Whether nobody holds the lock of the store, or of a lake's catalog."""
    for file in (folder / ".instep" / "state.db", *folder.glob("lake/catalog.db")):
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            db.execute("ROLLBACK")
    return True


def late_said(text: str) -> bool:
    """Whether a late run was refused by name."""
    return bool(re.search("later run|taken over|Fenced|lease", text))
