"""A world whose tables follow the binary log of a MariaDB database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from followed import Followed, Limits

from contract.sources import Case, MakeSource
from instep.model import LogNames
from instep.project.sections.databases import MySqlSourceSection
from instep.sources.mysql.binlog.log import MySqlLog
from instep.sources.mysql.source import MySqlSource
from instep.sources.mysql.types import quoted
from mariadb import MariaDatabase, open_as


class _Limited(MySqlSource):
    def __init__(self, config: MySqlSourceSection, limits: Limits) -> None:
        super().__init__(config)
        self.limits = limits

    def log(self, names: LogNames) -> MySqlLog:
        return MySqlLog(self.config, **self.limits)


@dataclass
class BinlogWorld(Followed):
    @classmethod
    def of(cls, database: MariaDatabase, folder: Path, destination: Any = None) -> Self:
        def case(source: MakeSource) -> Case:
            return Case("mysql", database.config.database, database.execute, source, quoted, isolates=False)

        return cls.over(database, folder, destination, _Limited, case)

    @contextmanager
    def transaction(self) -> Iterator[Callable[[str], Any]]:
        with open_as(self.database.config) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            yield cursor.execute
            connection.commit()

    def together(self, *statements: str) -> None:
        config = self.database.admin.model_copy(update={"database": self.database.config.database})
        with open_as(config) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def grant(database: MariaDatabase, user: str = "") -> None:
    """Lets its owner, or another user, read the binary log."""
    with open_as(database.admin) as connection, connection.cursor() as cursor:
        cursor.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user or database.config.user}@'%'")


def admin(world: BinlogWorld, statement: str) -> list[tuple[Any, ...]]:
    """What concerns the whole server."""
    with open_as(world.database.admin) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
