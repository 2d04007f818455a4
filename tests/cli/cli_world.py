"""A project in a folder of its own, and its commands run in this process as the console script runs them."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command_runs import Said, run
from instep.store.store import Store

SQLITE = "{type: sqlite, path: shop.db}"
PROJECT = """\
version: 1
project: shop
sources:
  db: SOURCE
destinations:
  lake: {type: iceberg, warehouse: lake}
policies:
  careful:
    preset: PRESET
    rules:
      - {on: [column.removed], decide: review}
connections:
  shop: {source: db, destination: lake, policy: careful}
"""
TABLES = """
    create table customer (id integer primary key, name varchar(30) not null, city text);
    create table "order" (id integer primary key, customer_id int, amount decimal(10,2));
    insert into customer values (1, 'Ann', 'Oslo'), (2, 'Bo', null);
    insert into "order" values (1, 1, '10.50'), (2, 2, '3.00');
"""
ANSI = re.compile(r"\x1b")


@dataclass
class Shop:
    """A project in `folder`; its database is the SQLite file shop.db unless the project file says otherwise."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def write(self, source: str = SQLITE, preset: str = "allow_all", text: str = PROJECT) -> None:
        self.folder.joinpath("instep.yml").write_text(text.replace("SOURCE", source).replace("PRESET", preset))

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            connection.executescript(script)

    def run(self, *words: str) -> Said:
        return run(self.capsys, "--project", str(self.folder), *words)

    def ok(self, *words: str) -> Said:
        said = self.run(*words)
        assert said.code == 0, said
        return said

    def json(self, *words: str) -> Any:
        return self.ok(*words, "--output", "json").json

    def store(self) -> Store:
        """To be closed by the caller (`with`)."""
        return Store(f"sqlite:///{self.folder / '.instep' / 'state.db'}")

    def changes(self, *words: str) -> dict[str, str]:
        """Summary -> id of `changes list`."""
        return {c["summary"]: c["id"] for c in self.json("changes", "list", *words)["changes"]}

    def applied(self) -> None:
        """The first plan is applied: the destination's tables are there, without rows."""
        self.ok("apply", "--yes")


REMOVED = "column main.customer.city removed (string)"
CHANGED = """
    alter table customer drop column city;
    alter table "order" add column note text;
"""
"""At the source: a removal, which the project's policy holds, and an addition, which it lets in."""
