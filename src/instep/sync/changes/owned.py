"""Which destination tables are a connection's own: two never write one table, and a loaded one does not move."""

from __future__ import annotations

from collections.abc import Collection

from instep.schema.names import destination_ref
from instep.schema.plan import Plan
from instep.sync.pipe import Pipe, Ref


def check_unmoved(pipe: Pipe) -> None:
    """Raises Blocked if the project file names another destination or namespace than that of the loaded tables."""
    pipe.store.connections.check(pipe.name, destination=pipe.destination_name, namespace=pipe.naming.namespace)


def taken(pipe: Pipe, refs: Collection[Ref]) -> dict[Ref, str]:
    """Those of the destination tables that another connection owns, and why they are left alone."""
    owners = pipe.store.names.owners(pipe.destination_name, refs)
    return {
        ref: f"connection {owner} writes {'.'.join(ref)}: give {pipe.name} a namespace of its own"
        for ref, owner in owners.items()
        if owner != pipe.name
    }


def own(pipe: Pipe, made: Plan) -> None:
    """Records the connection's place and the names of its tables, in the transaction that accepts them. Raises
    Conflict if another connection was faster."""
    store, namespace = pipe.store, pipe.naming.namespace
    store.connections.put(pipe.name, destination=pipe.destination_name, namespace=namespace)
    wanted = {t.ref: destination_ref(t, pipe.naming) for t in made.after.tables}
    store.names.hold(pipe.name, pipe.destination_name, wanted)
