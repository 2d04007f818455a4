"""MySQL and MariaDB as a source.

Identity: columns have no ids. InnoDB's table id is shown to users with the PROCESS privilege only. It begins with
`~`: an equal id under a new name proves a rename, but TRUNCATE, OPTIMIZE and many ALTERs give a table a new id, so
a new id under the old name proves nothing.

One consistent read: a consistent snapshot belongs to one connection, so all chunks of a table have one lane. It is read
by several connections whose snapshots show one state (shared_view.py), else by one: each table is one consistent view,
not older than what it was planned by, and two tables may be of different moments. Whoever is free reads the next chunk,
so chunks need not be even: their bounds divide the range of an integer key.

`source test` for MySQL and MariaDB: each line says what was tried and, if it failed, what to run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal as Number
from decimal import InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError, ReadError
from instep.model import Check, LogNames
from instep.project.sections.databases import MySqlSourceSection
from instep.project.sections.reach import VERIFY
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Boolean, DataType, Date, Decimal, Float, Int, String, Timestamp, TimestampTz
from instep.schema.planning.projection import TableRead
from instep.sources.base import NOT_GUARANTEED, CursorBounds, CursorRange, Discovery
from instep.sources.log import ChangeLog
from instep.sources.mysql.binlog.log import MySqlLog
from instep.sources.mysql.catalog import (
    borrowing_tables,
    has_snapshots,
    read_catalog,
    read_fingerprint,
    table_statistics,
    value_definitions,
)
from instep.sources.mysql.connect import connect, first, run, translated
from instep.sources.mysql.read import MySqlReader
from instep.sources.mysql.types import literal, locking, probing, query_type, quoted, quoted_table, selected
from instep.sources.query import cursor_source, differing, filters, ranges, rows_where, source_columns
from instep.sources.server import nearest
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    import pymysql


CHUNK_ROWS = 1_000_000
CHUNK_BYTES = 256 << 20
TOGETHER = 10
"""Connections of one sync that read a table together or watch there, if `max_connections` does not say how many."""
CLIENT_ERRORS = range(2000, 3000)
"""Numbers of errors that are about the connection, not about the query."""


class MySqlSource:
    """See the module. Every error names the server or table, the cause and the next step."""

    kind = "mysql"

    def __init__(self, config: MySqlSourceSection) -> None:
        self.config = config
        self.default_schema = config.database

    def log(self, names: LogNames) -> ChangeLog:
        return MySqlLog(self.config)

    def test(self) -> list[Check]:
        """Log in; check that tables are visible and readable, and ids visible."""
        return checks(self.config)

    def fingerprint(self) -> str:
        with nearest(self.config, connect) as at, translated(at.config, f"{at.config.place}, reading its schema"):
            return read_fingerprint(at.connection, at.config)

    def discover(self) -> Discovery:
        with nearest(self.config, connect) as at, translated(at.config, f"{at.config.place}, reading its schema"):
            return read_catalog(at.connection, at.config)

    @contextmanager
    def snapshot(self) -> Iterator[MySqlSnapshot]:
        """Open a connection for the catalog, counts and bounds, statement by statement: a transaction would keep a
        lock on the definition of each table that it has read. Readers open consistent snapshots, which are later
        ones."""
        with nearest(self.config, connect) as at:
            yield MySqlSnapshot(at.config, at.connection, at.note)


class MySqlSnapshot:
    """The server while one connection is open: each statement sees what is committed by then, and tasks see no less.
    `note`: what is unusual about it."""

    def __init__(self, config: MySqlSourceSection, connection: pymysql.Connection[Any], note: str = "") -> None:
        self.config, self.note = config, note
        self._connection, self._left = connection, TOGETHER
        self.reader = MySqlReader(config)

    def discover(self) -> Discovery:
        with translated(self.config, f"{self.config.place}, reading its schema"):
            return read_catalog(self._connection, self.config)

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        """Return the types that a read yields: numbers, bytes and JSON as themselves, all else as text."""
        return {c.column.name: query_type(c.source.type, c.source.native) for c in read.columns if c.source}

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return ranges of an integer key's first column of about a million rows or 256 MB, else the whole table.
        The first and the last range are open, as the lane's view may be later than this snapshot."""
        what = ", ".join(map(selected, source_columns(read, columns)))
        select = f"SELECT {what} FROM {quoted_table(*read.source.ref)}"  # noqa: S608
        with translated(self.config, f"planning the read of {read.source.path}"):
            stats = table_statistics(self._connection, read.source.ref)
            ends = (
                self._bounds(read, max(stats.rows // CHUNK_ROWS, stats.bytes // CHUNK_BYTES))
                if rows.lower is None
                else []
            )
        parts, within = ranges(_leading_key(read), ends), [*_range_conditions(read, rows), *filters(read)]
        share = len(parts)
        together = self._parallel_reads(read, share)
        self.reader = replace(self.reader, together=max(self.reader.together, together))
        return [
            Chunk(
                key,
                number,
                rows_where(select, [*part, *within]),
                stats.rows // share,
                stats.bytes // share,
                lane=key,
                probe=probing(read.source.ref),
                connections=together,
                lock=locking(read.source.ref),
            )
            for number, part in enumerate(parts)
        ]

    def _parallel_reads(self, read: TableRead, chunks: int) -> int:
        """Return how many connections may read the table. Rows without a key are numbered in the order in which they
        are read; other engines than InnoDB have no snapshots. Without a bound of connections the first of the large
        tables get them: all others are read by one each."""
        most = self.config.max_connections
        bound = min(self.config.table_connections, most - 2 if most else self._left - 1, chunks)
        if bound < 2 or not read.table.key or not has_snapshots(self._connection, read.source.ref):
            return 1
        self._left -= 0 if most else bound + 1
        return bound

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        """Return (`after` moved back, the greatest value and the number of NULLs), texts as the server writes them
        in UTC."""
        source = _cursor_column(read, column)
        name = quoted(source.name)
        query = (
            f"SELECT CAST({_comparable(source, f'MAX({name})')} AS CHAR), COUNT(*) - COUNT({name})"  # noqa: S608
            f" FROM {quoted_table(*read.source.ref)}"
        )
        query = rows_where(query, filters(read))
        with translated(self.config, f"reading the cursor {read.source.path}.{source.name}"):
            upper, nulls = first(self._connection, query)
            return self._moved_back(read, source, after, lookback), CursorBounds(upper, int(nulls))

    def count(self, read: TableRead) -> int:
        with translated(self.config, f"counting {read.source.path}"):
            query = f"SELECT COUNT(*) FROM {quoted_table(*read.source.ref)}"  # noqa: S608
            return int(first(self._connection, rows_where(query, filters(read)))[0])

    @property
    def dialect(self) -> str:
        return "mysql"

    def filter_error(self, read: TableRead) -> str:
        query = rows_where(f"EXPLAIN SELECT 1 FROM {quoted_table(*read.source.ref)}", filters(read))  # noqa: S608
        from pymysql.err import MySQLError

        with translated(self.config, f"the filter of {read.source.path}"):
            try:
                run(self._connection, query)
            except MySQLError as error:
                code = error.args[0] if error.args else 0
                if code < 1000 or code in CLIENT_ERRORS:
                    raise
                return str(error.args[-1])
        return ""

    def weak_key(self, table: Table) -> str:
        """Return why the key is weak: tables that show rows of others do not keep it unique."""
        return NOT_GUARANTEED if table.ref in self._borrowing else ""

    @cached_property
    def _borrowing(self) -> frozenset[tuple[str, str]]:
        with translated(self.config, f"{self.config.place}, reading its schema"):
            return borrowing_tables(self._connection, self.config)

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        return differing(catalog, self.discover().catalog)

    def definitions(
        self, reads: Sequence[TableRead], before: Mapping[tuple[str, str], Mapping[str, str]]
    ) -> dict[tuple[str, str], dict[str, str]]:
        with translated(self.config, f"{self.config.place}, reading its schema"):
            return value_definitions(self._connection, [r.source.ref for r in reads])

    def _bounds(self, read: TableRead, cuts: int) -> list[int]:
        """Return where chunks begin, without the first."""
        key = _leading_key(read)
        if not key or cuts < 1:
            return []
        query = f"SELECT MIN({key}), MAX({key}) FROM {quoted_table(*read.source.ref)}"  # noqa: S608
        low, high = first(self._connection, query)
        if low is None or high - low < cuts:
            return []
        return [int(low) + (int(high) - int(low)) * at // (cuts + 1) for at in range(1, cuts + 1)]

    def _moved_back(self, read: TableRead, source: Column, after: str | None, lookback: float) -> str | None:
        if after is None or not lookback:
            return after
        where = f"cursor {read.source.path}.{source.name}"
        if isinstance(source.type, Int | Decimal | Float):
            return format(_number(after, where) - Number(str(lookback)), "f")
        if not isinstance(source.type, Date | Timestamp | TimestampTz):
            raise ReadError(f"{where}: text cannot be moved back", hint="set the lookback of this table to 0")
        kind = "DATE" if isinstance(source.type, Date) else "DATETIME(6)"
        moved = f"CAST({literal(after)} AS DATETIME(6)) - INTERVAL {float(lookback):f} SECOND"
        query = f"SELECT CAST(CAST({moved} AS {kind}) AS CHAR)"
        back = first(self._connection, query)[0]
        if back is None:
            raise ReadError(f"{where}: {after!r} is not a date", hint="run a full sync of this table")
        return str(back)


def _leading_key(read: TableRead) -> str:
    """Return the quoted first column of the primary key if it is an integer, else ""."""
    first = next((c for c in read.source.columns if c.key == 1), None)
    integer = first is not None and (isinstance(first.type, Int) or first.native.startswith("bigint"))
    return quoted(first.name) if first is not None and integer else ""


def _cursor_column(read: TableRead, column: str) -> Column:
    source = cursor_source(read, column)
    ordered = isinstance(source.type, Int | Decimal | Float | Date | Timestamp | TimestampTz)
    text = isinstance(source.type, String) and source.native.startswith(("char", "varchar"))
    if not (ordered or text) or isinstance(source.type, Boolean) or source.native.startswith("bit"):
        raise ReadError(
            f"{read.source.path}.{column} cannot be a cursor: {source.native} has no order that changes follow",
            hint="choose a number, a date, a time stamp or a varchar",
        )
    return source


def _comparable(column: Column, value: str) -> str:
    """Return SQL to compare by: a float's own text has six digits, as a double it has all."""
    return f"{value} * 1e0" if isinstance(column.type, Float) else value


def _range_conditions(read: TableRead, rows: CursorRange) -> list[str]:
    if rows.column is None:
        return []
    source = _cursor_column(read, rows.column)
    name = quoted(source.name)
    where = f"cursor {read.source.path}.{source.name}"
    numeric = isinstance(source.type, Int | Decimal | Float)
    return [
        f"{_comparable(source, name)} {operator} {_number(bound, where) if numeric else literal(bound)}"
        for operator, bound in ((">=", rows.lower), ("<=", rows.upper))
        if bound is not None
    ]


def _number(text: str, where: str) -> Number:
    """Return a number as SQL takes it unquoted: quoted, it would be compared as a rounded double."""
    try:
        number = Number(text)
    except InvalidOperation:
        number = Number("NaN")
    if not number.is_finite():
        raise ReadError(f"{where}: {text!r} is not a number", hint="run a full sync of this table")
    return number


_APART = 5.0
"""Seconds that clocks may differ."""


def checks(config: MySqlSourceSection) -> list[Check]:
    """Log in, then check what the login may see and do; on the replica that would be read, if any is."""
    try:
        with nearest(config, connect) as at, translated(at.config):
            checked = _inside(at.config, at.connection)
    except InstepError as error:
        return [Check("log in", False, error.message, error.hint)]
    return [*checked, Check("replica", False, at.note, "check read_replica", needed=False)] if at.note else checked


def _inside(config: MySqlSourceSection, connection: pymysql.Connection[Any]) -> list[Check]:
    version, account, comment = first(connection, "SELECT VERSION(), CURRENT_USER(), @@version_comment")
    name, _, host = str(account).rpartition("@")
    to = f"TO {literal(name)}@{literal(host)};"
    discovery = read_catalog(connection, config)
    return [
        Check("log in", True, f"{config.place} ({version})"),
        _encrypted(config, connection),
        _proxy(str(comment)),
        _replica(connection),
        _clock(connection),
        _tables(config, len(discovery.catalog.tables), to),
        *_denied(discovery.denied, to),
        _ids(bool(discovery.identity), to),
    ]


def _encrypted(config: MySqlSourceSection, connection: pymysql.Connection[Any]) -> Check:
    status = run(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    if not (status and status[0][1]):
        hint = "" if config.tls.chosen == "disable" else "turn TLS on at the server, then set tls.mode to verify-full"
        return Check("tls", not hint, "the connection is not encrypted", hint, needed=False)
    checked = "is" if config.tls.chosen in VERIFY else "is not"
    return Check("tls", True, f"encrypted; the server's certificate {checked} checked")


def _proxy(comment: str) -> Check:
    named = next((name for name in ("ProxySQL", "MaxScale") if name.lower() in comment.lower()), "")
    if not named:
        return Check("proxy", True, "none in between")
    hint = "set host and port to the server itself: a proxy may spread the queries of one read over servers"
    return Check("proxy", False, f"{named} is in between", hint, needed=False)


def _replica(connection: pymysql.Connection[Any]) -> Check:
    closed = first(connection, "SELECT @@global.read_only")[0]
    return Check("replica", True, "read only: a replica, most likely" if closed else "this server may be written to")


def _clock(connection: pymysql.Connection[Any]) -> Check:
    before = time.time()
    server = float(first(connection, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")[0])
    apart = max(before - server, server - time.time(), 0.0)
    hint = "" if apart <= _APART else "synchronise the clocks: this one says when rows were synced"
    return Check("clock", not hint, f"{apart:.0f} s from this machine's", hint, needed=False)


def _tables(config: MySqlSourceSection, count: int, to: str) -> Check:
    hint = f"GRANT SELECT ON {quoted(config.database)}.* {to} -- or check `database`, `include` and `exclude`"
    return Check("list tables", bool(count), f"{count} tables and views", "" if count else hint)


def _denied(denied: Mapping[tuple[str, ...], str], to: str) -> Iterable[Check]:
    """Yield one line a table, its columns together."""
    tables: dict[tuple[str, str], list[str]] = {}
    for ref in sorted(denied):
        tables.setdefault((ref[0], ref[1]), []).extend(ref[2:])
    for (schema, table), columns in tables.items():
        what = f"SELECT ({', '.join(map(quoted, columns))})" if columns else "SELECT"
        why = denied[(schema, table, columns[0]) if columns else (schema, table)]
        named = f": {', '.join(columns)}" if columns else ""
        grant = f"GRANT {what} ON {quoted_table(schema, table)} {to}"
        yield Check(f"read {schema}.{table}", False, f"{why}{named}", grant)


def _ids(visible: bool, to: str) -> Check:
    if visible:
        return Check("see table ids", True, "table ids are visible")
    detail = "without the PROCESS privilege renamed tables are not recognised"
    return Check("see table ids", False, detail, f"GRANT PROCESS ON *.* {to}", needed=False)
