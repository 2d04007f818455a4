"""How much of two catalogs is new, deleted, updated and unchanged: of schemas, tables and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import column_of, table_of
from instep.schema.changes.diff import TablePairs, pair, pair_columns
from instep.schema.changes.kinds import Change, Fact, Ref, TableAdded, TableRemoved


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
    """`changes` is the diff of the two. A table is updated if it or one of its columns has changed, a schema if one of
    its tables has. What is renamed is updated; the columns of a table that was replaced are deleted and new."""
    pairs, touched = pair(before, after), _touched(changes)
    matched = [*pairs.same, *pairs.replaced]
    updated = [(a, b) for a, b in matched if b.ref in touched]
    moved = {t.schema for t in (*pairs.added, *pairs.removed, *(t for both in updated for t in both))}
    tables = Count(len(pairs.added), len(pairs.removed), len(updated), len(matched) - len(updated))
    return Counts(_schemas(before, after, moved), tables, _columns(pairs, touched))


def _touched(changes: Iterable[Change]) -> dict[Ref, set[str]]:
    """Return the columns that have changed, by table, both under their names after it."""
    found: dict[Ref, set[str]] = {}
    for change in changes:
        ref = table_of(change)
        if ref is not None and not isinstance(change, TableAdded | TableRemoved | Fact):
            found.setdefault(ref, set()).update(filter(None, (column_of(change),)))
    return found


def _schemas(before: Catalog, after: Catalog, moved: set[str]) -> Count:
    old, new = ({t.schema for t in c.tables if not t.retained} for c in (before, after))
    return Count(len(new - old), len(old - new), len(old & new & moved), len((old & new) - moved))


def _columns(pairs: TablePairs, touched: Mapping[Ref, set[str]]) -> Count:
    same = [(b.ref, pair_columns(a, b)) for a, b in pairs.same]
    changed = sum(after.name in touched.get(ref, ()) for ref, found in same for _, after in found.same)
    return Count(
        sum(len(t.live) for t in (*pairs.added, *(b for _, b in pairs.replaced))) + sum(len(c.added) for _, c in same),
        sum(len(t.live) for t in (*pairs.removed, *(a for a, _ in pairs.replaced)))
        + sum(len(c.removed) for _, c in same),
        changed,
        sum(len(c.same) for _, c in same) - changed,
    )
