"""Reading a part of a table: by Spark's tasks, or in the driver's process for a look at some rows.

Divides a table by ranges of one column, so that several tasks read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import ConnectError, ProjectError, ReadError, SourceLost
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Boolean, DataType, Date, Decimal, Int, Timestamp, TimestampTz, parse
from instep.schema.selection.selection import Pattern
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.sql import Sql
from instep.sources.jdbc.types import form_of
from instep.spark.jdbc import JdbcConnection, JdbcScan, Login, connect, frame, is_of_driver, read_failure, running
from instep.stage.spec import Chunk, SourceLimits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class JdbcQuery:
    """Query of a chunk: `select` names its columns c0, c1, ... of these types and the one that parts are made of p;
    `part` is a condition over its result."""

    select: str
    part: str
    types: tuple[DataType, ...]
    untyped: bool = False

    def to_text(self) -> str:
        return json.dumps([self.select, self.part, [str(t) for t in self.types], self.untyped])

    @classmethod
    def of(cls, chunk: Chunk) -> JdbcQuery:
        select, part, types, untyped = json.loads(chunk.query)
        return cls(select, part, tuple(map(parse, types)), untyped)


@dataclass(frozen=True)
class JdbcReader:
    """A reader whose chunks are partitions of data frames; the driver's process also opens its own connection."""

    login: Login
    quote: str
    fetch: int
    timeout: float
    limits: SourceLimits

    @contextmanager
    def open(self) -> Iterator[JdbcSession]:
        """Open a connection where a Spark session runs; SetupError elsewhere."""
        with connect(running(), self.login, self.login.url) as connection:
            yield JdbcSession(connection, self)

    def frame(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        """Return one partition a chunk, in their order, of one table and query."""
        return frame(spark, self.login, self.scan(chunks))

    def scan(self, chunks: Sequence[Chunk]) -> JdbcScan:
        queries = [JdbcQuery.of(chunk) for chunk in chunks]
        first = queries[0]
        forms = tuple(form_of(kind, first.untyped) for kind in first.types)
        columns = tuple(f"{self.quote}c{n}{self.quote}" for n in range(len(forms)))
        return JdbcScan(first.select, columns, forms, tuple(q.part for q in queries), self.fetch, self.timeout)

    @property
    def batch_normalizer(self) -> Callable[[Chunk, pa.RecordBatch], pa.RecordBatch]:
        """Return the function that tasks apply to a batch; it contains no login."""
        return normalized_texts

    def failure(self, error: BaseException, subject: str) -> ReadError | None:
        """Return the error for what the driver raised; None for an error of Spark's own."""
        if "UnknownReason" in str(error):  # the driver process cannot load the exception's class
            return self._unknown_failure(f"{subject}: reading")
        return read_failure(self.login, error, f"{subject}: reading") if is_of_driver(error) else None

    def _unknown_failure(self, subject: str) -> ReadError:
        """Return SourceLost if the database no longer answers: the driver's own message was lost."""
        why = "the driver's message was lost because this session was started without its jar"
        try:
            with self.open():
                return ReadError(f"{subject} failed; {why}", hint="look into the executors' logs")
        except ConnectError as error:
            hint = "see the server's log and `instep source test`, then run `instep sync` again"
            return SourceLost(f"{subject}: the connection was lost: {error.message}", hint=hint)


@dataclass
class JdbcSession:
    """One connection in the driver's process."""

    connection: JdbcConnection
    reader: JdbcReader

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the chunk's rows while they are fetched."""
        query, reader = JdbcQuery.of(chunk), self.reader
        scan = reader.scan([chunk])
        sql = f"SELECT {', '.join(scan.columns)} FROM ({query.select}) q{f' WHERE {query.part}' if query.part else ''}"  # noqa: S608
        with self.connection.describing(f"reading {chunk.table}"):
            for batch in self.connection.batches(sql, scan.forms, reader.fetch, reader.timeout):
                yield normalized_texts(chunk, batch)


def normalized_texts(chunk: Chunk, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the drivers' texts of whole numbers, truth values and moments with a zone as every source has them. What
    is no such text stays as it is, for the cast to find."""
    kinds = JdbcQuery.of(chunk).types
    arrays = [_text(kind, values) for kind, values in zip(kinds, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [str(n) for n in range(len(arrays))])


def _text(kind: DataType, values: pa.Array) -> pa.Array:
    if not pa.types.is_string(values.type):
        return values
    if isinstance(kind, Int):
        whole = pc.all(pc.match_substring_regex(values, r"^-?\d{1,18}$"), min_count=0).as_py()
        return values.cast(pa.int64()) if whole else values
    if isinstance(kind, Boolean):
        return _as_boolean(values)
    if isinstance(kind, TimestampTz):
        values = pc.replace_substring_regex(values, r"^(\S+ \S+) (?:UTC|GMT|Z)$", r"\1+00:00")
        values = pc.replace_substring_regex(values, r" ([+-]\d\d)(\d\d)$", r"\1:\2")
        values = pc.replace_substring_regex(values, r" ([+-])(\d:\d\d)$", r"\10\2")
        return pc.replace_substring_regex(values, r" ([+-]\d\d:\d\d)$", r"\1")
    return values


def _as_boolean(values: pa.Array) -> pa.Array:
    low = pc.utf8_lower(values)
    for word, texts in (("true", ("t", "1", "true", "b'1'")), ("false", ("f", "0", "false", "b'0'", "b''"))):
        values = pc.if_else(pc.is_in(low, pa.array(texts)), word, values)
    return values


ROWS = 1_000_000
MOST = 32
CHOSEN = 8
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class NumberScale:
    """Values as whole numbers and back to texts."""

    number: Callable[[str], int]
    text: Callable[[int], str]


def _moment(number: int) -> str:
    return (_EPOCH + timedelta(microseconds=number)).isoformat(" ")


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


_WHOLE = NumberScale(lambda text: int(text.partition(".")[0]), str)
_DAYS = NumberScale(lambda text: date.fromisoformat(text[:10]).toordinal(), lambda n: date.fromordinal(n).isoformat())
_MOMENTS = NumberScale(_microseconds, _moment)


def measure(kind: DataType) -> NumberScale | None:
    """Return how a column's values are counted; None for a type that cannot be divided into ranges."""
    if isinstance(kind, Int) or (isinstance(kind, Decimal) and not kind.scale):
        return _WHOLE
    return _DAYS if isinstance(kind, Date) else _MOMENTS if isinstance(kind, Timestamp) else None


def part_column(config: JdbcConfig, table: Table) -> Column | None:
    """Return the column by which a table is divided: the one that the settings name, or the first of its key if that is
    a whole number. ProjectError for a name that cannot be used."""
    for pattern, name in config.partition_columns.items():
        if not Pattern(pattern).matches(table.path):
            continue
        column = table.by_name.get(name)
        if column is None or measure(column.type) is None:
            what = f"is {column.type}" if column else "does not exist"
            raise ProjectError(
                f"partition_columns: {table.path}.{name} {what}",
                hint="name a column of whole numbers, dates or moments",
            )
        return column
    first = table.by_name[table.key[0]] if table.key else None
    return first if first is not None and measure(first.type) is _WHOLE else None


def count_of(config: JdbcConfig, column: Column, low: int, high: int) -> int:
    """Return the number of parts: as the settings say, or one per million values."""
    most = config.max_connections or MOST
    if config.partitions:
        return min(config.partitions, most)
    return min(most, CHOSEN if measure(column.type) is not _WHOLE else -(-(high - low + 1) // ROWS))


def conditions(sql: Sql, column: Column, low: str, high: str, config: JdbcConfig) -> list[str]:
    """Return conditions over `p` of which every row meets exactly one, also a row that comes later or has NULL
    there."""
    by = measure(column.type)
    assert by is not None
    first, last = by.number(low), by.number(high)
    count = max(1, min(count_of(config, column, first, last), last - first + 1))
    cuts = [first + (last - first + 1) * n // count for n in range(1, count)]
    if not cuts:
        return [""]
    texts = [sql.literal(column.type, by.text(cut)) for cut in cuts]
    return _ranges(sql.name("p"), texts)


def _ranges(name: str, cuts: Sequence[str]) -> list[str]:
    between = [f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(cuts)]
    return [f"{name} < {cuts[0]} OR {name} IS NULL", *between, f"{name} >= {cuts[-1]}"]
