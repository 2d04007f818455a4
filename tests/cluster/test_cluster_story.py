"""The demo, played on a Spark that it has not started: its story is that of one machine."""

from __future__ import annotations

import re

import pytest
from cluster_demo import PARTS, TABLES, Demo
from spark_cluster import Standalone

pytestmark = [
    pytest.mark.drawn(5, together=True),
    pytest.mark.spark, pytest.mark.slow, pytest.mark.server, pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(3600),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("place", ["on_cluster", "on_connect"])
def test_the_story_is_that_of_one_machine(request: pytest.FixtureRequest, place: str) -> None:
    demo: Demo = request.getfixturevalue(place)
    story = demo.played()
    assert [part for part in PARTS if part not in story] == [], story
    verdicts = re.findall(r"^(equal|DIFFERS) +\w+\.(\w+)", story, re.MULTILINE)
    assert [verdict for verdict, _ in verdicts] == ["equal"] * TABLES
    if place == "on_cluster":
        cluster: Standalone = request.getfixturevalue("cluster")
        assert all(worker.finished() >= 2 for worker in cluster.workers), [w.finished() for w in cluster.workers]
