"""The one Spark session of a test process: `from sparkfixture import pytest_configure, spark_session` in a conftest.

Tests that need other settings use sessions of their own
(`spark_session.newSession()`) or a process of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    """pyspark leaves the sockets of finished `collect` calls to the garbage collector."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    """A local session with two task slots and Iceberg on its class path."""
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    os.environ.setdefault("INSTEP_ARCHIVE", "off")
    session = start(SparkSettings(master="local[2]", driver_memory="1g"))
    yield session
    stop(session)
