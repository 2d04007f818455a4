"""The demo over Spark Connect: a server of its own, whose Python has no instep."""

from __future__ import annotations

import re
import signal
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_connector import SECRET, Shop
from cluster_demo import Demo
from spark_cluster import ConnectServer

import instep
from instep.errors import SetupError
from instep.spark.merge import check_server
from instep.spark.session import start
from instep.spark.settings import SparkSettings

pytestmark = [
    pytest.mark.drawn(5, together=True),
    pytest.mark.spark, pytest.mark.slow, pytest.mark.server, pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(3600),  # a test may be the first, for which the whole story is told
]  # fmt: skip


def test_a_merge_that_only_spark_can_do(on_connect: Demo) -> None:
    """In a session of its own on the server, with the catalog's settings from here."""
    demo = on_connect
    demo.load()
    demo.change(r"warehouse: lake\}", "warehouse: lake, upsert_rows: 0}")
    merged = demo.told("sync", "shop", "--full", "--table", "public.customer")
    assert re.search(r"public\.customer +upsert", merged), merged
    assert ': merge"' in demo.told("history", "shop", "--runs", "--output", "json")
    assert len(demo.equal("shop")) == demo.loaded


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/nowhere/catalog.db", "does not see the catalog /nowhere/catalog.db of this machine"),
        ("", "cannot open the destination `nolake`"),
    ],
)
def test_a_server_that_cannot_merge_is_told_before_it_tries(server: ConnectServer, file: str, said: str) -> None:
    session = start(SparkSettings(remote=server.url))
    try:
        with pytest.raises(SetupError, match=said):
            check_server(session, "nolake", file)
    finally:
        session.stop()


def test_a_session_leaves_the_import_path_of_this_process_as_it_was(server: ConnectServer) -> None:
    """The package's archive for the server, found first, would hide the files that children of this process run."""
    before = list(sys.path)
    start(SparkSettings(remote=server.url)).stop()
    assert sys.path == before


def test_a_setting_that_is_the_servers_own(on_connect: Demo, server: ConnectServer) -> None:
    demo = replace(on_connect, env={**on_connect.env, "REMOTE": f"{server.url}/;x-token=hush"})
    demo.load()
    demo.spark(remote="${env:REMOTE}", conf={"spark.executor.memory": "2g"})
    refused = demo.run("sync", "till", "--full")
    assert refused.returncode == 1
    assert f"the Spark server at {server.url} does not take the setting spark.executor.memory" in refused.stderr
    assert "take it out of spark.conf" in refused.stderr
    assert "hush" not in refused.stdout + refused.stderr


def test_a_connector_runs_on_the_server(server: ConnectServer, tmp_path: Path) -> None:
    """Ctrl-C ends it there; the next sync brings everything, and the server merges it."""
    shop = Shop(tmp_path, {"remote": server.url})
    running = shop.begin()
    try:
        child = shop.child("first", running)
        assert child.folder.startswith(str(server.folder))
        running.send_signal(signal.SIGINT)
        said = "".join(running.communicate(timeout=600))
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, said
    assert shop.ends(child)
    for gate in ("first", "well", "last"):
        shop.open(gate)
    done = shop.sync()
    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.rows() == {0: "newer", **dict.fromkeys((1, 2, 3, 5, 6, 7), "new"), 9: "last"}
    assert shop.state == {"at": 3}
    assert list((tmp_path / "lake").rglob("*-merge-*/*.parquet"))
    assert [p for p in (tmp_path / "lake" / "_instep_runs").rglob("*") if p.is_file()] == []
    files = [f for f in server.folder.rglob("*") if f.is_file() and not f.is_symlink() and f.suffix != ".jar"]
    assert [f for f in files if SECRET.encode() in f.read_bytes()] == []


def test_a_session_of_the_callers_does_the_work_and_goes_on(server: ConnectServer, tmp_path: Path) -> None:
    """In a clone of it: what instep sets is not set in the session itself, nor does the session end."""
    from pyspark.sql.connect.session import SparkSession

    (tmp_path / "instep.yml").write_text(
        "version: 1\nproject: shop\nengine: spark\nsources: {db: {type: sqlite, path: shop.db}}\n"
        "destinations: {lake: {type: iceberg, warehouse: lake, upsert_rows: 0}}\nconnections: {shop: {}}\n"
    )
    with closing(sqlite3.connect(tmp_path / "shop.db")) as source:
        source.executescript("create table item (id integer primary key, name text); insert into item values (1, 'a')")
    spark = SparkSession.builder.remote(server.url).create()
    try:
        spark.range(3).createOrReplaceTempView("mine")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with instep.open(tmp_path, spark=spark) as project:
            [table] = project.connection().sync().raise_for_failure().tables
            assert table.inserted == 1
            with closing(sqlite3.connect(tmp_path / "shop.db")) as source:
                source.executescript("update item set name = 'b'; insert into item values (2, 'c')")
            [table] = project.connection().sync().raise_for_failure().tables
            assert (table.mode, table.inserted, table.updated) == ("upsert", 1, 1)
            found = project.query("select id, name from shop.item order by id").to_spark()
            assert [tuple(row) for row in found.collect()] == [(1, "b"), (2, "c")]
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.table("mine").count() == 3
        assert list(tmp_path.rglob("*-merge-*/*.parquet")), "Spark merged"
        stopped = SparkSession.builder.remote(server.url).create()
        stopped.stop()
        with pytest.raises(SetupError, match="is stopped"):
            instep.open(tmp_path, spark=stopped)
    finally:
        spark.stop()


def test_a_table_of_a_source_is_a_frame_on_the_server(server: ConnectServer, tmp_path: Path) -> None:
    """Its Python has no instep: the package comes as an artifact, the project is a folder that the server sees."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(
            "create table item (id integer primary key, name text); insert into item values (1, 'a')"
        )
    (tmp_path / "instep.yml").write_text(
        "version: 1\nproject: shop\nsources: {db: {type: sqlite, path: shop.db}}\n"
        "destinations: {lake: {type: iceberg, warehouse: lake}}\nconnections: {shop: {source: db, destination: lake}}\n"
    )
    with instep.open(tmp_path) as project:
        project.connection().sync().raise_for_failure()
    session = start(SparkSettings(remote=server.url))
    try:
        instep.register(session)
        options = {"project": str(tmp_path), "connection": "shop", "table": "main.item"}
        found = session.read.format("instep").options(**options).load()
        assert [tuple(row) for row in found.collect()] == [(1, "a")]
    finally:
        session.stop()
