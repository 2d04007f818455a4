"""Whoever waits for Spark of an engine is told what for, and not longer than until it is late or has ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from engine_world import Place, lives, until

from instep.engine import address, serve, wire
from instep.errors import SetupError
from instep.redaction import hide
from instep.spark import resident
from instep.spark.settings import SparkSettings

pytestmark = pytest.mark.xdist_group("engine")
SETTINGS = SparkSettings(quick=True)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What a command takes for its engine; its log tells what Spark has said."""
    monkeypatch.chdir(tmp_path)  # a short path: those of sockets have at most 107 characters
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("e.sock")
    listener.listen()
    Path("e.log").write_text("long ago\nprocess 7 starts Spark\nrefused: hunter2-hunter2\n")
    hide("hunter2-hunter2")
    monkeypatch.setenv(address.SOCKET, "e.sock")
    for name in [one for one in os.environ if resident._holds_secret(one, os.environ[one])]:
        monkeypatch.delenv(name)
    with listener:
        yield listener


@pytest.mark.usefixtures("engine")
def test_who_waits_is_told_what_for_and_not_for_ever(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"TELLS_AFTER": 0.05, "SPARK_WITHIN": 0.1, "_SLACK": 0.1}.items():
        monkeypatch.setattr(resident, name, seconds)
    with pytest.raises(SetupError) as raised:
        resident.attach(SETTINGS)
    assert capsys.readouterr().err == "waiting for the engine's Spark to start, which writes to e.log\n"
    said = str(raised.value)
    assert said.startswith("the engine's Spark is not there after 0 s: long ago | process 7 starts Spark | refused: ")
    assert "hunter2" not in said
    assert ("`instep engine stop`" in said, "`--no-engine`" in said, "e.log" in said) == (True, True, True)


@pytest.mark.parametrize("answer", [{"ended": "while it started"}, None])
def test_a_spark_that_has_ended_is_told_and_replaced(
    engine: socket.socket, capsys: pytest.CaptureFixture[str], answer: dict[str, str] | None
) -> None:
    def reply() -> None:
        peer, _ = engine.accept()
        with peer:
            wire.receive(peer)
            if answer:
                wire.send(peer, answer)

    replying = threading.Thread(target=reply)
    replying.start()
    assert resident.attach(SETTINGS) is None
    replying.join()
    how = answer["ended"] if answer else "with the engine"
    told = capsys.readouterr().err
    assert f"the engine's Spark has ended {how}, and this command starts its own: long ago | " in told
    assert "hunter2" not in told


def test_a_keeper_that_is_late_is_killed_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "SPARK_WITHIN", 0.0)
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    ours, theirs = socket.socketpair()
    command, waits = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listener, theirs, command, subprocess.Popen(["sleep", "1000"]) as hanging:
        engine = serve.EngineProcess(tmp_path, tmp_path / "e.sock", listener, lock)
        engine._looked = time.monotonic()
        engine.keeper = serve.Keeper(hanging.pid, ours, {}, time.monotonic() - 1, waiting=[waits])
        engine._check_processes()
        command.settimeout(600)
        assert wire.receive(command)[0] == {"late": 0.0}
        assert theirs.recv(1) == b""
        assert engine.keeper is None
        assert hanging.wait(600) == -signal.SIGKILL
    engine.events.close()
    os.close(lock)


def with_java(place: Place, does: str) -> None:
    """Have Spark started by a program that does something else."""
    java = place.sockets / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{does}\n")
    java.chmod(0o755)
    (java.parents[1] / "release").write_text('JAVA_VERSION="17.0.1"\n')
    place.env["JAVA_HOME"] = str(java.parents[1])
    file = place.folder / "instep.yml"
    file.write_text(file.read_text().replace("engine: local", "engine: spark"))


def test_who_waits_for_spark_of_an_engine_that_is_stopped_starts_its_own(place: Place) -> None:
    began = place.sockets / "began"
    with_java(place, f"echo $PPID >> {began}; exec sleep 1000")
    place.begin("sync")
    pid = place.running()
    until(lambda: place.status()["spark"] == "starting" and began.is_file())
    place.run("engine", "stop")
    until(lambda: len(began.read_text().split()) == 2)
    keeper, command = map(int, began.read_text().split())
    assert command == pid
    until(lambda: not lives(keeper))


def test_a_java_that_does_not_start_is_noticed_at_once(place: Place) -> None:
    with_java(place, "echo no memory >&2; exit 3")
    done = place.run("sync")
    assert done.returncode != 0
    assert "the engine's Spark has ended while it started, and this command starts its own: " in done.stderr
    assert "Java ended with exit code 3" in done.stderr
    assert place.status()["spark"] == "none"


def test_where_a_late_keeper_stands_is_in_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    resident._tell_where()
    assert "test_where_a_late_keeper_stands_is_in_its_log" in capsys.readouterr().out


def test_the_log_is_of_this_engine_alone(place: Place) -> None:
    place.run("engine", "start")
    [socket_file] = (place.sockets / "instep").glob("*.sock")
    log = wire.log_of(socket_file)
    log.write_text("of long ago\n")
    pid = place.status()["pid"]
    place.run("engine", "stop")
    until(lambda: not lives(pid))
    place.run("engine", "start")
    assert wire.log_tail(socket_file) == ""


def test_a_command_that_ends_has_the_jvm_forget_its_objects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from py4j.finalizer import ThreadSafeFinalizer  # type: ignore[import-untyped]

    client = Mock(address="there", port=7)
    monkeypatch.setattr(ThreadSafeFinalizer, "finalizers", {"there7o1": None, "there7o23": None})
    resident._forget_objects(Mock(_gateway_client=client))
    assert [*client.method_calls] == [call.garbage_collect_object(one, enqueue=False) for one in ("o1", "o23")]
