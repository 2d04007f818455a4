"""A server with a worker beside it, as a process: a table and a column let in on every connection of a group by a
program over the wire, from PostgreSQL into a lake; and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from server_process import Running, running

from instep.bootstrap import open_server
from postgres_server import Database, Server, make_database

OLD = """
create table transactions (id integer primary key, amount double precision);
insert into transactions values (1, 9.5)
"""
NEW = """
alter table transactions add column currency text; update transactions set currency = 'EUR';
create table refunds (id integer primary key, reason text); insert into refunds values (7, 'late')
"""


CANARY = "canary-of-the-fleet-7f3a"
"""The password of the sources: the store's own is the user's to pass, and lanes need it, too."""


@contextmanager
def shards(server: Server, count: int) -> Iterator[list[Database]]:
    """Databases with the same tables."""
    made = [make_database(server, f"shard_{n:03}") for n in range(count)]
    made[0].execute(f"CREATE ROLE fleet LOGIN SUPERUSER PASSWORD '{CANARY}'")
    for database in made:
        database.execute(OLD)
    yield made
    for database in made:
        whole = replace(database, config=database.config.model_copy(update={"database": "postgres"}))
        whole.execute(f'DROP DATABASE "{database.config.database}" WITH (FORCE)')
    whole.execute("DROP ROLE fleet")


def connect(server: Running, database: Database) -> str:
    """A connection that blocks what is new, made over the wire; its name."""
    config = database.config
    said = {"host": config.host, "port": config.port, "user": "fleet", "password": CANARY,
            "database": config.database, "schema_prefix": config.database}  # fmt: skip
    body = {"group_id": "lake", "service": "postgres", "config": said, "run_setup_tests": False,
            "schedule_type": "manual"}  # fmt: skip
    name: str = server.data("POST", "/connections", body, 201)["id"]
    server.ask("POST", f"/connections/{name}/schemas", {"schema_change_handling": "BLOCK_ALL"})
    return name


def program(server: Running, page: int) -> list[str]:
    """What the client says of each connection."""
    key = server.client.get("/api/v1/me").json()["id"]
    more = {"INSTEP_TEST_URL": f"{server.base}/v1", "INSTEP_TEST_PAGE": str(page), "INSTEP_TEST_KEY": key}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "bulk_client.py"), "lake", "public", "refunds", "transactions",
         "currency"],
        capture_output=True, text=True, check=False, timeout=1200,
        env={**os.environ, **more, "INSTEP_TEST_SECRET": server.secret},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + server.log.read_text()
    return done.stdout.splitlines()


COUNT = int(os.environ.get("INSTEP_TEST_CONNECTIONS", "5"))
PAGE = max(2, COUNT // 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_group_at_once(tmp_path: Path, postgres_server: Server, store_line: str) -> None:
    tmp_path.joinpath("instep.yml").write_text(f"engine: local\n{store_line}")
    with running(tmp_path, "--with-worker", "--rate", "100000") as server, shards(postgres_server, COUNT) as databases:
        server.ask("POST", "/groups", {"name": "lake"}, 201)
        server.ask("POST", "/destinations", {"group_id": "lake", "service": "iceberg"}, 201)
        names = [connect(server, database) for database in databases]
        server.sync(*names)
        for database in databases:
            database.execute(NEW)
        assert program(server, PAGE) == [f"{name} scheduled" for name in names]
        check_secret(server, tmp_path, CANARY.encode())
        check_end(server, names[0])
    with open_server(tmp_path, insecure_dev=True) as app:
        lake = app.destination("lake")
        for name in names:
            found = {table: read(lake, name, table) for table in ("refunds", "transactions")}
            assert found == {"refunds": [(7, "late")], "transactions": [(1, 9.5, "EUR")]}, name
        assert {job.status for job in app.store.jobs.find(limit=10_000)} <= {"done", "queued"}
        assert app.store.workers.live() == []


def read(lake: object, name: str, table: str) -> list[tuple[object, ...]]:
    rows = lake.write.read((f"{name}", table)).read_all()  # type: ignore[attr-defined]
    names = [n for n in rows.column_names if not n.startswith("_instep_")]
    return [tuple(row[n] for n in names) for row in rows.to_pylist()]


def check_secret(server: Running, folder: Path, secret: bytes) -> None:
    """The sources' password is neither in a file, nor in what a process of the server was started with."""
    assert [file for file in folder.rglob("*") if file.is_file() and secret in file.read_bytes()] == []
    started = [place / name for place in server.children() for name in ("cmdline", "environ")]
    assert started, "lanes are processes"
    assert [file for file in started if secret in content(file)] == []


def content(file: Path) -> bytes:
    """Nothing of a process that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return file.read_bytes()
    return b""


def check_end(server: Running, name: str) -> None:
    """Told to end while there is work, it ends without an error, its lanes with it."""
    lanes = server.children()
    server.ask("POST", f"/connections/{name}/sync", {})
    assert server.stop() == 0, server.log.read_text()
    said = server.log.read_text()
    assert "Traceback" not in said
    assert "the server has stopped" in said
    end = time.monotonic() + 300
    while left := [lane for lane in lanes if alive(lane)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def alive(process: Path) -> bool:
    """Whether a process of /proc does anything yet."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
