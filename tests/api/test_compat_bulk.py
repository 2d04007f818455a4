"""A table and a column let in on every connection of a group by a program over the wire: a server, a worker, a lake."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from compat_world import KEY, SECRET, Compat, compatible

OLD = "create table transactions (id integer primary key, amount real); insert into transactions values (1, 9.5)"
NEW = """
alter table transactions add column currency text; update transactions set currency = 'EUR';
create table refunds (id integer primary key, reason text); insert into refunds values (7, 'late')
"""


def project(count: int) -> str:
    """Blocking what is new, so that nothing comes in by itself."""
    shards = [f"shard_{n:03}" for n in range(count)]
    sources = ", ".join(f"{s}: {{type: sqlite, path: {s}.db}}" for s in shards)
    more = "destination: lake, schema_change_handling: BLOCK_ALL"
    connections = ", ".join(f"{s}: {{source: {s}, {more}}}" for s in shards)
    return f"sources: {{{sources}}}\ndestinations: {{lake: {{type: iceberg}}}}\nconnections: {{{connections}}}\n"


@contextmanager
def served(compat: Compat) -> Iterator[str]:
    """The API at a free port of loopback."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(compat.api, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join(30)


def program(url: str, page: int) -> list[str]:
    """What the client says of each connection."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "bulk_client.py"), "lake", "main", "refunds", "transactions",
         "currency"],
        capture_output=True, text=True, check=False, timeout=1200,
        env={**os.environ, "INSTEP_TEST_URL": url, "INSTEP_TEST_PAGE": str(page), "INSTEP_TEST_KEY": KEY,
             "INSTEP_TEST_SECRET": SECRET},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("count", "page"), [(5, 2), pytest.param(120, 100, marks=pytest.mark.slow)])
def test_a_group_at_once(tmp_path: Path, count: int, page: int) -> None:
    with compatible(tmp_path, project(count)) as compat:
        for n in range(count):
            compat.sql(OLD, f"shard_{n:03}.db")
            compat.sync(f"shard_{n:03}")
            compat.sql(NEW, f"shard_{n:03}.db")
        with served(compat) as url:
            said = program(url, page)
        assert said == [f"shard_{n:03} scheduled" for n in range(count)]
        for n in range(count):
            assert rows(compat, f"shard_{n:03}", "refunds") == [(7, "late")]
            assert rows(compat, f"shard_{n:03}", "transactions") == [(1, 9.5, "EUR")]


def rows(compat: Compat, shard: str, table: str) -> list[tuple[object, ...]]:
    read = compat.app.destination("lake").read((shard, table)).read_all()
    names = [n for n in read.column_names if not n.startswith("_instep_")]
    return [tuple(row[n] for n in names) for row in read.to_pylist()]
