"""A world whose tables follow the binary log of a MariaDB database."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.sources import Case
from instep.model import LogNames, TableSettings
from instep.sources.base import Source
from instep.sources.mysql.binlog.log import MySqlLog
from instep.sources.mysql.connect import MySqlConfig
from instep.sources.mysql.source import MySqlSource
from instep.sources.mysql.sql import quoted
from instep.sync.pipe import Pipe
from mariadb import MariaDatabase, open_as
from memory.destination import MemoryDestination
from sync_world import World

NAMES = LogNames("instep_shop", "instep_shop")
LOG = TableSettings(mode="log")


class _Limited(MySqlSource):
    def __init__(self, config: MySqlConfig, limits: dict[str, Any]) -> None:
        super().__init__(config)
        self.limits = limits

    def log(self, names: LogNames) -> MySqlLog:
        return MySqlLog(self.config, **self.limits)


@dataclass
class BinlogWorld(World):
    """`settings` are those of tables by name; all others follow the log. `log` are limits of the reader of the log."""

    database: MariaDatabase | None = None
    log: dict[str, Any] = field(default_factory=dict)
    follows: bool = True

    @classmethod
    def of(cls, database: MariaDatabase, folder: Path, destination: Any = None) -> BinlogWorld:
        """Into tables of this process, unless there is another destination."""
        limits: dict[str, Any] = {}

        def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
            config = database.reader if restricted else database.config
            return _Limited(replace(config, include=include, exclude=exclude), limits)

        case = Case("mysql", database.config.database, database.execute, source, quoted, isolates=False)
        world = cls(case, folder, engine="inline", database=database, log=limits)
        world.destination = destination or MemoryDestination(folder)
        return world

    @property
    def pipe(self) -> Pipe:
        return replace(
            super().pipe, settings=lambda t: self.settings.get(t.name, LOG), log=NAMES if self.follows else None
        )

    def together(self, *statements: str) -> None:
        """Over one connection."""
        assert self.database is not None
        config = replace(self.database.admin, database=self.database.config.database)
        with open_as(config) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def sql(self, statement: str) -> Any:
        """The only value of a query's only row."""
        assert self.database is not None
        return self.database.execute(statement)[0][0]


def grant(database: MariaDatabase, user: str = "") -> None:
    """Lets its owner, or another user, read the binary log."""
    with open_as(database.admin) as connection, connection.cursor() as cursor:
        cursor.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user or database.config.user}@'%'")


def admin(world: BinlogWorld, statement: str) -> list[tuple[Any, ...]]:
    """What concerns the whole server."""
    assert world.database is not None
    with open_as(world.database.admin) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
