"""A database's SQL: its dialect, and what one of its transactions can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from instep.destinations.base import Ref
from instep.destinations.sql.merge import q
from instep.destinations.sql.records import Record
from instep.destinations.sql.shape import Relation
from instep.errors import Conflict
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import Step

SCHEMA = "_instep"
"""The schema of the tables in which a database keeps our records."""
BATCH = 50_000
"""Rows that are read at a time."""
FIELD_ID = "PARQUET:field_id"


@dataclass(frozen=True)
class RowId:
    """The hidden column that tells the rows of a table apart within a transaction; `shown` is how it is read."""

    name: str
    shown: str
    type: str
    arrow: pa.DataType


@dataclass(frozen=True)
class Dialect:
    """The SQL of one database, and its types."""

    label: str
    """The name of the database in messages."""
    place: str
    """The place of its tables, in messages."""
    capabilities: Capabilities
    row_id: RowId
    record_keys: bool
    """True if the tables of records have primary keys."""
    sql_type: Callable[[DataType], str]
    arrow_type: Callable[[DataType], pa.DataType]
    """The type of values in staged files and when they are read."""
    data_type: Callable[[str], DataType]
    """Reads a type as the database names it."""
    is_document: Callable[[DataType], bool]
    """True of a type of JSON, which is read and compared as its text."""
    limits: Callable[[DataType], Mapping[bytes | str, bytes | str]]
    """Metadata of a field of a staged file: which values the column does not take."""
    counts_quickly: bool
    """True if counting all rows of a table reads none of them."""
    check_names: Callable[[Table, int], None]
    """Raises SchemaError for a table that cannot be made; so many hidden columns are in it besides."""
    as_read: Callable[[pa.Array, DataType, pa.DataType], pa.Array]
    """Turns what a query answers into the Arrow type of its column."""

    def shown(self, name: str, kind: DataType, side: str = "") -> str:
        """Return a column as it is read and compared: a document is its text."""
        column = f"{side}.{q(name)}" if side else q(name)
        return f"{column}::text" if self.is_document(kind) else column

    def documents(self, table: Table) -> frozenset[str]:
        """Return the columns that hold JSON."""
        return frozenset(c.name for c in table.columns if self.is_document(c.type))

    def kinds(self, table: Table, names: Sequence[str]) -> dict[str, str]:
        """Return the types of these columns."""
        return {n: self.sql_type(table.by_name[n].type) for n in names}

    def definitions(self, table: Table) -> str:
        """Return the columns of a new table."""
        return ", ".join(
            f"{q(c.name)} {self.sql_type(c.type)}{'' if c.nullable else ' NOT NULL'}" for c in table.columns
        )

    def arrow_schema(self, record: Record) -> pa.Schema:
        """Return the schema that tasks write: the columns in order, with their numbers, and the values that they
        refuse."""
        return pa.schema([self._field(c, record.numbers[c.name]) for c in record.table.columns])

    def _field(self, column: Column, number: int) -> pa.Field:
        metadata = {FIELD_ID: str(number), **self.limits(column.type)}
        return pa.field(column.name, self.arrow_type(column.type), column.nullable, metadata)

    def hides_rows(self, table: Table) -> bool:
        """Return whether a column of the table has the name of the row id."""
        return any(c.name.casefold() == self.row_id.name for c in table.columns)


def name_taken(ref: Ref, hint: str) -> Conflict:
    return Conflict(f"table {'.'.join(ref)} exists", hint=hint)


class SqlSession(ABC):
    """A transaction of a database. Names stand quoted in the statement, values are parameters: $1, $2."""

    dialect: ClassVar[Dialect]
    for_update: ClassVar[str] = ""
    """The end of a query that locks its rows."""
    part: tuple[str, str] | None
    """The shard column and the name of the only shard that is looked at."""

    @abstractmethod
    def name(self, schema: str, table: str) -> str:
        """Return a table as SQL names it."""

    @abstractmethod
    def schema(self, name: str) -> str:
        """Return a schema as SQL names it."""

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a statement answers."""

    @abstractmethod
    def count(self, sql: str, *parameters: object) -> int:
        """Return the single number of a query, or the number of changed rows."""

    @abstractmethod
    def scan(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the result of a query, with these fields."""

    @abstractmethod
    def temporary(
        self, name: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]
    ) -> AbstractContextManager[int]:
        """Create a table of this process's rows, which is dropped when the block ends; yield their number."""

    @abstractmethod
    def has_records(self, table: str) -> bool:
        """Return whether the database has this table of records."""

    @abstractmethod
    def make_schema(self, name: str) -> None:
        """Make a schema, if it is not there."""

    @abstractmethod
    def relations(self, refs: Sequence[Ref]) -> dict[Ref, Relation]:
        """Return the relations behind those of these names that are taken; views of ours are left out."""

    def create_table(self, ref: Ref, definitions: str, hint: str) -> None:
        """Make an empty table; Conflict, with this hint, if the name is taken."""
        if self.is_taken(ref):
            raise name_taken(ref, hint)
        self.run(f"CREATE TABLE {self.name(*ref)} ({definitions})")

    @abstractmethod
    def is_taken(self, ref: Ref) -> bool:
        """Return whether anything has this name."""

    def is_one_name(self, ref: Ref, other: Ref) -> bool:
        """Return whether there is one table of both names at most."""
        return ref == other

    @abstractmethod
    def types_of(self, ref: Ref) -> dict[str, str]:
        """Return the types of a table by column, as the database names them."""

    @abstractmethod
    def move(self, record: Record, new: Ref) -> Record:
        """Rename a table, also to another schema; return its record."""

    def bytes_of(self, refs: Sequence[Ref]) -> Mapping[Ref, int]:
        """Return the sizes of those of these tables of which they are known."""
        return {}

    @abstractmethod
    def version(self, record: Record) -> str:
        """Return a text that is another one after every change of the table's rows, whoever makes it; "" if nothing
        tells that."""

    def dependants(self, ref: Ref, columns: Iterable[str] | None = None) -> list[str]:
        """Return other objects that read or reference the table, or these columns of it."""
        return []

    def detach_views(self, table: Ref) -> Callable[[Sequence[Step]], None]:
        """Take the views of ours over a table away while it is altered; what it returns puts those back that something
        is left of after the steps."""
        return lambda steps: None

    def lock_table(self, ref: Ref) -> None:
        """Lock the table against other writers until the transaction ends."""
        return

    def index_key(self, record: Record, key: Sequence[str], *, rebuild: bool = False) -> None:
        """Index the key of a record's table, `rebuild` in place of the index on another one."""
        return

    def is_unique(self, table: str, key: Sequence[str]) -> bool:
        """Return whether the database itself lets no two rows of a table share the key."""
        return False

    def check_texts(self, record: Record) -> None:
        """Raise DestinationError for a table in which texts that differ are equal: keys and changes would be missed."""
        return

    def prefer_index(self) -> None:
        """Make the transaction look rows up by the index on the key."""
        return

    def analyze(self, table: str) -> None:
        """Analyze a new table, so that the database knows how its values are distributed."""
        return
