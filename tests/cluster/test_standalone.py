"""A standalone cluster of two workers that share no folder, no environment and no package with the driver."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from cluster_connector import SECRET, Shop
from cluster_demo import Demo
from spark_cluster import Standalone

pytestmark = [
    pytest.mark.drawn(5, together=True),
    pytest.mark.spark, pytest.mark.slow, pytest.mark.server, pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(3600),  # a test may be the first, for which the whole story is told
]  # fmt: skip


def test_tasks_ran_in_their_own_environment(cluster: Standalone, on_cluster: Demo) -> None:
    """The package came with the job, Python out of the archive."""
    on_cluster.load()
    apps = [app for worker in cluster.workers for app in worker.folder.glob("work/app-*/*")]
    unpacked = [app for app in apps if (app / "environment/bin/python").exists()]
    assert unpacked
    assert all(list(app.glob("instep-*.zip")) for app in unpacked)


def test_a_merge_that_only_spark_can_do(on_cluster: Demo) -> None:
    """The catalog's file is opened by the driver; Iceberg's jar travels to the executors."""
    demo = on_cluster
    demo.load()
    demo.change(r"warehouse: lake\}", "warehouse: lake, upsert_rows: 0}")
    demo.told("sync", "shop", "--full", "--table", "public.customer")
    assert ': merge"' in demo.told("history", "shop", "--runs", "--output", "json")
    demo.change(r"warehouse: lake, upsert_rows: 0\}", "warehouse: lake}")


def test_an_executor_that_dies_in_the_middle_costs_nothing(cluster: Standalone, on_cluster: Demo) -> None:
    demo = on_cluster
    demo.load()
    demo.change(r"(?m)^    database: shop$", "    database: shop\n    rows_per_second: 40000")
    before = [worker.started() for worker in cluster.workers]
    running = subprocess.Popen(
        demo.command("sync", "shop", "--full"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=demo.environment,
    )  # fmt: skip
    try:
        ends = time.monotonic() + 600
        while not (begun := [w for w, b in zip(cluster.workers, before, strict=True) if w.started() > b]):
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < ends
            time.sleep(0.1)
        _executor(begun[0].folder).send_signal(signal.SIGKILL)
        said = running.communicate(timeout=600)[0]
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, said
    assert len(demo.equal("shop")) == demo.loaded


def _executor(folder: Path) -> psutil.Process:
    """The executor that a worker has started last: one before it may not have ended yet."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "create_time"]):
        told, place = process.info["cmdline"] or [], process.info["cwd"] or ""
        if "CoarseGrainedExecutorBackend" in " ".join(told) and place.startswith(str(folder)):
            found.append(process)
    assert found, f"no executor below {folder}"
    return max(found, key=lambda one: one.info["create_time"])


def test_a_cluster_without_room_is_told(cluster: Standalone, on_cluster: Demo) -> None:
    demo = on_cluster
    demo.load()
    demo.spark(master=cluster.url, conf={"spark.executor.memory": "64g", "spark.instep.executorWait": 2})
    refused = demo.run("sync", "till", "--full")
    assert refused.returncode == 1
    assert "gave no executor within 2 s: asked for 64g of memory" in refused.stderr
    assert "spark.executor.memory" in refused.stderr.split("\n", 1)[1]


@pytest.fixture(scope="module")
def shop(cluster: Standalone, plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    conf = {"spark.pyspark.python": str(plain), "spark.executor.memory": "600m"}
    folder = tmp_path_factory.mktemp("connector")
    return Shop(folder, {"master": cluster.url, "driver_memory": "1g", "conf": conf})


def test_a_connector_in_a_task_goes_on_after_its_executor(cluster: Standalone, shop: Shop) -> None:
    """What comes then is merged by Spark; its failure is told, and what came before its last checkpoint is there."""
    running = shop.begin()
    try:
        first = shop.child("first", running)
        (worker,) = (w for w in cluster.workers if first.folder.startswith(str(w.folder)))
        _executor(worker.folder).send_signal(signal.SIGKILL)
        second = shop.child("first", running, but=first.number)
        assert shop.ends(first), "the child ended with its task"
        assert any(second.folder.startswith(str(w.folder)) for w in cluster.workers)
        shop.open("first")
        said = "".join(running.communicate(timeout=600))
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 1, said
    for part in ("its task was lost", "ValueError: no more pages", "Traceback"):
        assert part in said
    assert shop.rows() == {0: "newer", 1: "new", 2: "new", 3: "new", 5: "new", 6: "new", 7: "new"}
    assert shop.state == {"at": 2}
    assert list((shop.folder / "lake").rglob("*-merge-*/*.parquet"))


def test_a_connector_ends_with_its_driver(cluster: Standalone, shop: Shop) -> None:
    shop.open("first")
    shop.open("well")
    running = shop.begin()
    try:
        child = shop.child("last", running)
    finally:
        running.kill()
        running.communicate()
    assert shop.ends(child)
    shop.open("last")
    done = shop.sync()
    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.rows()[9] == "last"
    assert shop.state == {"at": 3}
    assert [p.name for p in (shop.folder / "lake" / "_instep_runs").rglob("*") if p.is_file()] == []
    files = [f for f in cluster.folder.rglob("*") if f.is_file() and not f.is_symlink() and f.suffix != ".jar"]
    assert [f for f in files if f.stat().st_size < 50_000_000 and SECRET.encode() in f.read_bytes()] == []
