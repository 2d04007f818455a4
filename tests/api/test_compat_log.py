"""The end of a connection that follows a log, by the compatible API: its slot goes before it does."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_world import Compat, compatible

from postgres_server import Database, launch, make_database

SLOTS = "select slot_name from pg_replication_slots"


@pytest.fixture(scope="module")
def shop() -> Iterator[Database]:
    folder = Path(tempfile.mkdtemp(prefix="instep-log-"))
    folder.chmod(0o755)
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")), "-c wal_level=logical")
    try:
        yield make_database(server, "shop")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def compat(tmp_path: Path, shop: Database) -> Iterator[Compat]:
    at = shop.config
    shop.execute("create table if not exists item (id int primary key, name text)")
    shop.execute("insert into item values (1, 'pen') on conflict do nothing")
    said = {"type": "postgres", "host": at.host, "port": at.port, "database": at.database, "user": at.user,
            "password": at.password}  # fmt: skip
    with compatible(tmp_path, "destinations: {lake: {type: duckdb, path: lake.duckdb}}") as opened:
        opened.app.objects.put("source", "pg", said, who="ann")
        opened.keep("connections: {goods: {source: pg, destination: lake, mode: cdc}}")
        opened.sync("goods")
        yield opened


@pytest.mark.server
@pytest.mark.slow
def test_the_slot_goes_with_the_connection(compat: Compat, shop: Database) -> None:
    assert len(shop.execute(SLOTS)) == 1
    compat.worker.held.clear()
    compat.ask("POST", "/connections/goods/sync")
    job = compat.store.jobs.claim("w")
    assert job is not None
    assert "is running" in compat.ask("DELETE", "/connections/goods", status=409)["message"]
    compat.store.jobs.finish(job)
    compat.worker.held.set()
    assert compat.ask("DELETE", "/connections/goods")["code"] == "Success"
    assert shop.execute(SLOTS) == []
    compat.ask("GET", "/connections/goods", status=404)
    assert [compat.store.objects.get(kind, "goods") for kind in ("connection", "source")] == [None, None]
    assert compat.store.objects.get("source", "pg") is None, "nobody else uses it"
    assert compat.store.runs.history("goods", limit=9) == []
    assert compat.app.destination("lake").schema.inspect([("goods", "item")]).tables, "its tables stay"


@pytest.mark.server
@pytest.mark.slow
def test_without_a_worker_nothing_is_taken_away(compat: Compat, shop: Database) -> None:
    compat.worker.leave()
    assert "No worker" in compat.ask("DELETE", "/connections/goods", status=503)["message"]
    assert len(shop.execute(SLOTS)) == 1
    assert compat.ask("GET", "/connections/goods")["code"] == "Success"
