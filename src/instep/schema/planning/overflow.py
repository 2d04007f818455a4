"""Overflow: source columns that are loaded as JSON, because they wait and more came than are accepted at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import Change
from instep.schema.changes.kinds import ColumnAdded, Ref
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.policy import Decision
from instep.schema.policy.safeguards import COLUMN_LIMIT


def over_the_limit(decisions: Iterable[Decision]) -> dict[Ref, list[ColumnAdded]]:
    """Return the additions that wait because of the limit, by table as the changes name it."""
    return additions_left_out(d for d in decisions if d.rule == COLUMN_LIMIT)


def additions_left_out(decisions: Iterable[Decision]) -> dict[Ref, list[ColumnAdded]]:
    """Return the additions that policy holds or lists as off, by table as the changes name it; none that a person
    refuses."""
    added_columns: dict[Ref, list[ColumnAdded]] = {}
    for decision in decisions:
        if isinstance(decision.change, ColumnAdded) and not decision.applied and not decision.by_person:
            added_columns.setdefault(decision.change.table, []).append(decision.change)
    return added_columns


def with_extra(
    accepted: Catalog,
    overflow: Mapping[Ref, Collection[str]],
    source: Mapping[Ref, Table],
    dropped: Mapping[Ref, Collection[str]] | None = None,
) -> Catalog:
    """Return `accepted` with the names of its tables' extra columns: those that are `overflow` now, and those that
    the source dropped before anybody decided (`source`: its tables by accepted name; a table that is not in it stays
    as it is), unless a person has `dropped` them."""
    free = dropped or {}
    return Catalog.of(
        _with_extra(t, overflow.get(t.ref, ()), source.get(t.ref), free.get(t.ref, ())) for t in accepted.tables
    )


def _with_extra(table: Table, overflow: Collection[str], source: Table | None, dropped: Collection[str]) -> Table:
    if source is None or table.retained or (table.extra is None and not overflow):
        return table
    retained = set(dropped_extras(table, source)) - set(dropped)
    return replace(table, extra=tuple(sorted({*overflow, *retained})))


def left_behind(
    requested: Iterable[Change], changes: Iterable[Change], accepted: Catalog, source: Catalog
) -> tuple[ColumnAdded, ...]:
    """Return additions that were `requested` and that the source has dropped since (not among `changes`): they can
    be accepted as long as their values are kept. Tables that were renamed at the source are left out."""
    pairs = {now.ref: accepted.by_ref[ref] for ref, now in pair_tables(accepted.tables, source).items()}
    seen = {(c.table, c.after.name) for c in changes if isinstance(c, ColumnAdded)}

    def stands(change: ColumnAdded) -> bool:
        table, now, name = pairs.get(change.table), source.get(change.table), change.after.name
        return bool(table and now and not table.retained and name in dropped_extras(table, now))

    additions = (c for c in requested if isinstance(c, ColumnAdded) and (c.table, c.after.name) not in seen)
    return tuple(c for c in additions if stands(c))


def explained(decisions: Iterable[Decision], changes: Collection[Change], column: str) -> tuple[Decision, ...]:
    """Return the decisions, with what an answer means for the additions `changes` in the column of objects."""
    why = f"the source has dropped it, its values are in {column}: approved they become a column, rejected they go"
    return tuple(replace(d, why=why) if d.needs_review and d.change in changes else d for d in decisions)


def was_extra(table: Table | None, change: Change) -> bool:
    """Return whether a change accepts a column whose values were kept as JSON so far."""
    return table is not None and isinstance(change, ColumnAdded) and change.after.name in (table.extra or ())


def dropped_extras(table: Table, source: Table) -> tuple[str, ...]:
    """Return extra columns of an accepted table that the source has dropped: their values are only in the table."""
    live = {c.name for c in (*source.columns, *table.columns)}
    return tuple(name for name in table.extra or () if name not in live)
