"""One warm Spark session for all cases, and a database and a project for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_world import World

from postgres_server import Database


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """The session that the runs without a crash share."""
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    spark = start(SparkSettings(master="local[2]", driver_memory="1g"))
    yield spark
    stop(spark)


@pytest.fixture
def world(postgres: Database, tmp_path: Path, session: Any) -> Iterator[World]:
    made = World(postgres, tmp_path / "project", session)
    made.write_project()
    yield made
    made.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
