"""A canary as password: it is where it was put, and nowhere else."""

from __future__ import annotations

import base64
import os
import signal
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from commands import Place
from marks import SPARK
from test_bad_timing import stands, start

from instep.bootstrap import open_project
from postgres_server import Database

pytestmark = SPARK
CANARY = "canary-7Qz/é=9 &x"
FORMS = [CANARY, quote(CANARY), quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode(), CANARY[::-1]]
NEEDLES = [form.encode() for form in FORMS] + [CANARY.encode("utf-16-le")]


def found_in(data: bytes) -> bool:
    return any(needle in data for needle in NEEDLES)


def files_with_it(*folders: Path) -> list[Path]:
    files = (p for folder in folders for p in folder.rglob("*") if p.is_file() and p.name != ".env")
    return [p for p in files if found_in(p.read_bytes())]


def arguments() -> bytes:
    """The arguments of every process of this machine."""
    found = b""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += process.read_bytes()
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_secret_stays_where_it_was_put(place: Place, postgres: Database, tmp_path: Path) -> None:
    postgres.execute(f"CREATE ROLE canary LOGIN SUPERUSER PASSWORD '{CANARY}'")
    try:
        _story(place, postgres, tmp_path)
    finally:
        postgres.execute("DROP ROLE canary")


def _story(place: Place, postgres: Database, tmp_path: Path) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 9) i"
    )
    postgres.execute("CREATE TABLE nokey (a int); INSERT INTO nokey VALUES (1)")
    place.over(postgres, engine="spark", user="canary", password=f'"{CANARY}"')
    said = "".join(place.run(*words).all for words in SPOKEN)
    assert not found_in(said.encode())
    for crash in ("sync.staged=stop", "merge.merged=stop"):
        _watched_sync(place, crash)
        postgres.execute("UPDATE t SET a = 'y' WHERE id < 4")
    assert not files_with_it(place.folder, tmp_path)


def _watched_sync(place: Place, crash: str) -> None:
    """A sync that is looked at in the middle: arguments, temporary files of Python and of Spark, the project."""
    with tempfile.TemporaryDirectory() as temporary:
        places = {"TMPDIR": temporary, "SPARK_LOCAL_DIRS": temporary}
        process = start(place, "sync", crash=crash, environment=places)
        stands(process)
        assert not found_in(arguments())
        assert any(Path(temporary).iterdir())
        assert not files_with_it(Path(temporary), place.folder)
        os.kill(process.pid, signal.SIGCONT)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, out + err
        assert not found_in((out + err).encode())
        assert not files_with_it(Path(temporary))


SPOKEN = [
    ["validate"], ["source", "test"], ["source", "discover", "--columns"], ["plan"], ["plan", "--output", "json"],
    ["status"], ["doctor"],
]  # fmt: skip


def test_errors_do_not_tell_it(place: Place, postgres: Database, warm: Any) -> None:
    for login in ({"password": CANARY}, {"database": "absent", "password": CANARY}, {"host": "no.invalid"}):
        place.over(postgres, engine="spark", **{"password": CANARY, **login})
        for words in (["source", "test"], ["plan"], ["sync"], ["sync", "--output", "json"], ["verify"]):
            told = place.run(*words)
            assert told.code == 4
            assert not found_in(told.all.encode())
    assert not files_with_it(place.folder)


def test_spark_does_not_know_it(place: Place, postgres: Database, warm: Any) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    place.over(postgres, engine="spark")
    password = postgres.config.password
    assert place.run("sync").code == 0
    with open_project(place.folder) as app:
        context = app.sync_context("shop")
        texts = [
            repr(context),
            repr(context.source),
            repr(context.destination),
            repr(context.spark),
            str(vars(app.project)),
        ]
    conf = warm.sparkContext.getConf().getAll()
    texts += [f"{key}={value}" for key, value in conf]
    texts += [f"{row['key']}={row['value']}" for row in warm.sql("SET -v").collect()]
    assert not [t for t in texts if password in t]


@pytest.mark.slow
def test_subprocesses_are_not_told(place: Place, postgres: Database) -> None:
    """Neither the JVM's environment nor its workers' hold what stands in .env."""
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    place.over(postgres, engine="spark")
    process = start(place, "sync", crash="sync.staged=stop")
    stands(process)
    environments = []
    for child in psutil.Process(process.pid).children(recursive=True):
        environments.append(Path(f"/proc/{child.pid}/environ").read_bytes())
    os.kill(process.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    assert environments
    assert not [e for e in environments if postgres.config.password.encode() in e]
