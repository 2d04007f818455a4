"""The end of connections that a server keeps, and its commands."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from instep.bootstrap import open_server
from instep.cli.main import main
from instep.errors import Blocked, InstepError, RunInProgress
from instep.store.engine.keyring import FILE, add_key
from instep.sync.operations.delete import leave, owned_objects
from instep.sync.run import sync


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    with closing(sqlite3.connect(tmp_path / "data/shop.db")) as connection:
        connection.executescript(
            "create table item (id integer primary key, name text); insert into item values (1,'x')"
        )
    (tmp_path / "instep.yml").write_text("engine: local\n")
    add_key(tmp_path / FILE, "k1")
    with open_server(tmp_path) as app:
        put = app.objects.put
        put("source", "shop", {"type": "sqlite", "path": "data/shop.db"}, who="eve")
        put("destination", "duck", {"type": "duckdb", "path": "lakes/lake.duckdb"}, who="eve")
        for name in ("goods", "more"):
            put("connection", name, {"source": "shop", "destination": "duck", "salt": "hush"}, who="eve")
            sync(app.sync_context(name), engine=app.engine(name))
    return tmp_path


def tables(folder: Path) -> list[str]:
    with closing(duckdb.connect(str(folder / "lakes/lake.duckdb"))) as lake:
        query = "select schema_name || '.' || table_name from duckdb_tables() where schema_name in ('goods', 'more')"
        return sorted(row[0] for row in lake.execute(query).fetchall())


def recorded(folder: Path, name: str) -> set[str]:
    """Tables of the store with rows of a connection."""
    with closing(sqlite3.connect(folder / ".instep" / "state.db")) as store:
        named = [r[0] for r in store.execute("select name from sqlite_master where type = 'table'")]
        owned = [t for t in named if any(c[1] == "connection" for c in store.execute(f"pragma table_info({t})"))]
        count = "select count(*) from {} where connection = ?"
        return {t for t in owned if store.execute(count.format(t), (name,)).fetchone()[0]}


@pytest.mark.sampled
@pytest.mark.parametrize(("table_action", "left"), [("keep", ["goods.item", "more.item"]), ("drop", ["more.item"])])
def test_what_goes_with_a_connection(folder: Path, table_action: Any, left: list[str]) -> None:
    before = recorded(folder, "more")
    with open_server(folder) as app:
        assert owned_objects(app.sync_context("goods")).tables == (("goods", "item"),)
        fence = app.store.connections.get("goods").fence  # type: ignore[union-attr]
        done = leave(app.sync_context("goods"), table_action, named="goods")
        assert done.behind == []
        assert app.store.runs.history("goods") == []
        assert app.store.events.latest(connection="goods", limit=1)[0].type == "connection.deleted"
        assert app.store.runs.claim("goods", "sync").fence > fence, "a late run of before stays fenced"
    assert [t for t in tables(folder) if "instep" not in t] == left
    assert recorded(folder, "goods") == {"events", "runs"}, "the run that was claimed just now"
    assert recorded(folder, "more") == before


def test_only_by_its_name_and_not_while_it_runs(folder: Path) -> None:
    with open_server(folder) as app:
        with pytest.raises(Blocked, match="only by its name"):
            leave(app.sync_context("goods"), "drop", named="more")
        app.store.runs.claim("goods", "sync")
        with pytest.raises(RunInProgress):
            leave(app.sync_context("goods"), "drop", named="goods")
    assert "goods.item" in tables(folder)


def test_a_destination_that_is_gone_keeps_the_records_unless_it_is_abandoned(folder: Path) -> None:
    (folder / "lakes/lake.duckdb").write_bytes(b"no database at all" * 100)
    with open_server(folder) as app:
        with pytest.raises(InstepError):
            leave(app.sync_context("goods"), "drop", named="goods")
        assert app.store.accepted.latest("goods") is not None
        done = leave(app.sync_context("goods"), "drop", named="goods", abandon=True)
        assert len(done.behind) == 1
        assert app.store.accepted.latest("goods") is None


def run(folder: Path, *words: str) -> int:
    return main(["-p", str(folder), "--no-input", *words])


def test_commands_of_a_server(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "export") == 0
    text = capsys.readouterr().out
    assert "salt: '${env:CONNECTION_GOODS_SALT}'" in text
    assert run(folder, "connection", "delete", "goods", "--yes") == 3
    assert run(folder, "connection", "delete", "goods", "--drop-tables", "--confirm", "goods") == 0
    assert "dropped goods.item" in capsys.readouterr().out
    assert run(folder, "secrets", "new-key", "k2") == 0
    assert run(folder, "secrets", "rotate", "--output", "json") == 0
    assert run(folder, "db", "backup", str(folder / "b.jsonl.gz")) == 0
    assert run(folder, "db", "restore", str(folder / "b.jsonl.gz")) == 5
    assert run(folder, "db", "restore", str(folder / "b.jsonl.gz"), "--replace", "--yes") == 0
    assert run(folder, "db", "upgrade") == 0
    (folder / "in").mkdir()
    (folder / "in" / "instep.yml").write_text(text)
    (folder / "in" / ".env").write_text("CONNECTION_GOODS_SALT=a\nCONNECTION_MORE_SALT=hush\n")
    assert run(folder, "import", "project", str(folder / "in"), "--dry-run") == 5
    capsys.readouterr()
    assert run(folder, "import", "project", str(folder / "in"), "--replace") == 0
    assert "created   connection goods" in capsys.readouterr().out


def test_secrets_of_a_server_without_a_key_are_sealed_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INSTEP_KEYS", raising=False)
    with open_server(tmp_path, insecure_dev=True) as app:
        spec = {"type": "postgres", "database": "d", "user": "u", "password": "hush"}
        app.objects.put("source", "shop", spec, who="eve")
    assert run(tmp_path, "secrets", "new-key") == 0
    assert run(tmp_path, "secrets", "rotate") == 1, "that key is not there on its own"
    assert run(tmp_path, "secrets", "rotate", "--insecure-dev") == 0
    with open_server(tmp_path) as app:
        assert app.store.secrets.by_key() == {"k1": 1}
        assert app.project.source("shop").password == "hush"
