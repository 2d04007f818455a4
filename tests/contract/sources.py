"""The sources that the contract suite runs over. To add one, write a function that yields a `Case` and
register it; the suite needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from instep.sources.base import Source

if TYPE_CHECKING:
    import pytest


class MakeSource(Protocol):
    """A source over the case's database. `restricted` logs in as a user whose rights the case can take away."""

    def __call__(
        self, *, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False
    ) -> Source: ...


@dataclass(frozen=True)
class Case:
    """One source over a database of its own, empty at the start.

    `execute` runs one statement as the owner and commits it. `schema` is what new tables are listed under.
    """

    kind: str
    schema: str
    execute: Callable[[str], Any]
    source: MakeSource
    quote: Callable[[str], str]
    table_ids: bool = False
    column_ids: bool = False
    isolates: bool = True
    """Rows committed after the snapshot began are not read."""
    case_sensitive: bool = True
    """`Orders` and `orders` are two tables."""
    name_bytes: int = 63
    deny: Callable[[str], None] | None = None
    """Takes the restricted user's right to read this table; None where the source has no rights."""
    comments: bool = False
    views: bool = True


Open = Callable[["pytest.FixtureRequest"], AbstractContextManager[Case]]
SOURCES: dict[str, Open] = {}


def register(kind: str) -> Callable[[Callable[[pytest.FixtureRequest], Iterator[Case]]], Open]:
    """Decorates a generator function that yields one `Case`: adds it to the suite as `kind`."""

    def add(make: Callable[[pytest.FixtureRequest], Iterator[Case]]) -> Open:
        SOURCES[kind] = contextmanager(make)
        return SOURCES[kind]

    return add


@register("postgres")
def postgres(request: pytest.FixtureRequest) -> Iterator[Case]:

    from instep.sources.postgres.source import PostgresSource
    from instep.sources.postgres.types import quote

    database = request.getfixturevalue("postgres")

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        config = database.reader if restricted else database.config
        return PostgresSource(config.model_copy(update={"include": include, "exclude": exclude}))

    def deny(table: str) -> None:
        database.execute(f"REVOKE ALL ON {quote(table)} FROM {quote(database.reader.user)}")

    yield Case(
        "postgres", "public", database.execute, source, quote,
        table_ids=True, column_ids=True, deny=deny, comments=True,
    )  # fmt: skip


def _sqlite(request: pytest.FixtureRequest, kind: str, journal: str) -> Iterator[Case]:
    import sqlite3
    from contextlib import closing

    from instep.project.sections.sources import SqliteSourceSection
    from instep.sources.sqlite.catalog import quoted
    from instep.sources.sqlite.source import SqliteSource

    path = str(request.getfixturevalue("tmp_path") / "odd #name? %41.db")

    def execute(sql: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(sql)

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        return SqliteSource(SqliteSourceSection.resolved(type="sqlite", path=path, include=include, exclude=exclude))

    execute(f"PRAGMA journal_mode = {journal}")
    execute("PRAGMA user_version = 1")
    yield Case(kind, "main", execute, source, quoted, isolates=False, case_sensitive=False)


@register("sqlite")
def sqlite(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _sqlite(request, "sqlite", "delete")


@register("sqlite-wal")
def sqlite_wal(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _sqlite(request, "sqlite", "wal")


@register("mysql")
def mysql(request: pytest.FixtureRequest) -> Iterator[Case]:

    import pytest

    from instep.sources.mysql.source import MySqlSource
    from instep.sources.mysql.types import quoted

    database = request.getfixturevalue("mariadb")

    def execute(sql: str) -> object:
        if "`🫖" in sql:
            pytest.skip("names have no letters beyond the basic plane")
        return database.execute(sql)

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        config = database.reader if restricted else database.config
        return MySqlSource(config.model_copy(update={"include": include, "exclude": exclude}))

    yield Case("mysql", database.config.database, execute, source, quoted, isolates=False)


@register("jdbc-postgres")
def jdbc_postgres(request: pytest.FixtureRequest) -> Iterator[Case]:
    from instep.sources.jdbc.config import JdbcConfig
    from instep.sources.jdbc.source import JdbcSource
    from instep.sources.postgres.types import quote
    from jdbc_world import PGJDBC, session

    database = request.getfixturevalue("postgres")
    own = database.config

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        login = database.reader if restricted else own
        config = JdbcConfig.resolved(
            subprotocol="postgresql", host=own.host, port=own.port, database=own.database, user=login.user,
            password=login.password, jars=(PGJDBC,), include=include, exclude=exclude, partitions=2,
        )  # fmt: skip
        return JdbcSource(config, session)

    yield Case("jdbc", "public", database.execute, source, quote, isolates=False, comments=True)


@register("jdbc-sqlite")
def jdbc_sqlite(request: pytest.FixtureRequest) -> Iterator[Case]:
    import sqlite3
    from contextlib import closing

    import pytest

    from instep.sources.jdbc.config import JdbcConfig
    from instep.sources.jdbc.source import JdbcSource
    from instep.sources.sqlite.catalog import quoted
    from jdbc_world import session

    path = str(request.getfixturevalue("tmp_path") / "shop.db")

    def execute(sql: str) -> None:
        if '"it\'s"' in sql:
            pytest.skip("the driver does not quote this name in queries of its own")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(sql)

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        return JdbcSource(
            JdbcConfig.resolved(subprotocol="sqlite", database=path, include=include, exclude=exclude), session
        )

    execute("PRAGMA user_version = 1")
    yield Case("jdbc", "main", execute, source, quoted, isolates=False, case_sensitive=False)


def _files(request: pytest.FixtureRequest, form: str) -> Iterator[Case]:
    from files_world import FilesDatabase
    from instep.sources.files.source import FilesSource

    database = FilesDatabase(request.getfixturevalue("tmp_path") / "odd #folder %41", form)

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        return FilesSource(database.config(include=include, exclude=exclude), database.records)

    with database:
        yield Case(f"files-{form}", "files", database.execute, source, database.quoted, isolates=False, views=False)


@register("files-parquet")
def files_parquet(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _files(request, "parquet")


@register("files-csv")
def files_csv(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _files(request, "csv")


def _memory(kind: str, ids: bool) -> Iterator[Case]:
    from memory.database import MemoryDatabase
    from memory.source import MemorySource
    from memory.sql import execute

    database = MemoryDatabase(ids=ids)

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
        return MemorySource(database, include, exclude, restricted, chunk_rows=2)

    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    yield Case(
        kind, database.schema, lambda sql: execute(database, sql), source, quoted,
        table_ids=ids, column_ids=ids, deny=database.denied.add, comments=True,
    )  # fmt: skip


@register("memory")
def memory(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _memory("memory", ids=True)


@register("memory without ids")
def memory_without_ids(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _memory("memory", ids=False)
