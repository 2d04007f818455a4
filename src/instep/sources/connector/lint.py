"""Findings about a connector's tables: `schema()` compared with the rows that were sent. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.schema.catalog.promotion import promote
from instep.schema.catalog.types import DataType, Float, Int, String, Unknown
from instep.schema.policy.similarity import alike
from instep.sources.connector.segment import GIVEN, OP, SEQ, UPSERT, Segment, SegmentTable

LIKE = 0.8
"""Two names that are this much alike may be one name, spelt wrongly."""
SAME = 0.99
"""Two names of the same words."""
EMPTY = 0.05
"""The share of rows with a value below which a column is mostly empty."""
ENOUGH = 20
"""Rows from which a share tells anything."""
WHOLE = 0.9
"""The share of rows in which two spellings of one column have a value, taken together."""
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class SentColumn:
    """A column that a connector has sent."""

    name: str
    types: tuple[DataType, ...] = ()
    """Each type that its values had, none if it never had one."""
    declared: bool = False
    values: int = 0
    """Number of upserts with a value that is not null."""
    key: bool = False


@dataclass(frozen=True)
class SentTable:
    """A table that a connector has sent."""

    path: str
    declared: bool = False
    key: tuple[str, ...] = ()
    rows: int = 0
    """Upserts."""
    operations: int = 0
    """These, updates, deletes and truncates."""
    columns: tuple[SentColumn, ...] = ()


@dataclass(frozen=True)
class LintFinding:
    """`warn`: most likely a mistake; `note`: worth a look."""

    severity: Literal["warn", "note"]
    kind: str
    where: str
    text: str
    hint: str


def lint(tables: Sequence[SentTable]) -> tuple[LintFinding, ...]:
    """Return all findings, warnings first, then by place."""
    findings = [*_tables(tables)]
    for table in tables:
        findings += _columns(table)
    return tuple(sorted(findings, key=lambda f: (f.severity != "warn", f.where, f.kind, f.text)))


def _tables(tables: Sequence[SentTable]) -> Iterator[LintFinding]:
    sent = [t for t in tables if t.operations]
    for table in (t for t in tables if t.declared and not t.operations):
        if near := _nearest(table.path, (t.path for t in sent if not t.declared)):
            yield LintFinding(
                "warn",
                "table.typo",
                near,
                f"is not declared, and nothing was sent to {table.path}, which is",
                f"if they are one table, use one name in schema() and update(): {table.path} or {near}",
            )
        else:
            yield LintFinding(
                "note",
                "table.empty",
                table.path,
                "is declared, and nothing was sent to it",
                "a declared table is created all the same: declare only what may have rows",
            )
    for a, b in combinations(sent, 2):
        if alike(a.path, b.path) >= SAME:
            yield _spelling("table.spelling", max(a.path, b.path), min(a.path, b.path))
    for table in sent:
        if not table.key:
            yield LintFinding(
                "note",
                "table.keyless",
                table.path,
                "has no key: a row is known by the hash of its record, so a record that changes is another row",
                "declare its primary_key in schema(), if its records have one",
            )


def _columns(table: SentTable) -> Iterator[LintFinding]:
    misspelt = set()
    for a, b in combinations(table.columns, 2):
        if alike(a.name, b.name) >= SAME:
            misspelt |= {a.name, b.name}
            yield _spelling("column.spelling", f"{table.path}.{max(a.name, b.name)}", min(a.name, b.name))
        elif _one_column(a, b, table.rows):
            wrong, right = sorted((a, b), key=lambda c: (c.declared, c.values, c.name))
            misspelt |= {a.name, b.name}
            yield _misspelt(table, wrong, right)
    for column in table.columns:
        if column.name not in misspelt:
            yield from _empty(table, column)
        yield from _unstable(table, column)


def _one_column(a: SentColumn, b: SentColumn, rows: int) -> bool:
    """Return whether two columns are probably one: names that are alike, not both declared, and nearly each row has a
    value in one of them alone."""
    if (a.declared and b.declared) or a.key or b.key or not rows or alike(a.name, b.name) < LIKE:
        return False
    if _DIGITS.sub("", a.name) == _DIGITS.sub("", b.name):
        return False
    if any(c.declared and not c.values for c in (a, b)):
        return True
    return bool(a.values and b.values) and WHOLE * rows <= a.values + b.values <= rows


def _misspelt(table: SentTable, wrong: SentColumn, right: SentColumn) -> LintFinding:
    if right.declared and not right.values:
        text = f"is not declared, and {right.name}, which is, never had a value"
    else:
        text = f"has a value in {wrong.values:,} of {table.rows:,} rows, and {right.name} in {right.values:,} others"
    hint = f"if they are one column, use one name: {right.name} or {wrong.name}"
    return LintFinding("warn", "column.typo", f"{table.path}.{wrong.name}", text, hint)


def _spelling(kind: str, where: str, other: str) -> LintFinding:
    text = f"and {other} differ in case and separators only: both are created"
    return LintFinding("warn", kind, where, text, "send one of the two names")


def _empty(table: SentTable, column: SentColumn) -> Iterator[LintFinding]:
    where = f"{table.path}.{column.name}"
    if column.declared and not column.values and table.rows and not column.key:
        yield LintFinding(
            "note",
            "column.empty",
            where,
            f"is declared, and none of {table.rows:,} rows has a value in it",
            "a declared column is created all the same; look whether update() sends it by this name",
        )
    elif not column.declared and table.rows >= ENOUGH and 0 < column.values < EMPTY * table.rows:
        yield LintFinding(
            "note",
            "column.sparse",
            where,
            f"has a value in {column.values:,} of {table.rows:,} rows",
            "declare it if it should be there from the start, or leave it out of the records",
        )


def _unstable(table: SentTable, column: SentColumn) -> Iterator[LintFinding]:
    types = sorted(set(column.types), key=str)
    if len(types) < 2 or column.declared:
        return
    joined = reduce(_both, types)
    lost = isinstance(joined, String) and not all(isinstance(t, String) for t in types)
    late = ", or string if its first float comes after a checkpoint" if _mixed(types) else ""
    yield LintFinding(
        "warn" if lost else "note",
        "column.unstable",
        f"{table.path}.{column.name}",
        f"has values of types {', '.join(map(str, types))}: it becomes {joined}{late}",
        f"declare its type in schema(){' (DOUBLE)' if late else ''}, or send values of one type",
    )


def _mixed(types: Iterable[DataType]) -> bool:
    return {type(kind) for kind in types} == {Int, Float}


def _both(a: DataType, b: DataType) -> DataType:
    """Return the inferred type of values of both in one segment: integers beside floats are floats."""
    return Float(64) if _mixed((a, b)) else promote(a, b)


def _nearest(name: str, names: Iterable[str]) -> str:
    nearest = max(names, key=lambda k: (alike(name, k), k), default="")
    return nearest if nearest and alike(name, nearest) >= LIKE else ""


Ref = tuple[str, str]


class SegmentTotals:
    """Adds segments up. Only counts are kept, so that memory does not grow with the rows."""

    def __init__(self) -> None:
        self._tables: dict[Ref, list[SegmentTable]] = {}
        self._values: Counter[tuple[Ref, str]] = Counter()

    def add(self, segment: Segment) -> None:
        """Read the segment's files, which may be gone afterwards."""
        for table in segment.tables:
            ref = (table.schema, table.name)
            self._tables.setdefault(ref, []).append(table)
            for name, count in _values(Path(segment.folder) / file.path for file in table.files):
                self._values[ref, name] += count

    def tables(self) -> tuple[SentTable, ...]:
        """Return the tables in the order in which they were first seen."""
        return tuple(self._table(ref, totals) for ref, totals in self._tables.items())

    def _table(self, ref: Ref, segment_tables: list[SegmentTable]) -> SentTable:
        last = segment_tables[-1]
        names = dict.fromkeys(c.name for table in segment_tables for c in table.columns)
        return SentTable(
            path=".".join(filter(None, ref)),
            declared=last.declared,
            key=last.key,
            rows=sum(t.upserts for t in segment_tables),
            operations=sum(t.rows + len(t.truncates) for t in segment_tables),
            columns=tuple(self._column(ref, name, segment_tables) for name in names),
        )

    def _column(self, ref: Ref, name: str, segment_tables: Iterable[SegmentTable]) -> SentColumn:
        all = [c for table in segment_tables for c in table.columns if c.name == name]
        met = (kind for c in all for kind in c.met or (c.type,))
        types: dict[DataType, None] = dict.fromkeys(kind for kind in met if not isinstance(kind, Unknown))
        return SentColumn(
            name, tuple(types), any(c.declared for c in all), self._values[ref, name], any(c.key for c in all)
        )


def _values(files: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """Yield (column, upserts with a value in it), possibly several times per column."""
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches():
                yield from _counted(batch)


def _counted(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Yield the counts of the record's own columns."""
    upserts = batch.filter(pc.equal(batch.column(OP), UPSERT))
    own = len((OP, SEQ, GIVEN))
    for name, column in zip(upserts.schema.names[own:], upserts.columns[own:], strict=True):
        yield name, len(column) - column.null_count
