"""A project's folder for each case; one warm Spark session for those that look at Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commands import Place

from instep.bootstrap import App
from instep.sync.loading.engine import OnSpark


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "project")


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """The session of this process."""
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    spark = start(SparkSettings(master="local[2]", driver_memory="1g"))
    yield spark
    with suppress(Exception):
        stop(spark)


@pytest.fixture
def warm(session: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands use the session that is there, instead of one that ends with each."""
    monkeypatch.setattr(App, "engine", lambda *_: OnSpark(lambda: session))
    return session
