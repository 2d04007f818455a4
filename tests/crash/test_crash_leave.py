"""The end of a connection, killed at any place: called again it goes on, and nothing of the connection is left."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from crash_cases import LEAVE

from instep.bootstrap import open_server
from instep.store.keyring import FILE, add_key
from instep.sync.run import sync

DELETE = ("connection", "delete", "goods", "--drop-tables", "--confirm", "goods")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("create table item (id integer primary key); create table client (id integer primary key)")
    (tmp_path / "instep.yml").write_text("engine: inline\nshelves: [.]\n")
    add_key(tmp_path / FILE, "k1")
    with open_server(tmp_path) as app:
        app.objects.put("source", "shop", {"type": "sqlite", "path": "shop.db"}, who="eve")
        app.objects.put("destination", "duck", {"type": "duckdb", "path": "lake.duckdb"}, who="eve")
        app.objects.put("connection", "goods", {"source": "shop", "destination": "duck", "salt": "s"}, who="eve")
        sync(app.pipe("goods"), engine=app.engine("goods"))
    return tmp_path


def delete(folder: Path, crash: str = "") -> int:
    words = [sys.executable, "-m", "instep.cli.main", "-p", str(folder), *DELETE]
    return subprocess.run(words, env={**os.environ, "INSTEP_CRASH": crash}, check=False, capture_output=True).returncode


@pytest.mark.sampled
@pytest.mark.parametrize("point", LEAVE)
def test_it_goes_on_where_it_was_killed(folder: Path, point: str) -> None:
    assert delete(folder, f"{point}=kill") == -signal.SIGKILL
    with open_server(folder) as app:
        assert app.objects.get("connection", "goods").name == "goods", "it is there until all of it is gone"
    assert delete(folder) == 0
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
