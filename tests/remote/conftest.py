from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_world import PROJECT, TABLES, Twins, World, served


@pytest.fixture
def world(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "INSTEP_SERVER", "INSTEP_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    made = World(tmp_path, capsys, monkeypatch)
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    made.sql(TABLES)
    with served(tmp_path) as (made.url, made.key):
        yield made


@pytest.fixture
def twins(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Twins]:
    """Over the project file that a test is parametrized with, or the usual one."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "INSTEP_SERVER", "INSTEP_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INSTEP_SALT", "a salt that is long enough")
    made = []
    for name in ("near", "far"):
        tmp_path.joinpath(name).mkdir()
        made.append(World(tmp_path / name, capsys, monkeypatch))
    both = Twins(*made)
    both.write(getattr(request, "param", PROJECT))
    both.sql(TABLES)
    with served(both.far.folder) as (both.far.url, both.far.key), both.far.working():
        yield both
