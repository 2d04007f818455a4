"""A database of this process as a source: see `instep.sources.base`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from instep.errors import ReadError
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Column, Table, fingerprint
from instep.schema.catalog.types import DataType, Date, Int, Timestamp, TimestampTz
from instep.schema.catalog.types import Decimal as DecimalType
from instep.schema.planning.projection import TableRead
from instep.schema.selection.selection import Pattern, patterns
from instep.sources.base import CursorBounds, CursorRange, Discovery, TableStats
from instep.stage.spec import Chunk
from memory.arrow import arrow_type
from memory.database import MemoryDatabase, MemoryTable

Tables = Mapping[str, MemoryTable]
GRANT = "GRANT SELECT on it to the reader"


@dataclass(frozen=True)
class MemorySource:
    """`restricted`: what the database denies is denied. `chunk_rows`: how many rows one chunk reads."""

    database: MemoryDatabase
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    restricted: bool = False
    chunk_rows: int = 1000

    kind = "memory"

    @property
    def default_schema(self) -> str:
        return self.database.schema

    def test(self) -> list[Check]:
        denied = self.discover().denied
        return [Check("open", True), *(Check("read", False, ".".join(ref), GRANT) for ref in denied)]

    def fingerprint(self) -> str:
        return self.discover().fingerprint

    def discover(self) -> Discovery:
        with self.snapshot() as snapshot:
            return snapshot.discover()

    @contextmanager
    def snapshot(self) -> Iterator[MemorySnapshot]:
        yield MemorySnapshot(self, dict(self.database.tables))

    def selected(self, tables: Tables) -> Iterator[Table]:
        schema = self.database.schema
        include, exclude = patterns(self.include), patterns(self.exclude)
        for name, held in tables.items():
            if (not include or _named(include, schema, name)) and not _named(exclude, schema, name):
                yield held.table

    def is_denied(self, name: str) -> bool:
        return self.restricted and name in self.database.denied


def _named(wanted: Sequence[Pattern], schema: str, name: str) -> bool:
    return any(p.matches(f"{schema}.{name}") or p.matches(name) for p in wanted)


@dataclass(frozen=True)
class MemorySnapshot:
    """The tables as they were: no statement changes what it holds."""

    source: MemorySource
    tables: Tables

    @property
    def reader(self) -> MemoryReader:
        return MemoryReader(self.tables)

    def discover(self) -> Discovery:
        source, found = self.source, list(self.source.selected(self.tables))
        denied: dict[tuple[str, ...], str] = {t.ref: "permission denied" for t in found if source.is_denied(t.name)}
        seen = Catalog.of(t for t in found if t.ref not in denied)
        stats = {t.ref: TableStats(len(self.tables[t.name].rows), 100) for t in seen.tables}
        digest = f"{fingerprint(seen)}{sorted(denied)}"
        identity = source.database.identity
        return Discovery(seen, digest, stats, denied, identity, bool(identity) and not denied)

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        wanted = [c.source.name for c in read.columns if c.source and (not columns or c.column.name in columns)]
        query = {"table": read.source.name, "columns": wanted, "lower": rows.lower, "upper": rows.upper}
        if rows.column is not None:
            query["cursor"] = _source_column(read, rows.column).name
        count, size = len(contents(self.tables, read.source.name)), self.source.chunk_rows
        parts = [(start, start + size) for start in range(0, count, size)] or [(0, 0)]
        return [Chunk(key, n, json.dumps({**query, "part": part}), size) for n, part in enumerate(parts)]

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        return {c.column.name: c.source.type for c in read.columns if c.source}

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        source = _source_column(read, column)
        values = [row[source.name] for row in contents(self.tables, read.source.name)]
        known = [v for v in values if v is not None]
        upper = str(max(known)) if known else None
        return _moved_back(after, lookback, source.type), CursorBounds(upper, len(values) - len(known))

    def count(self, read: TableRead) -> int:
        return len(contents(self.tables, read.source.name))

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        now = self.source.database.tables
        return frozenset(t.ref for t in catalog.tables if t.name not in now or now[t.name].table != t)


def _source_column(read: TableRead, name: str) -> Column:
    found = next((c.source for c in read.columns if c.source and c.column.name == name), None)
    if found is None:
        raise ReadError(f"{read.source.path} has no cursor {name}", hint="choose another one")
    return found


def _moved_back(after: str | None, lookback: float, kind: DataType) -> str | None:
    if after is None or not lookback:
        return after
    value = _value(after, kind)
    back = timedelta(seconds=lookback) if isinstance(value, date) else type(value)(lookback)
    return str(value - back)


def _value(text: str, kind: DataType) -> Any:
    """A cursor's text form as a value that compares with those of the column."""
    match kind:
        case Int():
            return int(text)
        case DecimalType():
            return Decimal(text)
        case Date():
            return date.fromisoformat(text)
        case Timestamp() | TimestampTz():
            return datetime.fromisoformat(text)
    return text


def contents(tables: Tables, name: str) -> list[dict[str, Any]]:
    """The rows of a table or view, by name."""
    held = tables[name]
    if held.of is None:
        return held.named()
    base, columns = held.of
    return [{c: row[c] for c in columns} for row in contents(tables, base)]


@dataclass(frozen=True)
class MemoryReader:
    tables: Tables

    @contextmanager
    def open(self) -> Iterator[MemoryReader]:
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        query = json.loads(chunk.query)
        table = self.tables[query["table"]].table
        first, last = query["part"]
        rows = [r for r in contents(self.tables, table.name)[first:last] if _within(r, query, table)]
        columns = [table.by_name[name] for name in query["columns"]]
        arrays = [pa.array([r[c.name] for r in rows], arrow_type(c.type)) for c in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[str(n) for n in range(len(arrays))])


def _within(row: Mapping[str, Any], query: Mapping[str, Any], table: Table) -> bool:
    """A row without a cursor value is in no bounded range."""
    name = query.get("cursor")
    if name is None or query["lower"] == query["upper"] is None:
        return True
    value, kind = row[name], table.by_name[name].type
    lower, upper = (None if query[b] is None else _value(query[b], kind) for b in ("lower", "upper"))
    return value is not None and (lower is None or value >= lower) and (upper is None or value <= upper)
