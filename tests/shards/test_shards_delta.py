"""Shards of a Delta table: files of one shard each, and commits that come on top of each other."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from shard_world import REF, SHARD, Shop, opened

from contract import destinations
from instep.destinations.base import Commit, Merge
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.table_state import DeltaTableState, find
from instep.errors import Conflict, Fenced
from instep.project.sections.tables import TableSettings
from instep.schema.changes.describe import ColumnWidened
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import step
from instep.sharding.destination import sharded
from instep.sync.operations.maintain import maintain
from instep.sync.progress import Silent
from lake import ID, PREFIX, column, create, stage, table
from s3_server import Bucket
from sync_world import cursor

MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, at int)"
OF = table(ID).ref
ROWS = ("INSERT INTO t VALUES (1, 'x', 1)", "INSERT INTO t VALUES (2, 'y', 2)")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Shop]:
    with opened(tmp_path, destinations.delta(tmp_path)) as made:
        yield made


def held(shop: Shop, shard: str = "") -> DeltaTableState:
    to: Any = shop.base.sharing.part(shard) if shard else shop.base
    found = find(to.warehouse, REF)
    assert found is not None
    return found


def loaded(shop: Shop, **settings: TableSettings) -> Shop:
    for shard in shop.shards.values():
        shard.settings.update(settings)
    shop.run(MAKE, *ROWS)
    shop.sync()
    return shop


def files(shop: Shop) -> dict[str, set[str]]:
    """The data files by what the log says of their shard."""
    found: dict[str, set[str]] = {name: set() for name in shop.shards}
    for path, file in held(shop).snapshot.files.items():
        found[file["partitionValues"][SHARD]].add(path)
    return found


def test_a_reload_of_one_shard_leaves_the_files_of_others(lake: Shop) -> None:
    loaded(lake)
    before = files(lake)
    assert held(lake).snapshot.metadata["partitionColumns"] == [SHARD]
    assert {len(paths) for paths in before.values()} == {1}
    lake["b"].run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'z', 3)")
    lake["b"].sync(full=True, kind="backfill", tables=frozenset({"main.t"}))
    after = files(lake)
    assert {name for name in "abc" if before[name] != after[name]} == {"b"}
    assert (len(lake.rows("id")), lake.differing()) == (6, {})
    there = DeltaTable(str(held(lake).folder))
    rows = QueryBuilder().register("t", there).execute(f"select id from t where {SHARD} = 'b' order by id")  # noqa: S608
    assert pa.table(rows.read_all()).column("id").to_pylist() == [2, 3]
    for name in "ac":
        for path in after[name]:
            Path(str(held(lake).folder / path)).unlink()
    assert ids(lake, "b") == [2, 3], "nobody else's files are read"


def ids(shop: Shop, shard: str) -> list[int]:
    """As the shard reads its own rows, those that are marked as deleted included."""
    return sorted(shop[shard].context.destination.write.read(REF, ["id"]).read_all().column("id").to_pylist())


def test_a_commit_comes_on_top_of_those_of_other_shards(lake: Shop) -> None:
    loaded(lake)
    a, b = (lake.base.sharing.part(name) for name in "ab")
    early = DeltaCommit(held(lake, "a"), held(lake, "a").record.after_load(Commit("early", 7, "c"), 2, new=0))
    twice = DeltaCommit(held(lake, "a"), held(lake, "a").record.after_load(Commit("twice", 7, "c"), 2, new=0))
    for number in range(3):
        b.write.append(REF, [], Commit(f"b{number}", 9))
    early.land("WRITE", Commit("early", 7, "c"), a.warehouse)
    assert [s.run for s in (a.schema.state(REF), b.schema.state(REF))] == ["early", "b2"]
    with pytest.raises(Conflict):
        twice.land("WRITE", Commit("twice", 7, "c"), a.warehouse)
    stale = DeltaCommit(held(lake, "a"), held(lake, "a").record.after_load(Commit("stale", 7), 2, new=0))
    a.write.claim(REF, 8)
    with pytest.raises(Fenced):
        stale.land("WRITE", Commit("stale", 7), a.warehouse)
    assert b.schema.state(REF).run == "b2"


def add(path: str) -> dict[str, Any]:
    return {
        "add": {"path": path, "partitionValues": {SHARD: "a"}, "size": 1, "modificationTime": 1, "dataChange": True}
    }


@pytest.mark.parametrize("change", ["file added", "file removed", "file replaced"])
def test_a_commit_conflicts_with_others_in_the_same_shard(lake: Shop, change: str) -> None:
    """Such as another program's, or its own maintenance; the record is the same after both."""
    loaded(lake)
    before = held(lake, "a")
    [path] = before.paths
    late = DeltaCommit(before, before.record.after_load(Commit("late", 7), 2, new=0), remove=[path])
    removed = [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}] * (change != "file added")
    added = [add(f"{before.area}/other.parquet")] * (change != "file removed")
    before.log.put(before.snapshot.version + 1, [{"commitInfo": {}}, *removed, *added])
    with pytest.raises(Conflict):
        late.land("MERGE", Commit("late", 7), lake.base.sharing.part("a").warehouse)


@pytest.mark.slow
def test_a_commit_from_before_a_change_of_schema_is_made_anew(lake: Shop) -> None:
    loaded(lake)
    late = DeltaCommit(held(lake, "a"), held(lake, "a").record.after_load(Commit("late", 9), 2, new=0))
    lake["b"].run("ALTER TABLE t ADD COLUMN more int", "INSERT INTO t VALUES (3, 'z', 3, 4)")
    lake["b"].sync()
    with pytest.raises(Conflict):
        late.land("WRITE", Commit("late", 9), lake.base.sharing.part("a").warehouse)
    lake.sync()
    assert (len(lake.rows("id", "more")), lake.differing()) == (7, {})


@pytest.mark.slow
def test_maintenance_of_one_shard_is_about_its_own_files(lake: Shop) -> None:
    loaded(lake, t=cursor("at", deletes="ignore"))
    for number in range(3, 6):
        for name in "ab":
            lake[name].run(f"INSERT INTO t VALUES ({number}, 'n', {number})")  # noqa: S608
            lake[name].sync()
    before = files(lake)
    context = replace(lake["a"].context, maintenance=Maintenance(min_files=3, max_snapshot_age=0, keep_snapshots=1))
    [done] = maintain(context, "", Silent(), lambda: None).tables
    after = files(lake)
    assert (done.error, done.done.files_before, done.done.files, len(after["a"])) == ("", 4, 1, 1)
    assert [after[n] for n in "bc"] == [before[n] for n in "bc"]
    assert lake.differing() == {}


@pytest.mark.server
@pytest.mark.slow
def test_shards_in_an_object_store(tmp_path: Path, bucket: Bucket) -> None:
    with opened(tmp_path, destinations.delta_in_bucket(bucket)) as shop:
        shop.run(MAKE, *ROWS)
        with ThreadPoolExecutor(3) as pool:
            reports = list(pool.map(lambda shard: shard.sync(), shop.shards.values()))
        assert [t.status for report in reports for t in report.tables] == ["done"] * 3, reports
        shop["b"].run("ALTER TABLE t ADD COLUMN n int", "INSERT INTO t VALUES (3, 'z', 3, 4)")
        shop.sync()
        assert (len(shop.rows("id", "n")), shop.differing()) == (7, {})


def test_a_writer_that_stands_by_keeps_its_files(lake: Shop) -> None:
    """What another shard is about to name stays when one looks after what its own dead runs have left."""
    loaded(lake)
    aside = Path(str(held(lake).folder / "_delta_log" / ".instep-other.tmp"))
    foreign = Path(str(held(lake).folder / held(lake, "b").area / "dead-00000-0-0-x.parquet"))
    for path in (aside, foreign):
        path.write_text("x")
    lake["a"].context.destination.lifecycle.remove_uncommitted_files(REF, {"dead": 1})
    assert (aside.exists(), foreign.exists()) == (True, True)
    os.utime(aside, (1, 1))
    lake["b"].context.destination.lifecycle.remove_uncommitted_files(REF, {"dead": 1})
    assert (aside.exists(), foreign.exists()) == (False, False)


@pytest.mark.slow
def test_loads_beside_each_other_lose_no_row(tmp_path: Path) -> None:
    names = [f"s{n}" for n in range(4)]
    with opened(tmp_path, destinations.delta(tmp_path), names) as shop:
        loaded(shop, t=cursor("at", deletes="ignore"))

        def work(name: str) -> None:
            for number in range(3, 7):
                shop[name].run(f"INSERT INTO t VALUES ({number}, '{name}', {number})")  # noqa: S608
                assert {t.status for t in shop[name].sync().tables} == {"done"}

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, names))
        assert [(r[0], r[1]) for r in shop.rows("id")] == [(n, i) for n in names for i in range(1, 7)]
        assert shop.differing() == {}


def part(folder: str, shard: str) -> Any:
    return sharded(DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=folder)), shard, PREFIX)


def at_once(folder: str, shard: str) -> None:
    """What one process does: a table, rows, the same key again and again, now and then all rows."""
    to, wanted = part(folder, shard), table(ID, column("v", "string"), column(f"of_{shard}", "int32"))
    create(to, wanted, Commit(f"{shard}-1", 1))
    for n in range(8):
        commit = Commit(f"{shard}-{n}", n + 2, "", "x")
        to.write.claim(OF, commit.fence)
        rows = [{SHARD: shard, "id": n, "v": shard}, {SHARD: shard, "id": 100, "v": str(n)}]
        if n == 4:
            rows += [{SHARD: shard, "id": i, "v": shard} for i in range(4)]
            to.write.overwrite(OF, [stage(to, OF, rows)], commit)
        else:
            to.write.merge(None, OF, [stage(to, OF, rows)], Merge(("id",)), commit)


@pytest.mark.slow
def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names, folder = ["eu", "us", "eu-2"], str(tmp_path / "lake")
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(at_once, folder, name) for name in names]:
            done.result()
    read = part(folder, "eu").base.write.read(OF).read_all().to_pylist()
    expected = {(s, n, s) for s in names for n in range(8)} | {(s, 100, "7") for s in names}
    assert {(r[SHARD], r["id"], r["v"]) for r in read} == expected
    assert len(read) == len(expected)
    states = [part(folder, s).schema.state(OF) for s in names]
    assert [(s.run, s.fence, s.rows) for s in states if s] == [(f"{s}-7", 9, 9) for s in names]


def test_a_type_that_another_shard_widens_while_files_are_written(tmp_path: Path) -> None:
    """They are adopted, and merged, as the table has them by then."""
    eu, us = (part(str(tmp_path / "lake"), name) for name in ("eu", "us"))
    narrow, wide = (table(ID, column("n", kind)) for kind in ("int32", "int64"))
    for to in (eu, us):
        create(to, narrow, Commit("r1", 1))
    early = [stage(eu, OF, [{SHARD: "eu", "id": n, "n": n}]) for n in range(3)]
    widened = ColumnWidened(OF, narrow.by_name["n"], wide.by_name["n"])
    us.schema.execute(OF, [step(OF, widened)], wide, Commit("r2", 2))
    eu.write.overwrite(OF, early[:1], Commit("r3", 3))
    eu.write.append(OF, early[1:2], Commit("r4", 4))
    eu.write.merge(None, OF, early[2:], Merge(("id",)), Commit("r5", 5))
    eu.write.merge(None, OF, [stage(eu, OF, [{SHARD: "eu", "id": 0, "n": 2**40}])], Merge(("id",)), Commit("r6", 6))
    rows = eu.write.read(OF, ["id", "n"]).read_all().to_pylist()
    assert sorted((r["id"], r["n"]) for r in rows) == [(0, 2**40), (1, 1), (2, 2)]
