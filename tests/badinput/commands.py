"""The command line as people use it: run in this process, with what it printed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instep.cli.main import main
from postgres_server import Database

POSTGRES = """\
version: 1
project: shop
sources:
  pg:
    type: postgres
    host: 127.0.0.1
    port: {port}
    database: {database}
    user: {user}
    password: ${{env:PG_PASSWORD}}
destinations:
  lake: {{type: iceberg, warehouse: lake}}
connections:
  shop: {{}}
engine: {engine}
spark: {{master: "local[2]", driver_memory: 1g}}
"""


@dataclass(frozen=True)
class Told:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def has(self, *parts: str) -> None:
        """Every part is in what was said."""
        missing = [part for part in parts if part not in self.all]
        assert not missing, f"{missing} is not in:\n{self.all}"

    def is_error(self, code: int, *parts: str) -> None:
        """It failed with this code, said these things, gave a next step, and showed no stack."""
        assert self.code == code, f"exit code {self.code}:\n{self.all}"
        self.has(*parts)
        lines = [line for line in self.err.splitlines() if line.strip()]
        start = next((n for n, line in enumerate(lines) if line.startswith("error: ")), None)
        assert start is not None, f"no error line in:\n{self.err}"
        assert lines[start:][-1].startswith("  "), f"no next step in:\n{self.err}"
        assert "Traceback" not in self.all


@dataclass
class Place:
    """A project's folder."""

    folder: Path

    def write(self, text: str, env: Mapping[str, str] | None = None) -> Place:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "instep.yml").write_text(text)
        if env is not None:
            (self.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in env.items()))
        return self

    def over(self, source: Database, /, *, reader: bool = False, **changed: Any) -> Place:
        """A project over a database; `changed` replaces parts of its login, or the engine."""
        config = source.reader if reader else source.config
        login = {"port": config.port, "database": config.database, "user": config.user, "engine": "local", **changed}
        host = login.pop("host", "127.0.0.1")
        password = login.pop("password", config.password)
        text = POSTGRES.format(**login).replace("host: 127.0.0.1", f"host: {host}")
        return self.write(text, {"PG_PASSWORD": password})

    def edit(self, old: str, new: str) -> Place:
        file = self.folder / "instep.yml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        return self

    def run(self, *words: str) -> Told:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["--project", str(self.folder), "--no-input", *words])
        return Told(code, out.getvalue(), err.getvalue())

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What the lake answers."""
        told = self.run("query", sql, "--output", "json")
        assert told.code == 0, told.all
        found: list[dict[str, Any]] = told.json["rows"]
        return found
