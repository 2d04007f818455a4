"""Finding Java and starting a JVM: what is missing is said with what to install."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from instep.errors import SetupError
from instep.spark.jars import spark_jars
from instep.spark.java import JvmExited, find_java, launch, output_tail


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
