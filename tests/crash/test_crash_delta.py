"""kill -9 while a Delta table is renamed or dropped, and late commits to its log. Syncs: test_crash_matrix.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from crash_world import wait_until

from instep.crash import VARIABLE
from instep.destinations.base import Commit, Merge
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.errors import Fenced
from instep.schema.change import TableComment, TableRemoved, TableRenamed
from instep.schema.step import step
from lake import ORDERS, REF, create, rows_of, stage

pytestmark = pytest.mark.slow

HERE = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
CALL = "import sys; sys.path[:0] = sys.argv[3:]; import test_crash_delta as t; t.{0}(t.Path(sys.argv[1]), sys.argv[2])"
MOVED = replace(ORDERS, schema="other", name="sales", alias="public.sales")


def destination(folder: Path) -> DeltaDestination:
    return DeltaDestination(DeltaConfig("lake", str(folder / "lake")))


@contextmanager
def victim(call: str, folder: Path, point: str, action: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs one of these functions up to a point."""
    point, _, number = point.partition("#")
    command = [sys.executable, "-c", CALL.format(call), str(folder), number, *HERE]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {VARIABLE: f"{point}={action}"},
    ) as process:
        yield process


def killed(call: str, folder: Path, point: str) -> None:
    with victim(call, folder, point, "kill") as process:
        _, said = process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL, said


def move(folder: Path, fence: str) -> None:
    destination(folder).execute(REF, [step(REF, TableRenamed(ORDERS, MOVED))], MOVED, Commit("r", int(fence or 1)))


def drop(folder: Path, fence: str) -> None:
    destination(folder).execute(REF, [step(REF, TableRemoved(ORDERS))], None, Commit("r", int(fence or 1)))


def loaded(folder: Path) -> DeltaDestination:
    to = destination(folder)
    create(to)
    to.append(REF, [stage(to, REF, [{"id": 1}])], Commit("run-1", 1, "c"))
    return to


@pytest.mark.parametrize("point", ["delta.moved.before", "delta.moved.after", "delta.commit.before"])
def test_a_rename_that_was_killed_is_carried_out_by_the_next_run(tmp_path: Path, point: str) -> None:
    to = loaded(tmp_path)
    killed("move", tmp_path, point)
    assert sum(len(rows_of(to, ref)) for ref in to.tables()) == 1
    move(tmp_path, "2")
    assert to.tables() == [MOVED.ref]
    assert to.inspect([MOVED.ref]).tables == (MOVED,)
    assert rows_of(to, MOVED.ref) == [(1, None, None)]


def test_a_drop_that_was_killed_is_carried_out_by_the_next_run(tmp_path: Path) -> None:
    to = loaded(tmp_path)
    killed("drop", tmp_path, "delta.moved.before")
    drop(tmp_path, "2")
    assert to.tables() == []
    to.revive(REF, ORDERS, Commit("r", 3))
    assert rows_of(to) == [(1, None, None)]


def late(folder: Path, action: str) -> None:
    """Prints what becomes of a commit of run 1."""
    to = destination(folder)
    files = [stage(to, REF, [{"id": 7}])]
    commit, wider = Commit("late", 1), replace(ORDERS, comment="late")
    calls = {
        "append": lambda: to.append(REF, files, commit),
        "overwrite": lambda: to.overwrite(REF, files, commit),
        "merge": lambda: to.merge(None, REF, files, Merge(("id",)), commit),
        "alter": lambda: to.execute(REF, [step(REF, TableComment(REF, None, "late"))], wider, commit),
    }
    try:
        calls[action]()
    except Fenced:
        print("fenced")


@pytest.mark.parametrize("action", ["append", "overwrite", "merge", "alter"])
def test_a_run_that_wakes_up_late_is_refused(tmp_path: Path, action: str) -> None:
    to = loaded(tmp_path)
    with victim("late", tmp_path, f"delta.commit.before#{action}", "stop") as process:
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        to.claim(REF, 2)
        to.append(REF, [stage(to, REF, [{"id": 2}])], Commit("run-2", 2))
        process.send_signal(signal.SIGCONT)
        said, problem = process.communicate(timeout=600)
    assert said == "fenced\n", problem
    assert [r[0] for r in rows_of(to)] == [1, 2]
