"""From the steps of one table to its next Iceberg schema: identity from the steps, everything else from `after`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from instep.destinations.iceberg.metadata.schema import (
    METADATA_COLUMNS,
    IcebergField,
    highest_id,
    iceberg_type,
    promote_stored,
)
from instep.errors import DestinationError, SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed
from instep.schema.planning.step import RewriteColumn, Step, UndropColumn


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


@dataclass
class _EvolvingColumn:
    """A column on its way: `field` is None for an added one. A renamed one gives way to one of the same old name."""

    name: str
    field: IcebergField | None
    moved: bool = False
    rewrite: RewriteColumn | None = None


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
    entries = [_EvolvingColumn(f.name, f) for f in fields]
    dropped = [found for step in steps if (found := _run(entries, step, old or {})) is not None]
    wanted = {c.name for c in after.columns}
    if len(entries) != len(wanted) or {e.name for e in entries} != wanted:
        odd = sorted(wanted ^ {e.name for e in entries}) or sorted(e.name for e in entries)
        raise DestinationError(
            f"the steps for table {after.path} do not lead to the table that is wanted: {', '.join(odd)}",
            hint="plan again: the destination may have been changed manually",
        )
    _check_name(after.path, *(e.name for e in entries if e.field is None or e.field.name != e.name))
    by_name, ids = {e.name: e for e in entries}, count(max(last_id, highest_id(fields)) + 1)
    made = [(_field(by_name[c.name], c, ids), by_name[c.name]) for c in after.columns]
    rewrites = [Rewrite(e.field, f, e.rewrite) for f, e in made if e.rewrite is not None and e.field is not None]
    return SchemaUpdate(tuple(f for f, _ in made), tuple(dropped), tuple(rewrites))


def _check_name(path: str, *names: str) -> None:
    """Raise SchemaError for a new name that is none of a table's own."""
    if odd := next((name for name in names if name.lower() in METADATA_COLUMNS), None):
        raise SchemaError(
            f"column {odd!r} of {path}: Iceberg has one of that name in every table", hint="give it an alias"
        )


def _run(
    entries: list[_EvolvingColumn], step: Step, old: Mapping[str, IcebergField]
) -> tuple[IcebergField, str] | None:
    """Apply one step to the entries; returns what it dropped."""
    match step.change:
        case ColumnAdded(after=column):
            entries.append(_EvolvingColumn(column.name, None))
        case UndropColumn(before=before, after=column):
            entries.append(_EvolvingColumn(column.name, _dropped(old, before.name, step)))
        case ColumnRenamed(before=before, after=column):
            entry = _find(entries, before.name, step)
            entry.name, entry.moved = column.name, True
        case RewriteColumn(before=before) as rewrite:
            _find(entries, before.name, step, at_end=True).rewrite = rewrite
        case ColumnRemoved(before=before):
            entry = _find(entries, before.name, step)
            entries.remove(entry)
            return (entry.field, step.id) if entry.field is not None else None
    return None


def _dropped(old: Mapping[str, IcebergField], name: str, step: Step) -> IcebergField:
    if name not in old:
        raise DestinationError(
            f"table {'.'.join(step.table)}: no schema that is kept has had a column {name!r}",
            hint="its values are not in the table any more: load the column again, or restore a backup",
        )
    return old[name]


def _find(entries: list[_EvolvingColumn], name: str, step: Step, *, at_end: bool = False) -> _EvolvingColumn:
    """Return the column of that name, by the old names first; `at_end`: by the names after all renames."""
    found = sorted((e for e in entries if e.name == name), key=lambda e: e.moved, reverse=at_end)
    if not found:
        raise DestinationError(
            f"table {'.'.join(step.table)} has no column {name!r} for the step: {step.text}",
            hint="plan again: the destination may have been changed manually",
        )
    return found[0]


def _field(entry: _EvolvingColumn, column: Column, ids: Iterator[int]) -> IcebergField:
    """NOT NULL is only ever relaxed: a column that is added to rows that exist is optional."""
    if entry.field is None or entry.rewrite is not None:
        at = next(ids)
        return IcebergField(at, column.name, iceberg_type(column.type, ids), False, column.comment)
    kind = promote_stored(entry.field.type, column.type, ids, column.name)
    required = entry.field.required and not column.nullable
    return replace(entry.field, name=column.name, type=kind, required=required, doc=column.comment)


def as_stored(table: Table, fields: Sequence[IcebergField]) -> Table:
    """`table` as it reads back from `fields`: where it asks for NOT NULL and cannot have it, nullable."""
    required = {f.name: f.required for f in fields}
    columns = tuple(replace(c, nullable=not required[c.name], comment=c.comment or None) for c in table.columns)
    return replace(table, columns=columns, comment=table.comment or None)


def check_equal(found: Table, wanted: Table) -> None:
    """Raise DestinationError naming the first difference."""
    if found == wanted:
        return
    pairs = zip(found.columns, wanted.columns, strict=False)
    odd = next((f"column {a.name!r} reads back as {a} instead of {b}" for a, b in pairs if a != b), "the table's facts")
    raise DestinationError(f"table {wanted.path} is not what its steps lead to: {odd}", hint="plan again")
