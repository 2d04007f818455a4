"""Requests to reload whole tables and to drop blocked columns: which tables and columns qualify."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from instep.control.selection.listing import listed
from instep.control.selection.schema_patch import NotListed
from instep.control.selection.selections import SwitchedConnection
from instep.errors import Conflict, InstepError
from instep.events import ResyncRequested
from instep.schema.catalog.catalog import Table
from instep.schema.selection.selection import is_on
from instep.store.catalogs.backfills import BY_PERSON
from instep.store.store import Store

Ref = tuple[str, str]
Scope = Mapping[str, Sequence[str]]


def chosen(place: SwitchedConnection, scope: Scope | None) -> list[Ref]:
    """Return the accepted tables that a scope (schema to its tables) names, or all that are on.

    Raises InstepError for a scope that names nothing, and NotListed for what is not loaded.
    """
    if scope is None:
        return [t.ref for t in place.accepted.tables if not t.retained and is_on(place.now, t)[0]]
    if not scope or not all(scope.values()):
        raise InstepError(
            "the scope names no table", hint="name tables by their schema, or leave the scope out for all"
        )
    return [_loaded(place, (schema, name)).ref for schema, names in scope.items() for name in names]


def _loaded(place: SwitchedConnection, ref: Ref) -> Table:
    path = ".".join(filter(None, ref))
    table = place.accepted.get(ref)
    if table is None or table.retained:
        raise NotListed(
            f"connection {place.connection} has no loaded table {path}", hint="tables get their first load by a sync"
        )
    return table


def ask(store: Store, connection: str, tables: Sequence[Ref], who: str, *, whole: bool = False) -> int:
    """Ask for these tables to be read again by the next sync, in one transaction; answers how many are new. `whole`:
    the connection was meant."""
    with store.transaction():
        named = () if whole else tuple(".".join(filter(None, ref)) for ref in tables)
        store.events.add(ResyncRequested(connection, named, who))
        return sum(store.backfills.request(connection, ref, why=f"{BY_PERSON}{who}") for ref in tables)


def droppable(place: SwitchedConnection, requested: Mapping[Ref, Sequence[str]]) -> list[str]:
    """Return the paths of the named columns that are loaded. Raises NotListed for a column that there is not, Conflict
    for one that is on: only what is blocked can be dropped, which there is nothing to do for where it was never
    loaded."""
    named = [(ref, name) for ref, names in requested.items() for name in names]
    blocked = {one.path for one in listed(place, columns=True) if one.column and not one.enabled} if named else set()
    return [path for ref, name in named if (path := _path(place, ref, name, blocked))]


def _path(place: SwitchedConnection, ref: Ref, name: str, blocked: Collection[str]) -> str:
    """Return the path of a loaded column; "" for one that was never loaded."""
    path = ".".join(filter(None, (*ref, name)))
    table, known = place.accepted.get(ref), place.known.get(ref)
    column = table.by_name.get(name) if table and not table.retained else None
    if column is None and (known is None or name not in known.by_name):
        raise NotListed(f"connection {place.connection} has no column {path}", hint="see the columns of the table")
    if path not in blocked and not (column and column.retained):
        raise Conflict(f"column {path} is not blocked and cannot be dropped", hint="disable it first, then drop it")
    return path if column else ""
