"""Spark's session of an engine: commands share its JVM, and leave nothing running in it."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from engine_world import Place, finish, lives, until

from instep.engine.serve import descendants
from postgres_server import Database

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("engine")]


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    return make_place("spark")


def jvms(place: Place) -> list[int]:
    """The processes of Java below the engine."""
    found = []
    for pid in descendants(place.status()["pid"]):
        with suppress(OSError):
            if Path(f"/proc/{pid}/exe").readlink().name == "java":
                found.append(pid)
    return found


def readers(postgres: Database) -> int:
    """How many sessions read the source."""
    [(found,)] = postgres.execute(
        "select count(*) from pg_stat_activity where application_name like 'instep%' "
        "and datname = current_database() and pid <> pg_backend_pid()"
    )
    return int(found)


def test_commands_share_one_jvm_one_after_the_other_and_at_once(place: Place) -> None:
    assert place.run("sync").returncode == 0
    [jvm] = jvms(place)
    with sqlite3.connect(place.folder / "app.db") as source:
        source.execute("insert into t values (5000, 'late')")
    source.close()
    assert place.run("sync").returncode == 0
    both = [place.begin("verify"), place.begin("sync")]
    said = [finish(one) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert (place.rows(), jvms(place)) == (1001, [jvm])
    assert place.status()["spark"] == "ready"
    place.run("engine", "stop")
    until(lambda: not lives(jvm))


def test_a_secret_of_the_environment_makes_a_jvm_of_its_own(place: Place) -> None:
    place.env["AWS_SECRET_ACCESS_KEY"] = "hunter2-hunter2"
    assert place.run("sync").returncode == 0
    assert (place.rows(), jvms(place), place.status()["spark"]) == (1000, [], "none")


@pytest.mark.server
def test_the_jobs_of_a_killed_command_end_and_the_next_one_runs(place: Place, postgres: Database) -> None:
    postgres.execute("create table t (id int primary key, v text)")
    postgres.execute("insert into t select n, n::text from generate_series(1, 2000) n")
    config = postgres.config
    place.env["APP_PASSWORD"] = config.password
    login = f"host: {config.host}, port: {config.port}, database: {config.database}, user: {config.user}"
    source = f"app: {{type: postgres, {login}, password: '${{env:APP_PASSWORD}}', tls: {{mode: disable}}"
    file = place.folder / "instep.yml"
    before = file.read_text().replace("app: {type: sqlite, path: app.db", source)
    file.write_text(before)
    assert place.run("validate").returncode == 0
    file.write_text(before.replace("mode: disable}", "mode: disable}, rows_per_second: 1"))  # half an hour
    command = place.begin("sync")
    pid = place.running()
    until(lambda: jvms(place) and place.status()["spark"] == "ready")
    until(lambda: readers(postgres) > 1)
    os.kill(pid, signal.SIGKILL)
    finish(command)
    assert command.returncode == -signal.SIGKILL
    until(lambda: not readers(postgres))
    file.write_text(before)
    assert (place.run("sync").returncode, place.rows()) == (0, 2000)
    assert len(jvms(place)) == 1


def test_a_jvm_that_was_killed_is_replaced(place: Place) -> None:
    assert place.run("sync").returncode == 0
    [jvm] = jvms(place)
    os.kill(jvm, signal.SIGKILL)
    until(lambda: place.status()["spark"] == "none")
    assert place.run("sync").returncode == 0
    assert (place.rows(), len(jvms(place))) == (1000, 1)
