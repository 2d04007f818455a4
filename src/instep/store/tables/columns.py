"""Building blocks of the control database's tables: its metadata, and columns that many tables have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    false,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex
from sqlalchemy.sql.compiler import DDLCompiler

from instep.redaction import blot

_WHILE = "while"


class Utc(TypeDecorator[datetime]):
    """An aware datetime, kept in UTC; databases without time zones store the UTC wall clock."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("the store keeps aware datetimes only")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


ByCharacter = String().with_variant(String(collation="C"), "postgresql")
"""Text in the order of its characters, whatever language a server sorts by."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def connection_column(primary_key: bool = False) -> Column[str]:
    return Column("connection", String, ForeignKey("connections.name"), primary_key=primary_key, nullable=False)


def text_column(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


class Redacted(TypeDecorator[str]):
    """A text for people without the secrets that this process knows: a driver's error may repeat one."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else blot(value)


def error_column() -> Column[str]:
    return Column("error", Redacted, nullable=False, server_default="")


def count_column(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def flag_column(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=false())


def table_ref_columns(primary_key: bool = False) -> tuple[Column[Any], Column[Any]]:
    """Return (schema, name) columns of a table; an empty name means the whole connection."""
    return (
        Column("table_schema", String, primary_key=primary_key, nullable=False),
        Column("table_name", String, primary_key=primary_key, nullable=False),
    )


def number_column() -> Column[int]:
    """Return a number that is never used again; SQLite counts only INTEGER keys."""
    return Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def one_while(name: str, table: Table, columns: tuple[str, ...], condition: str) -> None:
    """Add a unique index: at most one row per `columns` while `condition` holds."""
    Index(name, *(table.c[column] for column in columns), unique=True, info={_WHILE: condition})


def some_while(name: str, table: Table, columns: tuple[str, ...], condition: str) -> None:
    """Index the rows for which `condition` holds."""
    Index(name, *(table.c[column] for column in columns), info={_WHILE: condition})


@compiles(CreateIndex)
def _while(create: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    """Return the condition of `one_while` and `some_while`. An index that says `postgresql_where` imports all drivers
    of PostgreSQL that there are, in every process."""
    sql = str(compiler.visit_create_index(create, **options))  # type: ignore[no-untyped-call]
    condition = create.element.info.get(_WHILE)
    return f"{sql} WHERE {condition}" if condition else sql
