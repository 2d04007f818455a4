"""What dead runs wrote for a table goes, whatever its name looks like, unless a snapshot names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from lake import REF, create, rows_of, stage

pytestmark = pytest.mark.drawn(1)

DEAD = "r-20260101-000000-aaaaaa"
LIVE = "r-20260101-000001-bbbbbb"


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(destination)
    return destination


def data(lake: IcebergDestination) -> Path:
    return Path(lake.write.target(REF).location.removeprefix("file://"))


def held(lake: IcebergDestination) -> Path:
    return Path(lake.write.target(REF).quarantine.removeprefix("file://"))


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"PAR1")
    return file


# what a dead run with fence 7 has written, whether it goes
FILES = [
    (f"{DEAD}/{DEAD}-00000-0-0-abc.parquet", True),
    (f"{DEAD}-1/{DEAD}-00000-0-0-abc.parquet", True),
    ("upsert-7-abc.parquet", True),
    ("upsert-7-abc-deletes-0.parquet", True),
    ("upsert-77-abc.parquet", False),
    (f"{LIVE}/{LIVE}-00000-0-0-abc.parquet", False),
    ("00000-1-of-spark.parquet", False),
]


@pytest.mark.parametrize(("name", "goes"), FILES, ids=[f[0] for f in FILES])
def test_files_of_a_dead_run(lake: IcebergDestination, name: str, goes: bool) -> None:
    file = put(data(lake) / name)
    lake.lifecycle.remove_uncommitted_files(REF, {DEAD: 7})
    assert file.exists() is not goes


def test_files_that_a_snapshot_names_stay(lake: IcebergDestination) -> None:
    """The run died after its commit; beside its file lies one of an attempt that died before."""
    file = stage(lake, REF, [{"id": 1}])
    path = Path(file.path.removeprefix("file://"))
    folder = data(lake) / DEAD
    folder.mkdir(parents=True)
    moved = path.rename(folder / path.name)
    lost = put(folder / "attempt.parquet")
    lake.write.append(REF, [replace(file, path=f"file://{moved}")], Commit(DEAD, 7))
    lake.lifecycle.remove_uncommitted_files(REF, {DEAD: 7})
    assert (moved.exists(), lost.exists()) == (True, False)
    assert len(rows_of(lake)) == 1
    lake.write.overwrite(REF, [], Commit(LIVE, 8))
    lake.lifecycle.remove_uncommitted_files(REF, {DEAD: 7})
    assert moved.exists()  # an earlier snapshot still names it


def test_values_held_by_a_run_stay_with_its_rows(lake: IcebergDestination) -> None:
    dead, live = (put(held(lake) / f"{run}-00000-0-0-abc.parquet") for run in (DEAD, LIVE))
    lake.lifecycle.remove_uncommitted_files(REF, {DEAD: 7})
    assert (dead.exists(), live.exists()) == (False, True)
    lake.write.append(REF, [stage(lake, REF, [{"id": 1}])], Commit(LIVE, 8))
    lake.lifecycle.remove_uncommitted_files(REF, {LIVE: 8})
    assert live.exists()


def test_no_uncommitted_files_to_remove(lake: IcebergDestination) -> None:
    lake.lifecycle.remove_uncommitted_files(REF, {DEAD: 7})
    lake.lifecycle.remove_uncommitted_files(("shop", "absent"), {DEAD: 7})


def test_foreign_tables_are_named(lake: IcebergDestination) -> None:
    lake.lake.catalog.create_table((REF[0], "theirs"), pa.schema([("a", pa.int64())]))
    told = lake.schema.foreign([REF, (REF[0], "theirs"), (REF[0], "absent")])
    assert list(told) == [(REF[0], "theirs")]
    assert "not ours" in told[REF[0], "theirs"]
