"""kill -9 while a Delta table is renamed or dropped, and late commits to its log. Syncs: test_crash_matrix.py."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from forks import Forks
from instep.destinations.base import Commit, Merge
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.errors import Fenced
from instep.schema.changes.describe import TableComment, TableRemoved, TableRenamed
from instep.schema.planning.step import step
from lake import ORDERS, REF, create, rows_of, stage

pytestmark = pytest.mark.slow

MOVED = replace(ORDERS, schema="other", name="sales", alias="public.sales")


def destination(folder: Path) -> DeltaDestination:
    return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(folder / "lake")))


def killed(forked: Forks, call: str, folder: Path, point: str) -> None:
    ended = forked.run(f"test_crash_delta.{call}", str(folder), "1", crash=f"{point}=kill")
    assert ended.code == -signal.SIGKILL, ended.said


def move(folder: str, fence: str) -> None:
    destination(Path(folder)).schema.execute(
        REF, [step(REF, TableRenamed(ORDERS, MOVED))], MOVED, Commit("r", int(fence))
    )


def drop(folder: str, fence: str) -> None:
    destination(Path(folder)).schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, Commit("r", int(fence)))


def loaded(folder: Path) -> DeltaDestination:
    to = destination(folder)
    create(to)
    to.write.append(REF, [stage(to, REF, [{"id": 1}])], Commit("run-1", 1, "c"))
    return to


@pytest.mark.parametrize("point", ["delta.moved.before", "delta.moved.after", "delta.commit.before"])
def test_a_rename_that_was_killed_is_carried_out_by_the_next_run(forked: Forks, tmp_path: Path, point: str) -> None:
    to = loaded(tmp_path)
    killed(forked, "move", tmp_path, point)
    assert sum(len(rows_of(to, ref)) for ref in to.schema.tables()) == 1
    move(str(tmp_path), "2")
    assert to.schema.tables() == [MOVED.ref]
    assert to.schema.inspect([MOVED.ref]).tables == (MOVED,)
    assert rows_of(to, MOVED.ref) == [(1, None, None)]


def test_a_drop_that_was_killed_is_carried_out_by_the_next_run(forked: Forks, tmp_path: Path) -> None:
    to = loaded(tmp_path)
    killed(forked, "drop", tmp_path, "delta.moved.before")
    drop(str(tmp_path), "2")
    assert to.schema.tables() == []
    to.schema.undrop_table(REF, ORDERS, Commit("r", 3))
    assert rows_of(to) == [(1, None, None)]


def late(folder: str, action: str) -> None:
    """Prints what becomes of a commit of run 1."""
    to = destination(Path(folder))
    files = [stage(to, REF, [{"id": 7}])]
    commit, wider = Commit("late", 1), replace(ORDERS, comment="late")
    calls = {
        "append": lambda: to.write.append(REF, files, commit),
        "overwrite": lambda: to.write.overwrite(REF, files, commit),
        "merge": lambda: to.write.merge(None, REF, files, Merge(("id",)), commit),
        "alter": lambda: to.schema.execute(REF, [step(REF, TableComment(REF, None, "late"))], wider, commit),
    }
    try:
        calls[action]()
    except Fenced:
        print("fenced")


@pytest.mark.parametrize("action", ["append", "overwrite", "merge", "alter"])
def test_a_run_that_wakes_up_late_is_refused(forked: Forks, tmp_path: Path, action: str) -> None:
    to = loaded(tmp_path)
    stopped = forked.run("test_crash_delta.late", str(tmp_path), action, crash="delta.commit.before=stop")
    assert stopped.code is None, stopped.said
    to.write.claim(REF, 2)
    to.write.append(REF, [stage(to, REF, [{"id": 2}])], Commit("run-2", 2))
    assert forked.go_on(stopped).said == "fenced\n"
    assert [r[0] for r in rows_of(to)] == [1, 2]
