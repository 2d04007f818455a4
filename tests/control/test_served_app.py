"""A server without a project file: what it keeps is enough to detect and to sync."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from instep.bootstrap import App, open_project, open_server
from instep.errors import ProjectError
from instep.store.engine.keyring import FILE, add_key
from work_count import counted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    with closing(sqlite3.connect(tmp_path / "data/shop.db")) as connection:
        connection.executescript(
            "create table item (id integer primary key, name text); insert into item values (1,'x')"
        )
    add_key(tmp_path / FILE, "k1")
    return tmp_path


def fill(app: App) -> None:
    put = app.objects.put
    put("source", "shop", {"type": "sqlite", "path": "data/shop.db"}, who="eve")
    put("destination", "duck", {"type": "duckdb", "path": "lakes/lake.duckdb"}, who="eve")
    put("policy", "careful", {"preset": "approve"}, who="eve")
    put("connection", "goods", {"source": "shop", "destination": "duck", "policy": "careful"}, who="eve")


def test_a_sync_of_what_the_server_keeps(folder: Path) -> None:
    from instep.sync.run import sync

    (folder / "instep.yml").write_text("engine: local\n")
    with open_server(folder) as app:
        fill(app)
        context = app.sync_context("goods")
        assert (context.name, context.policy.preset, context.source.kind) == ("goods", "approve", "sqlite")
        sync(context, engine=app.engine("goods"))
        latest = app.store.runs.latest("goods")
        assert latest is not None
        assert latest.status == "done"
    with closing(duckdb.connect(str(folder / "lakes/lake.duckdb"))) as lake:
        assert lake.execute("select id, name from goods.item").fetchall() == [(1, "x")]


def test_there_is_no_server_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INSTEP_KEYS", raising=False)
    with pytest.raises(ProjectError, match="no master key"):
        open_server(tmp_path)
    assert list(tmp_path.iterdir()) == [], "nothing was made"
    with open_server(tmp_path, insecure_dev=True) as app:
        assert app.store.secrets.keys.insecure


def test_one_of_many_is_opened_alone(folder: Path) -> None:
    with open_server(folder) as app:
        fill(app)
        spec = {"source": "shop", "destination": "duck", "tables": {"item": {"mode": "upsert"}}, "tags": ["eu"]}
        with app.store.transaction():
            for number in range(500):
                links = [("source", "shop"), ("destination", "duck")]
                app.store.objects.put("connection", f"c{number}", spec, who="", links=links)  # type: ignore[arg-type]
            app.store.objects.put("connection", "broken", {"colour": "red"}, who="")
        with counted() as work:
            assert app.sync_context("c77").name == "c77"
        assert work.calls < 60_000
        assert len(app.project.connections) == 502
        read = app.project.model.connections._read  # type: ignore[attr-defined]
        assert set(read) == {"c77"}, "no other one was looked at"


@pytest.mark.parametrize("broken", ["file", "variable"])
def test_keys_that_cannot_be_read_stop_only_what_needs_them(
    folder: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "instep.yml").write_text("destinations: {lake: {type: duckdb, path: lake.duckdb}}\n")
    if broken == "file":
        (folder / FILE).chmod(0o644)
    else:
        monkeypatch.setenv("INSTEP_KEYS", "k1:typo")
    with open_project(folder) as app:
        assert app.store.runs.latest("goods") is None
        with pytest.raises(ProjectError, match=r"others may read the key file|INSTEP_KEYS: key number 1"):
            app.store.connectors.save("goods", {"at": 1})
        assert app.store.connectors.get("goods").state == {}
