"""One standalone cluster, one Spark Connect server and a demo on each of them for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from cluster_demo import Demo, made_demo
from spark_cluster import ConnectServer, Standalone, archive, environment


@pytest.fixture(scope="session")
def cluster() -> Iterator[Standalone]:
    with Standalone(Path(mkdtemp(prefix="instep-spark-"))) as running:
        running.add_workers("one", "two")
        yield running


@pytest.fixture(scope="session")
def plain(cluster: Standalone) -> Path:
    """The Python of an environment without instep that the workers see."""
    return environment(cluster.folder / "plain")


@pytest.fixture(scope="session")
def on_cluster(cluster: Standalone) -> Iterator[Demo]:
    """The demo with an archived environment that Spark brings to the executors."""
    conf = {
        "spark.archives": f"{archive(cluster.folder / 'environment')}#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    with made_demo({"master": cluster.url, "conf": conf}) as made:
        yield made


@pytest.fixture(scope="session")
def server() -> Iterator[ConnectServer]:
    folder = Path(mkdtemp(prefix="instep-spark-"))
    with ConnectServer(folder, environment(folder / "environment")) as running:
        yield running


@pytest.fixture(scope="session")
def on_connect(server: ConnectServer) -> Iterator[Demo]:
    with made_demo({"remote": server.url}, JAVA_HOME="/nowhere") as made:
        yield made
