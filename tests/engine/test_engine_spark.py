"""Spark's session of an engine: commands share its JVM, and leave nothing running in it."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from engine_world import Place, finish, lives, memory_of, until

from instep.engine.serve import descendants
from postgres_server import Database

USER, SECRET = "engine_reader", b"hunter2-hunter2"
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("engine")]


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    return make_place("spark")


def programs(place: Place) -> dict[int, str]:
    """The programs of the engine's processes that live."""
    found = {}
    for pid in descendants(place.status()["pid"]):
        with suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/exe").readlink().name
    return found


def jvms(place: Place) -> list[int]:
    """The processes of Java below the engine."""
    return [pid for pid, program in programs(place).items() if program == "java"]


def readers(postgres: Database) -> int:
    """How many sessions read the source."""
    [(found,)] = postgres.execute(
        "select count(*) from pg_stat_activity where application_name like 'instep%' "
        "and datname = current_database() and pid <> pg_backend_pid()"
    )
    return int(found)


def test_commands_share_one_jvm_one_after_the_other_and_at_once(place: Place) -> None:
    """The first one was started by a process that has a session, which leaves variables of its own."""
    place.env |= (left := {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"})
    assert place.run("sync").returncode == 0
    [jvm] = jvms(place)
    for name in left:
        del place.env[name]
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
def test_the_jobs_of_a_killed_command_end_and_the_next_one_runs(
    place: Place, postgres: Database, request: pytest.FixtureRequest
) -> None:
    postgres.execute("create table t (id int primary key, v text)")
    postgres.execute("insert into t select n, n::text from generate_series(1, 2000) n")
    postgres.execute(f"create role {USER} superuser login password '{SECRET.decode()}'")
    request.addfinalizer(lambda: postgres.execute(f"drop role {USER}"))
    config = postgres.config
    place.env["APP_PASSWORD"] = SECRET.decode()
    login = f"host: {config.host}, port: {config.port}, database: {config.database}, user: {USER}"
    source = f"app: {{type: postgres, {login}, password: '${{env:APP_PASSWORD}}', tls: {{mode: disable}}"
    file = place.folder / "instep.yml"
    before = file.read_text().replace("app: {type: sqlite, path: app.db", source)
    file.write_text(before)
    assert place.run("validate").returncode == 0
    file.write_text(before.replace("mode: disable}", "mode: disable}, rows_per_second: 1"))  # half an hour
    command = place.begin("sync")
    pid = place.running()
    until(lambda: jvms(place) and place.status()["spark"] == "ready", command)
    until(lambda: readers(postgres) > 1, command)
    os.kill(pid, signal.SIGKILL)
    finish(command)
    assert command.returncode == -signal.SIGKILL
    until(lambda: not readers(postgres))
    file.write_text(before)
    assert (place.run("sync").returncode, place.rows()) == (0, 2000)
    [jvm] = jvms(place)
    until(lambda: len(descendants(jvm)) == 2)  # what forks Spark's workers, each of which ends with its task
    knowing = [pid for pid, name in programs(place).items() if name != "java" and SECRET in memory_of(pid)]
    assert (knowing, len(programs(place))) == ([], 4)


def test_a_jvm_that_was_killed_is_replaced(place: Place) -> None:
    assert place.run("sync").returncode == 0
    [jvm] = jvms(place)
    os.kill(jvm, signal.SIGKILL)
    until(lambda: place.status()["spark"] == "none")
    assert place.run("sync").returncode == 0
    assert (place.rows(), len(jvms(place))) == (1000, 1)
