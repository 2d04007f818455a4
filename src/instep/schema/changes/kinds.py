"""The kinds of changes of a catalog: one frozen record per kind, with what was before and what is after.

A list of changes is a sequence: each record describes the step from the catalog that the ones before it
lead to. Renames that stand together are simultaneous, so a swap of two names is two records. The `table` of
a column's change is the table's name after any rename in the same list. `before` and `after` differ only
in what the kind is about: a column that was renamed and retyped is two records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from instep.schema.catalog.catalog import Column, Table

Ref = tuple[str, str]


@dataclass(frozen=True)
class SchemaAdded:
    kind: ClassVar[str] = "schema.added"
    name: str


@dataclass(frozen=True)
class SchemaRemoved:
    kind: ClassVar[str] = "schema.removed"
    name: str


@dataclass(frozen=True)
class TableAdded:
    kind: ClassVar[str] = "table.added"
    after: Table


@dataclass(frozen=True)
class TableRemoved:
    kind: ClassVar[str] = "table.removed"
    before: Table


@dataclass(frozen=True)
class TableRenamed:
    """Schema, name or both differ; everything else is equal."""

    kind: ClassVar[str] = "table.renamed"
    before: Table
    after: Table


@dataclass(frozen=True)
class TableReplaced:
    """The same name, another table: dropped and made again, or a view in its place."""

    kind: ClassVar[str] = "table.replaced"
    before: Table
    after: Table


@dataclass(frozen=True)
class TableComment:
    kind: ClassVar[str] = "table.comment"
    table: Ref
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ColumnAdded:
    """A column was added."""

    kind: ClassVar[str] = "column.added"
    table: Ref
    after: Column
    position: int
    """Position in the table afterwards, from 0. A new key column is added with `key` 0; see KeyChanged."""


@dataclass(frozen=True)
class ColumnRemoved:
    """A column was removed."""

    kind: ClassVar[str] = "column.removed"
    table: Ref
    before: Column
    position: int
    """Position in the table before, from 0. `key` is 0: a KeyRemoved precedes it if it was in the key."""


@dataclass(frozen=True)
class ColumnRenamed:
    """A key or cursor follows the rename of its columns."""

    kind: ClassVar[str] = "column.renamed"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnWidened:
    """A type change in which every value of the old type is a value of the new one."""

    kind: ClassVar[str] = "column.widened"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnNarrowed:
    """A type change in which every value of the new type is a value of the old one."""

    kind: ClassVar[str] = "column.narrowed"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnRetyped:
    """Neither wider nor narrower."""

    kind: ClassVar[str] = "column.retyped"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnNullability:
    kind: ClassVar[str] = "column.nullability"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnDefault:
    kind: ClassVar[str] = "column.default"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnComment:
    kind: ClassVar[str] = "column.comment"
    table: Ref
    before: Column
    after: Column


@dataclass(frozen=True)
class ColumnReordered:
    """The columns that stayed, under their new names, in the old and in the new order."""

    kind: ClassVar[str] = "column.reordered"
    table: Ref
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class KeyChanged:
    """Another primary key, or the same columns with values of another type (`before` and `after` are equal)."""

    kind: ClassVar[str] = "key.changed"
    table: Ref
    before: tuple[str, ...]
    """Empty for a table that had none or whose KeyRemoved stands before."""
    after: tuple[str, ...]


@dataclass(frozen=True)
class KeyRemoved:
    """The key is gone, or one of its columns is."""

    kind: ClassVar[str] = "key.removed"
    table: Ref
    before: tuple[str, ...]


@dataclass(frozen=True)
class CursorChanged:
    """Another cursor, or the same column with values that compare otherwise (its type changed)."""

    kind: ClassVar[str] = "cursor.changed"
    table: Ref
    before: str | None
    after: str | None


@dataclass(frozen=True)
class CursorRemoved:
    kind: ClassVar[str] = "cursor.removed"
    table: Ref
    before: str


@dataclass(frozen=True)
class DestinationDrifted:
    """The destination table was changed outside of instep: a fact, no edit of a catalog."""

    kind: ClassVar[str] = "destination.drifted"
    table: Ref
    detail: str


@dataclass(frozen=True)
class NameCollided:
    """Source names that would be one name at the destination, or none it can have: a fact, no edit."""

    kind: ClassVar[str] = "name.collided"
    table: Ref
    names: tuple[str, ...]
    detail: str


@dataclass(frozen=True)
class AccessLost:
    """A table, or one column of it, exists and may no longer be read: a fact, no edit."""

    kind: ClassVar[str] = "access.lost"
    table: Ref
    column: str | None
    detail: str


ColumnAltered = (
    ColumnRenamed | ColumnWidened | ColumnNarrowed | ColumnRetyped | ColumnNullability | ColumnDefault | ColumnComment
)
Fact = DestinationDrifted | NameCollided | AccessLost
Change = (
    SchemaAdded
    | SchemaRemoved
    | TableAdded
    | TableRemoved
    | TableRenamed
    | TableReplaced
    | TableComment
    | ColumnAdded
    | ColumnRemoved
    | ColumnAltered
    | ColumnReordered
    | KeyChanged
    | KeyRemoved
    | CursorChanged
    | CursorRemoved
    | Fact
)

KINDS: Mapping[str, type[Any]] = {c.kind: c for c in get_args(Change)}
