# ruff: noqa: S608 - the names stand in this file
"""A source, a project and a lake of their own for each case, and what a reader, the store and the disk say of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from forks import Ended, Forks
from instep.bootstrap import App, open_project
from instep.cli.main import main
from instep.crash import VARIABLE
from instep.sources.postgres.connect import conninfo
from instep.sync.loading.engine import OnSpark
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync
from postgres_server import Database

INSTEP = Path(sys.executable).with_name("instep")
KEYS = {"item": "id", "orders": "id", "tag": "id", "late": "id", "last": "id"}
RENAMED = {"item": {"name": "title"}, "orders": {"note": "remark"}}

WHOLE = RunScope()

BEFORE = """
CREATE TABLE item (id int PRIMARY KEY, name varchar(40), price numeric(10,2), qty int);
CREATE TABLE orders (id bigint PRIMARY KEY, item int, note text, updated_at timestamptz NOT NULL);
CREATE TABLE log (at timestamptz, word text, n int);
INSERT INTO item SELECT i, 'item ' || i, i * 1.25, i % 7 FROM generate_series(1, 300) i;
INSERT INTO orders SELECT i, i % 300 + 1, 'note ' || i, '2026-01-01Z'::timestamptz + i * interval '1 minute'
  FROM generate_series(1, 300) i;
INSERT INTO log SELECT '2026-01-01Z', 'word ' || i % 40, i % 40 FROM generate_series(1, 120) i;
"""

CHANGE = """
ALTER TABLE item ADD COLUMN color text DEFAULT 'red';
ALTER TABLE item RENAME COLUMN name TO title;
ALTER TABLE item ALTER COLUMN qty TYPE bigint;
UPDATE item SET price = price + 1, qty = 5000000000 WHERE id % 10 = 0;
DELETE FROM item WHERE id % 50 = 1;
INSERT INTO item SELECT i, 'item ' || i, 1, 1, 'blue' FROM generate_series(301, 320) i;
ALTER TABLE orders RENAME COLUMN note TO remark;
ALTER TABLE orders ADD COLUMN state text;
UPDATE orders SET state = 'sent', updated_at = '2026-02-01Z'::timestamptz + id * interval '1 second' WHERE id % 9 = 0;
DELETE FROM orders WHERE id % 60 = 2;
INSERT INTO orders SELECT i, 1, NULL, '2026-03-01Z', 'new' FROM generate_series(301, 330) i;
ALTER TABLE log ALTER COLUMN n TYPE bigint;
DELETE FROM log WHERE n = 3;
UPDATE log SET word = 'other' WHERE n = 4;
INSERT INTO log SELECT '2026-02-02Z', 'twin', 6000000000 FROM generate_series(1, 3);
CREATE TABLE tag (id int PRIMARY KEY, word text);
INSERT INTO tag SELECT i, 'tag ' || i FROM generate_series(1, 25) i;
"""

UNDOABLE = """
ALTER TABLE item RENAME COLUMN name TO title;
ALTER TABLE item ALTER COLUMN qty TYPE bigint;
ALTER TABLE item ADD COLUMN color text;
ALTER TABLE orders DROP COLUMN note;
DROP TABLE log;
"""

PROJECT = """\
version: 1
project: crash
sources:
  pg:
    type: postgres
    host: 127.0.0.1
    port: {port}
    database: {database}
    user: {user}
    password: ${{env:PG_PASSWORD}}
destinations:
  lake: {{type: iceberg, warehouse: lake}}
connections:
  crash:
    tables:
      public.orders: {{cursor: updated_at}}
spark: {{master: "local[2]", driver_memory: 1g}}
"""


@dataclass(frozen=True)
class Rows:
    """A table as somebody sees it: its columns, and how often each row stands."""

    columns: tuple[str, ...]
    rows: Mapping[tuple[Any, ...], int]

    @classmethod
    def of(cls, rows: list[dict[str, Any]], columns: list[str]) -> Rows:
        names = sorted(columns)
        return cls(tuple(names), Counter(tuple(_plain(row[n]) for n in names) for row in rows))

    def renamed(self, names: Mapping[str, str], columns: tuple[str, ...]) -> Rows:
        """The same rows under `columns`: some have a new name, those that are new are NULL."""
        found = [dict(zip(self.columns, row, strict=True)) for row, count in self.rows.items() for _ in range(count)]
        old = {new: old for old, new in names.items()}
        return Rows.of([{c: row.get(old.get(c, c)) for c in columns} for row in found], list(columns))


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@dataclass
class World:
    """`before`: what a reader saw of each table after the first sync; empty without one. `said`: the output of the last
    command."""

    database: Database
    folder: Path
    session: Any
    forks: Forks
    before: dict[str, Rows] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    said: str = ""

    def write_project(self, text: str = PROJECT) -> None:
        config = self.database.config
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "instep.yml").write_text(
            text.format(port=config.port, database=config.database, user=config.user)
        )
        (self.folder / ".env").write_text(f"PG_PASSWORD={config.password}\n")

    def merges_by_spark(self) -> None:
        """However small the tables are."""
        self.on_spark()
        self.edit("warehouse: lake}", "warehouse: lake, upsert_rows: 0}")

    def on_spark(self) -> None:
        """However little there is to read."""
        self.edit("spark: {master", "engine: spark\nspark: {master")

    def edit(self, old: str, new: str) -> None:
        """Changes the project file."""
        file = self.folder / "instep.yml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    # the product, run in this process on the shared session, or as a command of its own

    @contextmanager
    def app(self) -> Iterator[App]:
        with open_project(self.folder) as app:
            yield app

    def sync(self, wanted: RunScope = WHOLE) -> SyncReport:
        with self.app() as app:
            return sync(app.sync_context("crash"), wanted, engine=OnSpark(lambda: self.session))

    def verified(self, *tables: str) -> bool:
        """What `instep verify` says."""
        words = [word for table in tables for word in ("--table", f"public.{table}")]
        return main(["--project", str(self.folder), "verify", *words]) == 0

    def start(self, *words: str, crash: str = "") -> subprocess.Popen[str]:
        """`instep WORDS` in an interpreter of its own; `crash` arms a point."""
        environment = {**os.environ, VARIABLE: crash, "COLUMNS": "200"}
        log = (self.folder / "output.log").open("w")
        with log:
            process = subprocess.Popen(
                [INSTEP, "--project", self.folder, "--no-input", *words], env=environment, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, text=True, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def close(self) -> None:
        """Ends what a failed test left behind."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(300)

    def wait(self, process: subprocess.Popen[str]) -> int:
        """The exit code of what `start` began; -9 if a signal killed it."""
        code = process.wait(600)
        self.said = (self.folder / "output.log").read_text()
        return code

    def run(self, *words: str, crash: str = "") -> Ended:
        """`instep WORDS` in a process forked from a warm one, to its end or to where it stops itself."""
        ended = self.forks.instep("--project", self.folder, "--no-input", *words, crash=crash, COLUMNS="200")
        self.said = ended.said
        return ended

    def command(self, *words: str) -> int:
        """Its exit code."""
        code = self.run(*words).code
        assert code is not None
        return code

    def killed_at(self, point: str, *words: str, fresh: bool = False) -> None:
        """`fresh`: in an interpreter of its own, as where its JVM ends with it."""
        armed = f"{point}=kill"
        code = self.wait(self.start(*words, crash=armed)) if fresh else self.run(*words, crash=armed).code
        assert code == -signal.SIGKILL, f"{words} ended with {code} and never came to {point}:\n{self.said}"

    def stopped_at(self, point: str, *words: str) -> Ended:
        stopped = self.run(*words, crash=f"{point}=stop")
        assert stopped.code is None, f"{words} ended with {stopped.code} and never came to {point}:\n{self.said}"
        return stopped

    def go_on(self, stopped: Ended) -> int | None:
        """Lets it run to its end."""
        ended = self.forks.go_on(stopped)
        self.said = ended.said
        return ended.code

    # the source, read by a query of this file's own

    def execute(self, sql: str) -> None:
        with psycopg.connect(conninfo(self.database.config), autocommit=True) as connection:
            connection.execute(sql.encode())

    def source(self, table: str) -> Rows:
        with psycopg.connect(conninfo(self.database.config), row_factory=dict_row) as connection:
            cursor = connection.execute(f"SELECT * FROM {table}".encode())
            assert cursor.description is not None
            return Rows.of(cursor.fetchall(), [c.name for c in cursor.description])

    @property
    def tables(self) -> list[str]:
        """Those that are at the source now."""
        found = self.database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [row[0] for row in found]

    # the lake, read by pyiceberg alone

    @property
    def lake(self) -> SqlCatalog:
        folder = self.folder / "lake"
        return SqlCatalog("lake", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")

    def table(self, name: str) -> IcebergTable | None:
        if not (self.folder / "lake" / "catalog.db").exists():
            return None
        try:
            return self.lake.load_table(("crash", name))
        except NoSuchTableError:
            return None

    def read(self, name: str) -> Rows | None:
        """The rows that stand, without system columns; None while there is no such table."""
        table = self.table(name)
        if table is None:
            return None
        found = table.scan().to_arrow()
        names = [n for n in found.column_names if not n.startswith("_instep_")]
        rows = [row for row in found.to_pylist() if not row.get("_instep_deleted")]
        return Rows.of(rows, names)

    def remember(self) -> None:
        """What a reader sees now is what `before` means from here on."""
        self.before = {t: rows for t in self.tables if (rows := self.read(t))}

    def pointers(self) -> dict[str, str]:
        """Which metadata file each table of the lake stands on: equal means that nothing was committed."""
        lake = self.lake
        refs = [ref for space in lake.list_namespaces() for ref in lake.list_tables(space)]
        return {".".join(ref): lake.load_table(ref).metadata_location for ref in refs}

    def control(self) -> dict[str, Any]:
        """What the store says of the connection."""
        with self.app() as app:
            store = app.store
            latest = store.accepted.latest("crash")
            return {
                "version": latest.version if latest else 0,
                "accepted": store.accepted.catalog("crash"),
                "cursors": store.cursors.of("crash"),
                "reviews": {r.id: r.status for r in store.reviews.find("crash")},
                "pauses": store.pauses.active("crash"),
                "last": store.runs.latest("crash"),
            }

    def take_lease(self) -> None:
        """The lease of the run under way is over, as after a minute without a sign of life."""
        import sqlite3

        with sqlite3.connect(self.folder / ".instep" / "state.db", timeout=30) as store:
            store.execute("UPDATE runs SET lease_until = '2000-01-01 00:00:00.000000' WHERE status = 'running'")


def first_load(world: World) -> None:
    """The tables as they were, loaded once; what readers saw then."""
    world.execute(BEFORE)
    assert world.sync().status == "done"
    world.remember()
    assert all(world.before[t].rows == world.source(t).rows for t in ("item", "orders", "log"))


def cursor_of(table: IcebergTable) -> str:
    """The cursor value that a table's last data commit recorded."""
    state = json.loads(table.properties.get("instep.state", "null"))
    return str(json.loads(state["cursor"])["upper"]) if state and state["cursor"] else ""


def wait_until(happened: Any, seconds: float = 600, what: str = "") -> Any:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := happened():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds:.0f} s for {what or happened}")


def wait_stopped(process: subprocess.Popen[str], world: World, seconds: float = 600) -> None:
    """Until a process stands still at its crash point."""

    def stands() -> bool:
        assert process.poll() is None, f"it ended with {process.returncode} before the point:\n{world.said}"
        return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)

    wait_until(stands, seconds, "the process to stop")
