"""A project with an engine of its own: its sockets are in a folder that no other test uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instep.engine.command import end_with

COMMAND = (sys.executable, "-m", "instep.cli.entry")
TIMEOUT = 300.0
"""Seconds that a machine which is ten times slower may take for what takes a moment."""
WHOLE = 600.0
"""Seconds for a command that starts Spark there."""
PROJECT = """version: 1
engine: {engine}
engine_idle: {idle}
sources:
  app: {{type: sqlite, path: app.db}}
destinations:
  there: {{type: duckdb, path: there.db}}
connections:
  shop: {{source: app, destination: there}}
"""
FOR_EVER = "select count(*) from range(1000000000000) t(x) where x % 7 = 3"
"""A query that nobody sees the end of."""


def until(true: Callable[[], object], command: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is true while a command runs: one that ends before is shown with what it has said."""
    end = time.monotonic() + TIMEOUT
    while not true():
        assert command is None or command.poll() is None, f"it ended too early: {finish(command)}"
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.05)


def finish(command: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a command; return its output and its errors. What a late one has started ends with its test."""
    return command.communicate(timeout=WHOLE)


def state_of(pid: int) -> str:
    """A letter for what a process does, "" if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def works(pid: int) -> bool:
    """Whether a process has worked for longer than a command takes to begin: a signal finds it in its query."""
    user = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]
    return int(user) > 6 * os.sysconf("SC_CLK_TCK")


def lives(pid: int) -> bool:
    """Whether a process runs, and is more than an entry that its parent has not read."""
    return state_of(pid) not in ("", "Z")


def memory_of(pid: int) -> bytes:
    """What a process has in its heap and stack."""
    found = bytearray()
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode, *_ = line.split()
            if mode.startswith("rw"):
                begin, end = (int(part, 16) for part in span.split("-"))
                memory.seek(begin)
                try:
                    found += memory.read(end - begin)
                except OSError:
                    continue
    return bytes(found)


def end_all(sockets: Path) -> None:
    """Kill the commands, engines, keepers and JVMs that have this folder for their sockets, whoever started them."""
    mark = f"XDG_RUNTIME_DIR={sockets}".encode()

    def found() -> list[int]:
        pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        return [pid for pid in pids if mark in surroundings_of(pid)]

    def none_left() -> bool:
        for pid in (left := found()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return not left

    until(none_left)


def surroundings_of(pid: int) -> list[bytes]:
    """What a process that lives was given as its environment."""
    with suppress(OSError):
        if lives(pid):
            return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


@dataclass
class Place:
    """A project, and commands in it. `env` is added to their environment."""

    folder: Path
    sockets: Path
    env: dict[str, str] = field(default_factory=dict)
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    def close(self) -> None:
        """End all that runs here."""
        end_all(self.sockets)
        for command in self.begun:
            with command:  # its pipes are closed, and its end is read
                command.kill()

    @property
    def environment(self) -> dict[str, str]:
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "INSTEP_RESIDENT"))
        }
        own = {
            "XDG_RUNTIME_DIR": str(self.sockets),
            "TMPDIR": str(self.sockets / "tmp"),  # what killed commands leave is nothing that other tests find
            "INSTEP_RESIDENT": "on",
            "INSTEP_ARCHIVE": "off",  # nothing is made for later ones, either
        }
        return {**plain, **own, **self.env}

    def begin(self, *words: str, first: Callable[[], None] = lambda: None, **settings: Any) -> subprocess.Popen[str]:
        """Start a command that ends with this process, however that ends; `first` is done in it."""
        pipe, parent = subprocess.PIPE, os.getpid()

        def before() -> None:
            end_with(parent)
            for one in (
                signal.SIGINT,
                signal.SIGQUIT,
                signal.SIGHUP,
            ):  # whatever the tests themselves were started with
                signal.signal(one, signal.SIG_DFL)
            first()

        usual = {"cwd": self.folder, "env": self.environment, "text": True, "stdout": pipe, "stderr": pipe}
        made = subprocess.Popen([*COMMAND, *words], preexec_fn=before, **{**usual, **settings})
        self.begun.append(made)
        return made

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = self.begin(*words, stdin=subprocess.PIPE)
        out, err = command.communicate(given, timeout=WHOLE)
        return subprocess.CompletedProcess(command.args, command.returncode, out, err)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("engine", "status", "--output", "json").stdout)
        return found

    def running(self) -> int:
        """The process of the one command that the engine runs, once there is one."""
        found: list[int] = []

        def one() -> bool:
            found[:] = [each["pid"] for each in self.status().get("commands", ())]
            return len(found) == 1

        until(one)
        return found[0]

    def rows(self) -> int:
        answer = self.run("query", "select count(*) as n from t", "--output", "json", "--no-engine")
        return int(json.loads(answer.stdout)["rows"][0]["n"])
