"""A project of SQLite and Iceberg, opened in Python; the one Spark session of this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import instep
from sparkfixture import pytest_configure, spark_session

__all__ = ["pytest_configure", "spark_session"]
PROJECT = """\
version: 1
project: shop
sources:
  db: {type: sqlite, path: shop.db}
destinations:
  lake: {type: iceberg, warehouse: lake}
policies:
  careful:
    preset: allow_all
    rules:
      - {on: [column.removed], decide: review}
connections:
  shop: {source: db, destination: lake, policy: careful}
spark: {master: "local[1]"}
"""
TABLES = """
    create table customer (id integer primary key, name varchar(30) not null, city text);
    insert into customer values (1, 'Ann', 'Oslo'), (2, 'Bo <b>', null);
"""


class Shop:
    """A project's folder, with its source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "instep.yml").write_text(PROJECT)
        self.sql(TABLES)

    def replace(self, old: str, new: str) -> None:
        """Change the project file."""
        text = (self.folder / "instep.yml").read_text()
        assert old in text
        (self.folder / "instep.yml").write_text(text.replace(old, new))

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            connection.executescript(script)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def project(shop: Shop) -> Iterator[instep.Project]:
    with instep.open(shop.folder) as project:
        yield project
