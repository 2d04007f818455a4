"""What a sync reads of each accepted table while changes may be held (always accepted ∩ selection)."""

from __future__ import annotations

from dataclasses import dataclass

from instep.schema.table import Column, Table


@dataclass(frozen=True)
class ColumnRead:
    """An accepted column and the source column that feeds it; without one it is read as NULL."""

    column: Column
    source: Column | None
    hashed: bool = False


@dataclass(frozen=True)
class TableRead:
    """An accepted table, the source table under its current name, and its columns in accepted order."""

    table: Table
    source: Table
    columns: tuple[ColumnRead, ...]
