"""What cannot be read or named: never taken as removed, and never accepted before that has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.projection import Ref, pair_tables
from instep.schema.selection.selection import Selection, column_is_on


@dataclass(frozen=True)
class Access:
    """`source` is what may be read of the source. `lost` are the accepted tables that may not be read any more, each
    with the accepted column it is about (None: the whole table) and why; they are left out of both sides of a diff.
    `hidden` names what was never accepted and may not be read: (schema, table) or (schema, table, column) to why."""

    source: Catalog
    lost: Mapping[Ref, tuple[str | None, str]] = field(default_factory=dict)
    hidden: Mapping[tuple[str, ...], str] = field(default_factory=dict)


def restrict(source: Catalog, accepted: Catalog, denied: Mapping[tuple[str, ...], str], selection: Selection) -> Access:
    """Split what is denied (tables, and columns as triples) by whether it was accepted.

    A table with an accepted column that may not be read is lost as a whole: without that column its rows would be
    NULL where the source has values.
    """
    if not denied:
        return Access(source)
    owner = {now.ref: ref for ref, now in pair_tables(accepted.tables, source).items()}
    paired = set(owner.values())
    lost: dict[Ref, tuple[str | None, str]] = {}
    hidden: dict[tuple[str, ...], str] = {}
    tables = {t.ref: t for t in source.tables}
    for ref, columns in _by_table(denied).items():
        mine = owner.get(ref) or (ref if ref in accepted.by_ref and ref not in paired else None)
        known = accepted.get(mine) if mine else None
        if known is not None and known.retained:
            known = None
        if "" in columns or ref not in tables:
            tables.pop(ref, None)
            why = columns.get("") or next(iter(columns.values()))
            if known is not None:
                lost[known.ref] = None, why
            else:
                hidden[ref] = why
            continue
        needed = _needed(known, tables[ref], columns, selection)
        if known is not None and needed:
            lost[known.ref] = needed[0]
            tables.pop(ref)
            continue
        closed = _unknown(known, tables[ref], columns)
        hidden |= {(*ref, name): columns[name] for name in closed}
        tables[ref] = without(tables[ref], closed)
    return Access(Catalog.of(tables.values()), lost, hidden)


def _by_table(denied: Mapping[tuple[str, ...], str]) -> dict[Ref, dict[str, str]]:
    found: dict[Ref, dict[str, str]] = defaultdict(dict)
    for path, why in denied.items():
        found[path[0], path[1]][path[2] if len(path) > 2 else ""] = why
    return found


def _needed(
    known: Table | None, now: Table, closed: Mapping[str, str], selection: Selection
) -> list[tuple[str | None, str]]:
    """Return the accepted columns that are read and closed, with why."""
    same = pair_columns(known, now).same if known else ()
    return [(a.name, closed[b.name]) for a, b in same if b.name in closed and column_is_on(selection, now, b)[0]]


def _unknown(known: Table | None, now: Table, closed: Mapping[str, str]) -> list[str]:
    accepted = {b.name for _, b in pair_columns(known, now).same} if known else set()
    return [c.name for c in now.columns if c.name in closed and c.name not in accepted]


def without(table: Table, names: list[str]) -> Table:
    """Return the table without these columns; a key that needs one of them is no key."""
    if not names:
        return table
    broken = any(c.key for c in table.columns if c.name in names)
    columns = (replace(c, key=0) if broken and c.key else c for c in table.columns if c.name not in names)
    return replace(table, columns=tuple(columns), cursor=None if table.cursor in names else table.cursor)
