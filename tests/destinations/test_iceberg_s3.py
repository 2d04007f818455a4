"""A lake in an object store: what is kept, what is put together and what goes, by real servers of S3 and Azure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import maintain_lake
import pytest
from maintain_lake import EAGER, FIRST, NAME, SIZE

from instep.destinations.base import Commit
from instep.destinations.iceberg.check import check_lake
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.errors import DestinationError
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from lake import REF, create, rows_of
from s3_server import SECRET, Bucket, each_bucket

bucket = each_bucket

ROWS = [{"id": n, "name": f"n{n}", "size": n} for n in range(4)]


def config(bucket: Bucket, folder: Path, **more: Any) -> IcebergConfig:
    properties = {**bucket.io, "uri": f"sqlite:///{folder / 'catalog.db'}"}
    return IcebergConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=properties, **more)


class Lake(maintain_lake.Lake):
    def __init__(self, bucket: Bucket, folder: Path, **more: Any) -> None:
        self.to = IcebergDestination(config(bucket, folder, **more))
        self.fence, self.table, self.bucket = 0, FIRST, bucket
        create(self.to, FIRST, self.commit())

    @property
    def place(self) -> str:
        return str(self.loaded.location()).removeprefix(f"{self.bucket.uri}/")

    def objects(self, folder: str = "data") -> list[str]:
        return [n for n in self.bucket.names(f"{self.place}/{folder}") if not n.endswith("/")]


@pytest.fixture
def lake(bucket: Bucket, tmp_path: Path) -> Lake:
    made = Lake(bucket, tmp_path, undo_days=0)
    for row in ROWS:
        made.append(row)
    return made


@pytest.mark.slow
def test_maintenance_leaves_the_rows_and_nothing_else(lake: Lake) -> None:
    lake.upsert({"id": 1, "name": "changed", "size": 9}, {"id": 7, "name": "new", "size": 7})
    rows, lost = lake.rows(), f"{lake.place}/data/lost.parquet"
    lake.bucket.put(lost, b"PAR1")
    done = lake.maintain(EAGER, deep=True)
    assert (done.files, done.deletes, done.orphans) == (1, 0, 2), "what was staged for the upsert is the other one"
    assert done.snapshots > 3
    assert lake.rows() == rows
    assert [f"{lake.bucket.uri}/{n}" for n in lake.objects()] == sorted(lake.files())


@pytest.mark.slow
def test_what_dead_runs_have_staged_goes(lake: Lake) -> None:
    rows, dead = lake.rows(), "r-20260101-000000-aaaaaa"
    files = [f"data/{dead}/{dead}-00000-0-0-a.parquet", "data/upsert-7-abc.parquet", f"quarantine/{dead}-0.parquet"]
    kept = "data/upsert-77-abc.parquet"
    for name in (*files, kept):
        lake.bucket.put(f"{lake.place}/{name}", b"PAR1")
    lake.to.lifecycle.remove_uncommitted_files(REF, {dead: 7})
    there = {n.removeprefix(f"{lake.place}/") for n in lake.bucket.names(lake.place)}
    assert there & {*files, kept} == {kept}
    assert lake.rows() == rows


@pytest.mark.slow
def test_columns_come_back_and_rows_are_put_back(bucket: Bucket, tmp_path: Path) -> None:
    lake = Lake(bucket, tmp_path)
    for row in ROWS:
        lake.append(row)
    before = lake.rows()
    lake.drop(SIZE)
    assert lake.to.lifecycle.undrop_report(REF, "size").why_not == ""
    lake.undrop(SIZE)
    assert lake.rows() == before
    [now, then, *_] = lake.to.lifecycle.savepoints.savepoints(REF)
    rows = lake.to.lifecycle.savepoints.rows_at(REF, then.id)
    lake.to.lifecycle.savepoints.restore(REF, then.id, now.id, rows, lake.commit())
    assert lake.rows() == before[:-1]
    assert NAME.name in lake.table.by_name


@pytest.mark.slow
def test_dropped_tables_and_copies_go_without_a_trace(bucket: Bucket, tmp_path: Path) -> None:
    lake, place = Lake(bucket, tmp_path), ("shop", "kept")
    lake.append(ROWS[0])
    assert lake.to.lifecycle.clones.clone_table(REF, place, lake.commit()) == 1
    assert rows_of(lake.to, place, ["id"]) == [(0,)]
    lake.to.lifecycle.clones.purge_clone(place, lake.fence)
    lake.to.schema.execute(REF, [step(REF, TableRemoved(FIRST))], None, lake.commit())
    assert lake.to.lifecycle.dropped(REF, FIRST.id)
    lake.to.schema.undrop_table(REF, FIRST, lake.commit())
    assert rows_of(lake.to, REF, ["id"]) == [(0,)]
    lake.to.schema.execute(REF, [step(REF, TableRemoved(FIRST))], None, Commit("x", lake.fence))
    over = IcebergDestination(lake.to.config.model_copy(update={"undo_days": 0}))
    assert len(over.lifecycle.purge_expired([], lake.fence)) == 1
    assert [n for n in bucket.names("lake") if not n.endswith("/")] == []


@pytest.mark.slow
def test_every_check_passes_and_a_wrong_place_is_named(bucket: Bucket, tmp_path: Path) -> None:
    good = IcebergDestination(config(bucket, tmp_path))
    assert [c.detail for c in check_lake(good.lake) if not c.ok] == []
    wrong = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=f"{bucket.missing}/lake", properties={**good.config.properties})
    )
    [said] = [c for c in wrong.lifecycle.test() if not c.ok]
    assert "no-such-bucket" in f"{said.detail} {said.hint}"
    assert bucket.secret not in f"{said} {wrong.config} {wrong.lake}"


def test_a_catalog_file_needs_a_place_of_its_own(bucket: Bucket) -> None:
    with pytest.raises(DestinationError, match="needs a place beside the warehouse"):
        IcebergDestination(
            IcebergConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=bucket.io)
        ).schema.inspect([REF])


def test_a_lake_whose_catalog_is_elsewhere_is_not_begun_anew(bucket: Bucket, tmp_path: Path) -> None:
    first = IcebergDestination(config(bucket, tmp_path))
    assert first.schema.inspect([REF]).tables == ()
    create(first)
    other = IcebergDestination(config(bucket, tmp_path / "another machine"))
    with pytest.raises(DestinationError, match=r"is not empty, and its catalog .* is not here"):
        other.schema.inspect([REF])
    with pytest.raises(DestinationError, match="is not empty"):
        create(other)
    assert not (tmp_path / "another machine").exists()


# what is said of the store -> what Spark's catalog needs beside it
JAVA: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("file:///lake", {}, {}),
    ("s3://b/lake", {}, {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}),
    (
        "s3://b/lake",
        {"s3.endpoint": "http://x", "s3.region": "eu-1"},
        {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": "eu-1",
            "s3.path-style-access": "true",
        },
    ),
    ("warehouse of a catalog", {"s3.endpoint": "http://x"}, {"s3.path-style-access": "true"}),
    (
        "warehouse of a catalog",
        {"s3.endpoint": "http://x", "s3.force-virtual-addressing": "true"},
        {"s3.path-style-access": "false"},
    ),
    ("s3://b/lake", {"io-impl": "own.Io"}, {}),
    (
        "abfss://c@acc.dfs.core.windows.net/lake",
        {"adls.account-key": "k", "adls.sas-token": "t", "adls.blob-storage-authority": "127.0.0.1:1"},
        {
            "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
            "adls.auth.shared-key.account.name": "acc",
            "adls.auth.shared-key.account.key": "k",
            "adls.sas-token.acc.dfs.core.windows.net": "t",
            "adls.connection-string.acc.dfs.core.windows.net": "https://127.0.0.1:1/acc",
        },
    ),
]


@pytest.mark.parametrize("name", ["account-key", "sas-token", "client-secret", "connection-string", "token"])
def test_no_setting_of_spark_holds_a_login(name: str) -> None:
    properties = {f"adls.{name}": SECRET, "uri": "http://127.0.0.1:1"}
    warehouse = "abfss://c@acc.dfs.core.windows.net/lake"
    lake = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=warehouse, catalog="rest", properties=properties)
    ).lake
    assert SECRET not in str(lake.spark_conf())
    assert SECRET in str(lake.spark_secrets())


@pytest.mark.parametrize(("warehouse", "properties", "expected"), JAVA)
def test_what_spark_is_told(warehouse: str, properties: dict[str, str], expected: dict[str, str]) -> None:
    from instep.destinations.iceberg.metadata.catalog import for_java

    assert for_java(warehouse, properties) == expected
