from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import Api, project, serve
from compat_world import Compat, compatible

from postgres_server import store_url


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with project(tmp_path) as app:
        yield serve(app)


ON_POSTGRESQL = (pytest.mark.slow, pytest.mark.server, pytest.mark.drawn(5))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=ON_POSTGRESQL)])
def store_line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a project's file says of its store: each of both databases."""
    if request.param == "sqlite":
        return ""
    monkeypatch.setenv("STORE", store_url(request.getfixturevalue("postgres")))
    return "store: '${env:STORE}'\n"


@pytest.fixture
def compat(tmp_path: Path, store_line: str) -> Iterator[Compat]:
    with compatible(tmp_path, file=store_line) as opened:
        opened.sql("create table item (id integer primary key, name text); insert into item values (1, 'pen')")
        yield opened
