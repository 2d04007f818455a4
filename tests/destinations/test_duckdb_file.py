"""The database file: who may have it open when, and what is said of one that cannot be opened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_world import Warehouse, held_elsewhere

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.duckdb.file import DatabaseFile
from instep.errors import Conflict, ConnectError, DestinationError
from lake import REF, create, rows_of


def destination(path: Path, wait: float = 0.2) -> DuckDbDestination:
    return DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(path), lock_timeout=wait))


def test_a_writer_elsewhere_is_named(tmp_path: Path) -> None:
    Warehouse(tmp_path)
    to = destination(tmp_path / "shop.duckdb")
    with held_elsewhere(to.file.path) as pid:
        for attempt in (lambda: to.write.claim(REF, 9), to.schema.tables, lambda: to.write.read(REF)):
            with pytest.raises(Conflict, match=rf"open in another process: python\S*, PID {pid}") as caught:
                attempt()
            assert "close it there" in caught.value.hint
        assert [c.name for c in to.lifecycle.test() if not c.ok] == ["open the file"]
    to.write.claim(REF, 9)


def test_readers_elsewhere_let_read_and_keep_from_writing(tmp_path: Path) -> None:
    Warehouse(tmp_path).append({"id": 1})
    to = destination(tmp_path / "shop.duckdb")
    with held_elsewhere(to.file.path, "read"):
        assert len(rows_of(to)) == 1
        with pytest.raises(Conflict, match="open in another process"):
            to.write.claim(REF, 99)


def test_one_waits_for_a_writer_that_ends(tmp_path: Path) -> None:
    Warehouse(tmp_path)
    to = destination(tmp_path / "shop.duckdb", wait=300)
    with held_elsewhere(to.file.path) as pid:
        timer = threading.Timer(0.5, os.kill, (pid, signal.SIGTERM))
        started = time.monotonic()
        timer.start()
        to.write.claim(REF, 9)
        assert time.monotonic() - started >= 0.3
        timer.join()


def test_nobody_is_kept_out_while_nothing_is_done(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    shop.append({"id": 1, "name": "a"})
    assert shop.sql("SELECT id, name FROM shop.shop.orders") == [(1, "a")]
    with held_elsewhere(shop.path):
        pass
    shop.append({"id": 2})
    assert len(shop.rows()) == 2


def test_it_is_opened_once_for_many_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, opened, connect = Warehouse(tmp_path), list[bool](), duckdb.connect

    def counted(*args: Any, read_only: bool = False, **more: Any) -> duckdb.DuckDBPyConnection:
        opened.append(read_only)
        return connect(*args, read_only=read_only, **more)

    monkeypatch.setattr(duckdb, "connect", counted)
    with shop.to.lifecycle.session():
        assert opened == []
        shop.to.schema.tables()
        for number in range(3):
            shop.append({"id": number})
            shop.rows()
        assert opened == [False]
    with held_elsewhere(shop.path):
        pass
    assert len(shop.rows()) == 3


def test_nothing_is_opened_for_what_nobody_has_to_look_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of others stands on a column, and a load without rows is one transaction."""
    shop, opened, connect = Warehouse(tmp_path), list[str](), duckdb.connect

    def counted(*args: Any, **more: Any) -> duckdb.DuckDBPyConnection:
        opened.append("file")
        return connect(*args, **more)

    commit = shop.commit()
    monkeypatch.setattr(duckdb, "connect", counted)
    assert shop.to.schema.guards([REF]) == {}
    assert opened == []
    shop.to.write.append(REF, [], commit)
    assert opened == ["file"]


def test_a_reader_of_this_process_is_waited_for(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, lock_timeout=0.2)
    shop.append({"id": 1})
    reader = shop.to.write.read(REF)
    with pytest.raises(Conflict, match="being read by this process"):
        shop.commit()
    assert reader.read_all().num_rows == 1
    shop.commit()


NOT_OPEN: list[tuple[str, Callable[[Path], object], type[Exception]]] = [
    ("not a database", lambda p: p.write_text("plain text, and more than a little of it" * 100), ConnectError),
    ("a folder", lambda p: p.mkdir(), ConnectError),
    ("a name that DuckDB cuts", lambda p: None, ConnectError),
    ("below a file", lambda p: p.parent.write_text(""), ConnectError),
]


@pytest.mark.parametrize(("make", "error"), [c[1:] for c in NOT_OPEN], ids=[c[0] for c in NOT_OPEN])
def test_what_cannot_be_opened_is_named(tmp_path: Path, make: Callable[[Path], object], error: type[Exception]) -> None:
    path = tmp_path / "sub" / "shop.duckdb"
    if make is NOT_OPEN[2][1]:
        path = path.with_name("what?shop.duckdb")
    if make is not NOT_OPEN[3][1]:
        path.parent.mkdir()
    make(path)
    with pytest.raises(error) as caught:
        create(destination(path))
    assert "shop.duckdb" in str(caught.value)


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    to = destination(tmp_path / "shop.duckdb")
    assert to.schema.tables() == []
    assert to.schema.foreign([REF]) == {}
    assert to.lifecycle.purge_expired([REF], 1) == []
    assert not to.lifecycle.dropped(REF, None)
    with pytest.raises(DestinationError, match="is not there"):
        to.write.read(REF)
    assert not list(tmp_path.iterdir())


NAMES = ["shop", "my file", "select", "temp", "main", "system", "a.b", "ünï \"q\" 'x'", "[a-c]*", "_instep"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_the_file_may_be_called_as_its_schema_or_a_word_of_sql(tmp_path: Path, name: str) -> None:
    to = destination(tmp_path / name / f"{name}.duckdb")
    create(to)
    assert [(c.name, c.detail) for c in to.lifecycle.test() if not c.ok] == []
    assert to.schema.tables() == [REF]


def _fails(file: DatabaseFile, statement: str) -> None:
    with file.writing() as session:
        session.run("CREATE TABLE t (a INTEGER)")
        if not statement:
            raise ZeroDivisionError
        session.run(statement)


def test_all_or_nothing(tmp_path: Path) -> None:
    file = DatabaseFile(tmp_path / "x.duckdb")
    with pytest.raises(ZeroDivisionError):
        _fails(file, "")
    with pytest.raises(DestinationError, match=r"x\.duckdb: .*nonsense"):
        _fails(file, "nonsense")
    with file.reading() as session:
        assert session.count("SELECT count(*) FROM duckdb_tables()") == 0


_DIE = """
import os, signal, sys
from pathlib import Path
from instep.destinations.duckdb.file import DatabaseFile
file = DatabaseFile(Path(sys.argv[1]))
with file.writing() as session:
    session.run("CREATE TABLE a AS SELECT 1 AS x")
with file._opened(write=True):
    with file.writing() as session:
        session.run("INSERT INTO a VALUES (2)")
    with file.writing() as session:
        session.run("INSERT INTO a VALUES (3)")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["TABLE", "TEMP TABLE"])
@pytest.mark.parametrize(
    "first",
    ["(k BIGINT)", "AS SELECT 1::BIGINT AS k WHERE false", "(k BIGINT); INSERT INTO t SELECT 1 WHERE false"],
    ids=["made without rows", "made from no rows", "inserted no rows"],
)
def test_rows_behind_a_statement_without_rows_are_all_found(tmp_path: Path, kind: str, first: str) -> None:
    """Up to DuckDB 2.0.0 groups and joins took such a table for empty, for good: see the range in pyproject.toml."""
    rows = 200_000
    with DatabaseFile(tmp_path / "lake.duckdb").writing() as session:
        for statement in f"CREATE {kind} t {first}".split("; "):
            session.run(statement)
        session.run(f"INSERT INTO t SELECT range FROM range({rows})")  # noqa: S608 - written here
        for counted in ("t", "(SELECT k FROM t GROUP BY k)", "t WHERE k NOT IN (SELECT -1)"):
            assert session.count(f"SELECT count(*) FROM {counted}") == rows  # noqa: S608 - written here


def test_what_was_committed_before_a_kill_is_read_by_readers(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    done = subprocess.run([sys.executable, "-c", _DIE, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.with_name("x.duckdb.wal").exists()
    with DatabaseFile(path).reading() as session:
        assert session.run("SELECT x FROM a ORDER BY x") == [(1,), (2,)]


def test_many_threads_write_one_after_another(tmp_path: Path) -> None:
    file = DatabaseFile(tmp_path / "x.duckdb")
    with file.writing() as session:
        session.run("CREATE TABLE n (i INTEGER)")

    def add() -> None:
        for _ in range(5):
            with file.writing() as session:
                session.run("INSERT INTO n SELECT count(*) FROM n")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with duckdb.connect(str(file.path)) as db:
        assert db.execute("SELECT i FROM n ORDER BY i").fetchall() == [(i,) for i in range(20)]


@pytest.mark.sampled
@pytest.mark.parametrize("reading", ["read_text('{file}')", "read_csv('{file}')", "glob('{folder}/*')", "'{file}'"])
@pytest.mark.parametrize("write", [True, False])
def test_a_view_that_somebody_planted_reads_no_file(tmp_path: Path, reading: str, write: bool) -> None:
    """Statements read what is staged beside the file, and nothing else, in either way that a file is opened."""
    secret, path = tmp_path / "secret.csv", tmp_path / "lake.duckdb"
    secret.write_text("word\nsecret\n")
    with duckdb.connect(str(path)) as base:
        planted = reading.format(file=secret, folder=tmp_path)
        base.execute(f"CREATE VIEW planted AS SELECT * FROM {planted}")  # noqa: S608
    file = destination(path).file
    for statement in (
        "SELECT * FROM planted",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        f"ATTACH '{tmp_path / 'other.duckdb'}'",
    ):
        with pytest.raises(DestinationError, match=r"(?i)cannot"), file.writing() if write else file.reading() as at:
            at.run(statement)


def test_two_that_stage_in_different_folders_share_a_file(tmp_path: Path) -> None:
    path, folders = tmp_path / "lake.duckdb", [tmp_path / "one", tmp_path / "it's two"]
    for folder in folders:
        folder.mkdir()
        folder.joinpath("rows.csv").write_text("a\n1\n")
        file = DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(path), staging=str(folder))).file
        with file.writing() as session:
            assert session.run("SELECT a FROM read_csv(?)", [str(folder / "rows.csv")]) == [(1,)]
