"""A shop in SQLite, without rows in the lake yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_world import TABLES, Shop

from lake import spark  # noqa: F401 - fixture


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colour wishes of whoever runs the tests."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    made = Shop(tmp_path, capsys)
    made.write()
    made.sql(TABLES)
    return made


@pytest.fixture
def kept(spark: object, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Commands use the session that is there and leave it to the next one."""
    monkeypatch.setattr("instep.spark.session.stop", lambda session: None)
