"""A project with an engine of its own: its sockets are in a folder that no other test uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "instep.cli.entry")
PATIENCE = 120.0
"""Seconds that a machine which is ten times slower may take for what takes a moment."""
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


def until(true: Callable[[], object]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.05)


def finish(command: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a command; return its output and its errors."""
    try:
        return command.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        command.kill()
        command.communicate()
        raise


def state_of(pid: int) -> str:
    """A letter for what a process does, "" if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def lives(pid: int) -> bool:
    """Whether a process runs, and is more than an entry that its parent has not read."""
    return state_of(pid) not in ("", "Z")


@dataclass
class Place:
    """A project, and commands in it. `env` is added to their environment."""

    folder: Path
    sockets: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "INSTEP_ENGINE"))}
        return {**plain, "XDG_RUNTIME_DIR": str(self.sockets), "INSTEP_ENGINE": "on", **self.env}

    def begin(self, *words: str, **settings: Any) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*COMMAND, *words], cwd=self.folder, env=self.environment, text=True, stdout=pipe, stderr=pipe, **settings
        )

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, capture_output=True, input=given, check=False
        )

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
