"""Syncs into warehouses in object stores, and from one, by real servers: the same promises as on a disk."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contract.sources import Case
from files_world import new_store
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.project.sections.tables import TableSettings
from instep.sources.files.config import FilesConfig
from instep.sources.files.source import FilesSource
from instep.sync.quarantine.replay import replay, total
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from s3_server import Bucket, each_bucket
from sync_world import MakeWorld, World, counts, preset

bucket = each_bucket

SETUP = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, n INTEGER)",
    "INSERT INTO t VALUES (1, 'x', 1), (2, NULL, 2), (3, '', 3)",
)


def iceberg(world: World, bucket: Bucket) -> Any:
    """The catalog's file stays here."""
    uri = f"sqlite:///{world.folder / 'catalog.db'}"
    return IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties={**bucket.io, "uri": uri})
    )


def delta(world: World, bucket: Bucket) -> Any:
    return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=bucket.io))


@pytest.fixture(params=[iceberg, delta], ids=["iceberg", "delta"])
def world(make_world: MakeWorld, bucket: Bucket, request: pytest.FixtureRequest) -> World:
    made = make_world("sqlite")
    made.destination = request.param(made, bucket)
    return made


def test_rows_come_change_and_go(world: World, bucket: Bucket) -> None:
    world.run(*SETUP)
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.differing() == {}
    world.run(
        "UPDATE t SET a = 'y', n = 'odd' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t ADD COLUMN more INTEGER",
        "INSERT INTO t VALUES (4, 'z', 0, 5)",
    )
    assert counts(world.sync(), "t") == (3, 1, 1, 1, 1)
    assert world.rows("t", "id", "a", "n", "more") == [(2, "y", None, None), (3, "", 3, None), (4, "z", 0, 5)]
    world.run("UPDATE t SET n = 7 WHERE id = 2")
    world.sync()
    assert total(replay(world.context))["held"] == 0
    assert world.differing() == {}
    assert all(name.startswith("lake/") for name in bucket.names())
    assert [f.name for f in world.folder.rglob("*.parquet")] == [], "nothing is staged on this disk"


@pytest.mark.slow
def test_what_was_dropped_comes_back(world: World) -> None:
    world.policy = preset("propagate_all")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN a")
    world.sync(again=1)
    world.run("UPDATE t SET n = 8 WHERE id = 1")
    world.sync(full=True)
    [review] = [r for r in world.store.reviews.find("shop", ["applied"]) if r.kind == "column.removed"]
    apply_undo(world.context, prepare(world.context, find(world.context, review.id)))
    assert world.rows("t", "id", "a") == [(1, "x"), (2, None), (3, "")]


@pytest.mark.slow
def test_files_in_a_bucket_are_tables(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("drop/orders/1.csv", b"id,amount\n1,1.50\n2,2.25\n")
    bucket.put("drop/people.jsonl", b'{"id": 1, "name": "Ann"}\n')
    config = FilesConfig.resolved(path=f"{bucket.uri}/drop", metadata=("_file", "_file_number"), properties=bucket.io)
    with ExitStack() as stack:
        files = stack.enter_context(new_store(tmp_path / "files.db"))

        def source(**options: Any) -> FilesSource:
            return FilesSource(config, files.source_files)

        world = World(Case("files", "files", _nothing, source, str, views=False), tmp_path)
        stack.callback(world.close)
        world.destination = delta(world, bucket)
        world.settings = {"orders": TableSettings(mode="append", cursor="_file_number")}
        assert world.statuses(world.sync()) == {"orders": "done", "people": "done"}
        bucket.put("drop/orders/2.csv", b"id,amount\n3,4.00\n")
        assert counts(world.sync(), "orders")[:2] == (1, 1)
        assert world.rows("orders", "id", "amount", "_file")[-1] == (3, 4.0, "orders/2.csv")
        assert world.differing() == {}


def _nothing(sql: str) -> None:
    raise NotImplementedError(sql)
