"""The steps of a plan as the SQL that a person would write for them: to read, never executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from instep.destinations.sql.merge import q
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType
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
from instep.schema.planning.step import Ref, RewriteColumn, Step, StepChange, UndropColumn


@dataclass(frozen=True)
class SqlText:
    """The steps as SQL of one database: `type` is a column's."""

    type: Callable[[DataType], str]

    def statements(self, steps: Sequence[Step]) -> list[str]:
        """Return one or more statements for each step that changes what the destination says, in order; a comment where
        SQL has no word for it."""
        return [line for step in steps for line in self._statement(step.table, step.change)]

    def _statement(self, ref: Ref, change: StepChange) -> Iterator[str]:
        table = f"ALTER TABLE {_path(ref)}"
        match change:
            case TableAdded(after=after):
                yield from self._create(ref, after)
            case TableRemoved():
                yield f"DROP TABLE {_path(ref)}; -- kept under another name until the undo window ends"
            case TableRenamed(before=before, after=after):
                yield from _move(before.ref, after.ref)
            case TableReplaced(after=after):
                yield f"-- the next load swaps in a new generation of {_path(ref)}, made as:"
                yield from self._create(ref, after)
            case TableComment(after=comment):
                yield f"COMMENT ON TABLE {_path(ref)} IS {_text(comment)};"
            case ColumnComment(after=column):
                yield f"COMMENT ON COLUMN {_path(ref)}.{q(column.name)} IS {_text(column.comment)};"
            case ColumnNullability(after=column) if column.nullable:
                yield f"{table} ALTER COLUMN {q(column.name)} DROP NOT NULL;"
            case ColumnRenamed(before=before, after=column):
                yield f"{table} RENAME COLUMN {q(before.name)} TO {q(column.name)};"
            case _:
                yield from self._column(ref, table, change)

    def _column(self, ref: Ref, table: str, change: StepChange) -> Iterator[str]:
        match change:
            case ColumnAdded(after=column):
                yield f"{table} ADD COLUMN {q(column.name)} {self.type(column.type)};"
            case ColumnRemoved(before=column):
                yield f"{table} DROP COLUMN {q(column.name)}; -- kept under another name until the undo window ends"
            case ColumnWidened(before=before, after=column) | ColumnRetyped(before=before, after=column):
                if (kind := self.type(column.type)) != self.type(before.type):
                    yield f"{table} ALTER COLUMN {q(column.name)} SET DATA TYPE {kind};"
            case RewriteColumn(after=column):
                yield from self._rewrite(ref, table, column)
            case KeyChanged(after=key):
                yield f"-- rows of {_path(ref)} are matched by ({', '.join(map(q, key))})"
            case UndropColumn(after=column):
                yield f"-- {q(column.name)} of {_path(ref)} comes back from the name that it is kept under"

    def _rewrite(self, ref: Ref, table: str, column: Column) -> Iterator[str]:
        name, new, kind = q(column.name), q(f"{column.name}__new"), self.type(column.type)
        yield f"{table} ADD COLUMN {new} {kind};"
        yield f"UPDATE {_path(ref)} SET {new} = CAST({name} AS {kind});"  # noqa: S608 - to read, never executed
        yield f"{table} DROP COLUMN {name};"
        yield f"{table} RENAME COLUMN {new} TO {name};"

    def _create(self, ref: Ref, table: Table) -> Iterator[str]:
        columns = (f"  {q(c.name)} {self.type(c.type)}{'' if c.nullable else ' NOT NULL'}" for c in table.columns)
        listed = ",\n".join(columns)
        yield f"CREATE TABLE {_path(ref)} (\n{listed}\n);"
        if table.comment:
            yield f"COMMENT ON TABLE {_path(ref)} IS {_text(table.comment)};"
        for column in table.columns:
            if column.comment:
                yield f"COMMENT ON COLUMN {_path(ref)}.{q(column.name)} IS {_text(column.comment)};"


def _move(before: Ref, after: Ref) -> Iterator[str]:
    if before[0] != after[0]:
        yield f"CREATE TABLE {_path(after)} AS SELECT * FROM {_path(before)};"  # noqa: S608 - to read, never executed
        yield f"DROP TABLE {_path(before)};"
    else:
        yield f"ALTER TABLE {_path(before)} RENAME TO {q(after[1])};"


def _path(ref: Ref) -> str:
    return ".".join(q(part) for part in ref if part)


def _text(text: str | None) -> str:
    return "'" + text.replace("'", "''") + "'" if text else "NULL"
