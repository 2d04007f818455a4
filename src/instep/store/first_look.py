"""The source as the first detection saw it: all that it had then is selected for the first sync."""

from __future__ import annotations

from instep.schema.catalog.catalog import Catalog, by_names
from instep.schema.policy.new_objects import FirstLook
from instep.store.store import Store


def first_look(store: Store, connection: str, now: Catalog, identity: str) -> FirstLook:
    """Return what the source had when it was first seen, against what it has now; a detection that found no table
    does not count. Ids of another server (`identity`) prove nothing."""
    stored, seen = store.connections.get(connection), now
    for version in reversed(store.schemas.history(connection, "source")):
        first = store.schemas.catalog(connection, "source", version.version)
        if first.tables:
            same = version.identity == identity
            seen, now = (first, now) if same else (by_names(first), by_names(now))
            break
    return FirstLook.of(seen, now, configured=bool(stored and stored.configured))
