"""Finding Java and starting a JVM: what is missing is said with what to install."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from instep.errors import SetupError
from instep.spark.jars import spark_jars
from instep.spark.java import JvmExited, find_java, launch, output_tail
from instep.temporary import remove_abandoned


def fake_java(home: Path, version: str, release: str | None = None) -> Path:
    """A launcher that only tells its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (home / "release").write_text(release)
    return java


@pytest.mark.parametrize(
    ("told", "release", "expected"),
    [
        ("17.0.15", None, "17.0.15"),
        ("21", None, "21"),
        ("9.9", 'JAVA_VERSION="25.0.1"\nOS="Linux"\n', "25.0.1"),
        ("17.0.1+12-LTS", 'IMPLEMENTOR="x"\n', "17.0.1+12-LTS"),
    ],
)
def test_java_home(
    told: str, release: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(tmp_path, told, release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = find_java()
    assert (found.path, found.version) == (java, expected)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "16"])
def test_too_old(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=r"is too old; Spark needs 17 or newer") as caught:
        find_java()
    assert version in str(caught.value)
    assert "install Java 17" in caught.value.hint


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="has no bin/java"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="Java was not found on the PATH"):
        find_java()


def test_a_launcher_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "17")
    java.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="does not run"):
        find_java()


def test_a_jvm_that_ends_at_once_says_why() -> None:
    with pytest.raises(JvmExited, match=r"exit code 1 before Spark could start: .*Invalid maximum heap size") as caught:
        launch(find_java(), [], ("-Xmx1x",))
    assert "memory" in caught.value.hint


@pytest.mark.spark
def test_a_jvm_ends_when_it_is_left() -> None:
    jvm = launch(find_java(), spark_jars(), ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    assert jvm.alive
    assert "Exception" not in output_tail(jvm.output)
    assert jvm.secret not in repr(jvm)
    assert jvm.secret not in Path(f"/proc/{jvm.process.pid}/cmdline").read_text()
    assert os.getpgid(jvm.process.pid) != os.getpgid(0)
    jvm.close()
    assert not jvm.alive
    assert jvm.process.returncode == 0
    assert jvm.output.closed
    jvm.close()


STARTER = """
import signal, sys, threading, time
from instep.cli.main import leave
from instep.spark import java
from instep.spark.jars import spark_jars

how, begun, gateway = sys.argv[1], threading.Event(), java._gateway

def starting(process, *more):
    print(process.pid, flush=True)
    begun.set()
    if how == "error":
        raise OSError("no space left")
    return gateway(process, *more)

java._gateway = starting
threading.Thread(target=java.launch, args=(java.find_java(), spark_jars(), ("-Xmx64m",)), daemon=True).start()
begun.wait()
if how != "kill":
    leave(1)
time.sleep(600)
"""


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("how", ["end", "error", "kill"])
def test_a_jvm_whose_process_ends_while_it_starts_ends_too(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if somebody else tidies up behind that process before it has started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", STARTER, how], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        jvm = int(starter.stdout.readline())
        if how == "kill":
            starter.send_signal(signal.SIGKILL)
        starter.wait(300)
    try:
        end = time.monotonic() + 300
        while lives(jvm) or list(tmp_path.glob("instep-jvm-*")):
            remove_abandoned(str(tmp_path))
            assert time.monotonic() < end, "it goes on"
            time.sleep(0.05)
    finally:
        if lives(jvm):
            os.kill(jvm, signal.SIGKILL)
