# ruff: noqa: F811, S608 - the imported `spark` is a fixture, and the SQL of tests
"""Shards over Iceberg: files of one shard each, found by their partition, and left alone by everybody else."""

from __future__ import annotations

import multiprocessing
import random
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from shard_world import REF, SHARD, Shop, opened

from contract import destinations
from instep.destinations.base import Commit, Maintained, MaintenanceSpec, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.maintain.expire import plain
from instep.destinations.iceberg.write import merge as merge_
from instep.destinations.iceberg.write import upsert
from instep.errors import DestinationError, InstepError
from instep.project.sections.tables import TableSettings
from instep.schema.changes.describe import ColumnWidened
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import step
from instep.sharding.destination import sharded
from instep.sync.operations.restore import savepoints
from instep.sync.schema_changes.owned_tables import unable
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from lake import ID, PREFIX, column, create, spark, stage, table, with_spark  # noqa: F401
from s3_server import Bucket
from sync_world import cursor, preset

MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, at int)"
ROWS = ("INSERT INTO t VALUES (1, 'x', 1)", "INSERT INTO t VALUES (2, 'y', 2)")
EAGER = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0, orphan_age=0, target_file_size=1 << 20)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """With a table in each shard, loaded by these settings."""
    with opened(tmp_path, destinations.iceberg(tmp_path)) as made:
        for shard in made.shards.values():
            shard.settings["t"] = getattr(request, "param", TableSettings())
        made.run(MAKE, *ROWS)
        made.sync()
        yield made


BY_CURSOR = pytest.mark.parametrize("shop", [cursor("at")], indirect=True, ids=["cursor"])


def files(shop: Shop, shard: str = "") -> set[str]:
    """The data files of the table, or those that a reader looks at for one shard."""
    wanted = EqualTo(term=Reference(SHARD), value=literal(shard)) if shard else None
    return {t.file.file_path for t in loaded(shop).scan(**({"row_filter": wanted} if wanted else {})).plan_files()}


def loaded(shop: Shop) -> Any:
    return shop.base.lake.load(REF)


def maintained(shop: Shop, shard: str, **more: Any) -> Maintained:
    to = shop[shard].context.destination
    assert to.maintenance is not None
    return to.maintenance.maintain(REF, MaintenanceSpec(EAGER, "m", to.maintenance.latest_claim(REF), **more))


def test_a_full_load_leaves_the_files_of_others_alone(shop: Shop) -> None:
    before = {s: files(shop, s) for s in "abc"}
    assert [len(found) for found in before.values()] == [1, 1, 1]
    assert set().union(*before.values()) == files(shop)
    shop["b"].settings["t"] = TableSettings(mode="full_refresh", deletes="hard")
    shop["b"].run("INSERT INTO t VALUES (3, 'z', 3)")
    shop["b"].sync(full=True)
    now = {s: files(shop, s) for s in "abc"}
    assert (now["a"], now["c"]) == (before["a"], before["c"])
    assert not now["b"] & before["b"]
    assert shop.differing() == {}
    state = shop["b"].context.destination.schema.state(REF)
    assert state is not None
    assert (state.rows, state.files) == (3, len(now["b"]))


@pytest.mark.slow
@BY_CURSOR
def test_compaction_and_expiry_of_one_shard(shop: Shop) -> None:
    for n in range(3, 7):
        shop.run(f"INSERT INTO t VALUES ({n}, 'z', {n})", f"INSERT INTO t VALUES ({n + 10}, 'z', {n})")
        shop.sync()
    before = {s: files(shop, s) for s in "abc"}
    rows = shop.rows("id", "v")
    done = maintained(shop, "a")
    assert (done.files_before, done.files) == (len(before["a"]), 1)
    assert (files(shop, "b"), files(shop, "c")) == (before["b"], before["c"])
    assert (shop.rows("id", "v"), shop.differing()) == (rows, {})
    shop["b"].run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 'new', 9)")
    shop.sync()
    for shard in "abc":
        maintained(shop, shard)
    assert [len(files(shop, s)) for s in "abc"] == [1, 1, 1]
    assert shop.differing() == {}
    assert [shop[s].context.destination.schema.state(REF).rows for s in "abc"] == [10, 10, 10]
    shop["c"].run("INSERT INTO t VALUES (30, 'c', 30)")
    report = shop["c"].sync()
    assert [(t.read, t.inserted) for t in report.tables] == [(3, 1)], "the cursor goes on where it was"


@pytest.mark.slow
def test_what_was_dropped_comes_back_after_maintenance(shop: Shop) -> None:
    for shard in shop.shards.values():
        shard.policy = preset("propagate_all")
    shop.run("INSERT INTO t VALUES (3, 'z', 3)")
    shop.sync()
    shop.run("ALTER TABLE t DROP COLUMN v")
    shop.sync()
    shop.run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 8)")
    shop.sync()
    for shard in "abc":
        maintained(shop, shard)
    context = shop["c"].context
    (review,) = [r for r in context.store.reviews.find("c", ["applied"]) if r.kind == "column.removed"]
    apply_undo(context, prepare(context, find(context, review.id)))
    assert [row for row in shop.rows("id", "v") if row[0] == "c"] == [("c", 1, "x"), ("c", 2, "y"), ("c", 3, "z")]


@pytest.mark.slow
def test_orphans_of_others_are_left(shop: Shop, tmp_path: Path) -> None:
    places = {s: Path(shop[s].context.destination.write.target(REF).location.removeprefix("file://")) for s in "ab"}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
        (place / "left.parquet").write_bytes(b"x")
    assert maintained(shop, "a").orphans == 1
    assert [(places[s] / "left.parquet").exists() for s in "ab"] == [False, True]
    assert shop.differing() == {}


@pytest.mark.slow
@BY_CURSOR
def test_a_table_that_was_put_back_by_hand_is_read_again(shop: Shop) -> None:
    """By the shards whose load is none of the table any more, and by no other one."""
    first = loaded(shop).metadata.current_snapshot_id
    for shard in "bc":
        shop[shard].run("INSERT INTO t VALUES (3, 'z', 3)")
        shop[shard].sync()
    loaded(shop).manage_snapshots().rollback_to_snapshot(first).commit()
    assert len(shop.rows("id")) == 6
    shop["a"].run("INSERT INTO t VALUES (4, 'a', 4)")
    shop["a"].sync()
    for shard in "abc":
        maintained(shop, shard)
    shop.sync()
    assert shop.differing() == {}
    assert len(shop.rows("id")) == 9
    states = [shop[name].context.destination.schema.state(REF) for name in "abc"]
    assert [(s.rows, s.files) for s in states if s] == [(3, len(files(shop, name))) for name in "abc"]


@pytest.mark.slow
def test_without_its_partition_nothing_is_loaded(shop: Shop) -> None:
    with loaded(shop).update_spec() as spec:
        spec.remove_field(SHARD)
    report = shop["a"].sync(full=True)
    (table,) = report.tables
    assert table.status == "failed"
    assert "no longer partitioned by _instep_shard" in table.error
    with pytest.raises(DestinationError, match="cannot be told apart"):
        shop["b"].context.destination.write.append(REF, [], Commit("r", 9))


def busy(shop: Shop, name: str) -> list[str]:
    """One shard's columns come and go, its rows change, its files are put together; what has failed."""
    chance, have, failed, one = random.Random(name), set[str](), list[str](), shop[name]
    for turn in range(6):
        column = chance.choice("uvw")
        one.run(
            f"ALTER TABLE t {'DROP' if column in have else 'ADD'} COLUMN {column}{'' if column in have else ' int'}"
        )
        have ^= {column}
        one.run(
            f"DELETE FROM t WHERE id = {turn // 2}",
            f"INSERT INTO t VALUES ({', '.join(map(str, [turn + 9, turn, *['5'] * len(have)]))})",
        )
        failed += [t.error for t in one.sync(full=chance.random() < 0.3).tables if t.status != "done"]
        if chance.random() < 0.5:
            maintained(shop, name, moving=True, deep=False)
    return failed


@pytest.mark.slow
def test_all_of_them_are_busy_at_once(tmp_path: Path) -> None:
    with opened(tmp_path, destinations.iceberg(tmp_path)) as shop:
        for shard in shop.shards.values():
            shard.policy = preset("propagate_all")
        shop.run("CREATE TABLE t (id int PRIMARY KEY, at int)", "INSERT INTO t VALUES (0, 0), (1, 1), (2, 2)")
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(lambda name: busy(shop, name), "abc")) == [[], [], []]
        shop.sync()
        assert shop.differing() == {}
        assert {row[:2] for row in shop.rows("id")} == {(s, *row) for s in "abc" for row in shop[s].rows("t", "id")}


def at_once(folder: str, shard: str) -> None:
    """What one process does: a table, rows, a column of its own, rows again."""
    to, wanted = part(folder, shard), table(ID, column("v", "string"))
    create(to, wanted, Commit(f"{shard}-1", 1))
    for n in range(8):
        commit = Commit(f"{shard}-{n}", n + 2, "", "x")
        to.write.claim(REF_OF, commit.fence)
        rows = [{SHARD: shard, "id": n, "v": shard}, {SHARD: shard, "id": 100, "v": str(n)}]
        files = [stage(to, REF_OF, rows)]
        if n % 2:
            to.write.append(REF_OF, files[:0], commit)
        to.write.merge(None, REF_OF, files, Merge(("id",)), commit)


REF_OF = table(ID).ref


def part(folder: str, shard: str) -> Any:
    return sharded(IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=folder)), shard, PREFIX)


@pytest.mark.slow
def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = ["eu", "us", "eu-2"]
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(at_once, str(tmp_path / "lake"), name) for name in names]:
            done.result()
    read = part(str(tmp_path / "lake"), "eu").base.write.read(REF_OF).read_all().to_pylist()
    expected = {(s, n, s) for s in names for n in range(8)} | {(s, 100, "7") for s in names}
    assert {(r[SHARD], r["id"], r["v"]) for r in read} == expected
    assert len(read) == len(expected)


@pytest.mark.slow
def test_a_type_that_another_shard_widens_while_files_are_written(tmp_path: Path) -> None:
    """They are adopted, and merged, as what they are."""
    eu, us = (part(str(tmp_path / "lake"), name) for name in ("eu", "us"))
    narrow, wide = (table(ID, column("n", kind)) for kind in ("int32", "int64"))
    for to, wanted in ((eu, narrow), (us, narrow)):
        create(to, wanted, Commit("r1", 1))
    early = [stage(eu, REF_OF, [{SHARD: "eu", "id": n, "n": n}]) for n in range(2)]
    us.schema.execute(
        REF_OF, [step(REF_OF, ColumnWidened(REF_OF, narrow.by_name["n"], wide.by_name["n"]))], wide, Commit("r2", 2)
    )
    eu.write.append(REF_OF, early[:1], Commit("r3", 3))
    eu.write.merge(None, REF_OF, early[1:], Merge(("id",)), Commit("r4", 4))
    eu.write.merge(
        None, REF_OF, [stage(eu, REF_OF, [{SHARD: "eu", "id": 0, "n": 2**40}])], Merge(("id",)), Commit("r5", 5)
    )
    assert sorted(eu.write.read(REF_OF, ["id", "n"]).read_all().to_pylist(), key=str) == [
        {"id": 0, "n": 2**40}, {"id": 1, "n": 1}
    ]  # fmt: skip


@pytest.mark.slow
def test_what_others_commit_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another shard commits between the moment a merge has found its rows and the one in which it lands."""
    eu, us = (part(str(tmp_path / "lake"), name) for name in ("eu", "us"))
    for to in (eu, us):
        create(to, table(ID, column("v", "string")), Commit("r1", 1))
        to.write.append(REF_OF, [stage(to, REF_OF, [{SHARD: to.shard.name, "id": 1, "v": "old"}])], Commit("r2", 2))
    found = list[int]()

    def find_upsert(*args: Any) -> Any:
        found.append(1)
        us.write.append(REF_OF, [stage(us, REF_OF, [{SHARD: "us", "id": 10, "v": "x"}])], Commit("r3", 3))
        return upsert.find_upsert(*args)

    monkeypatch.setattr(merge_, "find_upsert", find_upsert)
    files = [stage(eu, REF_OF, [{SHARD: "eu", "id": 1, "v": "new"}, {SHARD: "eu", "id": 2, "v": "new"}])]
    done = eu.write.merge(None, REF_OF, files, Merge(("id",)), Commit("r3", 3))
    assert (done.inserted, done.updated, found) == (1, 1, [1])
    rows = eu.base.write.read(REF_OF).read_all().to_pylist()
    assert sorted((r[SHARD], r["id"], r["v"]) for r in rows) == [
        ("eu", 1, "new"), ("eu", 2, "new"), ("us", 1, "old"), ("us", 10, "x"),
    ]  # fmt: skip
    assert [to.schema.state(REF_OF).rows for to in (eu, us)] == [2, 2]


@with_spark
@pytest.mark.slow
def test_merges_of_spark_and_its_readers(tmp_path: Path, spark: Any) -> None:
    """A lake whose upserts are all Spark's: each meets the rows of its shard alone."""
    base = destinations.iceberg_by_spark(tmp_path)
    with opened(tmp_path, base, "ab", start=lambda: spark, engine="spark") as shop:
        shop.run(MAKE, *ROWS)
        shop.sync()
        untouched = files(shop, "b")
        shop["a"].run("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (2, 'n', 2)")
        report = shop["a"].sync()
        assert [(t.inserted, t.updated, t.deleted) for t in report.tables] == [(0, 1, 1)]
        assert shop.rows("id", "v") == [("a", 2, "n"), ("b", 1, "x"), ("b", 2, "y")]
        assert files(shop, "b") == untouched
        for shard in shop.shards.values():
            shard.settings["t"] = TableSettings(deletes="hard")
        shop["b"].run("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (5, 'b', 5)")
        shop["b"].sync()
        assert shop.rows("id", "v") == [("a", 2, "n"), ("b", 1, "x"), ("b", 5, "b")]
        assert shop.differing() == {}
        for key, value in base.lifecycle.spark_catalog().items():
            spark.conf.set(key, value)
        _while_spark_merges(shop, spark)
        read = spark.sql(f"SELECT DISTINCT _file FROM lake.shop.t WHERE {SHARD} = 'b'").collect()
        assert {plain(row[0]) for row in read} <= {plain(f) for f in files(shop, "b")}
        plan = spark.sql(f"SELECT id FROM lake.shop.t WHERE {SHARD} = 'b'")._jdf.queryExecution().toString()
        assert re.search(rf"filters=[^)]*{SHARD} = 'b'", plan), "Iceberg prunes by it"


def _while_spark_merges(shop: Shop, spark: Any) -> None:
    """The other shard commits after the merge has found its rows: they land all the same, once."""
    merged, find = list[str](), merge_.found_by_spark

    @contextmanager
    def found_by_spark(session: Any, staged: Any, plan: Any, settings: Any) -> Iterator[Any]:
        merged.append(plan.within[1])
        with find(session, staged, plan, settings) as found:
            if merged == ["b"]:
                shop["a"].run("INSERT INTO t VALUES (7, 'a', 7)")
                shop["a"].sync(full=True)
            yield found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge_, "found_by_spark", found_by_spark)
        shop["b"].run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 'again', 1)")
        shop["b"].sync()
    assert merged == ["b", "a"]
    assert shop.rows("id", "v") == [("a", 2, "n"), ("a", 7, "a"), ("b", 1, "again"), ("b", 5, "b")]
    assert shop.differing() == {}


@pytest.mark.slow
def test_in_an_object_store(tmp_path: Path, bucket: Bucket) -> None:
    with opened(tmp_path, destinations.iceberg_in_bucket(tmp_path, bucket), "ab") as shop:
        shop.run(MAKE, *ROWS)
        shop.sync()
        untouched = files(shop, "b")
        shop["a"].run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 'new', 5)")
        shop["a"].sync()
        assert maintained(shop, "a").files == 1
        shop["a"].run("ALTER TABLE t RENAME COLUMN v TO w")
        shop["a"].sync()
        shop["a"].answer("approved", "column.renamed")
        shop["a"].sync()
        assert files(shop, "b") == untouched
        assert shop.rows("id", "v", "w") == [
            ("a", 1, None, "new"), ("a", 2, None, "y"), ("b", 1, "x", None), ("b", 2, "y", None),
        ]  # fmt: skip
        assert shop.differing() == {}


@pytest.mark.slow
def test_a_shared_table_is_not_put_back(shop: Shop) -> None:
    with pytest.raises(InstepError, match="its snapshots have the rows of all its connections"):
        savepoints(shop["a"].context, "main.t")


def spec(shop: Shop) -> list[str]:
    metadata = loaded(shop).metadata
    return [f"{f.transform}({metadata.schema().find_column_name(f.source_id)})" for f in metadata.spec().fields]


@pytest.mark.slow
def test_partitions_of_users_follow_the_shard(shop: Shop) -> None:
    """What a shard says holds for all; one that says nothing leaves it, and nobody takes turns."""
    before = files(shop, "b")
    for name, wanted in (("a", TableSettings(partition=("at",), sort=("id",))), ("b", TableSettings())):
        shop[name].settings["t"] = wanted
        assert len(shop[name].preview().plan.steps) == (name == "a")
    shop.run("INSERT INTO t VALUES (3, 'z', 3)", "INSERT INTO t VALUES (4, 'z', 4)")
    shop.sync()
    assert spec(shop) == [f"identity({SHARD})", "identity(at)"]
    assert shop["b"].preview().plan.steps == shop["a"].preview().plan.steps == ()
    assert before < files(shop, "b")
    assert (len(files(shop, "b")), shop.differing()) == (3, {})
    shop["a"].sync(full=True)
    shop["a"].settings["t"] = TableSettings(partition=("bucket(2, id)",))
    shop["a"].sync()
    assert spec(shop) == [f"identity({SHARD})", "bucket[2](id)"]
    for shard in "abc":
        maintained(shop, shard, moving=True)
    assert {t.file.spec_id for t in loaded(shop).scan().plan_files()} == {loaded(shop).metadata.default_spec_id}
    shop["a"].settings["t"] = TableSettings()
    shop["c"].settings["t"] = TableSettings(mode="full_refresh")
    shop.sync()
    assert (spec(shop), shop.differing()) == ([f"identity({SHARD})"], {})
    assert len(shop.rows("id")) == 12


def test_a_rest_catalog_shares_no_tables(tmp_path: Path) -> None:
    with opened(
        tmp_path, IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path), catalog="rest")), "a"
    ) as shop:
        context = shop["a"].context
        assert context.destination.shard is None
        (why,) = unable(context, [REF]).values()
        assert why.startswith("a lake with a REST catalog cannot hold the rows of several connections in one table: ")
