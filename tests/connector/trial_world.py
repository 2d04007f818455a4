"""Connectors in folders of their own, tried by the commands as the console script runs them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from command_runs import Said, run
from instep.bootstrap import open_project
from instep.sync.query import ask

EXAMPLES = Path(__file__).parents[2] / "examples" / "connectors"
CODE = """
from fivetran_connector_sdk import Connector, Operations as op

def schema(configuration):
    return [{"table": "part", "primary_key": ["id"], "columns": {"id": "INT"}}]

def update(configuration, state):
    BODY

connector = Connector(update=update, schema=schema)
"""


@dataclass(frozen=True)
class Trial:
    """A connector in `folder`."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def write(self, body: str, code: str = CODE) -> None:
        """connector.py with this body of update(), one statement a line."""
        text = code.replace("BODY", "\n    ".join(body.strip().splitlines()))
        self.folder.mkdir(exist_ok=True)
        self.folder.joinpath("connector.py").write_text(text, encoding="utf-8")

    def configure(self, **values: str) -> None:
        self.folder.joinpath("configuration.json").write_text(json.dumps(values))

    def run(self, verb: str, *words: str) -> Said:
        return run(self.capsys, "connector", verb, str(self.folder), *words)

    def ok(self, verb: str, *words: str) -> Said:
        said = self.run(verb, *words)
        assert said.code == 0, said
        return said

    def json(self, verb: str, *words: str) -> Any:
        return self.ok(verb, *words, "--output", "json").json

    @property
    def state(self) -> Any:
        return json.loads(self.folder.joinpath("files", "state.json").read_text())

    def rows(self, table: str, columns: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        """Of the warehouse that debug runs fill; system columns aside."""
        with duckdb.connect(str(self.folder / "files" / "warehouse.db"), read_only=True) as connection:
            found = connection.table(f'main."{table}"')
            system = {name for name in found.columns if name.startswith("_instep_") and name != "_instep_id"}
            names = ", ".join(f'"{name}"' for name in found.columns if name not in system)
            return found.project(names if columns == "*" else columns).order(order).fetchall()

    def asked(self, sql: str) -> list[tuple[Any, ...]]:
        """Of the destination of the last run."""
        with open_project(self.folder / "files") as app:
            return ask(app.destination(), sql).rows

    def tables(self) -> dict[str, list[str]]:
        """Tables of the destination of the last run, with their columns."""
        with open_project(self.folder / "files") as app:
            destination = app.destination()
            found = destination.schema.inspect(destination.schema.tables()).tables
        return {table.name: [column.name for column in table.columns] for table in found}


def example(name: str, to: Path, capsys: pytest.CaptureFixture[str]) -> Trial:
    """A copy of an example."""
    shutil.copytree(EXAMPLES / name, to / name)
    return Trial(to / name, capsys)
