"""Selections that instep.yml or a command has changed since the last load, for `status`: from the store alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from instep.errors import argument
from instep.project.project import Project
from instep.schema.catalog.catalog import Table, catalog_from_dict, table_from_dict
from instep.schema.changes.kinds import Ref
from instep.schema.planning.projection import (
    ColumnRead,
    LoadedColumn,
    LoadedRules,
    ReselectedColumn,
    TableRead,
    clear_retained_columns,
    is_read_again,
    pair_tables,
    reselected_columns,
)
from instep.schema.policy.policy import Policy
from instep.schema.selection.overrides import Switch, with_switches
from instep.schema.selection.selection import Selection, column_is_on, hashed, is_on, is_read_hashed
from instep.store.catalog_documents import CatalogDocument
from instep.store.catalogs.backfills import Backfill
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.engine.database import by_connection
from instep.store.store import Store

Accepted = Mapping[str, Mapping[str, Any]]
"""The catalog of each connection's latest version, as JSON has it."""
Loaded = Mapping[str, Mapping[Ref, Sequence[Mapping[str, Any]]]]
"""The columns of each connection's last loads by table, as JSON has them."""


def reselected(
    project: Project,
    store: Store,
    accepted: Accepted,
    known: Loaded,
    waiting: Mapping[str, Sequence[Backfill]],
    names: Sequence[str],
) -> dict[str, list[tuple[ReselectedColumn, bool]]]:
    """Return the columns by connection, and whether the next sync reads their whole table. Tables of which a whole
    backfill is recorded are left out."""
    loaded = [name for name in names if known[name]]
    switches = store.switches.of_many(loaded)
    seen = store.discoveries.get_many([name for name in loaded if switches[name]])  # they follow renamed objects by id
    places = _places(project, accepted, loaded, switches, seen)
    columns = {name: list(_reselected(place, known[name], waiting[name])) for name, place in places.items()}
    seen |= store.discoveries.get_many([name for name, some in columns.items() if some and not switches[name]])
    there = {
        name: pair_tables(catalog_from_dict(accepted[name]).tables, seen[name].catalog)
        for name in seen
        if columns.get(name) and seen[name].catalog.tables
    }
    return {
        name: [one for one in columns.get(name, ()) if _has(there.get(name), one[0])]
        + [(one, False) for one in (_clear(store, name, places[name], known[name]) if name in places else ())]
        for name in names
    }


def _clear(
    store: Store, name: str, place: _Place, known: Mapping[Ref, Sequence[Mapping[str, Any]]]
) -> Iterator[ReselectedColumn]:
    """Yield hashed columns that the source has no more, and whose loaded values are in clear."""
    tables = [t for t in place.accepted["tables"] if place.now.covers_columns and _has_retained(t)]
    rules = store.loaded.filters(name, {(t["schema"], t["name"]) for t in tables}) if tables else {}
    for table in map(table_from_dict, tables):
        before = [LoadedColumn(**c) for c in known.get(table.ref, ())]
        hides = partial(is_read_hashed, place.now, table)
        yield from clear_retained_columns(table, before, rules.get(table.ref, LoadedRules()), hides)


def _has_retained(table: Mapping[str, Any]) -> bool:
    return bool(table.get("retained")) or any(c.get("retained") for c in table["columns"])


@dataclass(frozen=True)
class _Place:
    """Accepted objects of a connection as JSON has them, and its current selection."""

    accepted: Mapping[str, Any]
    now: Selection
    policy: Policy
    tags: tuple[str, ...]


def _places(
    project: Project,
    accepted: Accepted,
    names: Sequence[str],
    switches: Mapping[str, Sequence[Switch]],
    seen: Mapping[str, CachedDiscovery],
) -> dict[str, _Place]:
    places = {}
    for name in (name for name in names if name in accepted):
        now = project.selection(name)
        if switches[name]:
            at = seen.get(name)
            now = with_switches(now, switches[name], *((at.catalog, at.identity) if at else ()))
        tags = tuple(project.connection(name).tags)
        places[name] = _Place(accepted[name], now, project.policy(name), tags)
    return places


def _reselected(
    place: _Place, known: Mapping[Ref, Sequence[Mapping[str, Any]]], waiting: Iterable[Backfill]
) -> Iterator[tuple[ReselectedColumn, bool]]:
    whole = {b.table for b in waiting if b.scope == "table"}
    for one in place.accepted["tables"]:
        ref = one["schema"], one["name"]
        before = known.get(ref, ())
        if not before or ref in whole or one.get("retained") or _is_as_loaded(place.now, one, before):
            continue
        table = table_from_dict(one)
        if is_on(place.now, table)[0]:
            columns = [LoadedColumn(**c) for c in before]
            yield from ((t, _whole(place, t)) for t in reselected_columns(_read(place, table, columns), columns))


def _is_as_loaded(now: Selection, table: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> bool:
    """True if every column was read in clear, with the type that it has, and no rule of now is about columns: then
    nothing has turned. It says so of most of the tables, whose columns are too many to be looked at one by one."""
    if now.covers_columns:
        return False
    types = {c["name"]: c["type"] for c in table["columns"]}
    return all(
        c.get("read", True) and not c.get("hashed") and c.get("type", "") in ("", types.get(c["name"], c["type"]))
        for c in before
    )


def decided(project: Project, store: Store, accepted: Accepted, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the decisions that `status` shows, by connection: how many changes wait for one, the choices since the
    last load, and columns without values in older rows."""
    known, backfills = store.loaded.documents_of(names), store.backfills.waiting_of(names)
    chosen, waiting = reselected(project, store, accepted, known, backfills, names), store.pages.waiting(names)
    lacking = _partial(accepted, known, backfills, names)
    return {
        name: {
            "waiting_changes": waiting.get(name, 0),
            "reselected": tuple({"column": t.path, "is": t.what, "reads_table": whole} for t, whole in chosen[name]),
            "partial": tuple(
                {"table": table.path, "column": column, "command": _filling(table, column)}
                for table, column in lacking[name]
            ),
        }
        for name in names
    }


def _filling(table: Table, column: str) -> str:
    """Return the command that brings the values: of the column alone where rows can be told apart."""
    alone = table.key and column not in table.key and not table.history
    return f"instep backfill {argument(table.path)}{f' --column {argument(column)}' if alone else ''}"


def _partial(
    accepted: Accepted, known: Loaded, waiting: Mapping[str, Sequence[Backfill]], names: Sequence[str]
) -> dict[str, list[tuple[Table, str]]]:
    """Return by connection the columns whose old rows lack values that no recorded backfill is to bring."""
    loaded = ((name, ref, c) for name in names for ref, columns in known[name].items() for c in columns)
    some = by_connection(names, ((name, (ref, c["name"])) for name, ref, c in loaded if c.get("partial")))
    requested = {name: {(b.table, b.column) for b in waiting[name] if b.scope != "since"} for name in names}
    partial: dict[str, list[tuple[Table, str]]] = {name: [] for name in names}
    for name in (name for name in names if some[name] and name in accepted):
        catalog = CatalogDocument.of(accepted[name])
        for ref, column in some[name]:
            table = catalog.table(ref)
            is_live = table is not None and not table.retained and column in {c.name for c in table.live}
            if table is not None and is_live and not requested[name] & {(ref, column), (ref, "")}:
                partial[name].append((table, column))
    return partial


def _read(place: _Place, table: Table, before: Sequence[LoadedColumn]) -> TableRead:
    return TableRead(table, table, tuple(_columns(place, table, before)))


def _columns(place: _Place, table: Table, before: Sequence[LoadedColumn]) -> Iterator[ColumnRead]:
    """Yield the columns that are read. Source types are taken from the last load: the accepted schema knows no type
    of a column that was excluded."""
    natives = {c.name: c.native for c in before}
    for column in table.live:
        on = column_is_on(place.now, table, column)[0]
        there = replace(column, native=natives.get(column.name, column.native))
        yield ColumnRead(column, there if on else None, hashed(place.now, table.ref, column.name))


def _has(there: Mapping[Ref, Table] | None, column: ReselectedColumn) -> bool:
    """True if the source has the column: one that it has dropped waits for a decision, and nobody has chosen it."""
    if there is None:
        return True
    table = there.get(column.table.ref)
    return table is not None and any(
        c.name == column.column.name or (c.id and c.id == column.column.id) for c in table.columns
    )


def _whole(place: _Place, column: ReselectedColumn) -> bool:
    return is_read_again(column.table.ref, column.column, column.what, place.policy, place.tags)
