"""Real databases that a history changes: PostgreSQL, MariaDB and SQLite behind one face, read by drivers of the test's
own and never by the product."""

# ruff: noqa: S608 - the test makes all names and values itself
from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from contract.sources import Case
from instep.model import LogNames
from instep.project.sections.sources import SqliteSourceSection
from instep.sources.base import Source
from instep.sources.mysql.source import MySqlSource
from instep.sources.mysql.types import quoted as mysql_quoted
from instep.sources.postgres.connect import conninfo
from instep.sources.postgres.source import PostgresSource
from instep.sources.postgres.types import quote
from instep.sources.sqlite.catalog import quoted as sqlite_quoted
from instep.sources.sqlite.source import SqliteSource
from mariadb import MariaDatabase, open_as
from postgres_server import Database

CURSOR = "at"
"""The column that every change of a row of a table with a cursor moves."""


@dataclass(frozen=True)
class SourceColumn:
    """A column as the source has it: its type as the test wrote it."""

    name: str
    type: str


@dataclass
class SourceTable:
    """What the test knows of a table: it made all of it."""

    name: str
    columns: list[SourceColumn]
    key: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def column(self, name: str) -> SourceColumn:
        return next(c for c in self.columns if c.name == name)


class Refused(Exception):
    """The database does not do it; nothing has changed."""


@dataclass
class LiveDatabase(ABC):
    """A database with the tables that the test has made in it. `values` are literals by type, some of which fit other
    types, at edges as well."""

    kind = ""
    schema = ""
    follows_log = False
    values: Mapping[str, Sequence[str]] = field(init=False)
    tables: dict[str, SourceTable] = field(default_factory=dict)

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Run and commit one statement; raises Refused."""

    @abstractmethod
    def fetch(self, sql: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def case(self) -> Case: ...

    @abstractmethod
    def retype(self, table: SourceTable, column: str, kind: str) -> None: ...

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.values)

    def rows(self, table: SourceTable) -> list[dict[str, Any]]:
        columns = ", ".join(map(self.quoted, table.names))
        found = self.fetch(f"SELECT {columns} FROM {self.quoted(table.name)}")
        return [dict(zip(table.names, row, strict=True)) for row in found]

    def create(self, name: str, columns: Sequence[SourceColumn], key: tuple[str, ...]) -> None:
        parts = [f"{self.quoted(c.name)} {c.type}{' NOT NULL' if c.name in key else ''}" for c in columns]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(map(self.quoted, key))})")
        self.execute(f"CREATE TABLE {self.quoted(name)} ({', '.join(parts)})")
        self.tables[name] = SourceTable(name, list(columns), key)

    def drop(self, name: str) -> None:
        self.execute(f"DROP TABLE {self.quoted(name)}")
        del self.tables[name]

    def rename(self, name: str, new: str) -> None:
        self.execute(f"ALTER TABLE {self.quoted(name)} RENAME TO {self.quoted(new)}")
        table = self.tables.pop(name)
        table.name = new
        self.tables[new] = table

    def insert(self, table: SourceTable, row: Mapping[str, str]) -> None:
        names = ", ".join(map(self.quoted, row))
        self.execute(f"INSERT INTO {self.quoted(table.name)} ({names}) VALUES ({', '.join(row.values())})")

    def update(self, table: SourceTable, new: Mapping[str, str], where: str) -> None:
        parts = ", ".join(f"{self.quoted(name)} = {value}" for name, value in new.items())
        self.execute(f"UPDATE {self.quoted(table.name)} SET {parts} WHERE {where}")

    def delete(self, table: SourceTable, where: str) -> None:
        self.execute(f"DELETE FROM {self.quoted(table.name)} WHERE {where}")

    def add_column(self, table: SourceTable, column: SourceColumn, default: str | None) -> None:
        given = f" DEFAULT {default}" if default else ""
        self.execute(
            f"ALTER TABLE {self.quoted(table.name)} ADD COLUMN {self.quoted(column.name)} {column.type}{given}"
        )
        table.columns.append(column)

    def drop_column(self, table: SourceTable, name: str) -> None:
        self.execute(f"ALTER TABLE {self.quoted(table.name)} DROP COLUMN {self.quoted(name)}")
        table.columns.remove(table.column(name))

    def rename_column(self, table: SourceTable, name: str, new: str) -> None:
        table_name = self.quoted(table.name)
        self.execute(f"ALTER TABLE {table_name} RENAME COLUMN {self.quoted(name)} TO {self.quoted(new)}")
        place = table.columns.index(table.column(name))
        table.columns[place] = replace(table.columns[place], name=new)
        table.key = tuple(new if k == name else k for k in table.key)

    def set_key(self, table: SourceTable, key: tuple[str, ...]) -> None:
        raise Refused


_TEXTS = ("'a'", "'12'", "''", "'3.5'", "'true'", "'Füße 🎈'")


class PostgresLive(LiveDatabase):
    kind, schema, follows_log = "postgres", "public", True

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.connection = psycopg.connect(conninfo(database.config), autocommit=True)
        self.values = {
            "smallint": ("1", "-32768", "32767"),
            "integer": ("2", "2147483647", "-2147483648", "0"),
            "bigint": ("3", "9223372036854775807", "5"),
            "numeric(10,2)": ("1.50", "-99999999.99", "2.00"),
            "numeric(38,0)": ("7", "99999999999999999999999999999999999999", "-1"),
            "double precision": ("0.5", "3.4028234663852886e38", "'NaN'", "-0.0", "'Infinity'", "4"),
            "boolean": ("true", "false"),
            "text": _TEXTS,
            "varchar(5)": ("'ab'", "'7'", "'12345'"),
            "date": ("'2024-02-29'", "'9999-12-31'", "'infinity'"),
            "timestamp": ("'2024-02-29 00:00:00'", "'2024-02-29 10:00:00.000001'"),
            "uuid": ("'00000000-0000-0000-0000-0000000000ff'",),
            "bytea": (r"'\x6162'", r"'\xff00'", r"'\x'"),
            "integer[]": ("'{1,2}'", "'{}'", "'{NULL}'"),
        }

    def execute(self, sql: str) -> None:
        try:
            self.connection.execute(sql.encode())
        except psycopg.Error as error:
            raise Refused(str(error)) from None

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.encode()).fetchall()

    def rows(self, table: SourceTable) -> list[dict[str, Any]]:
        """Moments and dates as text: there are some that Python has none for."""
        as_text = {"date", "timestamp"}
        parts = [f"{quote(c.name)}::text" if c.type in as_text else quote(c.name) for c in table.columns]
        found = self.fetch(f"SELECT {', '.join(parts)} FROM {quote(table.name)}")
        return [dict(zip(table.names, row, strict=True)) for row in found]

    def quoted(self, name: str) -> str:
        return quote(name)

    def retype(self, table: SourceTable, column: str, kind: str) -> None:
        name, place = quote(column), table.columns.index(table.column(column))
        text = f"{name}::text"
        if kind == "uuid":
            text = f"lpad(regexp_replace({text}, '[^0-9a-f]', '', 'g'), 32, '0')"
        self.execute(f"ALTER TABLE {quote(table.name)} ALTER COLUMN {name} DROP DEFAULT")
        self.execute(f"ALTER TABLE {quote(table.name)} ALTER COLUMN {name} TYPE {kind} USING {text}::{kind}")
        table.columns[place] = SourceColumn(column, kind)

    def set_key(self, table: SourceTable, key: tuple[str, ...]) -> None:
        parts = [f"DROP CONSTRAINT IF EXISTS {quote(n)}" for (n,) in self.fetch(
            f"SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid = '{table.name}'::regclass"
        )]  # fmt: skip
        if key:
            parts.append(f"ADD PRIMARY KEY ({', '.join(map(quote, key))})")
        if parts:
            self.execute(f"ALTER TABLE {quote(table.name)} {', '.join(parts)}")
        table.key = key

    def case(self) -> Case:
        def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
            return PostgresSource(self.database.config.model_copy(update={"include": include, "exclude": exclude}))

        return Case("postgres", "public", self.execute, source, quote, table_ids=True, column_ids=True)

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE database = current_database() AND NOT active"
            )
        self.connection.close()


class MariaLive(LiveDatabase):
    kind, follows_log = "mysql", True

    def __init__(self, database: MariaDatabase) -> None:
        super().__init__()
        self.database = database
        self.schema = database.config.database
        self.connection = open_as(database.admin.model_copy(update={"database": self.schema}))
        self.values = {
            "smallint": ("1", "-32768"),
            "int": ("2", "2147483647", "0"),
            "bigint": ("3", "9223372036854775807"),
            "decimal(10,2)": ("1.50", "-99999999.99", "2.00"),
            "decimal(38,0)": ("7", "99999999999999999999999999999999999999"),
            "double": ("0.5", "3.4028234663852886e38", "4"),
            "tinyint(1)": ("1", "0", "2"),
            "varchar(20)": ("'ab'", "'7'", "''", "'3.5'", "'Füße 🎈'"),
            "text": _TEXTS,
            "date": ("'2024-02-29'", "'9999-12-31'"),
            "datetime(6)": ("'2024-02-29 00:00:00'", "'2024-02-29 10:00:00.000001'"),
            "varbinary(20)": ("X'6162'", "X'FF00'"),
        }

    def execute(self, sql: str) -> None:
        import pymysql

        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)
        except pymysql.Error as error:
            raise Refused(str(error)) from None

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def quoted(self, name: str) -> str:
        return mysql_quoted(name)

    def rows(self, table: SourceTable) -> list[dict[str, Any]]:
        as_text = {"date", "datetime(6)"}
        parts = [
            f"CAST({self.quoted(c.name)} AS char)" if c.type in as_text else self.quoted(c.name) for c in table.columns
        ]
        found = self.fetch(f"SELECT {', '.join(parts)} FROM {self.quoted(table.name)}")
        return [dict(zip(table.names, row, strict=True)) for row in found]

    def retype(self, table: SourceTable, column: str, kind: str) -> None:
        place, name = table.columns.index(table.column(column)), self.quoted(column)
        fixed = " NOT NULL" if column in table.key else ""
        self.execute(f"ALTER TABLE {self.quoted(table.name)} MODIFY COLUMN {name} {kind}{fixed}")
        table.columns[place] = SourceColumn(column, kind)

    def set_key(self, table: SourceTable, key: tuple[str, ...]) -> None:
        parts = ["DROP PRIMARY KEY"] * bool(table.key)
        if key:
            parts.append(f"ADD PRIMARY KEY ({', '.join(map(self.quoted, key))})")
        if parts:
            self.execute(f"ALTER TABLE {self.quoted(table.name)} {', '.join(parts)}")
        table.key = key

    def case(self) -> Case:
        def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
            return MySqlSource(self.database.config.model_copy(update={"include": include, "exclude": exclude}))

        return Case("mysql", self.schema, self.execute, source, self.quoted, isolates=False)

    def close(self) -> None:
        self.connection.close()


class SqliteLive(LiveDatabase):
    kind, schema = "sqlite", "main"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "source.db"
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.values = {
            "integer": ("2", "2147483647", "9223372036854775807", "0"),
            "real": ("0.5", "3.4028234663852886e38", "4.0"),
            "decimal(10,2)": ("1.5", "99999999.99", "2"),
            "text": _TEXTS,
            "date": ("'2024-02-29'", "'9999-12-31'"),
            "boolean": ("1", "0", "2"),
            "blob": ("x'6162'", "x'ff00'"),
        }

    def execute(self, sql: str) -> None:
        try:
            self.connection.execute(sql)
        except sqlite3.Error as error:
            raise Refused(str(error)) from None

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def quoted(self, name: str) -> str:
        return sqlite_quoted(name)

    def retype(self, table: SourceTable, column: str, kind: str) -> None:
        """As people do it in SQLite: another table with the rows, in the place of the first."""
        columns = [SourceColumn(c.name, kind) if c.name == column else c for c in table.columns]
        self.remake(table, columns, table.key)

    def rows(self, table: SourceTable) -> list[dict[str, Any]]:
        """A text or number in a column of bytes is the bytes of its text: SQLite keeps whatever it is given."""
        raw = {c.name for c in table.columns if c.type == "blob"}

        def as_read(name: str, value: Any) -> Any:
            return str(value).encode() if name in raw and isinstance(value, str | int | float) else value

        return [{n: as_read(n, v) for n, v in row.items()} for row in super().rows(table)]

    def set_key(self, table: SourceTable, key: tuple[str, ...]) -> None:
        self.remake(table, table.columns, key)

    def remake(self, table: SourceTable, columns: Sequence[SourceColumn], key: tuple[str, ...]) -> None:
        name = table.name
        self.execute("BEGIN")
        try:
            self.create("remade", columns, key)
            names = ", ".join(map(self.quoted, table.names))
            self.execute(f"INSERT INTO remade ({names}) SELECT {names} FROM {self.quoted(name)}")
            self.execute(f"DROP TABLE {self.quoted(name)}")
            self.execute(f"ALTER TABLE remade RENAME TO {self.quoted(name)}")
        except Refused:
            self.tables.pop("remade", None)
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")
        self.tables.pop("remade")
        table.columns, table.key = list(columns), key

    def case(self) -> Case:
        def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
            return SqliteSource(
                SqliteSourceSection.resolved(type="sqlite", path=str(self.path), include=include, exclude=exclude)
            )

        return Case("sqlite", "main", self.execute, source, self.quoted, isolates=False, case_sensitive=False)

    def close(self) -> None:
        self.connection.close()


LOG_NAMES = LogNames("instep_shop", "instep_shop")
