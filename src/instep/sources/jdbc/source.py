"""Any database with a JDBC driver as a source.

Identity: none. Tables and columns are known by their names alone.

No read point: JDBC gives none that connections can share. Each part of a table is one statement, consistent as far as
the database's isolation makes a statement so; parts and tables are of different moments. Merges by key let the later
of two versions win, and a sync with a cursor reads what it missed with the next one; the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from instep.errors import ConnectError, InstepError, ReadError, SourceLost
from instep.model import Check
from instep.project.sections.values import as_text
from instep.schema.catalog.catalog import Catalog, Column, Table, fingerprint
from instep.schema.catalog.types import DataType
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import NOT_GUARANTEED, CursorBounds, CursorRange, Discovery, WholeCatalog
from instep.sources.jdbc.catalog import tables
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.read import JdbcQuery, JdbcReader, conditions, part_column
from instep.sources.jdbc.sql import Sql, cursor_column, filter_fault
from instep.sources.jdbc.types import query_type
from instep.sources.mysql.catalog import BORROWING
from instep.sources.postgres.catalog import PARENTS
from instep.sources.query import differing, digest, filters, moved_back, source_columns
from instep.sources.sqlite.types import untyped_key
from instep.spark.jdbc import JdbcConnection, connect
from instep.stage.spec import Chunk, SourceLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SOUND = {"postgresql": (42, 7, 12)}
"""The first version of a driver without a published flaw."""
_TLS = {
    "postgresql": ("sslmode", ("verify-full", "verify-ca", "require")),
    "mysql": ("sslMode", ("VERIFY_IDENTITY", "VERIFY_CA", "REQUIRED")),
    "mariadb": ("sslMode", ("verify-full", "verify-ca", "trust")),
    "sqlserver": ("encrypt", ("true", "strict")),
}
"""By subprotocol: the option that asks for TLS, and its values that insist on it."""
_TRIED = 200
_WEAK_KEYS = {"postgresql": PARENTS, "mysql": BORROWING, "mariadb": BORROWING}
"""Query for the tables whose primary keys do not hold, by subprotocol, in databases that enforce them."""


def checks(config: JdbcConfig, connection: JdbcConnection, discovery: Discovery) -> list[Check]:
    """Return one line for the driver, the login, TLS where it is a server's, the tables, and each table that
    refuses."""
    meta = connection.metadata()
    driver = f"{meta.getDriverName()} {meta.getDriverVersion()}"
    server = f"{meta.getDatabaseProductName()} {str(meta.getDatabaseProductVersion()).splitlines()[0]}"
    quote = meta.getIdentifierQuoteString() or ""
    count = len(discovery.catalog.tables)
    hint = "" if count else "check `schemas`, `include` and `exclude`, and the rights of the login"
    return [
        _driver(config, driver),
        Check("connect", True, f"{config.address}: {server}"),
        *_tls(config),
        Check("list tables", bool(count), f"{count} tables and views", hint),
        *(Check(f"read {'.'.join(ref)}", False, why, "`exclude` the table") for ref, why in discovery.denied.items()),
        *_unreadable(connection, Sql(config.dialect, quote), discovery.catalog),
    ]


def _driver(config: JdbcConfig, text: str) -> Check:
    sound, version = SOUND.get(config.kind), re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if sound and version and tuple(map(int, version.groups())) < sound:
        sound_version = ".".join(map(str, sound))
        return Check("driver", False, f"{text} has published flaws", f"use {sound_version} or newer", needed=False)
    return Check("driver", True, text)


def _tls(config: JdbcConfig) -> Iterator[Check]:
    if config.kind not in _TLS:
        return
    option, strict = _TLS[config.kind]
    option_value = {name.lower(): value for name, value in as_text(config.options).items()}.get(option.lower(), "")
    if option_value.lower() in [s.lower() for s in strict]:
        yield Check("tls", True, f"{option}={option_value}")
    else:
        hint = f"set {option}: {strict[0]} under `options`"
        yield Check("tls", False, "the connection may be in clear, or to anybody", hint, needed=False)


def _unreadable(connection: JdbcConnection, sql: Sql, catalog: Catalog) -> Iterator[Check]:
    """Yield tables that cannot be read, of the first ones; a driver lists what the login may not read, too."""
    for table in catalog.tables[:_TRIED]:
        try:
            with connection.describing(f"reading {table.path}"):
                connection.texts(sql.none(_whole(table)))
        except InstepError as error:
            grant = f"GRANT SELECT ON {sql.table(table)} TO the login, or `exclude` the table"
            yield Check(f"read {table.path}", False, error.message, grant)


def _whole(table: Table) -> TableRead:
    return TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))


class JdbcSource(WholeCatalog):
    """See the module. `start` gives the Spark session whose JVM the driver runs in."""

    kind = "jdbc"

    def __init__(self, config: JdbcConfig, start: Callable[[], SparkSession]) -> None:
        self.config, self._start = config, start

    @property
    def default_schema(self) -> str:
        return self.config.default_schema

    def test(self) -> list[Check]:
        """Load the driver, log in, and list tables."""
        try:
            _ = self.config.login  # what the settings refuse is told before a JVM starts
            with self.snapshot() as snapshot:
                discovery = snapshot.discover()
                return checks(self.config, snapshot.connection, discovery)
        except InstepError as error:
            name = "connect" if isinstance(error, ConnectError) else "set up the driver"
            return [Check(name, False, error.message, error.hint)]

    @contextmanager
    def snapshot(self) -> Iterator[JdbcSnapshot]:
        """Open a connection for the catalog and for bounds, until the context ends."""
        login = self.config.login
        with connect(self._start(), login, login.url) as connection:
            yield JdbcSnapshot(self.config, connection)


class JdbcSnapshot:
    """The database while one connection is open: no read point, see the module."""

    one_moment = False
    note = "JDBC has no read point that connections can share: tables are as of the moments when they were read"

    def __init__(self, config: JdbcConfig, connection: JdbcConnection) -> None:
        self.config, self.connection = config, connection

    @cached_property
    def sql(self) -> Sql:
        with self.connection.describing("asking how names are quoted"):
            return Sql(self.config.dialect, self.connection.metadata().getIdentifierQuoteString() or "")

    @cached_property
    def reader(self) -> JdbcReader:
        config = self.config
        limits = SourceLimits(config.max_connections, config.rows_per_second)
        return JdbcReader(config.login, self.sql.quote.strip(), config.fetch_size, config.query_timeout, limits)

    def discover(self) -> Discovery:
        selected, denied = tables(self.connection, self.config)
        catalog = Catalog.of(selected)
        parts = [fingerprint(catalog), sorted(denied), self.config.include, self.config.exclude, self.config.schemas]
        return Discovery(catalog, digest(parts), denied=denied)

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        """Return the types that a read yields: whole numbers, floats and bytes as they are, all else as the driver's
        text."""
        untyped = self.config.dialect.untyped
        return {c.column.name: query_type(c.source.type, untyped) for c in read.columns if c.source}

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return ranges of the column that divides the table; the first and the last are open, so that rows that
        come meanwhile belong to one of them."""
        chosen = source_columns(read, columns)
        column = part_column(self.config, read.source)
        parts = self._parts(read, column)
        by = column if len(parts) > 1 else None
        select = self.sql.select(read, chosen, by, [*self.sql.range_conditions(read, rows), *filters(read)])
        types = tuple(c.type for c in chosen)
        queries = [JdbcQuery(select, part, types, self.config.dialect.untyped).to_text() for part in parts]
        return [Chunk(key, n, query, lane=f"{key} {n}") for n, query in enumerate(queries)]

    def _parts(self, read: TableRead, column: Column | None) -> list[str]:
        if column is None or self.config.partitions == 1:
            return [""]
        low, high = self._texts(self.sql.ends(read, column), f"planning the read of {read.source.path}")
        if low is None or high is None:
            return [""]
        return conditions(self.sql, column, low, high, self.config)

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        """Return (`after` moved back, the greatest value and the number of NULLs); texts as the driver prints them."""
        source = cursor_column(read, column)
        where = f"{read.source.path}.{source.name}"
        upper, nulls = self._texts(self.sql.bounds(read, source), f"reading the cursor {where}")
        return moved_back(after, lookback, where), CursorBounds(upper, int(nulls or 0))

    def count(self, read: TableRead) -> int:
        return int(self._texts(self.sql.count(read), f"counting {read.source.path}")[0] or 0)

    def _texts(self, sql: str, doing: str) -> tuple[str | None, ...]:
        with self.connection.describing(doing):
            return self.connection.texts(sql, self.config.query_timeout)

    def weak_key(self, table: Table) -> str:
        """Return why the key is weak: the database only writes it down, or compares values of any type."""
        if self.config.dialect.untyped:
            return untyped_key(table)
        if not self.config.dialect.enforces_keys or self._weak is None or table.ref in self._weak:
            return NOT_GUARANTEED
        return ""

    @cached_property
    def _weak(self) -> frozenset[tuple[str, str]] | None:
        """The tables whose keys do not hold; None where a server that only speaks the protocol cannot tell them."""
        if self.config.kind not in _WEAK_KEYS:
            return frozenset()
        try:
            with self.connection.describing("asking which keys hold"):
                rows = self.connection.rows(_WEAK_KEYS[self.config.kind], 2, self.config.query_timeout)
        except SourceLost:
            raise
        except ReadError:
            return None
        return frozenset((str(schema), str(name)) for schema, name in rows)

    @property
    def dialect(self) -> str:
        return self.config.dialect.sql

    def filter_error(self, read: TableRead) -> str:
        if why := filter_fault(read.where):
            return why
        try:
            self._texts(self.sql.none(read), "trying the filter")
        except SourceLost:
            raise
        except ReadError as error:
            return error.message
        return ""

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        with connect(self.connection.spark, self.config.login, self.config.address) as connection:
            now = Catalog.of(tables(connection, self.config)[0])
        return differing(catalog, now)
