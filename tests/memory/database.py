"""A database in this process: statements put a new table in the place of the old one, so that a copy is a snapshot."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType

Row = tuple[Any, ...]


@dataclass(frozen=True)
class MemoryTable:
    """`rows` have their values in the order of the columns. A view has none: `of` names a table and its columns."""

    table: Table
    rows: tuple[Row, ...] = ()
    of: tuple[str, tuple[str, ...]] | None = None

    def named(self) -> list[dict[str, Any]]:
        return [dict(zip(self.table.by_name, row, strict=True)) for row in self.rows]

    def with_rows(self, rows: Iterable[Mapping[str, Any]]) -> MemoryTable:
        names = tuple(self.table.by_name)
        return replace(self, rows=tuple(tuple(row.get(n) for n in names) for row in rows))

    def with_columns(self, columns: Iterable[Column]) -> MemoryTable:
        return replace(self, table=replace(self.table, columns=tuple(columns)))


class MemoryDatabase:
    """One schema of tables; `ids`: whether tables and columns have identities that no statement changes."""

    def __init__(self, *, ids: bool = True, schema: str = "main") -> None:
        self.ids, self.schema = ids, schema
        self.identity = f"memory-{uuid.uuid4().hex}" if ids else ""
        self.tables: dict[str, MemoryTable] = {}
        self.denied: set[str] = set()
        self._numbers = itertools.count(1)

    def get(self, name: str) -> MemoryTable:
        if name not in self.tables:
            raise ValueError(f"there is no table {name}")
        return self.tables[name]

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.get(name).named()

    # tables

    def create(self, name: str, *columns: Column, key: Sequence[str] = (), kind: str = "table") -> None:
        if name in self.tables:
            raise ValueError(f"there is a table {name}")
        made = tuple(self._made(c, key) for c in columns)
        self.tables[name] = MemoryTable(Table(self.schema, name, made, id=self._id(), kind=kind))

    def view(self, name: str, of: str, *columns: str) -> None:
        base = self.get(of).table
        self.create(name, *(replace(base.by_name[c], key=0, nullable=True) for c in columns), kind="view")
        self.tables[name] = replace(self.tables[name], of=(of, columns))

    def drop(self, name: str) -> None:
        self.get(name)
        del self.tables[name]

    def rename(self, name: str, new: str) -> None:
        if new in self.tables:
            raise ValueError(f"there is a table {new}")
        found = self.get(name)
        del self.tables[name]
        self.tables[new] = replace(found, table=replace(found.table, name=new))

    def comment(self, name: str, text: str, column: str = "") -> None:
        found = self.get(name)
        if column:
            self._change(name, column, comment=text)
        else:
            self.tables[name] = replace(found, table=replace(found.table, comment=text))

    def set_key(self, name: str, key: Sequence[str]) -> None:
        """Raises ValueError if rows have no value in it or twice the same."""
        found = self.get(name)
        values = [tuple(row[k] for k in key) for row in found.named()]
        if key and (len(set(values)) != len(values) or any(None in v for v in values)):
            raise ValueError(f"{', '.join(key)} is no key of {name}")
        self.tables[name] = found.with_columns(_keyed(c, key) for c in found.table.columns)

    # columns

    def add_column(self, name: str, column: Column, value: Any = None) -> None:
        found = self.get(name)
        if column.name in found.table.by_name:
            raise ValueError(f"{name} has a column {column.name}")
        wider = found.with_columns((*found.table.columns, self._made(column, ())))
        self.tables[name] = replace(wider, rows=tuple((*row, value) for row in found.rows))

    def drop_column(self, name: str, column: str) -> None:
        found = self.get(name)
        rows = found.named()
        self.tables[name] = found.with_columns(c for c in found.table.columns if c.name != column).with_rows(rows)

    def rename_column(self, name: str, column: str, new: str) -> None:
        if new in self.get(name).table.by_name:
            raise ValueError(f"{name} has a column {new}")
        self._change(name, column, name=new)

    def retype(self, name: str, column: str, kind: DataType, cast: Callable[[Any], Any]) -> None:
        self._change(name, column, type=kind, native=str(kind))
        self.update(name, lambda row: {column: None if row[column] is None else cast(row[column])})

    def set_nullable(self, name: str, column: str, nullable: bool) -> None:
        self._change(name, column, nullable=nullable)

    def _change(self, table: str, column: str, /, **facts: Any) -> None:
        found = self.get(table)
        changed = (replace(c, **facts) if c.name == column else c for c in found.table.columns)
        self.tables[table] = found.with_columns(changed)

    # rows

    def insert(self, name: str, *rows: Mapping[str, Any]) -> None:
        found = self.get(name)
        self.tables[name] = found.with_rows([*found.named(), *rows])

    def update(self, name: str, values: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """`values` gives the new values of a row, none for one that stays."""
        found = self.get(name)
        self.tables[name] = found.with_rows({**row, **values(row)} for row in found.named())

    def delete(self, name: str, where: Callable[[Mapping[str, Any]], bool] = lambda row: True) -> None:
        found = self.get(name)
        self.tables[name] = found.with_rows(row for row in found.named() if not where(row))

    # identities

    def _id(self) -> str | None:
        return str(next(self._numbers)) if self.ids else None

    def _made(self, column: Column, key: Sequence[str]) -> Column:
        return _keyed(replace(column, id=self._id(), native=column.native or str(column.type)), key or _own(column))


def _own(column: Column) -> Sequence[str]:
    return [column.name] if column.key else []


def _keyed(column: Column, key: Sequence[str]) -> Column:
    place = list(key).index(column.name) + 1 if column.name in key else 0
    return replace(column, key=place, nullable=column.nullable and not place)
