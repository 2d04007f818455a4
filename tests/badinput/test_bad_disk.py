# ruff: noqa: S608 - the name is read from the database
"""Disks that are full or may not be written, a store that is damaged, a lake that is somebody else's."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import Place
from marks import SERVER
from pyiceberg.catalog.sql import SqlCatalog

from instep.crash import Crashed
from instep.destinations import connection_test
from instep.private import make_own_folder
from postgres_server import Database


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own at `folder`; skips where this user may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting needs more rights: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def fill(folder: Path) -> Path:
    """Takes all the space there is."""
    file = folder / "ballast"
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * 4096)
        except OSError:
            return file


class TestFullDisk:
    pytestmark = SERVER

    def test_the_lake(self, place: Place, postgres: Database) -> None:
        """What fits is loaded, what does not says so and changes nothing; with space the next sync is whole."""
        postgres.execute("CREATE TABLE small (id int PRIMARY KEY); INSERT INTO small VALUES (1)")
        postgres.execute("CREATE TABLE big (id int PRIMARY KEY, t text)")
        place.over(postgres)
        with mounted(place.folder / "lake", "size=4m"):
            assert place.run("sync").code == 0
            postgres.execute(
                "INSERT INTO small VALUES (2); INSERT INTO big "
                "SELECT i, md5(i::text) || md5((i + 1)::text) || md5((i + 2)::text) FROM generate_series(1, 100000) i"
            )
            told = place.run("sync")
            assert told.code in (1, 6), told.all
            told.has("public.big", "No space left on device", "free space")
            assert "Traceback" not in told.all
            assert place.rows("select count(*) as n from shop.big") == [{"n": 0}]
            remount(place.folder / "lake", "size=100m")
            assert place.run("sync").code == 0
            assert place.run("verify").code == 0

    def test_the_lake_is_full_to_the_brim(self, place: Place, postgres: Database) -> None:
        """Not even metadata can be written."""
        postgres.execute("CREATE TABLE small (id int PRIMARY KEY); INSERT INTO small VALUES (1)")
        place.over(postgres)
        with mounted(place.folder / "lake", "size=2m") as lake:
            assert place.run("sync").code == 0
            postgres.execute("INSERT INTO small VALUES (2); ALTER TABLE small ADD COLUMN more text")
            ballast = fill(lake)
            told = place.run("sync")
            assert told.code in (1, 4, 6), told.all
            assert "Traceback" not in told.all
            ballast.unlink()
            assert place.run("sync").code == 0
            assert place.run("verify").code == 0

    def test_the_store(self, place: Place, postgres: Database) -> None:
        postgres.execute("CREATE TABLE small (id int PRIMARY KEY); INSERT INTO small VALUES (1)")
        place.over(postgres)
        with mounted(place.folder / ".instep", "size=2m") as store:
            assert place.run("sync").code == 0
            postgres.execute("INSERT INTO small VALUES (2)")
            ballast = fill(store)
            place.run("sync").is_error(4, "state.db", "disk", "free some space")
            ballast.unlink()
            assert place.run("sync").code == 0
            assert place.run("verify").code == 0


def prepared(place: Place, postgres: Database) -> Place:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)")
    return place.over(postgres)


STORE_COMMANDS = [["plan"], ["sync"], ["status"], ["history"], ["changes", "list"], ["pause"]]


@pytest.mark.parametrize("command", STORE_COMMANDS, ids=" ".join)
def test_a_store_that_is_no_database(place: Place, postgres: Database, command: list[str]) -> None:
    prepared(place, postgres)
    (place.folder / ".instep").mkdir()
    (place.folder / ".instep" / "state.db").write_bytes(b"this is no database at all" * 100)
    place.run(*command).is_error(4, "state.db", "not a SQLite database", "backup")


def test_a_store_that_is_damaged(place: Place, postgres: Database) -> None:
    prepared(place, postgres)
    assert place.run("plan").code == 0
    file = place.folder / ".instep" / "state.db"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = file.stat().st_size
    with file.open("r+b") as out:
        out.seek(4096)
        out.write(b"\xff" * (size - 4096))
    place.run("plan").is_error(4, "state.db", "damaged", "backup")


def test_a_store_of_something_else(place: Place, postgres: Database) -> None:
    prepared(place, postgres)
    (place.folder / ".instep").mkdir()
    with sqlite3.connect(place.folder / ".instep" / "state.db") as db:
        db.execute("CREATE TABLE runs (song text)")
    told = place.run("plan")
    assert told.code in (1, 4, 5), told.all
    assert "state.db" in told.all
    assert "Traceback" not in told.all


def test_a_store_from_a_newer_version(place: Place, postgres: Database) -> None:
    prepared(place, postgres)
    assert place.run("plan").code == 0
    with sqlite3.connect(place.folder / ".instep" / "state.db") as db:
        [(table,)] = db.execute("SELECT name FROM sqlite_master WHERE name LIKE '%alembic%' AND type = 'table'")
        db.execute(f"UPDATE {table} SET version_num = '9999'")
    place.run("plan").is_error(5, "state.db", "newer")


def test_the_store_folder_is_a_file(place: Place, postgres: Database) -> None:
    prepared(place, postgres)
    (place.folder / ".instep").write_text("x")
    told = place.run("plan")
    assert told.code in (1, 4), told.all
    told.has(".instep", "error: ")
    assert "Traceback" not in told.all


@pytest.mark.parametrize("command", STORE_COMMANDS, ids=" ".join)
def test_a_store_folder_that_may_not_be_written(place: Place, postgres: Database, command: list[str]) -> None:
    prepared(place, postgres)
    with mounted(place.folder / ".instep", "ro,size=1m"):
        place.run(*command).is_error(4, "state.db")


@pytest.mark.parametrize("command", [["plan"], ["sync"], ["status"]], ids=" ".join)
def test_a_store_that_may_not_be_written_any_more(place: Place, postgres: Database, command: list[str]) -> None:
    prepared(place, postgres)
    with mounted(place.folder / ".instep", "size=8m") as store:
        assert place.run("plan").code == 0
        remount(store, "ro")
        told = place.run(*command)
        assert told.code == 4, told.all
        told.has("state.db")
        assert "Traceback" not in told.all


# name, what stands where the lake should be, what is said
LAKES = [
    ("files of others", lambda f: (f / "novel.txt").write_text("x"), ["not empty", "holds no catalog of ours"]),
    ("no catalog", lambda f: (f / "catalog.db").write_text("x" * 5000), ["is not an Iceberg catalog"]),
    ("another database", lambda f: sqlite3.connect(f / "catalog.db").execute("create table t (a)").connection.close(),
     ["is not an Iceberg catalog"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), [x[1:] for x in LAKES], ids=[x[0] for x in LAKES])
@pytest.mark.parametrize("command", [["plan"], ["apply", "--yes"], ["destination", "test"]], ids=" ".join)
def test_a_lake_that_is_not_ours(
    place: Place, postgres: Database, make: Any, said: list[str], command: list[str]
) -> None:
    prepared(place, postgres)
    lake = place.folder / "lake"
    lake.mkdir()
    make(lake)
    before = {p: p.read_bytes() for p in lake.iterdir()}
    told = place.run(*command)
    assert told.code in (1, 4), told.all
    told.has(*said)
    assert "Traceback" not in told.all
    assert {p: p.read_bytes() for p in lake.iterdir()} == before


def test_the_lake_is_a_file(place: Place, postgres: Database) -> None:
    prepared(place, postgres)
    (place.folder / "lake").write_text("x")
    told = place.run("plan")
    assert told.code in (1, 4), told.all
    told.has("lake", "error: ")
    assert "Traceback" not in told.all


def test_a_lake_that_may_not_be_written(place: Place, postgres: Database) -> None:
    prepared(place, postgres)
    with mounted(place.folder / "lake", "ro,size=1m"):
        told = place.run("apply", "--yes")
        assert told.code in (1, 4), told.all
        told.has("lake", "error: ")
        assert "Traceback" not in told.all


def apart(place: Place, *words: str) -> None:
    """Runs a command that succeeds in a process of its own, which leaves no file open."""
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(place.folder), *words]
    subprocess.run(command, check=True, capture_output=True)


DESTINATIONS = {
    "iceberg": "{type: iceberg, warehouse: lake}", "delta": "{type: delta, warehouse: lake}",
    "duckdb": "{type: duckdb, path: lake/lake.duckdb}",
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("ended", ["kill", "raise"])
@pytest.mark.parametrize("first", [True, False], ids=["first load", "later load"])
@pytest.mark.parametrize("kind", DESTINATIONS)
def test_a_full_disk_is_freed_of_what_the_broken_run_left(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, first: bool, ended: str
) -> None:
    """Not a byte is free, so no table can be claimed before the files of the run that broke are removed."""
    place.folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(place.folder / "shop.db")) as db:
        db.executescript("create table t (id integer primary key, b text)")
    text = (
        "version: 1\nsources: {db: {type: sqlite, path: shop.db}}\nconnections: {shop: {}}\ndestinations: {lake: D}\n"
    )
    place.write(text.replace("D}", f"{DESTINATIONS[kind]}}}"))
    with mounted(place.folder / "lake", "size=24m") as lake:
        if not first:
            apart(place, "sync")
        with closing(sqlite3.connect(place.folder / "shop.db")) as db, db:
            db.executemany("insert into t values (?, ?)", [(n, os.urandom(2000).hex()) for n in range(3000)])
        with monkeypatch.context() as armed:
            armed.setenv("INSTEP_CRASH", f"sync.staged={ended}")
            if ended == "raise":
                with suppress(Crashed):
                    place.run("sync")
            else:
                with pytest.raises(subprocess.CalledProcessError):
                    apart(place, "sync")
        with closing(sqlite3.connect(place.folder / "shop.db")) as db, db:
            db.execute("delete from t where id > 9")
        assert sum(f.stat().st_size for f in lake.rglob("*.parquet")) > 4_000_000
        fill(lake)
        told = place.run("sync")
        assert told.code == 0, told.all
        assert place.run("verify").code == 0


@pytest.mark.sampled
@pytest.mark.parametrize("room", [0, 4, 8, 16, 24, 40, 64])
@pytest.mark.parametrize("kind", DESTINATIONS)
def test_a_disk_that_fills_anywhere_in_a_sync_is_told_with_the_next_step(place: Place, kind: str, room: int) -> None:
    """`room` KiB are left, so that data, deletes, metadata, a log or a catalog is what fits no more."""
    place.folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(place.folder / "shop.db")) as db, db:
        db.execute("create table t (id integer primary key, b text)")
        db.executemany("insert into t values (?, ?)", [(n, os.urandom(30).hex()) for n in range(1000)])
    text = (
        "version: 1\nsources: {db: {type: sqlite, path: shop.db}}\nconnections: {shop: {}}\ndestinations: {lake: D}\n"
    )
    place.write(text.replace("D}", f"{DESTINATIONS[kind]}}}"))
    with mounted(place.folder / "lake", "size=24m") as lake:
        apart(place, "sync")
        with closing(sqlite3.connect(place.folder / "shop.db")) as db, db:
            db.execute("update t set b = hex(randomblob(30)) where id % 3 = 0")
            db.execute("delete from t where id = 1")
        ballast = fill(lake)
        os.truncate(ballast, ballast.stat().st_size - room * 1024)
        told = place.run("sync")
        if told.code:
            assert re.search("No space left on device|disk is full", told.all), told.all
            assert re.search("free (some |disk )?space", told.all), told.all
            assert not re.search("report this|Traceback", told.all), told.all
        ballast.unlink()
        assert place.run("sync").code == 0
        assert place.run("verify").code == 0


CAUSES = {"its disk is mounted read-only": "mount the disk", "this user has no right to write there": "give this user"}


@pytest.mark.sampled
@pytest.mark.parametrize("cause", CAUSES, ids=["disk", "rights"])
@pytest.mark.parametrize("kind", DESTINATIONS)
def test_a_lake_that_may_not_be_written_any_more(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, cause: str
) -> None:
    """Of each kind the same is said with the same exit code, no other folder is advised, and what only looks works."""
    place.folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(place.folder / "shop.db")) as db:
        db.executescript("create table t (id integer primary key); insert into t values (1)")
    text = (
        "version: 1\nsources: {db: {type: sqlite, path: shop.db}}\nconnections: {shop: {}}\ndestinations: {lake: D}\n"
    )
    place.write(text.replace("D}", f"{DESTINATIONS[kind]}}}"))
    with mounted(place.folder / "lake", "size=8m") as lake:
        apart(place, "sync")
        with closing(sqlite3.connect(place.folder / "shop.db")) as db:
            db.executescript("insert into t values (2)")
        remount(lake, "ro")
        if cause not in next(iter(CAUSES)):
            monkeypatch.setattr(
                connection_test, "READ_ONLY", connection_test.MAY_NOT
            )  # root may write wherever the disk lets it
        before = sorted(lake.rglob("*"))
        for command in ("sync", "apply --yes", "backfill t --yes"):
            told = place.run(*command.split())
            said = " ".join(told.all.split())
            if command == "sync":
                assert told.code == 4, said
                assert f"destination lake: {lake} cannot be written: {cause} {CAUSES[cause]}" in said
            assert not re.search("Traceback|another|not an Iceberg catalog", said)
        told = place.run("destination", "test")
        assert told.code in (1, 4), told.all
        assert re.search("[Rr]ead-only|cannot be written", told.all), told.all
        assert place.run("plan").code == 0
        told = place.run("verify")
        assert (told.code, "DIFFERS main.t: 2 rows in the source, 1 in the destination" in told.all) == (1, True), told
        assert sorted(lake.rglob("*")) == before


@pytest.mark.sampled
@pytest.mark.parametrize("began", [False, True], ids=["a new project", "a project that has synced"])
def test_a_project_folder_that_may_not_be_written(place: Place, postgres: Database, began: bool) -> None:
    """`validate` and `doctor` look without writing; what syncs says why it cannot."""
    with mounted(place.folder, "size=16m") as folder:
        prepared(place, postgres)
        if began:
            apart(place, "sync")
            place.edit("shop: {}", "shop: {app_options: {excluded_external_table_names: [public.zz]}}")
        remount(folder, "ro")
        before = sorted(p for p in folder.rglob("*"))
        told = place.run("validate")
        if began:
            assert told.code == 1
            told.has("the source has no table 'public.zz'")
        else:
            assert told.code == 0, told.all
        told = place.run("doctor")
        assert told.code == 0, told.all
        told.has("warn store's folder", "may not be written", "store: version", "ok   clock")
        told = place.run("sync")
        assert told.code in (1, 4), told.all
        told.has("error: ", ".instep")
        assert sorted(p for p in folder.rglob("*")) == before


class TestSomebodyElse:
    pytestmark = SERVER

    def test_a_table_that_is_not_ours(self, place: Place, postgres: Database) -> None:
        """Another program has a table of that name in the lake: it is left alone and named, the others continue."""
        postgres.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
        place.over(postgres)
        assert place.run("sync").code == 0
        lake = place.folder / "lake"
        catalog = SqlCatalog("lake", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=f"file://{lake}")
        theirs = catalog.create_table(("shop", "b"), pa.schema([("word", pa.string())]))
        theirs.append(pa.table({"word": ["theirs"]}))
        postgres.execute("CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1); INSERT INTO a VALUES (2)")
        told = place.run("sync")
        assert told.code == 6, told.all
        told.has("shop.b", "not ours")
        assert len(place.rows("select id from shop.a")) == 2
        assert catalog.load_table(("shop", "b")).scan().to_arrow().to_pylist() == [{"word": "theirs"}]


class TestTheLakeIsGone:
    pytestmark = SERVER

    def test_it_is_made_again(self, place: Place, postgres: Database) -> None:
        """Somebody deletes the lake: it is asked about, and once approved everything is loaded again."""
        postgres.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
        postgres.execute("INSERT INTO t VALUES (1), (2)")
        place.over(postgres).edit("shop: {}", "shop: {tables: {public.t: {cursor: at}}}")
        assert place.run("sync").code == 0
        shutil.rmtree(place.folder / "lake")
        told = place.run("sync")
        assert told.code == 0, told.all
        assert "public.t: somebody changed it at the destination: the table is gone" in told.all
        assert place.run("changes", "approve", "--match", "public.t").code == 0
        assert place.run("sync").code == 0
        assert place.run("verify").code == 0


SQLITE = """\
version: 1
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections: {shop: {source: db, destination: lake}}
"""


@pytest.mark.parametrize(("umask", "state"), [(0o000, 0o750), (0o002, 0o770), (0o022, 0o750), (0o077, 0o700)])
def test_the_state_is_closed_to_others(tmp_path: Path, umask: int, state: int) -> None:
    """Whoever may write into `.instep` could replace the store, the keys or what is run; Git would keep the keys."""
    made = []
    before = os.umask(umask)
    try:
        for name, words in (("init", ["init"]), ("key", ["secrets", "new-key"]), ("sync", ["sync"])):
            place = Place(tmp_path / name)
            place.folder.mkdir()
            if name != "init":
                place.write(SQLITE)
                with closing(sqlite3.connect(place.folder / "shop.db")) as source:
                    source.execute("create table t (id integer primary key)")
            assert place.run(*words).code == 0
            made.append(place.folder / ".instep")
        make_own_folder(cache := tmp_path / "cache" / "jars")
    finally:
        os.umask(before)
    for folder in made:
        assert oct(folder.stat().st_mode & 0o777) == oct(state)
        assert "*" in (folder / ".gitignore").read_text().splitlines()
    assert not any(folder.stat().st_mode & 0o002 for folder in (cache, cache.parent))
    secret = [file for folder in made for file in folder.iterdir() if file.name in ("keys", "state.db")]
    assert len(secret) == 2
    assert not any(file.stat().st_mode & 0o077 for file in secret)
