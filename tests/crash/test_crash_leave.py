"""The end of a connection, killed at any place: called again it goes on, and nothing of the connection is left."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from crash_cases import LEAVE

from forks import Forks
from instep.bootstrap import open_server
from instep.store.engine.keyring import FILE, add_key
from instep.sync.run import sync

DELETE = ("connection", "delete", "goods", "--drop-tables", "--confirm", "goods")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("create table item (id integer primary key); create table client (id integer primary key)")
    (tmp_path / "instep.yml").write_text("engine: local\nshelves: [.]\n")
    add_key(tmp_path / FILE, "k1")
    with open_server(tmp_path) as app:
        app.objects.put("source", "shop", {"type": "sqlite", "path": "shop.db"}, who="eve")
        app.objects.put("destination", "duck", {"type": "duckdb", "path": "lake.duckdb"}, who="eve")
        app.objects.put("connection", "goods", {"source": "shop", "destination": "duck", "salt": "s"}, who="eve")
        sync(app.sync_context("goods"), engine=app.engine("goods"))
    return tmp_path


def delete(forked: Forks, folder: Path, crash: str = "") -> int | None:
    return forked.instep("-p", folder, *DELETE, crash=crash).code


@pytest.mark.sampled
@pytest.mark.parametrize("point", LEAVE)
def test_it_goes_on_where_it_was_killed(forked: Forks, folder: Path, point: str) -> None:
    assert delete(forked, folder, f"{point}=kill") == -signal.SIGKILL
    with open_server(folder) as app:
        assert app.objects.get("connection", "goods").name == "goods", "it is there until all of it is gone"
    assert delete(forked, folder) == 0
    with open_server(folder) as app:
        assert app.project.connections == ()
        assert app.store.names.of("goods") == {}
        assert app.store.secrets.by_key() == {}
        ended = [e for e in app.store.events.latest(connection="goods") if e.type == "connection.deleted"]
        assert len(ended) >= 1
    with closing(duckdb.connect(str(folder / "lake.duckdb"))) as lake:
        query = (
            "select table_name from duckdb_tables() where schema_name = 'goods' and table_name in ('item', 'client')"
        )
        assert lake.execute(query).fetchall() == [], "they are kept under other names until they cannot be undone"
