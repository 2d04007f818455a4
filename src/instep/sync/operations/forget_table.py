"""One table of a connector as if it had never come: dropped, and forgotten with the state."""

from __future__ import annotations

from instep.destinations.base import Commit
from instep.errors import InstepError
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from instep.sources.connector.seen import SeenTables
from instep.suggest import did_you_mean
from instep.sync.claim import claimed
from instep.sync.context import SyncContext


def forget_sent(context: SyncContext, name: str) -> Table:
    """Drop the destination's table of that name (`schema.table` or `table`) and forgets what was sent of it, and the
    connector's state: its next run sends everything again. InstepError if there is no such table."""
    table = _named(context, name)
    with claimed(context, "delete") as run, context.destination_open():
        place = context.store.names.of(context.name).get(table.ref)
        for there in context.destination.schema.inspect([place] if place else []).tables:
            context.destination.write.claim(there.ref, run.fence)
            context.destination.schema.execute(
                there.ref, [step(there.ref, TableRemoved(there))], None, Commit(run.id, run.fence)
            )
        states = context.store.connectors
        seen = SeenTables.from_dict(states.shape(context.name)).tables
        with context.transaction():
            rest = context.store.accepted.catalog(context.name).drop(table.ref)
            context.store.accepted.add(
                context.name, rest, who=context.who, why=f"table {table.path} was forgotten", run=run.id
            )
            left = SeenTables({ref: found for ref, found in seen.items() if ref != table.ref})
            states.keep_shape(context.name, left.to_dict())
            states.save(context.name, {})
            states.let_go(
                [operation.number for operation in states.pending(context.name) if operation.table == table.ref]
            )
    return table


def _named(context: SyncContext, name: str) -> Table:
    known = {t.path: t for t in context.store.accepted.catalog(context.name).tables}
    if name in known:
        return known[name]
    hint = did_you_mean(name, known, f"there are: {', '.join(known) or 'none'}")
    raise InstepError(f"no run has loaded a table {name}", hint=hint)
