"""A world over a connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from connector_world import Case, ConnectorWorld, MakeConnector


@pytest.fixture
def make_connector(tmp_path: Path) -> Iterator[MakeConnector]:
    """Makes a world (into: duckdb, iceberg)."""
    with ExitStack() as stack:

        def make(into: str = "duckdb", **options: Any) -> ConnectorWorld:
            folder = tmp_path / f"world-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            world = ConnectorWorld(Case(), folder, into=into, **options)  # type: ignore[arg-type]
            stack.callback(world.close)
            return world

        yield make
