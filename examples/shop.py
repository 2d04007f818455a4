"""The little shop of the examples: a project with a source in SQLite, and a change of that source."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
"""
TABLES = """
create table customer (id integer primary key, name text not null, city text);
insert into customer values (1, 'Ann', 'Oslo'), (2, 'Bo', 'Bergen');
create table orders (id integer primary key, customer_id integer not null, total integer not null);
insert into orders values (1, 1, 20), (2, 2, 120);
"""
CHANGE = """
alter table customer drop column city;
insert into customer values (3, 'Cy');
"""


def create(folder: Path) -> None:
    """Write the project file and its source into a folder that is empty."""
    folder.mkdir(parents=True)
    (folder / "instep.yml").write_text(PROJECT)
    run(folder, TABLES)


def run(folder: Path, script: str) -> None:
    """Run SQL at the source."""
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.executescript(script)
