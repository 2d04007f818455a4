"""Brings the control database to this version's tables. A new one gets them as they are declared; Alembic, which takes
longer to load than a small sync, is for those that have tables already."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection, create_mock_engine, inspect, text
from sqlalchemy.schema import ExecutableDDLElement

from instep.errors import Conflict
from instep.store.database import Database

HEAD = "0031"
_PLACE = "instep.store:migrations"


def version(connection: Connection) -> str:
    """The revision that the database is at, "" for one without tables."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or "")


def upgrade(database: Database) -> None:
    """Creates or updates the tables in one transaction; raises Conflict if they are newer than this code."""
    with database.read() as connection:
        found = version(connection)
    if found == HEAD:
        return
    if found > HEAD:
        raise Conflict(
            f"the store {database.place} was made by a newer instep (its version is {found}, this one knows {HEAD})",
            hint="update instep, or use another store",
        )
    with database.write() as connection:
        if not inspect(connection).get_table_names():
            create(connection)
        elif version(connection) != HEAD:  # another process may have been first
            run(connection, HEAD)


def create(connection: Connection) -> None:
    """This version's tables in an empty database: what all migrations in a row make."""
    for statement in _statements(connection.engine.url.drivername):
        connection.exec_driver_sql(statement)
    key = "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
    connection.execute(text(f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, {key})"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


@cache
def _statements(driver: str) -> tuple[str, ...]:
    """What creates the tables. To compile it takes as long as to run it, and a process may open many stores."""
    from instep.store.all_tables import metadata

    found: list[str] = []

    def keep(statement: ExecutableDDLElement, *_: Any, **__: Any) -> None:
        found.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{driver}://", keep)
    metadata.create_all(engine, checkfirst=False)
    return tuple(found)


def run(connection: Connection, target: str) -> None:
    """Migrates up or down to `target` ("base" for no tables) inside the open transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _PLACE)
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    if target == "base" or target < version(connection):
        command.downgrade(config, target)
    else:
        command.upgrade(config, target)
