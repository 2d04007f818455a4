from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rollouts_world import Fleet
from sqlalchemy.engine import URL


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[[int], Fleet]]:
    yield from fleets(tmp_path, "")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.drawn(5))])
def any_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Fleet]]:
    """Over both databases that the SQL is written for."""
    if request.param == "sqlite":
        yield from fleets(tmp_path, "")
        return
    config = request.getfixturevalue("postgres").config
    place = URL.create("postgresql+psycopg", config.user, config.password, config.host, config.port, config.database)
    yield from fleets(tmp_path, place.render_as_string(hide_password=False))


def fleets(folder: Path, url: str) -> Iterator[Callable[[int], Fleet]]:
    made: list[Fleet] = []

    def make(count: int) -> Fleet:
        made.append(Fleet(folder, count, url=url))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
