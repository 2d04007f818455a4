"""Two databases into one set of tables, by the commands that people run."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_world import Shop

from instep.crash import VARIABLE
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination

PROJECT = """\
version: 1
engine: local
sources:
  eu: {type: sqlite, path: shop.db}
  us: {type: sqlite, path: us.db}
destinations:
  lake: {type: duckdb, path: lake.duckdb}
connections:
  eu: {source: eu, namespace: shop, shard: eu}
  us: {source: us, namespace: shop, shard: us}
"""


@pytest.fixture
def shards(shop: Shop) -> Shop:
    shop.write(text=PROJECT)
    shop.sql("create table t (id integer primary key, v text); insert into t values (1, 'x')")
    with closing(sqlite3.connect(shop.folder / "us.db")) as us:
        us.executescript(
            "create table t (id integer primary key, v text, more real); insert into t values (1, 'y', 2.5)"
        )
    return shop


def test_who_lacks_what_is_shown(shards: Shop) -> None:
    assert "none: no connection has a `shard`" in shards.run("table", "shards", "shop.t").err
    for name in ("eu", "us"):
        said = shards.run("sync", name)
        assert said.code == 0, said.err
    said = shards.run("table", "shards")
    assert "shop.t (lake), 2 shards" in said.out
    assert said.out.splitlines()[-1].split() == ["more", "float64", "-", "float64"]
    (table,) = shards.run("--output", "json", "table", "shards", "shop.t").json["tables"]
    assert [(s["name"], s["version"], s["status"]) for s in table["shards"]] == [("eu", 1, "done"), ("us", 1, "done")]
    assert [(c["column"], c["lacking"]) for c in table["columns"]] == [("id", []), ("v", []), ("more", ["eu"])]
    assert shards.run("verify", "eu").code == shards.run("verify", "us").code == 0


def test_a_shard_keeps_its_name(shards: Shop) -> None:
    assert shards.run("sync", "eu").code == 0
    text = shards.folder.joinpath("instep.yml").read_text()
    cases = [("shard: eu}", "shard: other}", "write `shard: eu`"), (", shard: eu}", "}", "write `shard: eu`"),
             ("shard: eu}", "shard: eu}", "")]  # fmt: skip
    for old, new, hint in cases:
        shards.folder.joinpath("instep.yml").write_text(text.replace(old, new))
        said = shards.run("sync", "eu")
        assert (said.code, hint in said.err) == (3 if hint else 0, True), said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "lake", ["{type: duckdb, path: lake.duckdb}", "{type: iceberg, warehouse: lake}", "{type: delta, warehouse: lake}"]
)
def test_values_of_one_shard_that_did_not_fit_go_into_its_rows(shards: Shop, lake: str) -> None:
    text = shards.folder.joinpath("instep.yml").read_text()
    shards.folder.joinpath("instep.yml").write_text(text.replace("{type: duckdb, path: lake.duckdb}", lake))
    with closing(sqlite3.connect(shards.folder / "us.db")) as us:
        us.executescript("create table n (id integer primary key, v int); insert into n values (1, 5)")
    shards.sql("create table n (id integer primary key, v int); insert into n values (1, 'abc'), (2, 7)")
    for name in ("eu", "us"):
        assert shards.run("sync", name).code == 0
    assert shards.json("status")["connections"][0]["quarantine"] == {"main.n": 1}
    assert not shards.json("status")["connections"][1]["quarantine"]
    shards.sql("create table m (id integer primary key, v text); insert into m select * from n; drop table n;"
               "alter table m rename to n")  # fmt: skip
    assert "rewrite column v: int64 becomes string" in shards.run("plan", "eu").out
    shards.ok("apply", "eu", "--yes")
    [done] = shards.json("quarantine", "replay", "main.n", "-c", "eu")["tables"]
    assert (done["replayed"], done["updated"], done["error"]) == (1, 1, "")
    rows = shards.json("query", "select _instep_shard as s, id, v from shop.n order by all")["rows"]
    assert rows == [
        {"s": "eu", "id": 1, "v": "abc"}, {"s": "eu", "id": 2, "v": "7"}, {"s": "us", "id": 1, "v": "5"},
    ]  # fmt: skip
    assert shards.run("sync", "us").code == shards.run("verify", "us").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("point", ["merge.merged", "apply.table.after"])
def test_a_shard_that_is_killed_leaves_the_others_as_they_are(shards: Shop, point: str) -> None:
    """A process of its own, by SIGKILL: it goes on where it was, and what it left behind is removed."""
    text = shards.folder.joinpath("instep.yml").read_text()
    shards.folder.joinpath("instep.yml").write_text(
        text.replace("duckdb, path: lake.duckdb", "iceberg, warehouse: lake")
    )
    for name in ("eu", "us"):
        shards.ok("sync", name)
    shards.sql("alter table t add column n int; insert into t values (2, 'z', 3); update t set v = 'new' where id = 1")
    words = [sys.executable, "-m", "instep.cli.main", "--project", str(shards.folder), "sync", "eu"]
    killed = subprocess.run(words, env={**os.environ, VARIABLE: f"{point}=kill"}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed
    assert shards.run("sync", "us").code == shards.run("verify", "us").code == 0
    with closing(sqlite3.connect(shards.folder / ".instep" / "state.db", timeout=30)) as store, store:
        store.execute("UPDATE runs SET lease_until = '2000-01-01 00:00:00.000000' WHERE status = 'running'")
    shards.ok("sync", "eu")
    assert shards.run("verify", "eu").code == shards.run("verify", "us").code == 0
    rows = shards.json("query", "select _instep_shard as s, id, v, n from shop.t order by all")["rows"]
    assert [tuple(row.values()) for row in rows] == [
        ("eu", 1, "new", None), ("eu", 2, "z", 3), ("us", 1, "y", None)
    ]  # fmt: skip
    table = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(shards.folder / "lake"))).lake.load(
        ("shop", "t")
    )
    assert table is not None
    there = {p.name for p in Path(table.location().removeprefix("file://")).joinpath("data").rglob("*.parquet")}
    manifests = [m for s in table.metadata.snapshots for m in s.manifests(table.io)]
    assert there <= {e.data_file.file_path.split("/")[-1] for m in manifests for e in m.fetch_manifest_entry(table.io)}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "lake", ["{type: duckdb, path: lake.duckdb}", "{type: iceberg, warehouse: lake}", "{type: delta, warehouse: lake}"]
)
def test_each_shard_lists_its_own_rows(shards: Shop, lake: str) -> None:
    text = shards.folder.joinpath("instep.yml").read_text()
    shards.folder.joinpath("instep.yml").write_text(text.replace("{type: duckdb, path: lake.duckdb}", lake))
    shards.sql("insert into t values (2, 'z')")
    assert shards.run("sync", "eu").code == 0
    assert shards.json("tables", "-c", "us")["tables"] == []
    assert shards.run("sync", "us").code == 0
    for name, rows, columns in (("eu", 2, ["id", "v"]), ("us", 1, ["id", "v", "more"])):
        found = shards.json("tables", "main.t", "-c", name, "--preview", "9")
        [table] = found["tables"]
        assert (table["destination"], table["rows"], table["columns"]) == ("shop.t", rows, len(columns)), name
        assert [one["column"] for one in found["columns"]] == columns
        assert len(found["preview"]["rows"]) == rows
        assert "_instep_shard" not in found["preview"]["columns"]
