"""What a connector sent and what its tables look like now, as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.schema.table import Catalog, Column
    from instep.sources.connector.segment import Counts

Line = tuple[str, str]
_STYLES = {"+": "green", "-": "red", "~": "yellow"}


def operations_lines(counts: Counts, schema_changes: int | None = None) -> Iterator[str]:
    """One count a line; schema changes before checkpoints, where they are known."""
    numbers = {field.name: getattr(counts, field.name) for field in fields(counts)}
    if schema_changes is not None:
        checkpoints = numbers.pop("checkpoints")
        numbers |= {"schema changes": schema_changes, "checkpoints": checkpoints}
    for name, number in numbers.items():
        yield f"  {name:<15}{number:>12,}"


def operations_line(counts: Counts) -> str:
    """As `operations_lines`, in one."""
    return ", ".join(f"{getattr(counts, field.name):,} {field.name}" for field in fields(counts))


def schema_lines(before: Catalog, after: Catalog) -> list[Line]:
    """What a run changed in the accepted schema; tables that are new with their columns."""
    from instep.schema.change import TableAdded, describe, symbol
    from instep.schema.version import between

    lines: list[Line] = []
    for change in between(before, after).changes:
        lines.append((f"{symbol(change)} {describe(change)}", _STYLES[symbol(change)]))
        if isinstance(change, TableAdded):
            lines += [(f"    {_column(column)}", "") for column in change.after.live]
    return lines


def _column(column: Column) -> str:
    marks = [f"key {column.key}"] if column.key else []
    return ", ".join([f"{column.name} {column.type}", *marks, *([] if column.nullable else ["not null"])])
