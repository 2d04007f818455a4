"""The SQL that is sent: names in the database's own quotes, values as its literals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from instep.errors import ReadError
from instep.project.sections.jdbc_address import JdbcDialect
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Binary, DataType, Date, Decimal, Float, Int, Json, Time, Timestamp
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange
from instep.sources.query import cursor_source, filters, rows_where

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def filter_fault(where: str) -> str:
    """Return why a filter cannot be sent to a server through a driver, "" if it can: a server's settings decide whether
    a text ends behind a backslash, so that what looks like a text may be a query."""
    return "it has a backslash, which some servers take for an escape and others do not" if "\\" in where else ""


@dataclass(frozen=True)
class Sql:
    """Writes SQL for a driver."""

    dialect: JdbcDialect
    quote: str = '"'
    """Character that the driver quotes names with, "" or a space if the database quotes none. `catalogs`: our
    schemas are its catalogs."""
    separator: str = "."

    def name(self, text: str) -> str:
        """Return `text` as an identifier; raises ReadError for one that cannot be quoted."""
        quote = self.quote.strip()
        if quote:
            return f"{quote}{text.replace(quote, quote * 2)}{quote}"
        if not _PLAIN.fullmatch(text):
            raise ReadError(f"the database quotes no names, so {text!r} cannot be read", hint="exclude it")
        return text

    def table(self, table: Table) -> str:
        """Return the quoted table, with its schema if the database has schemas."""
        parts = [table.schema] if table.schema and not self.dialect.untyped else []
        return self.separator.join(map(self.name, [*parts, table.name]))

    def literal(self, kind: DataType, text: str) -> str:
        """Return a value from its text form; nothing but a number stands without quotes."""
        if isinstance(kind, Int | Decimal | Float) and _NUMBER.fullmatch(text):
            return text
        escaped = text.replace("'", "''")
        if self.dialect.backslash:
            escaped = escaped.replace("\\", "\\\\")
        if isinstance(kind, Date | Timestamp) and self.dialect.literals != "text":
            day = isinstance(kind, Date)
            if self.dialect.literals == "ansi":
                return f"{'DATE' if day else 'TIMESTAMP'} '{escaped}'"
            return f"{{{'d' if day else 'ts'} '{escaped}'}}"
        return f"'{escaped}'"

    def range_conditions(self, read: TableRead, rows: CursorRange) -> list[str]:
        """Return the conditions of a range."""
        if rows.column is None:
            return []
        column = cursor_column(read, rows.column)
        name = self.name(column.name)
        bounds = (("<=", rows.upper), (">=", rows.lower))
        return [f"{name} {sign} {self.literal(column.type, bound)}" for sign, bound in bounds if bound is not None]

    def shown(self, kind: DataType, expression: str) -> str:
        """Return the expression, as text if it is a date or a moment that the driver would change."""
        return (
            self.dialect.moment.replace("{}", expression) if isinstance(kind, Date | Time | Timestamp) else expression
        )

    def count(self, read: TableRead) -> str:
        return rows_where(f"SELECT count(*) FROM {self.table(read.source)}", filters(read))  # noqa: S608

    def none(self, read: TableRead) -> str:
        """Return a query that reads no rows and fails if the filter is invalid."""
        return rows_where(f"SELECT 1 FROM {self.table(read.source)}", ["1 = 0", *filters(read)])  # noqa: S608

    def bounds(self, read: TableRead, column: Column) -> str:
        """Return SQL for (the greatest value, the number of NULLs) of a cursor."""
        name = self.name(column.name)
        what = f"{self.shown(column.type, f'max({name})')}, count(*) - count({name})"
        return rows_where(f"SELECT {what} FROM {self.table(read.source)}", filters(read))  # noqa: S608

    def ends(self, read: TableRead, column: Column) -> str:
        """Return SQL for (the least, the greatest value) of a column."""
        name = self.name(column.name)
        low, high = (self.shown(column.type, f"{end}({name})") for end in ("min", "max"))
        return f"SELECT {low}, {high} FROM {self.table(read.source)}"  # noqa: S608

    def select(self, read: TableRead, columns: Sequence[Column], part: Column | None, conditions: Sequence[str]) -> str:
        """Return the columns as c0, c1, ... and the partitioning column as p."""
        shown = [f"{self.shown(c.type, self.name(c.name))} AS {self.name(f'c{n}')}" for n, c in enumerate(columns)]
        if part is not None:
            shown.append(f"{self.name(part.name)} AS {self.name('p')}")
        return rows_where(f"SELECT {', '.join(shown)} FROM {self.table(read.source)}", conditions)  # noqa: S608


def cursor_column(read: TableRead, column: str) -> Column:
    """Return the source column of a cursor; ReadError for one whose values have no order that text keeps."""
    source = cursor_source(read, column)
    if isinstance(source.type, Binary | Json):
        raise ReadError(
            f"{read.source.path}.{column} cannot be a cursor: bytes and documents have no order",
            hint="choose a column of numbers, dates or texts",
        )
    return source
