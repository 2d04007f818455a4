"""Syncs into warehouses in an object store, by a real S3 server: the same promises as on a disk."""

from __future__ import annotations

import pytest

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from s3_server import Bucket
from sync_world import MakeWorld, World, counts

SETUP = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, n INTEGER)",
    "INSERT INTO t VALUES (1, 'x', 1), (2, NULL, 2), (3, '', 3)",
)


def iceberg(world: World, bucket: Bucket) -> World:
    """The world with its lake in the bucket; the catalog's file stays here."""
    uri = f"sqlite:///{world.folder / 'catalog.db'}"
    config = IcebergConfig("lake", f"{bucket.uri}/lake", properties={**bucket.io, "uri": uri})
    world.destination = IcebergDestination(config)
    return world


@pytest.fixture
def world(make_world: MakeWorld, bucket: Bucket) -> World:
    return iceberg(make_world("sqlite"), bucket)


def test_rows_come_change_and_go(world: World, bucket: Bucket) -> None:
    world.run(*SETUP)
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.differing() == {}
    world.run(
        "UPDATE t SET a = 'y' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t ADD COLUMN more INTEGER",
        "INSERT INTO t VALUES (4, 'z', 0, 5)",
    )
    assert counts(world.sync(), "t") == (3, 1, 1, 1, 0)
    assert world.differing() == {}
    assert world.rows("t", "id", "a", "more") == [(2, "y", None), (3, "", None), (4, "z", 5)]
    assert all(name.startswith("lake/") for name in bucket.names())
