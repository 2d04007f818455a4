"""What a cluster is asked for, and the file by which executors show that they see the driver's folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from instep.errors import SetupError, StageError
from instep.spark.executors import check_witness, growing, probe_file


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        ({}, 64),
        ({"spark.dynamicAllocation.maxExecutors": "5"}, 5),
        ({"spark.dynamicAllocation.maxExecutors": "5", "spark.executor.cores": "4"}, 20),
        ({"spark.dynamicAllocation.maxExecutors": "2147483647", "spark.executor.cores": "4"}, 64),
        ({"spark.dynamicAllocation.maxExecutors": "0"}, 1),
    ],
)
def test_a_cluster_that_grows_with_the_work(conf: dict[str, str], slots: int) -> None:
    assert growing(conf.get) == slots


@pytest.mark.parametrize(
    ("folders", "elsewhere", "written"),
    [
        (["s3://bucket/a", "{}/run"], True, True),
        (["file://{}/a b/run"], True, True),
        (["s3://bucket/a"], True, False),
        (["{}/run"], False, False),
        ([], True, False),
    ],
)
def test_a_file_in_the_first_local_folder(tmp_path: Path, folders: list[str], elsewhere: bool, written: bool) -> None:
    with probe_file([folder.format(tmp_path) for folder in folders], elsewhere) as file:
        assert bool(file) == written
        check_witness(file)
        assert [str(found) for found in tmp_path.rglob(".seen-*")] == [file] * written
    assert not list(tmp_path.rglob(".seen-*"))
    if written:
        with pytest.raises(SetupError, match=r"does not see .*run, a folder of the machine that runs instep"):
            check_witness(file)


def test_what_a_killed_driver_has_left_goes_after_a_week(tmp_path: Path) -> None:
    ages = {".seen-old": 8 * 86400, ".seen-new": 6 * 86400, "part.parquet": 8 * 86400}
    for name, age in ages.items():
        file = tmp_path / name
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    with probe_file([str(tmp_path)], True):
        pass
    assert {file.name for file in tmp_path.iterdir()} == {".seen-new", "part.parquet"}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StageError, match="cannot write"), probe_file([f"{tmp_path}/file/run"], True):
        pass
