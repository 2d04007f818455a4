"""Databases whose staged files go through S3, as they do where tasks run on other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.facets import Destination
from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.destination import PostgresDestination
from instep.errors import ConnectError
from instep.sync.quarantine.replay import replay, total
from postgres_server import Database
from s3_server import Bucket, each_bucket
from sync_world import MakeWorld, counts

bucket = each_bucket

SETUP = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, n INTEGER)",
    "INSERT INTO t VALUES (1, 'x', 1), (2, NULL, 2), (3, '', 3)",
)


def duckdb(folder: Path, bucket: Bucket, request: pytest.FixtureRequest) -> Destination:
    path = str(folder / "shop.duckdb")
    return DuckDbDestination(
        DuckDbConfig.resolved(name="lake", path=path, staging=f"{bucket.uri}/a staging", properties=bucket.io)
    )


def postgres(folder: Path, bucket: Bucket, request: pytest.FixtureRequest) -> Destination:
    database: Database = request.getfixturevalue("postgres")
    staging = {"staging": f"{bucket.uri}/a staging", "properties": bucket.io}
    return PostgresDestination(PostgresServerConfig.resolved(name="lake", **database.login, **staging))


@pytest.mark.slow
@pytest.mark.parametrize("make", [duckdb, postgres], ids=["duckdb", "postgres"])
def test_rows_and_held_values_go_through_the_bucket(
    make_world: MakeWorld, bucket: Bucket, request: pytest.FixtureRequest, tmp_path: Path, make: type
) -> None:
    world = make_world("sqlite")
    world.destination = make(tmp_path, bucket, request)
    world.run(*SETUP)
    assert world.statuses(world.sync()) == {"t": "done"}
    assert bucket.names() == [], "what has served is gone"
    world.run("UPDATE t SET n = 'odd' WHERE id = 2", "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (4, 'z', 0)")
    assert counts(world.sync(), "t") == (3, 1, 1, 1, 1)
    assert world.rows("t", "id", "n") == [(2, None), (3, 3), (4, 0)]
    names = bucket.names()
    assert [n for n in names if not n.startswith("a staging/lake/") or "/quarantine/" not in n] == []
    assert len(names) == 1
    world.run("UPDATE t SET n = 7 WHERE id = 2")
    world.sync()
    assert total(replay(world.context)) == {"replayed": 0, "superseded": 1, "held": 0}
    assert world.differing() == {}
    assert [f.name for f in tmp_path.rglob("*.parquet")] == [], "nothing is left on this disk"


def test_another_store_is_refused(tmp_path: Path) -> None:
    destination = DuckDbDestination(
        DuckDbConfig.resolved(name="lake", path=str(tmp_path / "shop.duckdb"), staging="hdfs://host/x")
    )
    with pytest.raises(ConnectError, match="neither a folder nor in an object store"):
        _ = destination.database.area


@pytest.mark.slow
def test_checks_pass_and_leave_nothing(bucket: Bucket, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for make in (duckdb, postgres):
        assert [c.detail for c in make(tmp_path, bucket, request).lifecycle.test() if not c.ok] == []
        assert bucket.names() == []


def test_a_load_that_fails_keeps_its_files(bucket: Bucket, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    from instep.destinations.base import Commit
    from instep.errors import InstepError
    from lake import REF, create, rows_of, stage

    to = duckdb(tmp_path, bucket, request)
    create(to)
    file = stage(to, REF, [{"id": 1}])
    to.write.claim(REF, 5)
    with pytest.raises(InstepError):
        to.write.append(REF, [file], Commit("r1", 4))
    assert len(bucket.names()) == 1
    assert to.write.append(REF, [file], Commit("r1", 5)).inserted == 1
    assert bucket.names() == []
    assert to.write.append(REF, [file], Commit("r1", 5)).inserted == 0, "it is known, though its file is gone"
    assert rows_of(to, REF, ["id"]) == [(1,)]
