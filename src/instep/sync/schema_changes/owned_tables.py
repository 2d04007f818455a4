"""Which destination tables are a connection's own: two never write one table, and a loaded one does not move."""

from __future__ import annotations

from collections.abc import Collection

from instep.errors import Blocked
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan
from instep.sync.context import Ref, SyncContext

OF = " shard "
"""Between a namespace and the shard in it; neither has it in itself."""


def check_unmoved(context: SyncContext) -> None:
    """Raise Blocked if the project file names another place than that of the loaded tables: another destination,
    namespace or shard."""
    stored = context.store.connections.get(context.name)
    if stored and stored.namespace and context.store.names.of(context.name):
        was, now = (space.partition(OF) for space in (stored.namespace, _space(context)))
        if was[0] == now[0] and was != now:
            raise Blocked(
                f"connection {context.name}: its rows are already loaded {_as_shard(was[2])}, which stays",
                hint=f"write `shard: {was[2]}` under it in instep.yml" if was[2] else "take `shard` out of instep.yml",
            )
    context.store.connections.check(context.name, destination=context.destination_name, namespace=_space(context))


def _as_shard(name: str) -> str:
    return f"as shard {name!r}" if name else "into tables of its own, and not as a shard"


def _space(context: SyncContext) -> str:
    """Return where a connection's names are its own: the namespace, or its shard of it."""
    return f"{context.naming.namespace}{OF}{context.shard}" if context.shard else context.naming.namespace


def _owned_ref(context: SyncContext, ref: Ref) -> Ref:
    """Return a destination table as the store knows whose it is: shards own their rows of it."""
    return (f"{ref[0]}{OF}{context.shard}", ref[1]) if context.shard else ref


def taken(context: SyncContext, refs: Collection[Ref]) -> dict[Ref, str]:
    """Return those of the destination tables that another connection owns, and why they are left alone."""
    owned = {_owned_ref(context, ref): ref for ref in refs}
    owners = context.store.names.owners(context.destination_name, owned)
    return {
        owned[at]: f"connection {owner} writes {'.'.join(owned[at])}: give {context.name} a namespace of its own"
        for at, owner in owners.items()
        if owner != context.name
    }


def own(context: SyncContext, made: Plan) -> None:
    """Record the connection's place and the names of its tables, in the transaction that accepts them. Raises
    Conflict if another connection was faster."""
    store = context.store
    store.connections.put(context.name, destination=context.destination_name, namespace=_space(context))
    wanted = {t.ref: _owned_ref(context, destination_ref(t, context.naming)) for t in made.after.tables}
    store.names.hold(context.name, context.destination_name, wanted)
