"""A world whose tables follow the log of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
from followed import Followed, Limits

from contract.sources import Case, MakeSource
from instep.model import LogNames
from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import conninfo
from instep.sources.postgres.source import PostgresSource
from instep.sources.postgres.types import quote
from instep.sources.postgres.wal.log import PostgresLog
from postgres_server import Database


class _Limited(PostgresSource):
    def __init__(self, config: PostgresSourceSection, limits: Limits) -> None:
        super().__init__(config)
        self.limits = limits

    def log(self, names: LogNames) -> PostgresLog:
        return PostgresLog(self.config, names, **self.limits)


@dataclass
class LogWorld(Followed):
    @classmethod
    def of(cls, database: Database, folder: Path, destination: Any = None) -> Self:
        def case(source: MakeSource) -> Case:
            return Case("postgres", "public", database.execute, source, quote, table_ids=True, column_ids=True)

        return cls.over(database, folder, destination, _Limited, case)

    @contextmanager
    def transaction(self) -> Iterator[Callable[[str], Any]]:
        with psycopg.connect(conninfo(self.database.config)) as connection:
            yield lambda statement: connection.execute(statement.encode())

    @property
    def slot(self) -> Any:
        """Where the server may forget what is before."""
        return self.sql("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'instep_shop'")
