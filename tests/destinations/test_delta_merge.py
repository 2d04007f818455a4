"""Merges over several files against those row by row of the destination in this process; which files they touch."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_world import Warehouse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_duckdb_merge import IDS, MERGE, ROW, SHOWN, WANTED, _one_a_key, _state

from instep.destinations.base import Commit, Merge
from instep.destinations.delta import files as delta_files
from instep.destinations.delta import merge_parts, rewrite
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.merge_task import JoinTask, group_of
from instep.destinations.parts import grouped
from instep.schema.changes.kinds import ColumnRemoved
from instep.stage.files import writer
from lake import ORDERS, REF, create, rows_of, stage, table
from memory.destination import MemoryDestination


@pytest.mark.parametrize(("group", "share"), [(None, None), (2, 2), (None, 1)], ids=["one", "groups", "within a group"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.lists(ROW, max_size=6).map(_one_a_key),
    loads=st.lists(st.tuples(st.lists(ROW, max_size=6), MERGE, st.none() | st.sets(IDS, min_size=1)), max_size=3),
)
def test_files_merge_as_rows_do(
    group: int | None, share: int | None, base: list[dict[str, Any]], loads: list[Any]
) -> None:
    """Also where several cores write a file again, each its own rows: row groups, or a part of one."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        if group:
            patch.setattr(writer, "GROUP_ROWS", group)
        if share:
            patch.setattr(rewrite, "GROUP_ROWS", share)
            patch.setattr(os, "cpu_count", lambda: 3)
        folder = Path(name)
        pair = (
            DeltaDestination(DeltaConfig.resolved(name="d", warehouse=str(folder / "d"))),
            MemoryDestination(folder / "m"),
        )
        for to in pair:
            create(to, WANTED)
            to.write.overwrite(REF, [stage(to, REF, base[:2]), stage(to, REF, base[2:], chunk=1)], Commit("base", 1))
        for fence, (rows, how, known) in enumerate(loads, 2):
            if known is not None:
                how = how | {"complete": False}
                known = known | {row["id"] for row in rows}
            told = []
            for to in pair:
                to.write.claim(REF, fence)
                keys = (stage(to, REF, [{"id": i} for i in sorted(known)], only=["id"]),) if known else ()
                files = [stage(to, REF, rows[:3]), stage(to, REF, rows[3:], chunk=1)]
                outcome = to.write.merge(
                    None, REF, files, Merge(("id",), keys=keys, **how), Commit(f"r{fence}", fence, "c")
                )
                told.append((outcome, rows_of(to, REF, SHOWN), _state(to)))
            assert told[0] == told[1]


def _run(_session: Any, work: Any, tasks: Any, what: str) -> list[Any]:
    """As Spark runs tasks: each travels, and so does its result."""
    return [pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(task)), 0, None))) for task in tasks]


SMALL = {"run_tasks": _run, "width": lambda _session: 2, "JOIN_ROWS": 2, "TASK_ROWS": 2, "WRITE_ROWS": 2}


@pytest.mark.parametrize("few", [100, 0], ids=["few", "many"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.lists(ROW, max_size=8).map(_one_a_key),
    loads=st.lists(st.tuples(st.lists(ROW, max_size=8), MERGE, st.none() | st.sets(IDS, min_size=1)), max_size=3),
)
def test_tasks_merge_as_this_process_does(few: int, base: list[dict[str, Any]], loads: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        for setting, value in {**SMALL, "FEW_ROWS": few}.items():
            patch.setattr(merge_parts, setting, value)
        pair = [
            DeltaDestination(
                DeltaConfig.resolved(name="d", warehouse=f"{name}/{n}").model_copy(update={"upsert_rows": n})
            )
            for n in (1_000, -1)
        ]
        for to in pair:
            create(to, WANTED)
            files = [stage(to, REF, rows, chunk=n) for n, rows in enumerate((base[:2], base[2:5], base[5:]))]
            to.write.overwrite(REF, files, Commit("base", 1))
        for fence, (rows, how, known) in enumerate(loads, 2):
            if known is not None:
                how, known = how | {"complete": False}, known | {row["id"] for row in rows}
            found = []
            for to in pair:
                to.write.claim(REF, fence)
                keys = (stage(to, REF, [{"id": i} for i in sorted(known)], only=["id"]),) if known else ()
                files = [stage(to, REF, rows[:3]), stage(to, REF, rows[3:], chunk=1)]
                merge = Merge(("id",), keys=keys, **how)
                outcome = to.write.merge(object, REF, files, merge, Commit(f"r{fence}", fence, "c"))
                found.append((outcome, rows_of(to, REF, SHOWN), _state(to)))
            assert found[0] == found[1]
            [data] = [*Path(f"{name}/-1").rglob("data")]
            assert [p for p in data.iterdir() if "-merge-" in p.name] == []


def test_only_files_with_rows_that_change_are_written_again(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    for number in (1, 2, 3):
        shop.append({"id": number, "name": f"n{number}"}, {"id": 10 * number})
    first = shop.files()
    shop.merge({"id": 2, "name": "new"}, {"id": 1, "name": "n1"}, {"id": 4})
    kept = set(shop.files()) & set(first)
    assert (len(kept), len(shop.files())) == (2, 3)
    assert shop.rows("id", "name") == [(1, "n1"), (10, None), (2, "new"), (20, None), (3, "n3"), (30, None), (4, None)]
    before = shop.files()
    shop.merge({"id": 2, "name": "new"})
    assert shop.files() == before, "nothing differs"


def test_only_files_that_may_have_a_key_are_read_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Warehouse(tmp_path)
    for number in (10, 20, 30):
        shop.append({"id": number, "name": f"n{number}"}, {"id": number + 5})
    opened, rows_in = list[str](), delta_files.rows_in

    def noted(state: Any, file: Any, *more: Any) -> Any:
        opened.append(file["path"])
        return rows_in(state, file, *more)

    monkeypatch.setattr(delta_files, "rows_in", noted)
    for ids, files, numbers in (([20, 25], 1, [0, 1]), ([15, 21, 30], 3, [0, 2]), ([99], 0, [])):
        opened.clear()
        found = shop.to.write.lookup_rows(REF, pa.table({"id": pa.array(ids, pa.int64())}))
        assert (len(opened), sorted(found.numbers)) == (files, numbers)


def test_files_that_are_written_again_keep_what_waits_for_an_undo(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    shop.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    old = next(c for c in ORDERS.columns if c.name == "name")
    shop.change(table(*(c for c in ORDERS.columns[:3] if c is not old)), ColumnRemoved(REF, old, 1))
    shop.merge({"id": 1, "amount": 9})
    [file] = shop.files()
    names = pq.read_table(shop.held.folder / file).column("name").to_pylist()
    assert sorted(names) == ["a", "b"]


def test_rows_from_a_value_on_give_way(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    shop.append({"id": 1, "amount": 1}, {"id": 2, "amount": 2})
    shop.append({"id": 3, "amount": 3})
    file = stage(shop.to, REF, [{"id": 9, "amount": 2}])
    done = shop.to.write.merge(None, REF, [file], Merge((), since=("amount", "2")), shop.commit())
    assert (done.inserted, done.deleted) == (1, 2)
    assert [i for (i,) in shop.rows("id")] == [1, 9]


def test_a_task_is_as_large_whatever_the_table_has() -> None:
    sizes, job = [], cast("Any", None)
    for files in (10, 100_000):
        starts = np.array([g.start for g in grouped([(1, 1)] * files, files // 5, 1 << 30)], np.int64)
        task = JoinTask(job, 0, (), (), (), starts, starts[:1])
        sizes.append(len(pickle.dumps(task)))
        assert group_of(task.starts, np.arange(files)).tolist() == [n // (files // 5) for n in range(files)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("files", [1, 3])
def test_large_files_are_written_again_by_all_cores(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (writer, rewrite):
        monkeypatch.setattr(module, "GROUP_ROWS", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    to = DeltaDestination(DeltaConfig.resolved(name="d", warehouse=str(tmp_path)))
    create(to, WANTED)
    parts = np.array_split(np.arange(95), files)
    staged = [stage(to, REF, [{"id": int(i)} for i in part], chunk=n) for n, part in enumerate(parts)]
    to.write.overwrite(REF, staged, Commit("base", 1))
    rows = [{"id": i, "v": "new"} for i in (0, 9, 10, 47, 48, 94, 95)]
    done = to.write.merge(None, REF, [stage(to, REF, rows)], Merge(("id",)), Commit("r2", 2))
    assert (done.inserted, done.updated) == (1, 6)
    assert len(list(tmp_path.rglob("*r2-rewrite*.parquet"))) == 2
    new = {row["id"] for row in rows}
    assert sorted(rows_of(to, REF, ["id", "v"])) == [(i, "new" if i in new else None) for i in range(96)]


@pytest.mark.parametrize("whole", [True, False])
def test_rows_whose_key_does_not_come_pass_by(whole: bool, tmp_path: Path) -> None:
    """A table may have more rows than `upsert_rows` where its other rows stay as they are."""
    to = DeltaDestination(DeltaConfig.resolved(name="d", warehouse=str(tmp_path), upsert_rows=10))
    create(to, WANTED)
    to.write.overwrite(REF, [stage(to, REF, [{"id": i} for i in range(100)])], Commit("base", 1))
    files = [stage(to, REF, [{"id": 7, "v": "new"}, {"id": 100}])]
    path = to.write.merge_path(REF, files, Merge(("id",), complete=whole))
    assert path == ("parts" if whole else "process")
