"""A connection that shares its tables with others: what the others stand in the way of, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from instep.destinations.sharded import sharded
from instep.destinations.shared import Shared, Shares, SharesSome, shard_column
from instep.schema.planning.plan import Plan
from instep.schema.policy.policy import Policy, Rule
from instep.schema.policy.presets import choice
from instep.sync.context import Ref, SyncContext

RENAMES = ("column.renamed", "table.renamed")


def of_shard(context: SyncContext, shard: str) -> SyncContext:
    """Return the connection as one shard of its tables: a rename waits for a person where a policy's preset would apply
    it, as the others do not follow it."""
    destination, column = context.destination, shard_column(context.naming.prefix)
    if isinstance(destination, Shares) and not why_no_shards(destination):
        destination = sharded(destination, shard, context.naming.prefix)
    naming = replace(context.naming, reserved=context.naming.reserved | {column})
    return replace(context, shard=shard, destination=destination, naming=naming, policy=_asking(context.policy))


def why_no_shards(destination: object) -> str:
    """Return what of its settings keeps a destination from sharing tables; "" if nothing does."""
    return destination.why_no_shards if isinstance(destination, SharesSome) else ""


def _asking(policy: Policy) -> Policy:
    applied = tuple(kind for kind in RENAMES if choice(kind, policy.preset).action == "apply")
    rule = Rule(applied, "review", option="shard") if applied else None
    return replace(policy, rules=(*policy.rules, rule)) if rule else policy


def unable(context: SyncContext, refs: Iterable[Ref]) -> dict[Ref, str]:
    """Return all tables of a shard whose destination cannot keep it apart from others, and why they are left alone."""
    if not context.shard or isinstance(context.destination, Shared):
        return {}
    plain = f"{context.destination.kind} cannot hold the rows of several connections in one table"
    why = why_no_shards(context.destination) or plain
    way = f"take `shard: {context.shard}` out of instep.yml and give {context.name} a namespace of its own"
    return dict.fromkeys(refs, f"{why}: {way}")


def shared_offences(context: SyncContext, made: Plan) -> dict[Ref, str]:
    """Destination tables whose steps cannot be taken while other shards are as they are, and why."""
    if not isinstance(context.destination, Shared):
        return {}
    found: dict[Ref, str] = {}
    for group in made.groups():
        if why := context.destination.why_not(group.ref, group.steps, group.after):
            found.setdefault(group.after.ref if group.after else group.ref, why)
    return found


def with_shards(context: SyncContext, made: Plan) -> Plan:
    """Return the plan, with remarks on which shards lack the columns that it names."""
    if not isinstance(context.destination, Shared):
        return made
    return replace(made, remarks=(*made.remarks, *context.destination.remarks(made.steps)))
