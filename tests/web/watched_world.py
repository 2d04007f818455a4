"""Two connections of a real SQLite source that were synced here: one with values in quarantine, one of the server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from web_world import Site, site

import instep
from instep.bootstrap import open_server
from instep.events import DetectionEnded

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections:
  eu:
    source: db
    destination: lake
    tags: [europe]
    tables: {main.item: {types: {size: int32}, cursor: changed}}
"""
COUNTS = {"new": 1, "deleted": 0, "updated": 2, "unchanged": 3}


def sql(folder: Path, text: str) -> None:
    """Run statements at the source."""
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.executescript(text)


def synced(folder: Path) -> None:
    """Make the source, sync it, change it, and sync it again."""
    folder.joinpath("instep.yml").write_text(PROJECT)
    sql(
        folder,
        "create table item (id integer primary key, size text, changed integer);"
        "insert into item values (1, '7', 1), (2, '<b>large</b>', 1);"
        "create table place (name text primary key, note text); insert into place values ('a', 'b');",
    )
    with instep.open(folder) as project:
        project.connection("eu").sync()
        sql(folder, "alter table item add column colour text; insert into item values (3, '8', 2, 'red');")
        project.connection("eu").sync()


@contextmanager
def watched(folder: Path) -> Iterator[Site]:
    """Open the page over what was synced; `us` is a connection that the server keeps."""
    with open_server(folder, insecure_dev=True) as app:
        app.objects.put("connection", "us", {"source": "db", "destination": "lake", "tags": ["america"]}, who="ann")
        counts = {"schemas": COUNTS, "tables": COUNTS, "columns": COUNTS}
        app.store.events.add(DetectionEnded("us", "j-1", "done", counts, triggered_by_error=True, seconds=1.5))
        yield site(app)
