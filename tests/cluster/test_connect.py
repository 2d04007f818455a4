"""The demo over Spark Connect: a server of its own, whose Python has no instep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from cluster_demo import PARTS, TABLES, Demo, made_demo
from spark_cluster import ConnectServer, environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.server, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    folder = Path(mkdtemp(prefix="instep-spark-"))
    with ConnectServer(folder, environment(folder / "environment")) as running:
        yield running


@pytest.fixture(scope="module")
def demo(server: ConnectServer) -> Iterator[Demo]:
    with made_demo({"remote": server.url}, JAVA_HOME="/nowhere") as made:
        yield made


@pytest.fixture(scope="module")
def story(demo: Demo) -> str:
    return demo.told("demo", "play")


@pytest.mark.parametrize("part", PARTS)
def test_the_story_is_that_of_one_machine(story: str, part: str) -> None:
    assert part in story


def test_it_ends_with_everything_equal(story: str) -> None:
    verdicts = re.findall(r"^(equal|DIFFERS) +\w+\.(\w+)", story, re.MULTILINE)
    assert [verdict for verdict, _ in verdicts] == ["equal"] * TABLES


def test_a_merge_that_only_spark_can_do(demo: Demo, story: str) -> None:
    """In a session of its own on the server, with the catalog's settings from here."""
    assert story
    demo.change(r"warehouse: lake\}", "warehouse: lake, upsert_rows: 0}")
    with_changes = demo.told("sync", "shop", "--full")
    assert re.search(r"public\.customer +upsert", with_changes), with_changes
    assert len(demo.equal("shop")) == TABLES - 1
