"""Effects of SQL statements on a schema: one frozen record per edit, as parsed, before it meets a catalog.

A table's name is as written: (name,) or (schema, name), folded as the dialect folds names without quotes. Types are
texts of the dialect: the source says what they map to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = tuple[str, ...]


@dataclass(frozen=True)
class ColumnDefinition:
    """A column as a statement defines it."""

    name: str
    declared: str
    nullable: bool = True
    default: str | None = None
    comment: str | None = None
    primary: bool = False
    """True if it is the key by itself."""
    after: str | None = None
    """The column that it stands behind, "" the first place, None the last one (of a redefined column: where it is)."""


@dataclass(frozen=True)
class CreateTable:
    """The creation of a table."""

    table: Name
    columns: tuple[ColumnDefinition, ...]
    key: tuple[str, ...] = ()
    key_name: str = ""
    like: Name | None = None
    """Table whose columns it has, with key and comments if `like_whole`."""
    comment: str | None = None
    or_not: bool = False
    kind: str = "table"
    """Kind as in `Table`."""
    like_whole: bool = False


@dataclass(frozen=True)
class DropTable:
    table: Name


@dataclass(frozen=True)
class RenameTable:
    """Rename a table to another name, schema, or both; "" stays."""

    table: Name
    name: str = ""
    schema: str = ""


@dataclass(frozen=True)
class AddColumn:
    table: Name
    column: ColumnDefinition
    or_not: bool = False


@dataclass(frozen=True)
class DropColumn:
    table: Name
    name: str
    or_not: bool = False


@dataclass(frozen=True)
class RenameColumn:
    table: Name
    name: str
    to: str


@dataclass(frozen=True)
class AlterType:
    table: Name
    name: str
    declared: str


@dataclass(frozen=True)
class AlterNullability:
    table: Name
    name: str
    nullable: bool


@dataclass(frozen=True)
class AlterDefault:
    table: Name
    name: str
    default: str | None


@dataclass(frozen=True)
class RedefineColumn:
    """MySQL's `MODIFY` and `CHANGE`: what the definition does not say is gone, the key aside."""

    table: Name
    name: str
    column: ColumnDefinition


@dataclass(frozen=True)
class AddKey:
    table: Name
    columns: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True)
class DropKey:
    table: Name


@dataclass(frozen=True)
class DropConstraint:
    """The key, if it is called so."""

    table: Name
    name: str


@dataclass(frozen=True)
class SetComment:
    """Set the comment of a table or column."""

    table: Name
    column: str
    text: str | None


@dataclass(frozen=True)
class DropSchema:
    name: str


@dataclass(frozen=True)
class RenameSchema:
    name: str
    to: str


@dataclass(frozen=True)
class SetPath:
    """Set the search path of names without a schema; none: the default."""

    schemas: tuple[str, ...]


@dataclass(frozen=True)
class Transaction:
    word: Literal["begin", "commit", "rollback"]


OfTable = (
    CreateTable
    | DropTable
    | RenameTable
    | AddColumn
    | DropColumn
    | RenameColumn
    | AlterType
    | AlterNullability
    | AlterDefault
    | RedefineColumn
    | AddKey
    | DropKey
    | DropConstraint
    | SetComment
)
Edit = OfTable | DropSchema | RenameSchema | SetPath | Transaction
