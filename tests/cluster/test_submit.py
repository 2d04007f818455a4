"""spark-submit runs one file, which syncs a project in the session of a standalone cluster; and reads tables there."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from spark_cluster import Standalone

import instep

pytestmark = [
    pytest.mark.drawn(5, together=True),
    pytest.mark.spark, pytest.mark.slow, pytest.mark.server, pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(3600),
]  # fmt: skip
EXAMPLE = Path(__file__).parents[2] / "examples" / "spark" / "sync_project.py"
PROJECT = """\
version: 1
project: shop
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections: {shop: {source: db, destination: lake}}
"""
READ = """\
import sys
import instep
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
instep.register(spark)
options = {"project": sys.argv[1], "connection": "shop", "table": "main.item"}
source = spark.read.format("instep").options(**options).load()
with instep.open(sys.argv[1]) as project:
    loaded = project.table("shop.item").to_spark()
    assert loaded.sparkSession is spark, "the session has the catalog"
    print("same:", source.exceptAll(loaded.select(*source.columns)).count(), source.count())
"""


def submit(cluster: Standalone, folder: Path, file: Path) -> subprocess.CompletedProcess[str]:
    conf = folder / "instep.conf"
    command = [sys.executable, str(EXAMPLE), "--conf", str(folder)]
    conf.write_text(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)
    quiet = ["--conf", "spark.ui.enabled=false", "--driver-memory", "512m", "--executor-memory", "512m"]
    program = str(Path(sys.executable).with_name("spark-submit"))
    given = [program, "--master", cluster.url, *quiet, "--properties-file", str(conf), str(file), str(folder)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("INSTEP_ENGINE", None)  # what the other tests have in it
    return subprocess.run(given, capture_output=True, text=True, check=False, timeout=900, env=environment)


def test_a_project_is_synced_and_read_in_the_session_of_a_cluster(cluster: Standalone, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript("create table item (id integer primary key); insert into item values (1), (2)")
    (tmp_path / "instep.yml").write_text(PROJECT)
    done = submit(cluster, tmp_path, EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "shop: done, 2 rows, spark" in done.stdout, done.stdout
    with instep.open(tmp_path) as project:
        assert project.query("select id from shop.item order by id").rows == [(1,), (2,)]
    (tmp_path / "read.py").write_text(READ)
    read = submit(cluster, tmp_path, tmp_path / "read.py")
    assert "same: 0 2" in read.stdout, read.stdout + read.stderr[-4000:]
