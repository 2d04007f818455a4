"""The next Iceberg schema of a table: identity from the steps, everything else from `after`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from instep.destinations.evolving import EvolvingColumn, evolving
from instep.destinations.iceberg.metadata.schema import (
    METADATA_COLUMNS,
    IcebergField,
    highest_id,
    iceberg_type,
    promote_stored,
)
from instep.errors import DestinationError, SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.planning.step import RewriteColumn, Step


@dataclass(frozen=True)
class Rewrite:
    """A column whose values are cast into a new field of the same name."""

    before: IcebergField
    after: IcebergField
    step: RewriteColumn


@dataclass(frozen=True)
class SchemaUpdate:
    """The columns that a table gets, and what that takes: `dropped` are (field, step id), undoable by a tag."""

    fields: tuple[IcebergField, ...]
    dropped: tuple[tuple[IcebergField, str], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()


def first_fields(table: Table, after_id: int = 0) -> tuple[IcebergField, ...]:
    """Return the columns of a new table, with ids above `after_id`: the top level first, then nested fields."""
    _check_name(table.path, *(c.name for c in table.columns))
    top = count(after_id + 1)
    numbered = [(next(top), c) for c in table.columns]
    nested = count(after_id + 1 + len(numbered))
    return tuple(IcebergField(i, c.name, iceberg_type(c.type, nested), not c.nullable, c.comment) for i, c in numbered)


def evolve(
    fields: Sequence[IcebergField],
    last_id: int,
    steps: Sequence[Step],
    after: Table,
    old: Mapping[str, IcebergField] | None = None,
) -> SchemaUpdate:
    """Return the columns that `steps` lead to. Renames are simultaneous (a swap is two of them) or in sequence. `old`
    are dropped columns by name, for those that come back.

    Raises IllegalChange for what Iceberg forbids, DestinationError if steps and `after` do not fit together.
    """

    def undrop(name: str, step: Step) -> IcebergField:
        if name not in (old or {}):
            raise DestinationError(
                f"table {'.'.join(step.table)}: no schema that is kept has had a column {name!r}",
                hint="its values are no longer in the table: load the column again, or restore a backup",
            )
        return (old or {})[name]

    columns, dropped = evolving(((f.name, f) for f in fields), steps, after, undrop)
    _check_name(after.path, *(c.name for c in columns if c.stored is None or c.stored.name != c.name))
    ids = count(max(last_id, highest_id(fields)) + 1)
    new = [(_field(column, c, ids), column) for column, c in zip(columns, after.columns, strict=True)]
    rewrites = [Rewrite(c.stored, f, c.rewrite) for f, c in new if c.rewrite is not None and c.stored is not None]
    return SchemaUpdate(tuple(f for f, _ in new), tuple((field, step.id) for field, step in dropped), tuple(rewrites))


def _check_name(path: str, *names: str) -> None:
    """Raise SchemaError for a new name that is none of a table's own."""
    if odd := next((name for name in names if name.lower() in METADATA_COLUMNS), None):
        raise SchemaError(
            f"column {odd!r} of {path}: Iceberg has one of that name in every table", hint="give it an alias"
        )


def _field(entry: EvolvingColumn[IcebergField], column: Column, ids: Iterator[int]) -> IcebergField:
    """Return the field. NOT NULL is only ever relaxed: a column that is added to existing rows is optional."""
    if entry.stored is None or entry.rewrite is not None:
        at = next(ids)
        return IcebergField(at, column.name, iceberg_type(column.type, ids), False, column.comment)
    kind = promote_stored(entry.stored.type, column.type, ids, column.name)
    required = entry.stored.required and not column.nullable
    return replace(entry.stored, name=column.name, type=kind, required=required, doc=column.comment)


def as_stored(table: Table, fields: Sequence[IcebergField]) -> Table:
    """Return `table` as it reads back from `fields`: nullable where NOT NULL is requested and impossible."""
    required = {f.name: f.required for f in fields}
    columns = tuple(replace(c, nullable=not required[c.name], comment=c.comment or None) for c in table.columns)
    return replace(table, columns=columns, comment=table.comment or None)


def check_equal(table: Table, expected: Table) -> None:
    """Raise DestinationError naming the first difference."""
    if table == expected:
        return
    pairs = zip(table.columns, expected.columns, strict=False)
    odd = next((f"column {a.name!r} reads back as {a} instead of {b}" for a, b in pairs if a != b), "the table's facts")
    raise DestinationError(f"table {expected.path} is not what its steps lead to: {odd}", hint="plan again")
