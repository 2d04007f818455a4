"""One warm Spark session for all cases, and a database and a project for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_world import World

from forks import Forks, forked
from postgres_server import Database

__all__ = ["forked", "session", "world"]


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """The session that the runs without a crash share."""
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    spark = start(SparkSettings(master="local[2]", driver_memory="1g"))
    yield spark
    stop(spark)


@pytest.fixture
def world(postgres: Database, tmp_path: Path, session: Any, forked: Forks) -> Iterator[World]:
    made = World(postgres, tmp_path / "project", session, forked)
    made.write_project()
    yield made
    made.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
