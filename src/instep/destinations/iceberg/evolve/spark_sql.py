"""The steps of a plan as the Spark SQL that a person would write for them: to read, never executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from instep.destinations.types import iceberg_primitive
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.layout import PartitionTerm
from instep.schema.catalog.types import Array, DataType, Struct
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnComment,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    KeyChanged,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.step import Ref, RewriteColumn, SetLayout, Step, StepChange, UndropColumn

_SPARK = {"long": "BIGINT", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP", "uuid": "STRING"}
"""Spark's own words where they differ; a uuid column reads as text."""


def statements(steps: Sequence[Step], using: str = "iceberg") -> list[str]:
    """Return one or more statements for each step that changes what the destination says, in order; a comment where SQL
    has no word for it. `using`: the tables' format."""
    return [line for ref, group in groupby(steps, key=lambda s: s.table) for line in _of_table(ref, list(group), using)]


def _of_table(ref: Ref, steps: Sequence[Step], using: str) -> Iterator[str]:
    for step in steps:
        yield from _statement(ref, step.change, using)


def _statement(ref: Ref, change: StepChange, using: str) -> Iterator[str]:
    table = f"ALTER TABLE {_path(ref)}"
    match change:
        case TableAdded(after=after):
            yield _create(ref, after, using)
        case TableRemoved():
            yield f"DROP TABLE {_path(ref)}; -- kept out of sight until the undo window ends"
        case TableRenamed(before=before, after=after):
            yield f"ALTER TABLE {_path(before.ref)} RENAME TO {_path(after.ref)};"
        case TableReplaced(after=after):
            yield f"-- the next load swaps in a new generation of {_path(ref)}, made as:"
            yield _create(ref, after, using, "CREATE OR REPLACE TABLE")
        case TableComment(after=comment):
            yield f"COMMENT ON TABLE {_path(ref)} IS {_text(comment or '')};"
        case ColumnAdded(after=column):
            yield f"{table} ADD COLUMN {_column(column)};"
        case ColumnRemoved(before=column):
            yield f"{table} DROP COLUMN {_name(column.name)};"
        case ColumnRenamed(before=before, after=column):
            yield f"{table} RENAME COLUMN {_name(before.name)} TO {_name(column.name)};"
        case ColumnWidened(before=before, after=column) | ColumnRetyped(before=before, after=column):
            if spark_type(before.type) != spark_type(column.type):
                yield f"{table} ALTER COLUMN {_name(column.name)} TYPE {spark_type(column.type)};"
        case ColumnNullability(after=column) if column.nullable:
            yield f"{table} ALTER COLUMN {_name(column.name)} DROP NOT NULL;"
        case ColumnComment(after=column):
            yield f"{table} ALTER COLUMN {_name(column.name)} COMMENT {_text(column.comment or '')};"
        case KeyChanged(after=key):
            yield f"-- rows of {_path(ref)} are matched by ({', '.join(map(_name, key))})"
        case RewriteColumn(after=column):
            yield from _rewrite(ref, column)
        case SetLayout():
            yield from _layout(table, change)
        case UndropColumn(after=column):
            yield f"-- {table} ADD COLUMN {_column(column)} would lack the old values: they come back by field id"


def _layout(table: str, change: SetLayout) -> Iterator[str]:
    new = dict(change.after.properties)
    if new:
        yield f"{table} SET TBLPROPERTIES ({', '.join(f'{_text(k)}={_text(v)}' for k, v in new.items())});"
    if gone := [_text(name) for name, _ in change.before.properties if name not in new]:
        yield f"{table} UNSET TBLPROPERTIES ({', '.join(gone)});"
    if change.before.sort != change.after.sort:
        terms = ", ".join(f"{_name(name)} {direction.upper()}" for name, direction in change.after.sort)
        yield f"{table} WRITE LOCALLY ORDERED BY {terms};" if terms else f"{table} WRITE UNORDERED;"
    old, new_terms = change.before.partition, change.after.partition
    yield from (f"{table} DROP PARTITION FIELD {_partition(t)};" for t in old if t not in new_terms)
    yield from (f"{table} ADD PARTITION FIELD {_partition(t)};" for t in new_terms if t not in old)


def _partition(term: PartitionTerm) -> str:
    return replace(term, column=_name(term.column)).text


def _rewrite(ref: Ref, column: Column) -> Iterator[str]:
    """Yield the SQL of a type change, which instep does in one commit; SQL needs a second column."""
    table, name, new = f"ALTER TABLE {_path(ref)}", _name(column.name), _name(f"{column.name}__new")
    kind = spark_type(column.type)
    yield f"{table} ADD COLUMN {new} {kind};"
    yield f"UPDATE {_path(ref)} SET {new} = CAST({name} AS {kind});"  # noqa: S608 - to read, never executed
    yield f"{table} DROP COLUMN {name};"
    yield f"{table} RENAME COLUMN {new} TO {name};"


def _create(ref: Ref, table: Table, using: str, verb: str = "CREATE TABLE") -> str:
    columns = ",\n".join(f"  {_column(c)}" for c in table.columns)
    comment = f"\nCOMMENT {_text(table.comment)}" if table.comment else ""
    return f"{verb} {_path(ref)} (\n{columns}\n) USING {using}{comment};"


def _column(column: Column) -> str:
    comment = f" COMMENT {_text(column.comment)}" if column.comment else ""
    return f"{_name(column.name)} {spark_type(column.type)}{comment}"


def spark_type(kind: DataType) -> str:
    """Return the type as Spark SQL spells it for an Iceberg column."""
    if isinstance(kind, Array):
        return f"ARRAY<{spark_type(kind.element)}>"
    if isinstance(kind, Struct):
        return f"STRUCT<{', '.join(f'{_name(f.name)}: {spark_type(f.type)}' for f in kind.fields)}>"
    stored = iceberg_primitive(kind)
    return _SPARK.get(stored, stored.upper().replace(", ", ","))


def _path(ref: Ref) -> str:
    return ".".join(_name(part) for part in ref)


def _name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
