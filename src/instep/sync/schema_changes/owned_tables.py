"""Ownership of destination tables: two connections never write one table, and a loaded one does not move.

A connection that shares its tables with others: what the others stand in the way of, and what they lack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from instep.destinations.shared import shard_column
from instep.errors import Blocked
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan
from instep.schema.policy.policy import Policy, Rule
from instep.schema.policy.presets import choice
from instep.sharding.destination import sharded
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
    return f"as shard {name!r}" if name else "into its own tables, not as a shard"


def _space(context: SyncContext) -> str:
    """Return where a connection's names are its own: the namespace, or its shard of it."""
    return f"{context.naming.namespace}{OF}{context.shard}" if context.shard else context.naming.namespace


def _owned_ref(context: SyncContext, ref: Ref) -> Ref:
    """Return a destination table as the store knows whose it is: shards own their rows of it."""
    return (f"{ref[0]}{OF}{context.shard}", ref[1]) if context.shard else ref


def owned_by_others(context: SyncContext, refs: Collection[Ref]) -> dict[Ref, str]:
    """Return those of the destination tables that another connection owns, and why they are left alone."""
    owned = {_owned_ref(context, ref): ref for ref in refs}
    owners = context.store.names.owners(context.destination_name, owned)
    return {
        owned[at]: f"connection {owner} writes {'.'.join(owned[at])}: give {context.name} its own namespace"
        for at, owner in owners.items()
        if owner != context.name
    }


def record_owned(context: SyncContext, plan: Plan) -> None:
    """Record the connection's place and the names of its tables, in the transaction that accepts them. Raises
    Conflict if another connection was faster."""
    store = context.store
    store.connections.put(context.name, destination=context.destination_name, namespace=_space(context))
    owned = {t.ref: _owned_ref(context, destination_ref(t, context.naming)) for t in plan.after.tables}
    store.names.set_owned(context.name, context.destination_name, owned)


RENAMES = ("column.renamed", "table.renamed")


def of_shard(context: SyncContext, shard: str) -> SyncContext:
    """Return the connection as one shard of its tables: a rename waits for a person where a policy's preset would apply
    it, as the others do not follow it."""
    destination, column = context.destination, shard_column(context.naming.prefix)
    destination = sharded(destination, shard, context.naming.prefix)
    naming = replace(context.naming, reserved=context.naming.reserved | {column})
    return replace(context, shard=shard, destination=destination, naming=naming, policy=_asking(context.policy))


def _asking(policy: Policy) -> Policy:
    applied = tuple(kind for kind in RENAMES if choice(kind, policy.preset).action == "apply")
    rule = Rule(applied, "review", option="shard") if applied else None
    return replace(policy, rules=(*policy.rules, rule)) if rule else policy


def unable(context: SyncContext, refs: Iterable[Ref]) -> dict[Ref, str]:
    """Return all tables of a shard whose destination cannot keep it apart from others, and why they are left alone."""
    if not context.shard or context.destination.shard is not None:
        return {}
    plain = f"{context.destination.kind} cannot hold the rows of several connections in one table"
    sharing = context.destination.sharing
    why = (sharing.why_none if sharing else "") or plain
    way = f"take `shard: {context.shard}` out of instep.yml and give {context.name} its own namespace"
    return dict.fromkeys(refs, f"{why}: {way}")


def shared_offences(context: SyncContext, plan: Plan) -> dict[Ref, str]:
    """Return destination tables whose steps cannot be taken while other shards are as they are, and why."""
    if (shard := context.destination.shard) is None:
        return {}
    offences: dict[Ref, str] = {}
    for group in plan.groups():
        if why := shard.reason_not_allowed(group.ref, group.steps, group.after):
            offences.setdefault(group.after.ref if group.after else group.ref, why)
    return offences


def with_shards(context: SyncContext, plan: Plan) -> Plan:
    """Return the plan, with what becomes of the shared tables that it joins, and remarks on which shards lack the
    columns that it names."""
    if (shard := context.destination.shard) is None:
        return plan
    steps = tuple(shard.as_shared(plan.steps))
    return replace(plan, steps=steps, remarks=(*plan.remarks, *shard.remarks(plan.steps)))
