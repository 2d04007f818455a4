"""A world whose tables follow the log of a PostgreSQL database."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.sources import Case
from instep.model import LogNames, TableSettings
from instep.sources.base import Source
from instep.sources.postgres.source import PostgresConfig, PostgresSource
from instep.sources.postgres.sql import quote
from instep.sources.postgres.wal.log import PostgresLog
from instep.sync.pipe import Pipe
from memory.destination import MemoryDestination
from postgres_server import Database
from sync_world import World

NAMES = LogNames("instep_shop", "instep_shop")
LOG = TableSettings(mode="log")


class _Limited(PostgresSource):
    def __init__(self, config: PostgresConfig, limits: dict[str, Any]) -> None:
        super().__init__(config)
        self.limits = limits

    def log(self, names: LogNames) -> PostgresLog:
        return PostgresLog(self.config, names, **self.limits)


@dataclass
class LogWorld(World):
    """`settings` are those of tables by name; all others follow the log. `log` are limits of the reader of the log."""

    database: Database | None = None
    log: dict[str, Any] = field(default_factory=dict)
    follows: bool = True

    @classmethod
    def of(cls, database: Database, folder: Path, destination: Any = None) -> LogWorld:
        """Into tables of this process, unless there is another destination."""

        limits: dict[str, Any] = {}

        def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
            config = database.reader if restricted else database.config
            return _Limited(replace(config, include=include, exclude=exclude), limits)

        case = Case("postgres", "public", database.execute, source, quote, table_ids=True, column_ids=True)
        world = cls(case, folder, engine="inline", database=database, log=limits)
        world.destination = destination or MemoryDestination(folder)
        return world

    @property
    def pipe(self) -> Pipe:
        return replace(
            super().pipe, settings=lambda t: self.settings.get(t.name, LOG), log=NAMES if self.follows else None
        )

    def sql(self, statement: str) -> Any:
        """The only value of a query's only row."""
        assert self.database is not None
        return self.database.execute(statement)[0][0]

    @property
    def slot(self) -> Any:
        """Where the server may forget what is before."""
        return self.sql("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'instep_shop'")
