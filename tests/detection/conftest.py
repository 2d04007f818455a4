from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from detection_world import TABLES, Base

from postgres_server import Database
from receivers import Post, post_office


@pytest.fixture
def post() -> Iterator[Post]:
    with post_office() as running:
        yield running


@pytest.fixture
def base(tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch) -> Base:
    monkeypatch.setenv("PG", postgres.config.password)
    postgres.execute(TABLES)
    return Base(tmp_path, postgres)


@pytest.fixture
def told(base: Base, post: Post) -> Base:
    """With a mail server."""
    base.post = post
    return base
