"""Connections from SQLite files of their own into one DuckDB file, and the commands over them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command_runs import Said, run
from instep.bootstrap import App, open_project

TABLES = """
    create table orders (id integer primary key, note text);
    insert into orders values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd');
"""
CHANGED = """
    create table refunds (id integer primary key, total integer);
    insert into refunds values (1, 5);
    alter table orders add column currency text;
"""
POLICY = "{preset: allow_columns, rules: [{on: [column.added], decide: review}]}"


@dataclass
class RealFleet:
    folder: Path
    count: int
    capsys: pytest.CaptureFixture[str]

    def __post_init__(self) -> None:
        self.names = [f"c{n:03}" for n in range(self.count)]
        sources = "".join(f"  {n}: {{type: sqlite, path: {n}.db}}\n" for n in self.names)
        connections = "".join(
            f"  {n}: {{source: {n}, destination: lake, policy: p, tags: [shard]}}\n" for n in self.names
        )
        (self.folder / "instep.yml").write_text(
            f"engine: local\nsources:\n{sources}destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}\n"
            f"policies: {{p: {POLICY}}}\nconnections:\n{connections}"
        )
        for name in self.names:
            self.sql(name, TABLES)

    def sql(self, name: str, script: str) -> None:
        with closing(sqlite3.connect(self.folder / f"{name}.db")) as connection:
            connection.executescript(script)

    def change(self) -> None:
        for name in self.names:
            self.sql(name, CHANGED)

    def break_(self, name: str) -> None:
        (self.folder / f"{name}.db").rename(self.folder / f"{name}.gone")

    def mend(self, name: str) -> None:
        (self.folder / f"{name}.gone").rename(self.folder / f"{name}.db")

    def open(self) -> App:
        return open_project(self.folder)

    def run(self, *words: str) -> Said:
        return run(self.capsys, "--project", str(self.folder), *words)

    def json(self, *words: str, code: int = 0) -> Any:
        said = self.run(*words, "--output", "json")
        assert said.code == code, said
        return said.json

    def rows(self, name: str, table: str) -> Any:
        said = self.run("query", f"select * from {name}.{table} order by id", "--output", "json")  # noqa: S608
        return said.json["rows"] if said.code == 0 else None
