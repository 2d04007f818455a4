"""Jars: pinned, verified, fetched once, usable without a network; a class archive that is checked before use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from instep.errors import SetupError
from instep.spark import archive, jars
from instep.spark.archive import cache_folder, sha256_file
from instep.spark.jars import ICEBERG, PINNED, SQLITE, Jar, ensure
from instep.spark.java import Java

UNREACHABLE = "http://127.0.0.1:9/"


@pytest.fixture
def small(tmp_path: Path) -> Jar:
    """A jar that is in the cache."""
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "thing-1.0.jar").write_bytes(b"content")
    return Jar("org.example", "thing", "1.0", sha256_file(folder / "thing-1.0.jar"))


@pytest.fixture
def no_fetch(monkeypatch: pytest.MonkeyPatch) -> list[Jar]:
    """What would be fetched."""
    wanted: list[Jar] = []
    monkeypatch.setattr(jars, "fetch", lambda missing, folder: wanted.extend(missing))
    return wanted


class TestEnsure:
    def test_present_and_verified(self, small: Jar, tmp_path: Path, no_fetch: list[Jar]) -> None:
        assert ensure([small], str(tmp_path)) == (tmp_path / "jars" / "thing-1.0.jar",)
        assert no_fetch == []

    def test_verified_once(
        self, small: Jar, tmp_path: Path, no_fetch: list[Jar], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ensure([small], str(tmp_path))
        monkeypatch.setattr(jars, "sha256_file", lambda path: pytest.fail("read again"))
        ensure([small], str(tmp_path))
        assert no_fetch == []

    @pytest.mark.parametrize("harm", ["tampered", "truncated", "missing"])
    def test_a_harmed_jar_is_fetched_again(self, harm: str, small: Jar, tmp_path: Path, no_fetch: list[Jar]) -> None:
        ensure([small], str(tmp_path))
        file = tmp_path / "jars" / "thing-1.0.jar"
        if harm == "missing":
            file.unlink()
        else:
            file.write_bytes(b"CONTENT" if harm == "tampered" else b"cont")
        ensure([small], str(tmp_path))
        assert no_fetch == [small]

    def test_a_jar_with_another_hash_is_refused(
        self, small: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = replace(small, sha256="0" * 64)
        brought = tmp_path / "org.example_thing-1.0.jar"
        brought.write_bytes(b"something else")
        monkeypatch.setattr(jars, "_resolve", lambda wanted, scratch: [brought])
        with pytest.raises(SetupError, match=r"org\.example:thing:1\.0 is not the pinned file"):
            ensure([wrong], str(tmp_path))
        assert (tmp_path / "jars" / "thing-1.0.jar").read_bytes() == b"content"

    def test_a_cache_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(SetupError, match="the jars cannot be kept in") as caught:
            ensure([SQLITE], str(tmp_path / "file"))
        assert "INSTEP_CACHE" in caught.value.hint


@pytest.mark.spark
def test_without_a_network_the_reason_is_told(tmp_path: Path) -> None:
    env = {**os.environ, "DEFAULT_ARTIFACT_REPOSITORY": UNREACHABLE, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "instep.spark.jars", "--cache", str(tmp_path / "cache"), "--no-archive"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the jars cannot be fetched: ")
    assert "iceberg-spark-runtime-4.1_2.13" in done.stderr
    assert "DEFAULT_ARTIFACT_REPOSITORY" in done.stderr
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_second_start_needs_no_network(tmp_path: Path) -> None:
    """The jars of this machine's cache, in a process that could not reach a repository."""
    env = {**os.environ, "DEFAULT_ARTIFACT_REPOSITORY": UNREACHABLE, "INSTEP_CACHE": str(cache_folder())}
    ensure()
    done = subprocess.run(
        [sys.executable, "-m", "instep.spark.jars", "--no-archive"], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"jars: {len(PINNED)} in {cache_folder() / 'jars'}\n"


def test_pins() -> None:
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in PINNED)
    assert ICEBERG.coordinates == "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
    assert SQLITE.file == "sqlite-jdbc-3.50.3.0.jar"


@pytest.mark.parametrize(
    ("setting", "variable", "expected"),
    [("/a", "/b", "/a"), ("", "/b", "/b"), ("", "", "{home}/.cache/instep"), ("~/x", "", "{home}/x")],
)
def test_cache_folder(
    setting: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INSTEP_CACHE", variable)
    assert str(cache_folder(setting)) == expected.format(home=tmp_path)


class TestArchive:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Path:
        fresh, final = tmp_path / "fresh", tmp_path / "x.jsa"
        fresh.write_bytes(b"classes")
        archive._record(fresh, final)
        return final

    def test_a_good_one_is_used(self, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(archive.DUMP_TO, raising=False)
        assert archive.usable(made)
        assert f"-XX:SharedArchiveFile={made}" in archive.options(made)

    def test_it_is_hashed_once(self, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert archive.usable(made)
        monkeypatch.setattr(archive, "sha256_file", lambda path: pytest.fail("read again"))
        assert archive.usable(made)

    @pytest.mark.parametrize(
        "harm",
        [
            pytest.param(lambda f: f.write_bytes(b"class"), id="truncated"),
            pytest.param(lambda f: f.write_bytes(b"cLasses"), id="flipped"),
            pytest.param(lambda f: f.with_suffix(".json").write_text("{"), id="broken record"),
            pytest.param(lambda f: f.with_suffix(".json").write_text("{}"), id="empty record"),
        ],
    )
    def test_a_harmed_one_is_deleted(self, harm: object, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert archive.usable(made)
        harm(made)  # type: ignore[operator]
        os.utime(made, ns=(1, 1))
        monkeypatch.delenv(archive.DUMP_TO, raising=False)
        assert archive.options(made) == ()
        assert not made.exists()
        assert not made.with_suffix(".json").exists()

    def test_one_without_a_record_is_not_used(self, made: Path) -> None:
        made.with_suffix(".json").unlink()
        assert not archive.usable(made)

    def test_a_new_one_replaces_the_oldest_of_many(self, made: Path, tmp_path: Path) -> None:
        os.utime(made, ns=(1, 1))
        for name in ("1", "2", "3"):
            fresh = tmp_path / "fresh"
            fresh.write_bytes(b"more classes")
            archive._record(fresh, tmp_path / f"{name}.jsa")
            os.utime(tmp_path / f"{name}.jsa", ns=(int(name) * 10, int(name) * 10))
            assert made.exists() == (name != "3")
        assert {f.stem for f in tmp_path.iterdir()} == {"1", "2", "3"}
        assert json.loads((tmp_path / "1.json").read_text())["size"] == 12

    def test_its_name_tells_java_and_jars(self, tmp_path: Path) -> None:
        jar = tmp_path / "a.jar"
        jar.write_text("x")
        java = Java(Path("/java"), "17.0.1")
        first = archive.path_for(java, [jar], str(tmp_path))
        assert archive.path_for(java, [jar], str(tmp_path)) == first
        assert archive.path_for(replace(java, version="17.0.2"), [jar], str(tmp_path)) != first
        assert archive.path_for(java, [jar, jar], str(tmp_path)) != first
        os.utime(jar, ns=(1, 1))
        assert archive.path_for(java, [jar], str(tmp_path)) != first

    def test_a_build_asks_for_a_dump(self, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(archive.DUMP_TO, "/somewhere")
        assert "-XX:ArchiveClassesAtExit=/somewhere" in archive.options(made)

    def test_one_builds_at_a_time(self, made: Path) -> None:
        with archive._alone(made) as first, archive._alone(made) as second:
            assert (first, second) == (True, False)
        with archive._alone(made) as again:
            assert again


def test_tables_in_azure_need_a_jar_of_the_user(tmp_path: Path) -> None:
    conf = {"spark.sql.catalog.lake.io-impl": jars.ADLS_IO}
    with pytest.raises(SetupError, match="without the jar iceberg-azure-bundle") as caught:
        jars.stores(conf, str(tmp_path))
    assert f"{jars.AZURE}:{jars.ICEBERG.version}" in str(caught.value.hint)
    assert jars.stores(conf, str(tmp_path), [f"/jars/{jars.AZURE}-{jars.ICEBERG.version}.jar"]) == []
