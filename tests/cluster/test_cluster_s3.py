"""A standalone cluster whose tasks write into a bucket: driver and executors have no disk in common."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from spark_cluster import Standalone

from s3_server import SECRET, Bucket

pytestmark = [
    pytest.mark.drawn(5, together=True),
    pytest.mark.spark, pytest.mark.slow, pytest.mark.server, pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(3600),  # a test may be the first, for which the whole story is told
]  # fmt: skip

ORDERS = """
    create table orders (id integer primary key, amount integer);
    insert into orders values (1, 10), (2, 20), (3, 30);
"""
CHANGED = (
    "update orders set amount = 11 where id = 1; delete from orders where id = 2; insert into orders values (4, 40)"
)


def write_project(folder: Path, bucket: Bucket, spark: dict[str, object]) -> None:
    keys = {**bucket.io, "s3.secret-access-key": "${env:LAKE_SECRET}", "s3.access-key-id": "${env:LAKE_KEY}"}
    place = bucket.uri
    destinations = {
        "iceberg": {
            "type": "iceberg", "warehouse": f"{place}/ice", "upsert_rows": 0,
            "properties": {**keys, "uri": "sqlite:///catalog.db"},
        },
        "delta": {"type": "delta", "warehouse": f"{place}/delta", "properties": keys},
        "duckdb": {"type": "duckdb", "path": "shop.duckdb", "staging": f"{place}/staging", "properties": keys},
    }  # fmt: skip
    project = {
        "version": 1, "project": "shop", "engine": "spark", "spark": spark,
        "sources": {"db": {"type": "sqlite", "path": "shop.db"}},
        "destinations": destinations,
        "connections": {f"to_{name}": {"source": "db", "destination": name} for name in destinations},
    }  # fmt: skip
    folder.joinpath("instep.yml").write_text(json.dumps(project))


def change(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.executescript(script)


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(folder), *words]
    keys = {"LAKE_SECRET": SECRET, "LAKE_KEY": "AKIACANARY", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **keys})
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


LEFT = {"iceberg": {"ice"}, "delta": {"delta"}, "duckdb": set()}
"""In the bucket: where a destination is elsewhere, its staged files have served."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", LEFT)
def test_rows_go_through_the_bucket_alone(
    cluster: Standalone, plain: Path, bucket: Bucket, tmp_path: Path, name: str
) -> None:
    finished = sum(worker.finished() for worker in cluster.workers)
    conf = {"spark.pyspark.python": str(plain), "spark.executor.memory": "600m", "spark.cores.max": "1"}
    write_project(tmp_path, bucket, {"master": cluster.url, "driver_memory": "1g", "conf": conf})
    change(tmp_path, ORDERS)
    run(tmp_path, "sync", f"to_{name}")
    change(tmp_path, CHANGED)
    run(tmp_path, "sync", f"to_{name}")
    assert "equal" in run(tmp_path, "verify", f"to_{name}"), "into Iceberg, Spark has merged"
    assert sum(worker.finished() for worker in cluster.workers) - finished >= 2
    assert [f.name for f in (*tmp_path.rglob("*.parquet"), *cluster.folder.rglob("*.parquet"))] == []
    assert {n.partition("/")[0] for n in bucket.names()} == LEFT[name]
    said = [
        f for f in cluster.folder.rglob("*") if f.is_file() and not f.is_symlink() and f.suffix not in (".jar", ".so")
    ]
    assert [f for f in said if f.stat().st_size < 50_000_000 and SECRET.encode() in f.read_bytes()] == []
