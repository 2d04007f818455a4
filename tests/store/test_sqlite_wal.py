"""Many processes that make one SQLite file at once: each gets it, none is told that it is locked."""

from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from instep.sqlite_wal import use_wal

FORK = multiprocessing.get_context("fork")
PROCESSES, FILES = 6, 25


def _make(folder: str, barrier: Barrier) -> None:
    for number in range(FILES):
        with closing(sqlite3.connect(f"{folder}/{number}.db", timeout=0, isolation_level=None)) as db:
            barrier.wait(300)
            use_wal(db.execute, 300)


def test_processes_that_make_a_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    barrier = FORK.Barrier(PROCESSES)
    processes = [FORK.Process(target=_make, args=(str(tmp_path), barrier)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * PROCESSES


def test_a_file_that_stays_locked_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("CREATE TABLE t (a)")
        holder.execute("BEGIN EXCLUSIVE")
        with closing(sqlite3.connect(file, timeout=0)) as db, pytest.raises(sqlite3.OperationalError, match="locked"):
            use_wal(db.execute, 0.05)
