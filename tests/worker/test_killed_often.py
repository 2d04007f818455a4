"""Workers and the server are killed at any moment while jobs wait: none is lost, none is done twice.

INSTEP_KILLED_JOBS=1000 and INSTEP_KILLS=100 make it longer.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from killing_world import TABLES, Asks, Killer, Served, by_store, check, run
from sqlalchemy.engine import URL
from worker_world import Shop

from instep.control.resources.api_keys import create
from instep.store.engine.keyring import new_key
from postgres_server import Database, free_port

JOBS = int(os.environ.get("INSTEP_KILLED_JOBS", "24"))
KILLS = int(os.environ.get("INSTEP_KILLS", "4"))
LONG = max(1800, 6 * JOBS)
SYNCS = 2 if JOBS <= 100 else 4
"""Each so-manieth job is a sync, the others are detections."""
NAMES = tuple("abcde") if JOBS <= 100 else tuple(f"c{number}" for number in range(25))


def made(folder: Path, store_url: str = "") -> Shop:
    shop = Shop(folder, NAMES, store_url=store_url)
    shop.write()
    shop.sql(TABLES)
    return shop


@pytest.mark.slow
@pytest.mark.timeout(LONG)
def test_on_sqlite(tmp_path: Path) -> None:
    survived(made(tmp_path), workers=1)


@pytest.mark.slow
@pytest.mark.timeout(LONG)
def test_two_workers_on_postgresql(tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    c = postgres.config
    place = URL.create("postgresql+psycopg", c.user, c.password, c.host, c.port, c.database)
    monkeypatch.setenv("STORE", url := place.render_as_string(hide_password=False))
    survived(made(tmp_path, url), workers=2)


@pytest.mark.slow
@pytest.mark.timeout(LONG)
def test_the_server_is_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that got no answer are repeated: each is one job."""
    monkeypatch.setenv("INSTEP_KEYS", new_key("k"))
    shop = made(tmp_path)
    with shop.store() as store:
        served = Served(shop, create(store, "ann", "operator", "test").secret, free_port())
        asks, killer = Asks(shop, JOBS // 3, served.ask), Killer(shop, 1)
        served.start()
        try:
            run(shop, store, asks, killer, KILLS // 2, served.strike)
        finally:
            served.end()
        assert served.kills == KILLS // 2
        check(shop, store, asks)


def survived(shop: Shop, workers: int) -> None:
    """Two lanes in all."""
    begun = time.monotonic()
    with shop.store() as store:
        asks, killer = Asks(shop, JOBS, by_store(store), SYNCS), Killer(shop, workers, lanes=2 // workers)
        run(shop, store, asks, killer, KILLS, lambda: None)
        check(shop, store, asks)
        jobs, runs = [store.jobs.get(one) for one in asks.jobs], store.runs.history(limit=100_000)
    ended = Counter(run.status for run in runs)
    print(
        f"{JOBS} jobs in {time.monotonic() - begun:.0f} s under {workers} worker(s); killed: {dict(killer.kills)}; "
        f"{sum(one.attempt for one in jobs)} attempts, runs: {dict(ended)}"
    )
