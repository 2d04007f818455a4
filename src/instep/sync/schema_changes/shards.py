"""A connection that shares its tables with others: what the others stand in the way of, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from instep.destinations.shared import shard_column
from instep.schema.planning.plan import Plan
from instep.schema.policy.policy import Policy, Rule
from instep.schema.policy.presets import choice
from instep.sharding.destination import sharded
from instep.sync.context import Ref, SyncContext

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
    way = f"take `shard: {context.shard}` out of instep.yml and give {context.name} a namespace of its own"
    return dict.fromkeys(refs, f"{why}: {way}")


def shared_offences(context: SyncContext, made: Plan) -> dict[Ref, str]:
    """Destination tables whose steps cannot be taken while other shards are as they are, and why."""
    if (shard := context.destination.shard) is None:
        return {}
    found: dict[Ref, str] = {}
    for group in made.groups():
        if why := shard.why_not(group.ref, group.steps, group.after):
            found.setdefault(group.after.ref if group.after else group.ref, why)
    return found


def with_shards(context: SyncContext, made: Plan) -> Plan:
    """Return the plan, with remarks on which shards lack the columns that it names."""
    if (shard := context.destination.shard) is None:
        return made
    return replace(made, remarks=(*made.remarks, *shard.remarks(made.steps)))
