"""SQLite as a source: a file, read without writing to it.

Identity: SQLite keeps no immutable ids, so tables and columns are matched by name only.

One consistent read: a read transaction is open over the whole snapshot. With a rollback journal it would keep writers
out, so it is one of a copy, and chunks are read side by side. In WAL mode writers go on and a second connection sees a
later state, so all chunks of the snapshot share one lane: one connection, whose single read point is not before the
snapshot's. What is to be read again later is read from a copy in both modes. A reader refuses to start when the file
was replaced or a table altered in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from instep.errors import InstepError, ReadError
from instep.model import Check
from instep.project.sections.sources import SqliteSourceSection
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Binary, DataType, Date, Decimal, Float, Int, Time, Timestamp, TimestampTz
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorBounds, CursorRange, Discovery
from instep.sources.query import cursor_source, differing, filters, moved_back, ranges, rows_where, source_columns
from instep.sources.sqlite.catalog import (
    Contents,
    RowidStorage,
    contents,
    fingerprint,
    literal,
    quoted,
    row_id_range,
    statistics,
)
from instep.sources.sqlite.connect import (
    begin,
    connect,
    copied,
    describing,
    file_state,
    in_wal_mode,
    transaction,
    written_at,
)
from instep.sources.sqlite.read import SqliteReader, text
from instep.sources.sqlite.types import query_type, untyped_key
from instep.stage.spec import Chunk

_DAY = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]"
_CLOCK = "[0-2][0-9]:[0-5][0-9]"


def order_of(name: str, kind: DataType) -> tuple[str, str]:
    """Return SQL of each row, and over all rows the greatest value and the number without a value or of unknown
    order: text in a column of numbers; times that are not all written alike, or with an offset."""
    match kind:
        case Int() | Decimal() | Float():
            fits = f"typeof({name}) IN ('integer', 'real') AND abs({name}) < 9e999"
            return f"CASE WHEN {fits} THEN {name} END AS v", "max(v), count(*) - count(v)"
        case Date() | Time() | Timestamp() | TimestampTz():
            mixed = "min(f) <> max(f) OR min(f) = 0"
            return f"{name} AS v, {_form(name)} AS f", f"max(v), count(*) - CASE WHEN {mixed} THEN 0 ELSE count(v) END"
    return f"{name} AS v", "max(v), count(*) - count(v)"


def _form(name: str) -> str:
    """Return how a time is written, as a number: 0 for a form whose texts are not in the order of the times. What
    SQLite would write itself is found without a pattern, which takes ten times as long."""
    forms = (
        (f"typeof({name}) IN ('integer', 'real')", 1),
        (f"datetime({name}) = {name}", 4),
        (f"date({name}) = {name}", 2),
        (f"typeof({name}) <> 'text' OR {name} GLOB '*Z*' OR substr({name}, 11) GLOB '*[+-]*'", 0),
        (f"{name} GLOB '{_DAY}'", 2),
        (f"{name} GLOB '{_DAY} {_CLOCK}'", 3),
        (f"{name} GLOB '{_DAY} {_CLOCK}:[0-5][0-9]*'", 4),
        (f"{name} GLOB '{_DAY}T{_CLOCK}'", 5),
        (f"{name} GLOB '{_DAY}T{_CLOCK}:[0-5][0-9]*'", 6),
        (f"{name} GLOB '{_CLOCK}:[0-5][0-9]*'", 7),
    )
    whens = " ".join(f"WHEN {condition} THEN {number}" for condition, number in forms)
    return f"CASE WHEN {name} IS NULL THEN NULL {whens} ELSE 0 END"


CHUNK_ROWS = 1_000_000


class SqliteSource:
    """See the module. Every error names the file, the cause and the next step."""

    kind = "sqlite"
    default_schema = "main"

    def __init__(self, config: SqliteSourceSection, copies: str = "") -> None:
        """Make copies in a folder of `copies`, which tasks on other machines see, too; "" for the system's folder
        for temporary files."""
        self.config, self._copies = config, copies

    def test(self) -> list[Check]:
        """Check that the file opens, its schema can be read, and every selected table answers."""
        try:
            with transaction(self.config) as connection:
                discovery = SqliteSnapshot(self.config, connection).discover()
                wal = in_wal_mode(connection, self.config.path)
        except InstepError as error:
            return [Check("open the file", False, error.message, error.hint)]
        journal = "WAL" if wal else "rollback journal: each sync copies the file, so that writers need not wait for it"
        return [
            Check("open the file", True, f"{self.config.path} ({journal})"),
            _check_tables(len(discovery.catalog.tables)),
            *(
                Check(f"read {'.'.join(ref)}", False, why, "repair or exclude it")
                for ref, why in discovery.denied.items()
            ),
        ]

    def fingerprint(self) -> str:
        """Return a digest of all definitions in the file; VACUUM and `user_version` do not change it."""
        with connect(self.config) as connection, describing(self.config.path, ReadError, "reading its schema"):
            return fingerprint(connection, self.config)

    def discover(self) -> Discovery:
        with transaction(self.config) as connection:
            return SqliteSnapshot(self.config, connection).discover()

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Open a read transaction until the context ends; of a copy, where it would make writers wait."""
        with connect(self.config) as connection:
            written = written_at(self.config.path)
            if in_wal_mode(connection, self.config.path):
                begin(connection, self.config.path)
                yield SqliteSnapshot(self.config, connection, written=written)
                return
        with self.copied_snapshot(written) as snapshot:
            yield snapshot

    @contextmanager
    def copied_snapshot(self, written: str = "") -> Iterator[SqliteSnapshot]:
        """Open a read transaction of a copy, which is deleted once the context ends."""
        with (
            copied(self.config, self._copies) as copy,
            transaction(self.config.model_copy(update={"path": copy})) as connection,
        ):
            yield SqliteSnapshot(self.config, connection, copy, written)


def _check_tables(count: int) -> Check:
    hint = "" if count else "check `include` and `exclude`"
    return Check("list tables", bool(count), f"{count} tables and views", hint)


class SqliteSnapshot:
    """The file, or its `copy`, as of one read transaction, which began after the file was last `written`."""

    def __init__(
        self, config: SqliteSourceSection, connection: sqlite3.Connection, copy: str = "", written: str = ""
    ) -> None:
        self.config, self._written = config, written
        self._connection = connection
        self.reader = SqliteReader(config, file_state(connection, copy or config.path), copy)

    @cached_property
    def _contents(self) -> Contents:
        with describing(self.config.path, ReadError, "reading its schema"):
            return contents(self._connection, self.config)

    def discover(self) -> Discovery:
        selected = self._contents
        with describing(self.config.path, ReadError, "reading its schema"):
            return Discovery(
                Catalog.of(selected.tables),
                fingerprint(self._connection, self.config),
                stats=statistics(self._connection, selected),
                denied=selected.broken,
                broken=frozenset(selected.broken),
            )

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        """Return the types that a read yields: numbers and bytes as declared, all else as text; see `query_type` for
        values of other types."""
        return {c.column.name: query_type(c.source.type) for c in read.columns if c.source}

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return ranges of the row id of about a million rows; the first and the last are open, so that rows written
        after the snapshot's point (WAL mode) belong to one of them."""
        storage = self._storage(read)
        out = ", ".join(f"{_column(c)} AS {quoted(str(c.type))}" for c in source_columns(read, columns))
        select = f"SELECT {out} FROM main.{quoted(read.source.name)} AS t"  # noqa: S608
        within = [*_range_conditions(read, rows), *filters(read)]
        count, bounds = self._bounds(read, storage) if rows.lower is None else (0, [])
        parts = ranges(f"t.{quoted(storage.rowid)}", bounds)
        lane = "" if self.reader.copy else "sqlite"
        return [
            Chunk(key, number, rows_where(select, [*part, *within]), count // len(parts), lane=lane)
            for number, part in enumerate(parts)
        ]

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        """Return (`after` moved back, the greatest value and the number of rows without an order); text forms as
        SQLite stores them."""
        source = _cursor_column(read, column)
        each, over_all = order_of(_column(source), source.type)
        rows = rows_where(f"SELECT {each} FROM main.{quoted(read.source.name)} AS t", filters(read))  # noqa: S608
        query = f"SELECT {over_all} FROM ({rows} LIMIT -1)"  # noqa: S608 - the limit has each row looked at once
        with describing(self.config.path, ReadError, f"reading the cursor {read.source.path}.{source.name}"):
            upper, nulls = self._connection.execute(query).fetchone()
        if isinstance(upper, bytes):
            raise ReadError(f"{read.source.path}.{source.name} holds bytes", hint="choose another cursor column")
        where = f"{read.source.path}.{source.name}"
        return moved_back(after, lookback, where), CursorBounds(None if upper is None else text(upper), nulls)

    def count(self, read: TableRead) -> int:
        with describing(self.config.path, ReadError, f"counting {read.source.path}"):
            query = f"SELECT count(*) FROM main.{quoted(read.source.name)} AS t"  # noqa: S608
            return int(self._connection.execute(rows_where(query, filters(read))).fetchone()[0])

    def versions(self, reads: Sequence[TableRead], before: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Return when the file was written for each table; a view may look at the clock."""
        return {r.source.ref: self._written for r in reads if self._written and r.source.kind == "table"}

    def weak_key(self, table: Table) -> str:
        """Return why the key is weak unless it is made of whole numbers: SQLite compares the values that it was given,
        so that a text and its bytes, or two texts of one moment, are two keys."""
        return untyped_key(table)

    @property
    def reason_not_repeatable(self) -> str:
        return "" if self.reader.copy else "programs write to the file meanwhile"

    @property
    def dialect(self) -> str:
        return "sqlite"

    def filter_error(self, read: TableRead) -> str:
        query = rows_where(f"EXPLAIN SELECT 1 FROM main.{quoted(read.source.name)} AS t", filters(read))  # noqa: S608
        try:
            self._connection.execute(query).fetchall()
        except sqlite3.Error as error:
            return str(error)
        return ""

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        return differing(catalog, SqliteSource(self.config).discover().catalog)

    def _storage(self, read: TableRead) -> RowidStorage:
        try:
            return self._contents.storage[read.source.name]
        except KeyError:
            raise ReadError(
                f"SQLite file {self.config.path} has no table {read.source.name}", hint="run `instep detect`"
            ) from None

    def _bounds(self, read: TableRead, storage: RowidStorage) -> tuple[int, list[int]]:
        """Return (rows, the row ids at which chunks begin, without the first): a table is counted only when its row
        ids are spread over more than one chunk."""
        if not storage.rowid:
            return 0, []
        table, rowid = quoted(read.source.name), quoted(storage.rowid)
        with describing(self.config.path, ReadError, f"planning the read of {read.source.path}"):
            low, high = row_id_range(self._connection, read.source.name, storage.rowid)
            if low is None or high - low < CHUNK_ROWS:
                return 0 if low is None else high - low + 1, []
            rows = self.count(replace(read, where=""))
            step = -(-rows // -(-rows // CHUNK_ROWS))
            if high - low + 1 == rows:
                return rows, list(range(low + step, high + 1, step))
            query = f"SELECT {rowid} FROM main.{table} WHERE {rowid} > ? ORDER BY {rowid} LIMIT 1 OFFSET {step - 1}"  # noqa: S608
            return rows, list(_walk(lambda at: self._connection.execute(query, (at,)).fetchone(), low))


def _walk(following: Callable[[int], tuple[int] | None], at: int) -> Iterator[int]:
    while row := following(at):
        at = row[0]
        yield at


def _column(column: Column) -> str:
    return f"t.{quoted(column.name)}"


def _cursor_column(read: TableRead, column: str) -> Column:
    source = cursor_source(read, column)
    if isinstance(source.type, Binary) or not source.native:
        raise ReadError(
            f"{read.source.path}.{column} cannot be a cursor: its declared type gives its values no order",
            hint="choose a column that is declared as a number, a date or text",
        )
    return source


def _range_conditions(read: TableRead, rows: CursorRange) -> list[str]:
    """Return conditions of a cursor range. The column's affinity makes a number of a bound that is written as text."""
    if rows.column is None:
        return []
    name = _column(_cursor_column(read, rows.column))
    bounds = ((">=", rows.lower), ("<=", rows.upper))
    return [f"{name} {operator} {literal(bound)}" for operator, bound in bounds if bound is not None]
