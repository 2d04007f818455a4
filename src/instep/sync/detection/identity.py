"""Ids hold within one server and database: when the source is another one, names tell what belongs together.

Until an accepted catalog with the new ids is stored, the last discovery keeps the old identity: a crash or a plan
in between starts from the same point.
"""

from __future__ import annotations

from dataclasses import replace

from instep.schema.table import Catalog, Table, unbound
from instep.sources.base import Discovery
from instep.store.discoveries import CachedDiscovery


def moved(last: CachedDiscovery | None, now: Discovery) -> bool:
    """Whether the ids of `now` are those of another server than the accepted ones."""
    return last is not None and last.identity != now.identity


def rebind(accepted: Catalog, source: Catalog) -> Catalog:
    """Ids of another server prove nothing: the accepted tables take the ids of the source's by name."""
    return Catalog.of(_rebound(t, source.get(t.ref)) for t in accepted.tables)


def _rebound(table: Table, source: Table | None) -> Table:
    if source is None or table.retained:
        return unbound(table)
    ids = {c.name: c.id for c in source.columns}
    columns = (replace(c, id=None if c.retained else ids.get(c.name)) for c in table.columns)
    return replace(table, id=source.id, columns=tuple(columns))
