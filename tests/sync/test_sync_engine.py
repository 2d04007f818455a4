"""Which work is done in the process and which on Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.write import merge, upsert
from instep.errors import SetupError
from instep.model import EngineUse
from instep.sync.loading.engine import DriverReads, Engine, LocalEngine, OnSpark
from instep.sync.run import sync
from lake import with_spark
from sync_world import MakeWorld, World, cursor

SETUP = ("CREATE TABLE t (id int PRIMARY KEY, a varchar(20))", "INSERT INTO t VALUES (1, 'x'), (2, NULL)")
MORE = ("UPDATE t SET a = 'y' WHERE id = 2", "INSERT INTO t VALUES (3, 'z')")


@dataclass
class Told:
    """A start that counts, and what a person sees."""

    start: Callable[[], Any]
    starts: int = 0
    steps: list[str] = field(default_factory=list)

    def __call__(self) -> Any:
        self.starts += 1
        return self.start()

    def step(self, text: str) -> None:
        self.steps.append(text)

    def tables(self, rows: object) -> None:
        pass

    def table(self, *_: object, **__: object) -> None:
        pass


class LateStart(Told):
    """A start that takes until the sync waits for it."""

    def __call__(self) -> Any:
        end = time.monotonic() + 300
        while "starting Spark" not in self.steps and time.monotonic() < end:
            time.sleep(0.01)
        return super().__call__()


def run(world: World, told: Told, engine: Engine) -> EngineUse:
    """Sync; return what has read the rows, which the run has on record."""
    report = sync(world.context, progress=told, engine=engine)
    assert world.statuses(report) == {"t": "done"}
    assert world.differing() == {}
    assert report.engine is not None
    assert world.store.runs.get(report.run).detail == {"engine": asdict(report.engine)}
    return report.engine


def merging_on_spark(make_world: MakeWorld) -> World:
    """A world whose destination has Spark merge, however little it is."""
    world = make_world("sqlite")
    world.settings = {"t": cursor("id")}
    world.destination = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=str(world.folder / "lake"), upsert_rows=0)
    )
    world.run(*SETUP)
    return world


@with_spark
def test_spark_reads_whatever_the_size(make_world: MakeWorld, session: Callable[[], Any]) -> None:
    world = make_world("sqlite")
    world.run(*SETUP)
    told = LateStart(session)
    assert run(world, told, OnSpark(told, "local[2]")) == EngineUse("spark", "local[2]")
    assert told.starts == 1
    assert told.steps.index("starting Spark") < told.steps.index("reading rows")


@with_spark
def test_where_the_driver_reads_a_merge_starts_spark(make_world: MakeWorld, session: Callable[[], Any]) -> None:
    world = merging_on_spark(make_world)
    told = Told(session)
    assert run(world, told, DriverReads(told, "yarn")) == EngineUse("spark", "yarn")
    assert told.starts == 0
    world.run(*MORE)
    assert sync(world.context, progress=told, engine=DriverReads(told)).engine == EngineUse(
        "spark", large="main.t: merge"
    )
    assert told.starts == 1
    assert world.rows("t", "id", "a") == [(1, "x"), (2, "y"), (3, "z")]


@with_spark
def test_rows_that_this_process_cannot_find_are_looked_for_once_here_and_once_by_spark(
    make_world: MakeWorld, session: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = merging_on_spark(make_world)
    world.destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(world.folder / "lake")))
    told, looked = Told(session), list[str]()
    run(world, told, DriverReads(told))
    found_by_spark = merge.found_by_spark

    def no_memory(*_: Any) -> upsert.SparkOnly:
        looked.append("here")
        return upsert.SparkOnly("no memory")

    def counted(*args: Any) -> Any:
        looked.append("Spark")
        return found_by_spark(*args)

    monkeypatch.setattr(merge, "find_upsert", no_memory)
    monkeypatch.setattr(merge, "found_by_spark", counted)
    world.run(*MORE)
    assert run(world, told, DriverReads(told)) == EngineUse("spark", large="main.t: merge")
    assert (looked, told.starts) == (["here", "Spark"], 1)


class Session:
    """What of a session tells its page."""

    def __init__(self, page: str | None) -> None:
        self._sc = SimpleNamespace(uiWebUrl=page)


@pytest.mark.parametrize("page", ["http://127.0.0.1:4040", None])
def test_spark_s_page_is_told_once_there_is_one(page: str | None) -> None:
    engine = OnSpark(lambda: cast("Any", Session(page)), "local[*]")
    assert engine.use == EngineUse("spark", "local[*]")
    engine.spark(lambda _: None)
    assert engine.use == EngineUse("spark", "local[*]", page or "")


NEVER = """
import threading
from instep.sync.loading.engine import OnSpark
OnSpark(threading.Event().wait).begin()
"""


def test_a_process_that_is_done_waits_for_no_cluster_that_does_not_answer() -> None:
    assert subprocess.run([sys.executable, "-c", NEVER], timeout=120).returncode == 0


def test_a_spark_that_does_not_start_has_no_page() -> None:
    def fails() -> Any:
        raise SetupError("no Java")

    engine = OnSpark(fails)
    with pytest.raises(SetupError, match="no Java"):
        engine.spark(lambda _: None)
    assert engine.use == EngineUse("spark")


def test_a_local_merge_that_only_spark_can_do_fails_for_its_table(make_world: MakeWorld) -> None:
    world = merging_on_spark(make_world)
    assert run(world, Told(lambda: None), LocalEngine()) == EngineUse("local")
    world.run(*MORE)
    [table] = sync(world.context, engine=LocalEngine()).tables
    assert table.status == "failed"
    assert "cannot be merged without Spark" in table.error
    assert world.rows("t", "id", "a") == [(1, "x"), (2, None)]


@with_spark
@pytest.mark.parametrize("spark", [False, True])
def test_rows_that_a_merge_reads_once_are_packed_less_and_those_of_the_table_are_not(
    make_world: MakeWorld, session: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, spark: bool
) -> None:
    world, packed = merging_on_spark(make_world), list[str]()
    if not spark:
        world.destination = IcebergDestination(
            IcebergConfig.resolved(name="lake", warehouse=str(world.folder / "lake"))
        )
    plan = merge.merge_plan

    def seen(lake: Any, ref: Any, metadata: Any, files: Any, *more: Any) -> Any:
        packed.extend(codec(file.path) for file in files)
        return plan(lake, ref, metadata, files, *more)

    monkeypatch.setattr(merge, "merge_plan", seen)
    told = Told(session)
    engine = DriverReads(told) if spark else LocalEngine()
    run(world, told, engine)
    world.run(*MORE)
    run(world, told, engine)
    assert world.rows("t", "id", "a") == [(1, "x"), (2, "y"), (3, "z")]
    assert packed == ["LZ4"]
    table = world.destination.lake.load(("shop", "t"))
    assert {codec(task.file.file_path) for task in table.scan().plan_files()} == {"ZSTD"}


def codec(path: str) -> str:
    return str(pq.ParquetFile(path.removeprefix("file://")).metadata.row_group(0).column(0).compression)
