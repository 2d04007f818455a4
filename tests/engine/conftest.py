"""A project with an engine of its own: its sockets are in a folder that no other test uses."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_world import PROJECT, Place


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short path: those of sockets have at most 107 characters."""
    made = Path(tempfile.mkdtemp(dir="/tmp", prefix="e-"))
    (made / "tmp").mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def make_place(tmp_path: Path, sockets: Path) -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def make(engine: str = "local", idle: str = "5m") -> Place:
        (tmp_path / "instep.yml").write_text(PROJECT.format(engine=engine, idle=idle))
        with sqlite3.connect(tmp_path / "app.db") as source:
            source.execute("create table t (id integer primary key, v text)")
            source.executemany("insert into t values (?, ?)", [(n, str(n)) for n in range(1000)])
        source.close()
        made.append(Place(tmp_path, sockets))
        return made[-1]

    try:
        yield make
    finally:
        for place in made:
            place.close()


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    return make_place()
