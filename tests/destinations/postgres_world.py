"""A PostgreSQL database with one table of ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.destinations.base import BackfillResult, Commit, Fill, LoadOutcome, Merge
from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.destination import PostgresDestination
from instep.schema.catalog.catalog import Table
from instep.schema.planning.step import step
from lake import ORDERS, PREFIX, REF, create, rows_of, stage, stage_table
from postgres_server import Database, Server, make_database

META = f"{PREFIX}meta"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def shared(postgres_server: Server) -> Iterator[Database]:
    """A database for the tests of one file."""
    name = f"shared_{uuid.uuid4().hex[:8]}"
    made = make_database(postgres_server, name)
    yield made
    server_wide = replace(made, config=made.config.model_copy(update={"database": "postgres"}))
    server_wide.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def database(shared: Database) -> Database:
    """The shared database without anything of the tests before."""
    shared.execute("DROP SCHEMA IF EXISTS shop, other, _instep CASCADE")
    return shared


def config_of(database: Database, folder: Path, **more: Any) -> PostgresServerConfig:
    """The database as a destination; its files are staged below `folder`."""
    return PostgresServerConfig.resolved(name="lake", **{**database.login, "staging": str(folder / "staging"), **more})


class Warehouse:
    """Commits get fences that rise."""

    def __init__(self, database: Database, folder: Path, wanted: Table = ORDERS, **config: Any) -> None:
        self.database, self.sql = database, database.execute
        self.to = PostgresDestination(config_of(database, folder, **config))
        self.fence = 0
        create(self.to, wanted, self.commit("make"))

    def commit(self, run: str = "", cursor: str = "") -> Commit:
        self.fence += 1
        self.to.write.claim(REF, self.fence)
        return Commit(run or f"r{self.fence}", self.fence, cursor, "print")

    def append(self, *rows: Row) -> LoadOutcome:
        return self.to.write.append(REF, [stage(self.to, REF, rows)], self.commit(cursor='{"upper": 7}'))

    def overwrite(self, *rows: Row) -> LoadOutcome:
        return self.to.write.overwrite(REF, [stage(self.to, REF, rows)], self.commit())

    def merge(self, *rows: Row, **how: Any) -> LoadOutcome:
        return self.to.write.merge(None, REF, [stage(self.to, REF, rows)], Merge(("id",), **how), self.commit())

    def change(self, after: Table, *changes: Any) -> None:
        self.to.schema.execute(REF, [step(REF, c) for c in changes], after, self.commit())

    def fill(
        self, *rows: Row, number: int = 1, columns: Sequence[str] = ("size",), holds: bool = False
    ) -> BackfillResult:
        schema = self.to.write.target(REF).schema
        part = pa.schema([f for f in schema if f.name in {"id", META, *columns}])
        values = (stage_table(self.to, REF, pa.Table.from_pylist(list(rows), part)),)
        wanted = Fill(("id",), dict.fromkeys(columns, number), values, META, "x", holds)
        return self.to.write.fill(None, REF, wanted, self.commit(), lambda rows, size: None, lambda: True)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return rows_of(self.to, REF, columns)
