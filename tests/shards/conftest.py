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
    with opened(tmp_path, base_of(request, tmp_path)) as made:
        yield made


def base_of(request: pytest.FixtureRequest, folder: Path) -> object:
    if request.param == "postgres":
        return destinations.postgres(folder / "staging", request.getfixturevalue("postgres"))
    return destinations.duckdb(folder)
