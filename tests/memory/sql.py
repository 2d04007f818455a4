"""The few SQL statements of the contract suites, carried out on a database of this process."""

from __future__ import annotations

import ast
from typing import Any

from sqlglot import exp, parse_one

from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import DataType, parse
from memory.database import MemoryDatabase

_PLAIN = {"INT": "int32", "BIGINT": "int64", "DOUBLE": "float64", "TEXT": "string", "DATE": "date"}


def execute(database: MemoryDatabase, sql: str) -> None:
    """Runs one statement; NotImplementedError for a form that no suite uses."""
    match parse_one(sql, read="postgres"):
        case exp.Create(kind="VIEW") as made:
            (base,) = [t.name for t in made.expression.find_all(exp.Table)]
            database.view(made.this.name, base, *(c.name for c in made.expression.expressions))
        case exp.Create() as made:
            _create(database, made)
        case exp.Drop() as dropped:
            (gone,) = dropped.find_all(exp.Table)
            database.drop(gone.name)
        case exp.Insert() as inserted:
            _insert(database, inserted)
        case exp.Delete() as deleted:
            same = deleted.args["where"].this
            name, value = same.this.name, _value(same.expression)
            database.delete(deleted.this.name, lambda row: row[name] == value)
        case exp.Comment(this=exp.Column() as column) as said:
            database.comment(column.table, said.expression.name, column.name)
        case exp.Comment() as said:
            database.comment(said.this.name, said.expression.name)
        case exp.Alter() as altered:
            for action in altered.args["actions"]:
                _alter(database, altered.this.name, action)
        case other:
            raise NotImplementedError(type(other).__name__)


def _create(database: MemoryDatabase, made: exp.Create) -> None:
    columns = [c for c in made.this.expressions if isinstance(c, exp.ColumnDef)]
    key = [c.name for c in columns if c.find(exp.PrimaryKeyColumnConstraint)]
    for constraint in made.this.find_all(exp.PrimaryKey):
        key = [part.name for part in constraint.expressions]
    database.create(made.this.this.name, *map(_column, columns), key=key)


def _column(made: exp.ColumnDef) -> Column:
    default = made.find(exp.DefaultColumnConstraint)
    said = default.this.sql() if default is not None else None
    strict = made.find(exp.NotNullColumnConstraint) is not None
    return Column(made.name, _type(made.args["kind"]), nullable=not strict, default=said)


def _type(kind: exp.DataType) -> DataType:
    sizes = [int(s.this.name) for s in kind.expressions]
    match kind.this.name:
        case "VARCHAR":
            return parse(f"string({sizes[0]})")
        case "DECIMAL":
            return parse(f"decimal({sizes[0]},{sizes[1]})")
        case name:
            return parse(_PLAIN[name])


def _insert(database: MemoryDatabase, inserted: exp.Insert) -> None:
    names = tuple(database.get(inserted.this.name).table.by_name)
    for row in inserted.expression.expressions:
        values = map(_value, row.expressions)
        database.insert(inserted.this.name, dict(zip(names, values, strict=True)))


def _value(expression: exp.Expression) -> Any:
    match expression:
        case exp.Null():
            return None
        case exp.Literal(is_string=True):
            return expression.name
    return ast.literal_eval(expression.sql())


def _alter(database: MemoryDatabase, table: str, action: exp.Expression) -> None:
    match action:
        case exp.ColumnDef():
            column = _column(action)
            database.add_column(table, column, ast.literal_eval(column.default) if column.default else None)
        case exp.Drop():
            (gone,) = action.find_all(exp.Column)
            database.drop_column(table, gone.name)
        case exp.AlterRename():
            database.rename(table, action.this.name)
        case exp.RenameColumn():
            database.rename_column(table, action.this.name, action.args["to"].name)
        case _:
            raise NotImplementedError(type(action).__name__)
