from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import Api, project, serve
from compat_world import Compat, compatible


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with project(tmp_path) as app:
        yield serve(app)


@pytest.fixture
def compat(tmp_path: Path) -> Iterator[Compat]:
    with compatible(tmp_path) as opened:
        opened.sql("create table item (id integer primary key, name text); insert into item values (1, 'pen')")
        yield opened
