"""Changes: the records of `kinds`, how they read, how they are recognised again, stored, undone and applied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, assert_never, get_type_hints

from instep.errors import SchemaError
from instep.schema.catalog.catalog import (
    Column,
    Table,
    column_from_dict,
    column_to_dict,
    table_from_dict,
    table_to_dict,
)
from instep.schema.changes.apply import apply
from instep.schema.changes.kinds import (
    KINDS,
    AccessLost,
    Change,
    ColumnAdded,
    ColumnAltered,
    ColumnComment,
    ColumnDefault,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnReordered,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    DestinationDrifted,
    Fact,
    KeyChanged,
    KeyRemoved,
    NameCollided,
    Ref,
    SchemaAdded,
    SchemaRemoved,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)

__all__ = [
    "KINDS",
    "AccessLost",
    "Change",
    "ColumnAdded",
    "ColumnAltered",
    "ColumnComment",
    "ColumnDefault",
    "ColumnNarrowed",
    "ColumnNullability",
    "ColumnRemoved",
    "ColumnRenamed",
    "ColumnReordered",
    "ColumnRetyped",
    "ColumnWidened",
    "CursorChanged",
    "CursorRemoved",
    "DestinationDrifted",
    "Fact",
    "KeyChanged",
    "KeyRemoved",
    "NameCollided",
    "Ref",
    "SchemaAdded",
    "SchemaRemoved",
    "TableAdded",
    "TableComment",
    "TableRemoved",
    "TableRenamed",
    "TableReplaced",
    "apply",
    "change_from_dict",
    "change_to_dict",
    "column_of",
    "describe",
    "family",
    "key",
    "reverse",
    "symbol",
    "table_of",
]


def family(change: Change) -> str:
    """Return schema, table, column, key, cursor, destination, name or access."""
    return change.kind.partition(".")[0]


def symbol(change: Change) -> str:
    """Return `+`, `-` or `~`, as lists of changes show it."""
    return {"added": "+", "removed": "-"}.get(change.kind.partition(".")[2], "~")


def table_of(change: Change) -> Ref | None:
    """Return the table, under the name that it has after the change; None for a change of a schema."""
    match change:
        case SchemaAdded() | SchemaRemoved():
            return None
        case TableRemoved():
            return change.before.ref
        case TableAdded() | TableRenamed() | TableReplaced():
            return change.after.ref
        case _:
            return change.table


def column_of(change: Change) -> str:
    """Return the column's name after the change (before it, for a removed one); empty where it is not about one
    column."""
    match change:
        case ColumnRemoved():
            return change.before.name
        case AccessLost():
            return change.column or ""
        case ColumnAdded() | ColumnRenamed() | ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
            return change.after.name
        case ColumnNullability() | ColumnDefault() | ColumnComment():
            return change.after.name
        case _:
            return ""


def key(change: Change) -> str:
    """Return the identity of a change, equal when it is detected again: SHA-256, 32 hex digits, independent of time.
    It covers the kind, the table's id or name, the column's id or name, and the content of the change. Consent is
    bound to this key, so it includes whatever should make a person decide again."""
    text = json.dumps([change.kind, *_content(change)], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _content(change: Change) -> tuple[Any, ...]:
    match change:
        case SchemaAdded() | SchemaRemoved():
            return (change.name,)
        case TableAdded():
            return change.after.id, change.after.ref, change.after.kind
        case TableRemoved():
            return (change.before.id or change.before.ref,)
        case TableRenamed():
            return change.before.id, change.before.ref, change.after.ref
        case TableReplaced():
            return change.before.id, change.after.id, change.after.ref, change.after.kind, change.after.key
        case ColumnAdded():
            return change.table, change.after.id, change.after.name, str(change.after.type)
        case ColumnRemoved():
            return change.table, change.before.id or [change.before.name], str(change.before.type)
        case ColumnRenamed():
            return change.table, change.before.id, change.before.name, change.after.name
        case ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
            return *_where(change), str(change.before.type), str(change.after.type)
        case ColumnNullability():
            return *_where(change), change.after.nullable
        case ColumnDefault():
            return *_where(change), change.before.default, change.after.default
        case ColumnComment():
            return *_where(change), change.before.comment, change.after.comment
        case KeyRemoved() | CursorRemoved():
            return change.table, change.before
        case ColumnReordered() | KeyChanged() | CursorChanged() | TableComment():
            return change.table, change.before, change.after
        case DestinationDrifted():
            return change.table, change.detail
        case NameCollided():
            return change.table, change.names
        case AccessLost():
            return change.table, change.column
        case _:
            assert_never(change)


def _where(change: ColumnAltered) -> tuple[Any, ...]:
    return change.table, change.before.id or [change.before.name]


def describe(change: Change) -> str:
    """Return one sentence for people, without a full stop."""
    match change:
        case SchemaAdded():
            return f"schema {change.name} added"
        case SchemaRemoved():
            return f"schema {change.name} removed"
        case ColumnAdded():
            return f"column {_name(change)} added ({_column(change.after)})"
        case ColumnRemoved():
            return f"column {_name(change)} removed ({change.before.type})"
        case ColumnRenamed():
            return f"column {_path(change.table)}.{change.before.name} renamed to {change.after.name}"
        case ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
            verb = change.kind.partition(".")[2]
            return f"column {_name(change)} {verb} from {change.before.type} to {change.after.type}"
        case ColumnNullability():
            return f"column {_name(change)} {'may now be NULL' if change.after.nullable else 'may no longer be NULL'}"
        case ColumnDefault():
            return f"default of column {_name(change)} {_from_to(change.before.default, change.after.default)}"
        case ColumnComment():
            return f"comment of column {_name(change)} {_from_to(change.before.comment, change.after.comment)}"
        case ColumnReordered():
            return f"columns of {_path(change.table)} reordered: {', '.join(change.after)}"
        case _:
            return _describe_table(change)


def _describe_table(
    change: TableAdded
    | TableRemoved
    | TableRenamed
    | TableReplaced
    | TableComment
    | KeyChanged
    | KeyRemoved
    | CursorChanged
    | CursorRemoved
    | Fact,
) -> str:
    match change:
        case TableAdded():
            return f"{_kind(change.after)} {change.after.path} added ({_count(change.after)})"
        case TableRemoved():
            return f"{_kind(change.before)} {change.before.path} removed ({_count(change.before)})"
        case TableRenamed():
            return f"table {change.before.path} renamed to {change.after.path}"
        case TableReplaced():
            return f"{_kind(change.before)} {change.after.path} replaced by another {_kind(change.after)} of that name"
        case TableComment():
            return f"comment of table {_path(change.table)} {_from_to(change.before, change.after)}"
        case KeyChanged() if change.before == change.after:
            return f"primary key of {_path(change.table)} has values of another type: {_list(change.after)}"
        case KeyChanged():
            return f"primary key of {_path(change.table)} {_from_to(_list(change.before), _list(change.after))}"
        case KeyRemoved():
            return f"primary key of {_path(change.table)} removed (was {_list(change.before)})"
        case CursorChanged():
            if change.before == change.after:
                return f"cursor of {_path(change.table)} has another type: {change.after} orders its values otherwise"
            return f"cursor of {_path(change.table)} {_from_to(change.before, change.after)}"
        case CursorRemoved():
            return f"cursor of {_path(change.table)} removed (was {change.before})"
        case DestinationDrifted():
            return f"destination table {_path(change.table)} was changed outside of instep: {change.detail}"
        case NameCollided():
            return f"names in {_path(change.table)} collide: {', '.join(change.names)} ({change.detail})"
        case AccessLost():
            what = f"column {_name(change)}" if change.column else f"table {_path(change.table)}"
            return f"access to {what} lost: {change.detail}"
        case _:
            assert_never(change)


def _path(ref: Ref) -> str:
    return f"{ref[0]}.{ref[1]}" if ref[0] else ref[1]


def _name(change: ColumnAdded | ColumnRemoved | ColumnAltered | AccessLost) -> str:
    return f"{_path(change.table)}.{column_of(change)}"


def _column(column: Column) -> str:
    return f"{column.type}{'' if column.nullable else ', not null'}"


def _kind(table: Table) -> str:
    return table.kind.replace("_", " ")


def _count(table: Table) -> str:
    return "1 column" if len(table.columns) == 1 else f"{len(table.columns)} columns"


def _list(names: tuple[str, ...]) -> str | None:
    return f"({', '.join(names)})" if names else None


def _from_to(before: str | None, after: str | None) -> str:
    if before == after:
        return f"recreated: {after}"
    if before is None:
        return f"set to {after}"
    return f"removed (was {before})" if after is None else f"changed from {before} to {after}"


def reverse(change: Change) -> Change:
    """Return the change that undoes this one; a fact is its own. A list is undone by its reverses, last first."""
    match change:
        case SchemaAdded():
            return SchemaRemoved(change.name)
        case SchemaRemoved():
            return SchemaAdded(change.name)
        case TableAdded():
            return TableRemoved(change.after)
        case TableRemoved():
            return TableAdded(change.before)
        case TableRenamed() | TableReplaced():
            return type(change)(change.after, change.before)
        case ColumnAdded():
            return ColumnRemoved(change.table, change.after, change.position)
        case ColumnRemoved():
            return ColumnAdded(change.table, change.before, change.position)
        case ColumnWidened():
            return ColumnNarrowed(change.table, change.after, change.before)
        case ColumnNarrowed():
            return ColumnWidened(change.table, change.after, change.before)
        case ColumnRenamed() | ColumnRetyped() | ColumnNullability() | ColumnDefault() | ColumnComment():
            return type(change)(change.table, change.after, change.before)
        case KeyRemoved():
            return KeyChanged(change.table, (), change.before)
        case CursorRemoved():
            return CursorChanged(change.table, None, change.before)
        case KeyChanged() if not change.before:
            return KeyRemoved(change.table, change.after)
        case CursorChanged() if change.before is None and change.after is not None:
            return CursorRemoved(change.table, change.after)
        case KeyChanged():
            return KeyChanged(change.table, change.after, change.before)
        case CursorChanged():
            return CursorChanged(change.table, change.after, change.before)
        case ColumnReordered():
            return ColumnReordered(change.table, change.after, change.before)
        case TableComment():
            return TableComment(change.table, change.after, change.before)
        case DestinationDrifted() | NameCollided() | AccessLost():
            return change
        case _:
            assert_never(change)


def change_to_dict(change: Change) -> dict[str, Any]:
    """Return a JSON-ready dict: `kind` and the record's fields."""
    return {"kind": change.kind} | {f.name: _plain(getattr(change, f.name)) for f in fields(change)}


def _plain(value: Any) -> Any:
    match value:
        case Table():
            return table_to_dict(value)
        case Column():
            return column_to_dict(value)
        case tuple():
            return list(value)
        case _:
            return value


def change_from_dict(data: Mapping[str, Any]) -> Change:
    """Return the change that `change_to_dict` was given; raises SchemaError for a kind that does not exist."""
    record = KINDS.get(data["kind"])
    if record is None:
        raise SchemaError(f"unknown kind of change {data['kind']!r}", hint="it was stored by a newer version")
    hints = get_type_hints(record)
    change: Change = record(**{f.name: _typed(hints[f.name], data[f.name]) for f in fields(record)})
    return change


def _typed(hint: Any, value: Any) -> Any:
    if hint is Table:
        return table_from_dict(value)
    if hint is Column:
        return column_from_dict(value)
    return tuple(value) if isinstance(value, list) else value
