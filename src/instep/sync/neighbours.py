"""Destination tables that other connections of this store write: two connections never write one table."""

from __future__ import annotations

from instep.schema.table import Catalog
from instep.store.store import Store
from instep.sync.pipe import Pipe, Ref


def taken(pipe: Pipe, there: Catalog) -> dict[Ref, str]:
    """Those of the tables that are `there` that this connection has never recorded and another one has, and why they
    are left alone."""
    known = written(pipe.store, pipe.name).by_ref
    unknown = [t for t in there.tables if t.ref not in known]
    if not unknown:
        return {}
    others = {c.name: written(pipe.store, c.name) for c in pipe.store.connections.all() if c.name != pipe.name}
    return {
        table.ref: f"connection {name} writes {'.'.join(table.ref)}: give {pipe.name} a namespace of its own"
        for table in unknown
        for name, catalog in others.items()
        if table.ref in catalog.by_ref
    }


def written(store: Store, connection: str) -> Catalog:
    """The destination's tables as a connection recorded them last."""
    versions = store.schemas.history(connection, "destination")
    return store.schemas.catalog(connection, "destination", versions[0].version) if versions else Catalog()
