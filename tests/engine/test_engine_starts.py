"""When a command starts an engine that nobody has asked for: on a terminal, where Spark reads the rows."""

from __future__ import annotations

import os
import pty
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine_world import Place, finish

from instep.cli import entry

pytestmark = pytest.mark.xdist_group("engine")
TERMINAL = {0, 1, 2}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that names no engine; nothing of the tests' own environment says anything."""
    for name in ("CI", "INSTEP_RESIDENT", "INSTEP_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "instep.yml").write_text("version: 1\n")
    return tmp_path


def wanted(monkeypatch: pytest.MonkeyPatch, project: Path, *words: str, terminal: set[int] = TERMINAL) -> bool:
    monkeypatch.setattr(os, "isatty", lambda number: number in terminal)
    return entry._starts_engine([*words], project)


@pytest.mark.parametrize(
    ("words", "starts"), [(("sync",), True), (("backfill", "t"), True), (("status",), False), (("plan",), False)]
)
def test_the_commands_that_take_a_session_start_one(
    project: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], starts: bool
) -> None:
    assert wanted(monkeypatch, project, *words) is starts


@pytest.mark.parametrize("terminal", [set(), {0, 1}, {1, 2}])
def test_where_nobody_sees_what_is_said_none_is_started(
    project: Path, monkeypatch: pytest.MonkeyPatch, terminal: set[int]
) -> None:
    assert not wanted(monkeypatch, project, "sync", terminal=terminal)


def test_none_is_started_in_ci_unless_it_is_asked_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert not wanted(monkeypatch, project, "sync")
    monkeypatch.setenv("INSTEP_RESIDENT", "on")
    assert wanted(monkeypatch, project, "sync", terminal=set())


@pytest.mark.parametrize(
    ("file", "variable", "beside", "starts"),
    [
        ("", "", "", True),
        ("engine: spark", "local", "", True),
        ("engine: local  # no Java here", "", "", False),
        ("engine: 'local'", "spark", "", False),
        ("", "local", "", False),
        ("", "", "export INSTEP_ENGINE=local", False),
        ("", "spark", "INSTEP_ENGINE=local", True),
    ],
)
def test_none_is_started_where_threads_read(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, variable: str, beside: str, starts: bool
) -> None:
    (project / "instep.yml").write_text(f"version: 1\n{file}\n")
    (project / ".env").write_text(f"A=1\n{beside}\n")
    monkeypatch.setenv("INSTEP_ENGINE", variable)
    assert wanted(monkeypatch, project, "sync") is starts


@dataclass
class Window:
    """A terminal: `end` is what a command is given of it, `shown` what it shows so far."""

    end: int
    shown: bytearray = field(default_factory=bytearray)


@pytest.fixture
def window() -> Iterator[Window]:
    ours, theirs = pty.openpty()
    made = Window(theirs)

    def read() -> None:
        with suppress(OSError):  # its other end is closed
            while part := os.read(ours, 4096):
                made.shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    yield made
    os.close(theirs)
    reader.join()
    os.close(ours)


def typed(place: Place, window: Window, *words: str) -> str:
    """Run a command that somebody types; return what the terminal shows beside its output."""
    command = place.begin(*words, stdin=window.end, stderr=window.end)
    finish(command)
    assert command.returncode == 0, window.shown.decode()
    return window.shown.decode()


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    made = make_place("spark")
    made.env |= {"INSTEP_RESIDENT": "", "CI": ""}
    return made


@pytest.mark.slow
@pytest.mark.spark
def test_the_first_sync_on_a_terminal_starts_one_and_says_so_once(place: Place, window: Window) -> None:
    typed(place, window, "sync")
    assert place.status()["commands_run"] == 1
    assert typed(place, window, "sync").count("started this project's engine") == 1
    assert place.run("sync").returncode == 0  # on no terminal: it uses what is there
    assert place.status()["commands_run"] == 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("words", "resident"), [(("sync", "--no-engine"), ""), (("sync",), "off")])
def test_it_can_be_done_without(place: Place, window: Window, words: tuple[str, ...], resident: str) -> None:
    place.env["INSTEP_RESIDENT"] = resident
    assert "started this project's engine" not in typed(place, window, *words)
    place.env["INSTEP_RESIDENT"] = ""
    assert not place.status()["running"]
