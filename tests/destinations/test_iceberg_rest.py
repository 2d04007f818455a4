# ruff: noqa: F811 - the imported `spark` is a fixture
"""A lake whose catalog is a REST server: Spark's merges and maintenance over it. All else: the contract's suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from maintain_lake import EAGER

from contract.destinations import iceberg_over_rest
from instep.destinations.base import Commit, MaintenanceSpec, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.maintain import procedures
from instep.errors import Fenced
from lake import REF, create, rows_of, spark, stage, with_spark, write  # noqa: F401
from s3_server import SECRET, Bucket

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def test_of_two_claims_the_later_one_writes(tmp_path: Path, rest_catalog: str) -> None:
    """The server knows no fence of ours: it keeps the tag that the later claim has put in the place of the other's."""
    first, second = (iceberg_over_rest(tmp_path, rest_catalog) for _ in range(2))
    create(first)
    first.write.claim(REF, 2)
    first.write.append(REF, [stage(first, REF, [{"id": 1}])], Commit("r2", 2))
    late = stage(first, REF, [{"id": 2}])
    second.write.claim(REF, 3)
    with pytest.raises(Fenced):
        first.write.append(REF, [late], Commit("r2", 2))
    second.write.append(REF, [stage(second, REF, [{"id": 3}])], Commit("r3", 3))
    assert rows_of(first, REF, ["id"]) == [(1,), (3,)]


@pytest.mark.slow
@with_spark
def test_spark_merges_and_maintains(
    tmp_path: Path, rest_catalog: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = IcebergConfig.resolved(
        name="lake",
        warehouse=(tmp_path / "rest").as_uri(),
        catalog="rest",
        properties={"uri": rest_catalog},
        upsert_rows=0,
    )
    to = IcebergDestination(config)
    create(to)
    for fence in range(2, 5):
        to.write.claim(REF, fence)
        to.write.append(REF, [stage(to, REF, [{"id": fence, "name": "a"}])], Commit(f"r{fence}", fence))
    to.write.claim(REF, 5)
    rows = [stage(to, REF, [{"id": 3, "name": "changed"}, {"id": 9, "name": "new"}])]
    done = to.write.merge(lambda: spark, REF, rows, Merge(("id",)), Commit("r5", 5))
    assert (done.inserted, done.updated) == (1, 1)
    wanted = [(2, "a"), (3, "changed"), (4, "a"), (9, "new")]
    assert rows_of(to, REF, ["id", "name"]) == wanted
    monkeypatch.setattr(procedures, "LARGE_FILES", 0)
    made = to.maintenance.maintain(REF, MaintenanceSpec(EAGER, "m", 5, session=lambda: spark))
    assert (made.files, made.deletes, made.snapshots > 0) == (1, 0, True)
    assert rows_of(to, REF, ["id", "name"]) == wanted
    to.write.claim(REF, 6)
    with pytest.raises(Fenced):
        to.maintenance.maintain(REF, MaintenanceSpec(EAGER, "m", 5, session=lambda: spark))


def served(uri: str, bucket: Bucket, *, local_files: bool = False) -> dict[str, Any]:
    """The settings of a lake in the bucket: as an API sets them, unless it may open files of this machine."""
    place = {"name": "lake", "warehouse": f"{bucket.uri}/lake", "catalog": "rest", "upsert_rows": 0}
    return {**place, "properties": {"uri": uri, **bucket.io}, "local_files": local_files}


def merged(settings: Mapping[str, Any], *rows: Mapping[str, Any]) -> dict[str, Any]:
    """What `served_merge.py` says."""
    command = [sys.executable, str(Path(__file__).with_name("served_merge.py")), json.dumps(settings), json.dumps(rows)]
    environment = {**os.environ, "INSTEP_ARCHIVE": "off"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert SECRET not in done.stdout + done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.spark
def test_spark_merges_into_what_an_api_has_set_without_its_catalog(
    rest_catalog_in_s3: str, bucket: Bucket, tmp_path: Path
) -> None:
    """Spark opens the files of a table whose catalog it must not open, and none of this machine that a table names."""
    settings = served(rest_catalog_in_s3, bucket)
    to = IcebergDestination(IcebergConfig.resolved(**settings))
    create(to)
    to.write.claim(REF, 2)
    to.write.append(REF, [stage(to, REF, [{"id": n, "name": "a"} for n in (1, 2)])], Commit("r2", 2))
    found = merged(settings, {"id": 2, "name": "changed"}, {"id": 3, "name": "new"})
    wanted = [[1, "a"], [2, "changed"], [3, "new"]]
    assert found == {"counts": [1, 1], "rows": wanted}
    assert [name for name in bucket.names("lake") if "-merged" in name] == []

    trusted = IcebergDestination(IcebergConfig.resolved(**served(rest_catalog_in_s3, bucket, local_files=True)))
    table = trusted.lake.load(REF)
    assert table is not None
    local = tmp_path / "local.parquet"
    write(local, table.scan().to_arrow().slice(0, 1))
    table.add_files([local.as_uri()])
    before = table.scan().to_arrow()
    said = merged(settings, {"id": 2, "name": "changed again"})
    assert "names a file of file://" in said["error"], said
    assert table.refresh().scan().to_arrow() == before, "nothing was committed"
