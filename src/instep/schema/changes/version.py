"""The difference of two versions of one catalog, and the `major.minor` numbers that follow from it.

Major grows with what breaks a reader of the destination: something is removed, renamed, replaced, narrowed or
retyped, a key changes, or what was kept after its removal is let go. Everything else makes a minor version.

How much of two catalogs is new, deleted, updated and unchanged: of schemas, tables and columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import Change, column_of, describe, table_of
from instep.schema.changes.diff import WEAK, TablePairs, diff, pair, pair_columns
from instep.schema.changes.kinds import Fact, TableAdded, TableRemoved

Ref = tuple[str, str]
Label = tuple[int, int]
FIRST: Label = (1, 0)
BREAKING = frozenset(
    {
        "schema.removed",
        "table.removed",
        "table.renamed",
        "table.replaced",
        "column.removed",
        "column.renamed",
        "column.narrowed",
        "column.retyped",
        "key.changed",
        "key.removed",
    }
)


@dataclass(frozen=True)
class RetainedDrop:
    """A table (`column` is "") or column that was kept after its removal and no longer is."""

    table: Ref
    column: str

    def __str__(self) -> str:
        path = ".".join(filter(None, (*self.table, self.column)))
        return f"{'column' if self.column else 'table'} {path}, retained after its removal, dropped"


@dataclass(frozen=True)
class VersionDiff:
    """The difference between two versions of a schema."""

    changes: tuple[Change, ...]
    """Changes as `diff` finds them, and columns that were retained before and no longer are."""
    retained_drops: tuple[RetainedDrop, ...] = ()

    @property
    def breaking(self) -> bool:
        return bool(self.retained_drops) or any(c.kind in BREAKING for c in self.changes)

    @property
    def lines(self) -> tuple[str, ...]:
        """One sentence each."""
        return (*map(describe, self.changes), *map(str, self.retained_drops))


def between(before: Catalog, after: Catalog, *, same_server: bool | None = None) -> VersionDiff:
    """Return the changes from one version of a catalog to a later one of the same connection and side. `same_server`:
    whether their ids mean the same; None takes it from the generations, which a source's catalog does not have."""
    if same_server is None:
        before, after = comparable(before, after)
    elif not same_server:
        before, after = without_ids(before), without_ids(after)
    return VersionDiff(diff(before, after), tuple(_retained_drops(before, after)))


def next_label(label: Label | None, before: Catalog, after: Catalog) -> Label:
    """Return the number of `after`, where `before` has `label`; None for the first version."""
    if label is None:
        return FIRST
    major, minor = label
    return (major + 1, 0) if between(before, after).breaking else (major, minor + 1)


def comparable(before: Catalog, after: Catalog) -> tuple[Catalog, Catalog]:
    """Return both as they are, or without ids if those are of two servers. A table that was replaced has a new
    generation: another id in the same one says that the connection has moved to another server, where ids mean
    something else."""
    if any(_has_other_id(t, after.get(t.ref)) for t in before.tables):
        return without_ids(before), without_ids(after)
    return before, after


def _has_other_id(before: Table, after: Table | None) -> bool:
    if after is None or before.retained or after.retained or before.id is None or after.id is None:
        return False
    new = before.id != after.id and not after.id.startswith(WEAK)
    return new and before.generation == after.generation and before.kind == after.kind


def without_ids(catalog: Catalog) -> Catalog:
    """Remove all ids, so that only names pair."""
    return Catalog.of(
        replace(t, id=None, columns=tuple(replace(c, id=None) for c in t.columns)) for t in catalog.tables
    )


def _retained_drops(before: Catalog, after: Catalog) -> Iterator[RetainedDrop]:
    for table in before.tables:
        if table.retained and after.get(table.ref) is None:
            yield RetainedDrop(table.ref, "")
    pairs = pair(before, after)
    for old, new in (*pairs.same, *pairs.replaced):
        yield from (
            RetainedDrop(new.ref, c.name) for c in old.columns if c.retained and not _is_retained(c, new.columns)
        )


def _is_retained(column: Column, columns: Iterable[Column]) -> bool:
    """Return whether a column of this name is retained; it is called `<name>__v<n>` once its name is used by
    another."""
    again = re.compile(re.escape(column.name) + r"(__v\d+)?")
    return any(again.fullmatch(c.name) for c in columns)


@dataclass(frozen=True)
class Count:
    """Counts of one level."""

    new: int = 0
    deleted: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class Counts:
    """`new + updated + unchanged` is what there is after, `deleted + updated + unchanged` what there was before."""

    schemas: Count = Count()
    tables: Count = Count()
    columns: Count = Count()

    def to_dict(self) -> Mapping[str, Mapping[str, int]]:
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """Return one for each level."""
        texts = ((level, ", ".join(f"{n} {word}" for word, n in of.items())) for level, of in self.to_dict().items())
        return tuple(f"{level}: {text}" for level, text in texts)


def counts(before: Catalog, after: Catalog, changes: Iterable[Change]) -> Counts:
    """Count the changes of each level; `changes` is the diff of the two catalogs. A table is updated if it or one of
    its columns has changed, a schema if one of its tables has. What is renamed counts as updated; the columns of a
    replaced table count as deleted and new."""
    pairs, touched = pair(before, after), _touched(changes)
    matched = [*pairs.same, *pairs.replaced]
    updated = [(a, b) for a, b in matched if b.ref in touched]
    moved = {t.schema for t in (*pairs.added, *pairs.removed, *(t for both in updated for t in both))}
    tables = Count(len(pairs.added), len(pairs.removed), len(updated), len(matched) - len(updated))
    return Counts(_schemas(before, after, moved), tables, _columns(pairs, touched))


def _touched(changes: Iterable[Change]) -> dict[Ref, set[str]]:
    """Return the columns that have changed, by table, both under their names after it."""
    columns: dict[Ref, set[str]] = {}
    for change in changes:
        ref = table_of(change)
        if ref is not None and not isinstance(change, TableAdded | TableRemoved | Fact):
            columns.setdefault(ref, set()).update(filter(None, (column_of(change),)))
    return columns


def _schemas(before: Catalog, after: Catalog, moved: set[str]) -> Count:
    old, new = ({t.schema for t in c.tables if not t.retained} for c in (before, after))
    return Count(len(new - old), len(old - new), len(old & new & moved), len((old & new) - moved))


def _columns(pairs: TablePairs, touched: Mapping[Ref, set[str]]) -> Count:
    same = [(b.ref, pair_columns(a, b)) for a, b in pairs.same]
    changed = sum(after.name in touched.get(ref, ()) for ref, columns in same for _, after in columns.same)
    return Count(
        sum(len(t.live) for t in (*pairs.added, *(b for _, b in pairs.replaced))) + sum(len(c.added) for _, c in same),
        sum(len(t.live) for t in (*pairs.removed, *(a for a, _ in pairs.replaced)))
        + sum(len(c.removed) for _, c in same),
        changed,
        sum(len(c.same) for _, c in same) - changed,
    )
