"""Bring the control database to this version's tables. A new database gets them as they are declared; Alembic, which
takes longer to load than a small sync, is only for databases that have tables already."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, create_mock_engine, inspect, text
from sqlalchemy.schema import CreateIndex, ExecutableDDLElement

from instep.errors import Conflict
from instep.store.engine.database import START_OVER, Database

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0100"
"""The newest revision: four digits that grow, so that a later one is the greater text."""
PLACE = "instep.store:migrations"
"""The folder of the migrations, in Alembic's notation."""


def version(connection: Connection) -> str:
    """Return the revision of the database, "" for one without tables."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or "")


def unknown_maker(revision: str) -> str:
    """Return who made a store at `revision`, if this code cannot bring it to its own; "" if it can."""
    if revision > HEAD:
        return "a newer instep"
    if revision in ("", HEAD) or revision in _revisions():
        return ""
    return "a development version of instep that cannot be upgraded"


def check(database: Database, revision: str) -> None:
    """Raise Conflict if this code cannot use the store, which is at `revision`."""
    maker = unknown_maker(revision)
    if not maker:
        return
    hint = "update instep, or use another store"
    if revision < HEAD:
        hint = START_OVER
    raise Conflict(
        f"the store {database.place} was made by {maker} (its version is {revision}, this one knows {HEAD})", hint=hint
    )


def upgrade(database: Database) -> None:
    """Create or update the tables in one transaction; raise Conflict if this code knows no path from theirs."""
    with database.read() as connection:
        revision = version(connection)
    if revision == HEAD:
        return
    check(database, revision)
    with database.write() as connection:
        if not inspect(connection).get_table_names():
            create(connection)
        elif version(connection) != HEAD:  # another process may have been first
            run(connection, HEAD)


def create(connection: Connection) -> None:
    """Create this version's tables in an empty database, as all migrations in a row do."""
    for statement in create_statements(connection.engine.url.drivername):
        connection.exec_driver_sql(statement)
    key = "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
    connection.execute(text(f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, {key})"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


@cache
def create_statements(driver: str) -> tuple[str, ...]:
    """Return the statements that create the tables, then their indexes by name: in one order in every process, because
    SQLite takes of two indexes that look alike the one that was made last.

    Compiling takes as long as running them, and a process may open many stores.
    """
    from instep.store.tables.all import metadata

    tables: list[str] = []
    indexes: list[str] = []

    def collect(statement: ExecutableDDLElement, *_: Any, **__: Any) -> None:
        group = indexes if isinstance(statement, CreateIndex) else tables
        group.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{driver}://", collect)
    metadata.create_all(engine, checkfirst=False)
    return (*tables, *sorted(indexes))


def run(connection: Connection, target: str) -> None:
    """Migrate up or down to `target` ("base" for no tables) inside the open transaction."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    if target == "base" or target < version(connection):
        command.downgrade(config, target)
    else:
        command.upgrade(config, target)


def _revisions() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", PLACE)
    config.set_main_option("path_separator", "os")
    return config
