"""Which source columns are kept as JSON beside a table, because they wait and more came than are let in at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from instep.schema.bounds import COLUMN_LIMIT
from instep.schema.change import Change
from instep.schema.kinds import ColumnAdded, Ref
from instep.schema.policy import Decision
from instep.schema.table import Catalog, Table


def over_the_limit(decisions: Iterable[Decision]) -> dict[Ref, list[ColumnAdded]]:
    """The additions that wait because of the limit, by table as the changes name it."""
    found: dict[Ref, list[ColumnAdded]] = {}
    for decision in decisions:
        if isinstance(decision.change, ColumnAdded) and not decision.applied and decision.rule == COLUMN_LIMIT:
            found.setdefault(decision.change.table, []).append(decision.change)
    return found


def with_extra(accepted: Catalog, held: Mapping[Ref, Collection[str]], source: Mapping[Ref, Table]) -> Catalog:
    """`accepted` with the names of its tables' extra columns: those that are `held` now, and those that the source has
    dropped before anybody decided (`source`: its tables by accepted name; one that is not in it stays as it is)."""
    return Catalog.of(_with_extra(t, held.get(t.ref, ()), source.get(t.ref)) for t in accepted.tables)


def _with_extra(table: Table, held: Collection[str], source: Table | None) -> Table:
    if source is None or table.retained or (table.extra is None and not held):
        return table
    return replace(table, extra=tuple(sorted({*held, *gone(table, source)})))


def was_extra(table: Table | None, change: Change) -> bool:
    """Whether a change lets in a column whose values were kept as JSON so far."""
    return table is not None and isinstance(change, ColumnAdded) and change.after.name in (table.extra or ())


def gone(table: Table, source: Table) -> tuple[str, ...]:
    """Extra columns of an accepted table that the source has no more: their values are in the table only."""
    live = {c.name for c in (*source.columns, *table.columns)}
    return tuple(name for name in table.extra or () if name not in live)
