"""A shop over each destination that can share tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shard_world import Shop, opened

from contract import destinations

SLOW = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(params=["delta", "duckdb", "iceberg", pytest.param("postgres", marks=SLOW)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "postgres":
        base = destinations.postgres(tmp_path / "staging", request.getfixturevalue("postgres"))
    else:
        base = destinations.DESTINATIONS[request.param](tmp_path)
    with opened(tmp_path, base) as made:
        yield made


@pytest.fixture(params=["duckdb", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta", "iceberg"))])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """For what is the same over all servers."""
    with opened(tmp_path, destinations.DESTINATIONS[request.param](tmp_path)) as made:
        yield made
