from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from instep.errors import ConnectError, ReadError
from instep.project.sections.sources import SqliteSourceSection
from instep.sources.sqlite import connect
from instep.sources.sqlite.source import SqliteSource
from source_reads import EVERYTHING, accept, batches, find

TWO = "CREATE TABLE orders (id INTEGER PRIMARY KEY, v int); CREATE TABLE stock (id INTEGER PRIMARY KEY); "

ONE_ROW = f"{TWO} INSERT INTO orders VALUES (1, 1)"  # noqa: S608 - a script of constants


def write(path: Path, script: str, journal: str = "delete") -> None:
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.executescript(script)


def source(path: Path, **options: object) -> SqliteSource:
    return SqliteSource(SqliteSourceSection.resolved(type="sqlite", path=str(path), timeout=0, **options))


def test_with_a_rollback_journal_writers_go_on_and_chunks_are_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, ONE_ROW)
    read = accept(find(source(path), "orders"))
    with source(path).snapshot() as snapshot:
        write(path, "INSERT INTO orders VALUES (2, 2)")
        chunks = snapshot.chunks(read, "orders", EVERYTHING)
        write(path, "INSERT INTO orders VALUES (3, 3); ALTER TABLE orders ADD COLUMN w")
        assert snapshot.count(read) == 1
        assert [b.num_rows for b in batches(snapshot, chunks)] == [1]
    assert {c.lane for c in chunks} == {""}


def test_a_file_is_free_between_the_steps_of_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written then is in the copy, and a file that is written all the time is copied all the same."""
    path, rows = tmp_path / "a.db", 20_000
    write(path, TWO)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO orders VALUES (?, ?)", ((n, n) for n in range(rows)))
    monkeypatch.setattr(connect, "STEP", 1 << 16)
    look, left_to_write = connect._Steps.on_progress, [0]

    def interrupted(steps: connect._Steps, status: int, left: int, total: int) -> None:
        if left_to_write[0] and left:
            left_to_write[0] -= 1
            write(path, "UPDATE orders SET v = v + 1")
        look(steps, status, left, total)

    monkeypatch.setattr(connect._Steps, "on_progress", interrupted)
    read = accept(find(source(path), "orders"))
    for times in (2, 1_000):
        left_to_write[0] = times
        with source(path).snapshot() as snapshot:
            found = pa.Table.from_batches(batches(snapshot, snapshot.chunks(read, "orders", EVERYTHING)))
        assert found.num_rows == rows
        assert pc.count_distinct(pc.subtract(*found.columns[:2])).as_py() == 1
    assert left_to_write[0] > 900


def test_a_copy_is_for_its_owner_and_goes_with_its_snapshot(tmp_path: Path) -> None:
    path, copies = tmp_path / "a.db", tmp_path / "copies"
    write(path, ONE_ROW)
    with SqliteSource(SqliteSourceSection.resolved(type="sqlite", path=str(path)), str(copies)).snapshot() as snapshot:
        assert Path(snapshot.reader.copy).is_relative_to(copies)
        assert all(folder.stat().st_mode & 0o077 == 0 for folder in copies.iterdir())
    assert list(copies.iterdir()) == []


def test_a_copy_that_finds_no_room_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    write(path, f"{ONE_ROW}; INSERT INTO orders SELECT 2, zeroblob(1000000)")

    class Small(sqlite3.Connection):
        """A file that may not grow, which is told in the words of a full disk."""

        def execute(self, *given: Any) -> sqlite3.Cursor:
            if given[0] == "PRAGMA synchronous = OFF":
                super().execute("PRAGMA max_page_count = 10")
            return super().execute(*given)

    made = sqlite3.connect
    monkeypatch.setattr(connect.sqlite3, "connect", lambda at, **more: made(at, factory=Small, **more))
    with (
        pytest.raises(ReadError, match=r"copying it to .*: database or disk is full") as failed,
        source(path).snapshot(),
    ):
        pass
    assert "TMPDIR" in failed.value.hint


def test_a_file_that_somebody_locks_for_good_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, ONE_ROW)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ConnectError, match="locked"), source(path).snapshot():
            pass


def test_in_wal_mode_writers_go_on_and_one_lane_sees_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, ONE_ROW, "wal")
    reads = [accept(find(source(path), name)) for name in ("orders", "stock")]
    with source(path).snapshot() as snapshot:
        chunks = [c for read in reads for c in snapshot.chunks(read, read.table.name, EVERYTHING)]
        write(path, "INSERT INTO orders VALUES (2, 2); INSERT INTO stock VALUES (2)", "wal")
        assert snapshot.count(reads[0]) == 1
        with snapshot.reader.open() as session:
            first = sum(b.num_rows for b in session.read(chunks[0]))
            write(path, "INSERT INTO stock VALUES (3)", "wal")
            assert (first, sum(b.num_rows for b in session.read(chunks[1]))) == (2, 1)
    assert len({c.lane for c in chunks}) == 1
    assert all(c.lane for c in chunks)


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


MOVES: list[tuple[str, str, Callable[[Path], None], str]] = [
    ("replaced in WAL mode", "wal", _replace, "changed or replaced"),
    ("altered in WAL mode", "wal", lambda p: write(p, "ALTER TABLE orders ADD COLUMN w", "wal"), "altered"),
]


@pytest.mark.parametrize(("journal", "move", "message"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES])
def test_a_file_that_moved_is_not_read(
    tmp_path: Path, journal: str, move: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "a.db"
    write(path, TWO, journal)
    with source(path).snapshot() as snapshot:
        move(path)
        with pytest.raises(ReadError, match=message) as failed, snapshot.reader.open():
            pass
    assert "sync again" in failed.value.hint


def test_moved_names_what_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, TWO, "wal")
    with source(path).snapshot() as snapshot:
        catalog = snapshot.discover().catalog
        assert snapshot.changed_tables(catalog) == frozenset()
        write(path, "ALTER TABLE orders ADD COLUMN w; DROP TABLE stock", "wal")
        assert snapshot.changed_tables(catalog) == {("main", "orders"), ("main", "stock")}
        assert snapshot.discover().catalog == catalog


def test_vacuum_and_user_version_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, TWO + "DROP TABLE stock")
    before = source(path).fingerprint()
    write(path, "PRAGMA user_version = 9; VACUUM; INSERT INTO orders VALUES (1, 1); ANALYZE")
    assert source(path).fingerprint() == before
    assert source(path, include=("orders",)).fingerprint() != before


def test_catalog_details(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(
        path,
        "CREATE TABLE a (k1 text, k2 int, v int NOT NULL DEFAULT 7, PRIMARY KEY (k2, k1)) WITHOUT ROWID;"
        "CREATE TABLE b (id text PRIMARY KEY, g int AS (1)); CREATE TABLE c (id INTEGER PRIMARY KEY);"
        "CREATE VIRTUAL TABLE words USING fts5(body); CREATE VIEW broken AS SELECT * FROM gone;"
        "CREATE VIEW fine AS SELECT 1 AS one; INSERT INTO c VALUES (5), (9); ANALYZE",
    )
    found = source(path).discover()
    tables = {t.name: t for t in found.catalog.tables}
    assert {n: t.kind for n, t in tables.items()} == {
        "a": "table", "b": "table", "c": "table", "words": "foreign", "fine": "view",
    }  # fmt: skip
    assert (tables["a"].key, tables["a"].by_name["v"].default) == (("k2", "k1"), "7")
    nullable = [c.nullable for t in "abc" for c in tables[t].columns]
    assert nullable == [False, False, False, True, True, False]
    assert [c.name for c in tables["words"].columns] == ["body"]
    assert set(found.denied) == {("main", "broken")}
    assert found.stats["main", "c"].rows == 2
    assert (found.identity, found.proves_absence) == ("", False)
    assert [(c.name, c.ok) for c in source(path).test()][-1] == ("read main.broken", False)


PATTERNS = [
    (("orders",), (), {"orders"}),
    (("main.*",), ("stock",), {"orders"}),
    (("re:st.*",), (), {"stock"}),
    (("re:main[.]st.*", "re:(?i)ORDERS|x"), (), {"stock", "orders"}),
    (("re:^st", "re:k$", "re:stoc|ord"), (), set()),
    ((), ("re:.*s$", "re:toc"), {"stock"}),
    (("[nope",), (), set()),
]


@pytest.mark.parametrize(("include", "exclude", "expected"), PATTERNS)
def test_patterns_with_and_without_the_schema(
    tmp_path: Path, include: tuple[str, ...], exclude: tuple[str, ...], expected: set[str]
) -> None:
    write(tmp_path / "a.db", TWO)
    found = source(tmp_path / "a.db", include=include, exclude=exclude).discover()
    assert {t.name for t in found.catalog.tables} == expected


def _locked(path: Path) -> None:
    write(path, TWO)
    keep = sqlite3.connect(path, isolation_level=None)
    keep.execute("BEGIN EXCLUSIVE")
    _open.append(keep)


_open: list[sqlite3.Connection] = []
BAD: list[tuple[str, Callable[[Path], object], str]] = [
    ("missing", lambda p: None, "does not exist"),
    ("a folder", lambda p: p.mkdir(), "not a file"),
    ("empty", lambda p: p.touch(), "is empty"),
    ("no database", lambda p: p.write_text("a,b\n" * 1000), "not a database"),
    ("truncated", lambda p: (write(p, TWO), p.write_bytes(p.read_bytes()[:5000])), "malformed"),
    ("locked", _locked, "locked"),
]


@pytest.mark.parametrize(("make", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_file_is_named_with_its_cause_and_a_hint(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "it's.db"
    make(path)
    try:
        with pytest.raises((ConnectError, ReadError), match=message) as failed:
            source(path).discover()
        assert str(path) in failed.value.message
        assert failed.value.hint
        assert source(path).test()[0].ok is False
    finally:
        while _open:
            _open.pop().close()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a.db", TWO)
    (tmp_path / "a.db").chmod(0)
    with pytest.raises(ConnectError, match="cannot be read"):
        source(tmp_path / "a.db").discover()


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.db", TWO)
    read = accept(find(source(tmp_path / "a.db"), "orders"))
    write(tmp_path / "a.db", "DROP TABLE orders")
    with source(tmp_path / "a.db").snapshot() as snapshot, pytest.raises(ReadError, match="no table orders"):
        snapshot.chunks(read, "orders", EVERYTHING)
