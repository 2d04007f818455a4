"""The stateful test, smaller, from a real SQLite file into a real Iceberg lake by Spark: see test_stateful.py."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from memory.lake_world import LakeWorld
from memory.machine import TYPES, Machine
from memory.test_stateful import run
from memory.world import World
from sparkfixture import spark_session  # noqa: F401 - a fixture

EXAMPLES, STEPS, PARTS = 3, 15, 4
pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_promises_hold_over_a_lake(spark_session: SparkSession, part: int) -> None:  # noqa: F811
    class OverLake(Machine):
        ids = False
        types = TYPES[:4]  # SQLite has no decimals: what becomes text there is the number as it stored it

        def make_world(self) -> World:
            return LakeWorld(ids=False, session=spark_session)

    run(OverLake, part, EXAMPLES, STEPS, shrinks=False)
