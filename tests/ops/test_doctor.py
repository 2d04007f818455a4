"""The doctor of a store: each trouble is found, with its next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ops_world import Moved

from instep.control.resources import api_keys
from instep.errors import ConnectError
from instep.model import Check
from instep.monitoring.doctor import Finding, _tests, clock, disk, machine, stored
from instep.store.store import Store


@pytest.fixture
def moved() -> Moved:
    return Moved()


@pytest.fixture
def store(tmp_path: Path, moved: Moved) -> Store:
    return Store(f"sqlite:///{tmp_path}/s.db", now=moved)


def states(store: Store) -> dict[str, str]:
    return {found.name: found.state for found in stored(store) if found.state != "ok"}


def _no_admin(store: Store, _moved: Moved) -> None:
    api_keys.create(store, "ci", "viewer", "test")


def _nobody_works(store: Store, _moved: Moved) -> None:
    store.jobs.enqueue("shop", "sync")


def _late(store: Store, moved: Moved) -> None:
    _nobody_works(store, moved)
    moved.forward(hours=1)
    store.workers.register(1)


def _silent(store: Store, moved: Moved) -> None:
    _nobody_works(store, moved)
    store.jobs.claim(store.workers.register(1).id)
    moved.forward(minutes=5)


def _dead(store: Store, moved: Moved) -> None:
    _nobody_works(store, moved)
    job = store.jobs.claim("w-1")
    assert job is not None
    store.jobs.finish(job, "dead", error="no")


def _closed(store: Store, _moved: Moved) -> None:
    store.outbox.close("ops", "410 Gone")


TROUBLES: tuple[tuple[str, Callable[[Store, Moved], None], dict[str, str]], ...] = (
    ("nothing", lambda *_: None, {}),
    ("keys without an admin", _no_admin, {"API keys": "bad"}),
    ("no worker", _nobody_works, {"workers": "bad"}),
    ("a late queue", _late, {"queue": "warn"}),
    ("a silent worker", _silent, {"leases": "warn"}),
    ("a dead job", _dead, {"dead jobs": "warn"}),
    ("a closed channel", _closed, {"notifications": "warn"}),
)


@pytest.mark.parametrize(("name", "make", "expected"), TROUBLES, ids=[name for name, *_ in TROUBLES])
def test_each_trouble_of_a_store_is_found(
    store: Store, moved: Moved, name: str, make: Callable[[Store, Moved], None], expected: dict[str, str]
) -> None:
    make(store, moved)
    assert states(store) == expected
    assert all(found.hint for found in stored(store) if found.state != "ok")


def test_checks_of_sources_become_findings_and_errors_too() -> None:
    checks = [Check("login", True), Check("grant", False, "no SELECT", "GRANT ..."), Check("wal", False, needed=False)]
    assert [f.state for f in _tests("source db", lambda: checks)] == ["ok", "bad", "warn"]

    def unreachable() -> list[Check]:
        raise ConnectError("db cannot be reached", hint="start it")

    assert list(_tests("source db", unreachable)) == [Finding("source db", "bad", "db cannot be reached", "start it")]


def test_a_folder_that_is_not_there_yet_is_weighed_by_its_disk(tmp_path: Path) -> None:
    assert "GB free" in disk("staging", tmp_path / "not" / "yet").detail
    assert disk("staging", tmp_path / "not" / "yet").state == disk("staging", tmp_path).state


def test_the_clock_of_a_file_is_ours(store: Store) -> None:
    assert clock(store).state == "ok"


def test_a_java_that_is_missing_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = next(found for found in machine(tmp_path, "spark") if found.name == "Java")
    assert (java.state, java.ok) == ("bad", False)
    assert "install Java" in java.hint


def test_the_local_engine_needs_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = {one.name: one for one in machine(tmp_path, "local")}
    assert [found[name].state for name in ("Java", "jars")] == ["ok", "ok"]
    assert "not needed" in found["Java"].detail
