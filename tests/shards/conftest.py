"""A shop over each destination that can share tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shard_world import Shop, opened

from contract import destinations

SLOW = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=SLOW)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    base = destinations.duckdb(tmp_path)
    if request.param == "postgres":
        base = destinations.postgres(tmp_path / "staging", request.getfixturevalue("postgres"))
    with opened(tmp_path, base) as made:
        yield made


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Shop]:
    """For what is the same over all of them."""
    with opened(tmp_path, destinations.duckdb(tmp_path)) as made:
        yield made
