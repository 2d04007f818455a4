from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import URL
from store_world import Clock

from instep.store.store import Store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    with Store(url, now=clock) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both databases that the SQL is written for."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.db'}"
    config = request.getfixturevalue("postgres").config
    place = URL.create("postgresql+psycopg", config.user, config.password, config.host, config.port, config.database)
    return place.render_as_string(hide_password=False)


@pytest.fixture
def any_store(any_url: str, clock: Clock) -> Iterator[Store]:
    with Store(any_url, now=clock) as opened:
        yield opened
