"""A table is left as it is only where its rows are proven to be at the destination; any change has it loaded."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from contract.destinations import DESTINATIONS, postgres
from instep.destinations.base import Commit, LoadOutcome, LoadState, Ref
from instep.destinations.iceberg.destination import IcebergSchema
from instep.destinations.postgres import session
from instep.errors import DestinationError
from instep.project.sections.tables import TableSettings
from instep.sources.sqlite import connect
from instep.sources.sqlite.source import SqliteSource
from instep.store.store import Store
from instep.sync import run
from instep.sync.context import SyncContext
from instep.sync.loading import load_table
from instep.sync.loading.engine import Engine, LocalEngine, OnSpark
from instep.sync.loading.table_load import Load
from instep.sync.run import RunScope, sync
from postgres_server import make_database
from sync_world import MakeWorld, World, by_key, counts, cursor

KINDS = ("postgres", "sqlite", "sqlite-wal")
CHANGES = {
    "insert": ["INSERT INTO t VALUES (3, 3)"],
    "update": ["UPDATE t SET a = 9 WHERE id = 1"],
    "delete": ["DELETE FROM t WHERE id = 1"],
    "as many": ["DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (7, 7)"],
    "swapped": ["UPDATE t SET a = 3 - a"],
    "all": ["DELETE FROM t"],
    "anew": ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 5), (2, 6)"],
    "column": ["ALTER TABLE t ADD COLUMN b int DEFAULT 5"],
    "other table": ["INSERT INTO u VALUES (3)"],
}
OF_POSTGRES = {
    "truncated": ["TRUNCATE t"],
    "filled again": ["BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 8), (2, 9); COMMIT"],
    "moved": ["DELETE FROM t WHERE id = 1", "VACUUM FULL t", "INSERT INTO t VALUES (4, 1)"],
    "without statistics": ["UPDATE t SET a = 9", "SELECT pg_stat_reset()"],
    "rewritten": ["ALTER TABLE t ALTER a TYPE int USING a * 2"],
    "in a block": ["DO $$ BEGIN FOR i IN 10..20 LOOP INSERT INTO t VALUES (i, i); END LOOP; END $$"],
}


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "SETTLED", 0.1)


def loaded(world: World) -> set[str]:
    """Sync, once what was written before is proven to be; return the tables that were read."""
    time.sleep(0.15)
    report = sync(world.context, RunScope(), engine=LocalEngine())
    assert report.status == "done", [t.error for t in report.tables]
    return {t.table[1] for t in report.tables if counts(report, t.table[1])[0]}


def filled(world: World) -> World:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    world.run("CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    assert loaded(world) == {"t", "u"}
    assert loaded(world) == set()
    return world


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_loaded(make_world: MakeWorld, kind: str, change: str) -> None:
    world = filled(make_world(kind))
    world.run(*CHANGES[change])
    loaded(world)
    time.sleep(0.15)
    world.settled()
    assert world.differing() == {}
    assert loaded(world) == set()


@pytest.mark.parametrize("change", OF_POSTGRES)
def test_any_change_of_postgresql_is_loaded(world: World, change: str) -> None:
    filled(world)
    world.run(*OF_POSTGRES[change])
    loaded(world)
    assert world.differing() == {}


def test_only_the_table_that_changed_is_read(world: World) -> None:
    """Of PostgreSQL, where other tables, and others' statistics, change all the time."""
    filled(world)
    world.run("INSERT INTO u VALUES (2)", "ANALYZE", "CREATE TABLE public.w (id int)")
    assert loaded(world) == {"u"}
    assert world.differing() == {}


def test_an_unchanged_table_is_not_written_to(world: World) -> None:
    filled(world)
    before = world.destination.lake.load(("shop", "t"))
    loaded(world)
    after = world.destination.lake.load(("shop", "t"))
    assert before is not None
    assert after is not None
    assert after.metadata_location == before.metadata_location


def test_spark_starts_when_there_is_a_row_to_read(world: World) -> None:
    class Started(Exception):
        pass

    def start() -> Any:
        raise Started

    filled(world)
    assert sync(world.context, RunScope(), engine=OnSpark(start)).status == "done"
    world.run("INSERT INTO t VALUES (3, 3)")
    with pytest.raises(Started):
        sync(world.context, RunScope(), engine=OnSpark(start))


@pytest.mark.parametrize("kind", ["sqlite", "sqlite-wal"])
def test_a_restored_copy_is_another_file(make_world: MakeWorld, kind: str) -> None:
    """Of the same size and time, and with the same counters."""
    world = filled(make_world(kind))
    path = Path(world.context.source.config.path)  # type: ignore[attr-defined]
    world.run("PRAGMA wal_checkpoint(TRUNCATE)")
    loaded(world)
    times = path.stat()
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    content = copy.read_bytes()
    assert content.count(b"\x02\x02") > 0
    world.run("UPDATE t SET a = 7 WHERE id = 2", "PRAGMA wal_checkpoint(TRUNCATE)")
    changed = bytearray(path.read_bytes())
    changed[24:28], changed[92:96] = content[24:28], content[92:96]
    path.write_bytes(changed)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    loaded(world)
    assert world.rows("t") == [(1, 1), (2, 7)]
    shutil.copy2(copy, path)
    loaded(world)
    assert world.rows("t") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("link", ["file", "folder"])
@pytest.mark.parametrize("kind", ["sqlite", "sqlite-wal"])
def test_a_write_behind_a_link_is_seen(make_world: MakeWorld, tmp_path: Path, kind: str, link: str) -> None:
    """In WAL mode the -wal is beside the file that the link leads to."""
    world = make_world(kind)
    config = world.context.source.config  # type: ignore[attr-defined]
    path, place = Path(config.path), tmp_path / "linked"
    place.symlink_to(path if link == "file" else path.parent)
    linked = config.model_copy(update={"path": str(place if link == "file" else place / path.name)})
    world.case = replace(world.case, source=lambda **_: SqliteSource(linked))
    filled(world)
    with closing(sqlite3.connect(path)) as program:  # as long as it has the file open, the -wal is there
        assert program.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        world.run("INSERT INTO t VALUES (3, 3)")
        assert loaded(world) == {"t", "u"}
    assert world.differing() == {}


def test_a_start_of_the_machine_ends_the_proofs(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of power may have taken writes that were read before."""
    world = filled(make_world("sqlite-wal"))
    for text, read in (("another", {"t", "u"}), ("another", set())):
        (boot := world.folder / "boot").write_text(text)
        monkeypatch.setattr(connect, "BOOT", boot)
        assert loaded(world) == read
    monkeypatch.setattr(connect, "BOOT", world.folder / "none")
    assert [loaded(world), loaded(world)] == [{"t", "u"}, {"t", "u"}]


@pytest.mark.parametrize(
    ("mounts", "proven"),
    [
        ("ext4 /", True),
        ("nfs4 /", False),
        ("cifs /", False),
        ("fuse.sshfs /", False),
        ("9p /", False),
        ("ext4 /; nfs4 {}", False),
        ("nfs4 /; ext4 {}", True),
        ("ext4 /; nfs4 {}-other", True),
        ("nfs4 /; ext4 {}; nfs4 {}", False),
        ("", False),
    ],
)
def test_only_a_file_system_of_this_machine_proves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, proven: bool
) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (file := folder / "s.db").write_text("rows")
    listed = mounts.replace("{}", str(folder).replace(" ", r"\040")).split("; ") if mounts else []
    lines = [f"1 1 0:1 / {place} rw - {kind} d rw\n" for kind, place in map(str.split, listed)]
    (table := tmp_path / "mounts").write_text("".join(lines))
    monkeypatch.setattr(connect, "MOUNTS", table)
    time.sleep(0.15)
    assert bool(connect.written_at(str(file))) == proven


def test_a_write_of_a_moment_ago_proves_nothing(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "SETTLED", 1000.0)
    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert [loaded(world), loaded(world)] == [{"t"}, {"t"}]


def test_a_clock_that_was_put_back_proves_nothing(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(make_world("sqlite"))
    now = time.time() - 3600
    monkeypatch.setattr(connect.time, "time", lambda: now)
    assert loaded(world) == {"t", "u"}


OTHER_SETTINGS: dict[str, tuple[Any, Any]] = {
    "mode": ("upsert", "full_refresh"),
    "deletes": ("ignore", "hard"),
    "lookback": (1.0, 2.0),
    "key": (["id"], ["id", "a"]),
    "on_invalid_value": ("null", "quarantine"),
    "preset": ("allow_all", "approve"),
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_other_settings_have_the_table_loaded(world: World, name: str) -> None:
    """Given for the first time, with another value, and no more."""
    filled(world)
    before, after = OTHER_SETTINGS[name]
    for settings in ({name: before}, {name: after}, {}):
        world.settings["t"] = TableSettings.model_validate(settings)
        assert loaded(world) == {"t"}, settings
        assert loaded(world) == set()


def test_deletes_that_are_not_ignored_any_more_have_the_rows_leave(world: World) -> None:
    world.settings["t"] = cursor("a", deletes="ignore")
    filled(world)
    world.run("DELETE FROM t WHERE id = 1")
    assert loaded(world) == {"t"}
    assert loaded(world) == set()
    assert world.rows("t", "id") == [(1,), (2,)]
    world.settings["t"] = cursor("a", deletes="hard")
    loaded(world)
    assert world.rows("t", "id") == [(2,)]


def test_a_filter_may_look_at_anything(world: World) -> None:
    world.settings["t"] = TableSettings(filter="id < 9")
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert [loaded(world), loaded(world)] == [{"t"}, {"t"}]


@pytest.mark.parametrize("scope", [RunScope(full=True), RunScope(kind="backfill")])
def test_who_asks_for_everything_gets_it(world: World, scope: RunScope) -> None:
    filled(world)
    report = sync(world.context, scope, engine=LocalEngine())
    assert counts(report, "t")[0] == 2


FORMATS = ("iceberg", "delta", "duckdb", "postgres")


@pytest.fixture(params=FORMATS)
def anywhere(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> World:
    """Into a destination of each kind."""
    made: Any = world.destination
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        made = postgres(tmp_path, make_database(server, f"to_{uuid.uuid4().hex[:8]}"))
    elif request.param != "iceberg":
        made = DESTINATIONS[request.param](tmp_path)
    world.destination = made
    return world


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_loaded_into_a_database(anywhere: World, change: str) -> None:
    world = filled(anywhere)
    world.run(*CHANGES[change])
    loaded(world)
    world.settled()
    assert world.differing() == {}
    assert loaded(world) == set()


BY_HAND = ("UPDATE {} SET a = 7 WHERE id = 1", "DELETE FROM {} WHERE id = 1", "DELETE FROM {}")


@pytest.mark.parametrize("statement", BY_HAND)
@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_a_change_by_hand_is_put_right(
    request: pytest.FixtureRequest, world: World, tmp_path: Path, kind: str, statement: str
) -> None:
    """By whoever may write the database, without a word in our records."""
    if kind == "duckdb":
        path = tmp_path / "lake.duckdb"
        world.destination = DESTINATIONS["duckdb"](tmp_path)  # type: ignore[assignment]
    else:
        database = make_database(request.getfixturevalue("postgres_server"), f"to_{uuid.uuid4().hex[:8]}")
        world.destination = postgres(tmp_path, database)  # type: ignore[assignment]
    filled(world)
    if kind == "duckdb":
        with duckdb.connect(str(path)) as program:
            program.execute(statement.format("shop.t"))
    else:
        database.execute(statement.format("shop.t"))
    assert "t" in loaded(world)
    assert world.differing() == {}
    assert loaded(world) == set()


@pytest.mark.parametrize("kind", ["copied", "crashed", "forgotten"])
def test_a_file_that_is_not_as_we_left_it_proves_nothing(world: World, tmp_path: Path, kind: str) -> None:
    path, note = tmp_path / "lake.duckdb", tmp_path / "lake.duckdb.files" / "epoch.json"
    world.destination = DESTINATIONS["duckdb"](tmp_path)  # type: ignore[assignment]
    filled(world)
    if kind == "copied":
        shutil.copy2(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    elif kind == "crashed":
        note.write_text("{")
    else:
        note.unlink()
    assert loaded(world) == {"t", "u"}
    assert loaded(world) == set()
    assert world.differing() == {}


def test_a_large_table_of_a_database_proves_nothing(anywhere: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row versions would take as long to look at as to compare its rows."""
    monkeypatch.setattr(session, "SMALL", 8192)
    world = filled(anywhere)
    world.run("INSERT INTO t SELECT i, i FROM generate_series(10, 2000) i")
    assert loaded(world) == {"t"}
    assert loaded(world) == ({"t"} if world.destination.kind == "postgres" else set())


def test_what_others_do_at_the_destination_is_put_right(anywhere: World) -> None:
    world = filled(anywhere)
    state = world.destination.schema.state(("shop", "t"), version=True)
    assert state is not None
    assert state.version
    world.destination.write.claim(("shop", "t"), state.fence)
    world.destination.write.overwrite(("shop", "t"), (), Commit(state.run, state.fence, state.cursor, state.accepted))
    assert loaded(world) == {"t"}
    assert world.rows("t") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("change", ["first", "rows", "no rows"])
def test_what_others_commit_before_the_run_ends_is_put_right(
    anywhere: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It is not taken for what the run itself has committed, be that rows, a table as it was, or a first load."""
    world = anywhere
    world.settings["t"] = by_key("id", deletes="hard")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    if change != "first":
        assert loaded(world) == {"t"}
        world.run("UPDATE t SET a = 9 WHERE id = 1" if change == "rows" else "UPDATE t SET a = a")
    publish, emptied = load_table._publish, list[str]()

    def beaten(context: SyncContext, engine: Engine, load: Load, *rest: Any) -> LoadOutcome:
        outcome, write = publish(context, engine, load, *rest), context.destination.write
        state = context.destination.schema.state(load.ref, version=True)
        assert state is not None
        assert outcome.version == state.version
        write.overwrite(load.ref, (), Commit(state.run, state.fence, state.cursor, state.accepted))
        emptied.append(outcome.version)
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(load_table, "_publish", beaten)
        loaded(world)
    assert all(emptied)
    assert len(emptied) == 1
    assert world.rows("t") == []
    assert loaded(world) == {"t"}
    assert world.differing() == {}
    assert loaded(world) == set()


def test_a_table_whose_state_cannot_be_read_fails_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(world)
    world.run("INSERT INTO t VALUES (3, 3)", "INSERT INTO u VALUES (3)")
    state = IcebergSchema.state

    def broken(self: IcebergSchema, ref: Ref, **more: Any) -> LoadState | None:
        if ref == ("shop", "t"):
            raise DestinationError("its metadata cannot be read")
        return state(self, ref, **more)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergSchema, "state", broken)
        report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "done"}
    assert counts(report, "u")[0] == 2
    assert loaded(world) == {"t"}
    assert world.differing() == {}


def test_nothing_is_read_from_the_destination_while_the_run_is_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is locked by then, and the run may have failed because the destination is gone."""
    recording: list[bool] = []
    record, state = run._Sync.record, IcebergSchema.state

    def recorded(self: Any) -> Any:
        recording.append(True)
        return record(self)

    def read(self: IcebergSchema, ref: Ref, **more: Any) -> LoadState | None:
        assert not recording
        return state(self, ref, **more)

    monkeypatch.setattr(run._Sync, "record", recorded)
    monkeypatch.setattr(run, "maintain_loaded", lambda *_: None)
    monkeypatch.setattr(IcebergSchema, "state", read)
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert loaded(world) == {"t"}
    recording.clear()
    assert loaded(world) == set()


def test_a_table_that_is_gone_from_the_destination_is_missed(world: World) -> None:
    filled(world)
    world.destination.lake.catalog.drop_table(("shop", "t"))
    assert world.statuses(world.sync())["t"] != "done"


def test_after_a_run_that_died_all_is_loaded_once(world: World) -> None:
    filled(world)
    run = world.store.runs.claim("shop", "sync")
    world.store.runs.finish(run, "failed", "interrupted")
    assert loaded(world) == {"t", "u"}
    assert loaded(world) == set()


def test_values_in_quarantine_are_reported_again(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x')")
    world.types = {"text": "int32"}
    for _ in range(2):
        report = world.sync()
        assert counts(report, "t")[4] == 1


PROJECT = """
version: 1
engine: local
sources: {shop: {type: sqlite, path: s.db}}
destinations: {lake: {type: iceberg, warehouse: lake, namespace: shop}}
connections: {c: {source: shop, destination: lake, tables: {main.t: {columns: {a: named}}}}}
"""


def test_another_process_comes_to_the_same_proof(tmp_path: Path) -> None:
    """Names that the project file gives, and sets, whose order differs between processes, are among the rules."""
    (tmp_path / "instep.yml").write_text(PROJECT)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(9, 2), j json)")
        connection.execute("INSERT INTO t VALUES (1, 'x', 1, '{}')")
        connection.commit()
    time.sleep(3.1)
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "INSTEP_RESIDENT": "off"}
        subprocess.run([sys.executable, "-m", "instep.cli.main", "sync"], cwd=tmp_path, env=env, check=True)
    with Store(f"sqlite:///{tmp_path / '.instep' / 'state.db'}") as store:
        runs = store.runs.history("c")
        assert [store.runs.tables(run.id)[0].read for run in runs] == [0, 1]
