"""Worlds with a scripted connector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airbyte_world import AirbyteWorld, airbyte_world
from sparkfixture import pytest_configure, spark_session

__all__ = ["pytest_configure", "spark_session"]


@pytest.fixture
def world(tmp_path: Path) -> AirbyteWorld:
    return airbyte_world(tmp_path)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    return lambda **given: airbyte_world(tmp_path, **given)
