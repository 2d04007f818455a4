"""Delete a connection: its slot at the source, its tables on request, and its records in the store.

Every part may be done already: a deletion that was stopped is begun again and goes on.

Lets go of the copies that were kept of a table.

One table of a connector as if it had never come: dropped, and forgotten with the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.errors import Blocked, InstepError
from instep.events import ConnectionDeleted, CopyPurged
from instep.model import Run
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from instep.sources.connector.seen import SeenTables
from instep.sources.log import ChangeLog, Logs
from instep.store.catalogs.clones import Copy
from instep.suggest import did_you_mean, first_of
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.two_people import DELETION, TableAction, leaving, listed, two_people

Ref = tuple[str, str]


@dataclass(frozen=True)
class OwnedObjects:
    """Belongings of a connection: the `log` kept at the source ("" if none), its tables at the destination, copies
    beside these."""

    connection: str
    log: str = ""
    tables: tuple[Ref, ...] = ()
    copies: tuple[Copy, ...] = ()


@dataclass
class DeletedConnection:
    """Result of deleting a connection."""

    connection: str
    log: str = ""
    dropped: list[Ref] = field(default_factory=list)
    """Tables can be restored only by the destination's own means."""
    kept: list[Ref] = field(default_factory=list)
    records: Mapping[str, int] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)
    """Objects that could not be deleted, and why."""


def owned_objects(context: SyncContext) -> OwnedObjects:
    """Return a connection's belongings from the store; source and destination are not opened."""
    log = context.log.slot if context.log and not context.log_taken() else ""
    return OwnedObjects(
        context.name,
        log,
        tuple(sorted(context.store.names.of(context.name).values())),
        tuple(context.store.copies.existing(context.name)),
    )


def leave(context: SyncContext, table_action: TableAction, *, named: str, abandon: bool = False) -> DeletedConnection:
    """End a connection. Its tables stay, or are dropped; rows of other shards are never touched.

    Blocked unless `named` is its name, and if four_eyes want a second person; RunInProgress while a run of it is alive.
    A source or destination that cannot be reached is an error, and nothing is forgotten; with `abandon` what is there
    is left behind, and told."""
    if named != context.name:
        raise Blocked(
            f"connection {context.name} is deleted only by its name, which was not given",
            hint=f"name it: {context.name}",
        )
    with two_people(context, DELETION, leaving(table_action, abandon=abandon)):
        return _leave(context, table_action, abandon=abandon)


def _leave(context: SyncContext, table_action: TableAction, *, abandon: bool) -> DeletedConnection:
    left, owned = DeletedConnection(context.name), owned_objects(context)
    with claimed(context, "delete", paused_too=True) as run:
        with _or_left(left, abandon, f"slot {owned.log}"):
            left.log = _drop_log(context)
        if context.log and (other := context.log_taken()):
            left.behind.append(f"slot {context.log.slot}: connection {other} reads it")
        crashpoint("leave.log.after")
        with _or_left(left, abandon, "tables"), context.destination_open():
            _clear(context, run, owned, table_action, left)
        crashpoint("leave.tables.after")
    crashpoint("leave.records.before")
    with context.store.transaction():
        left.records = context.store.connections.forget(context.name)
        done = len(left.dropped) if table_action == "drop" else len(left.kept)
        deleted = ConnectionDeleted(
            context.name,
            context.who,
            done,
            _action_text(table_action, left),
            left.log,
            tuple(left.behind),
            context.source.kind,
            context.destination_name,
            context.naming.namespace,
        )
        context.store.events.add(deleted)
    return left


@contextmanager
def _or_left(left: DeletedConnection, abandon: bool, what: str) -> Iterator[None]:
    """Let errors of ours end the deletion, or under `abandon` record what is left behind."""
    try:
        yield
    except InstepError as error:
        if not abandon:
            raise
        left.behind.append(f"{what}: {error.message}")


def _action_text(table_action: TableAction, left: DeletedConnection) -> str:
    if any(text.startswith("tables: ") for text in left.behind):
        return "left"
    return "dropped" if table_action == "drop" else "kept"


def _drop_log(context: SyncContext) -> str:
    """Return the slot that is gone now, "" if there was none."""
    log = log_of(context)
    return context.log.slot if log is not None and context.log and log.drop() else ""


def log_of(context: SyncContext) -> ChangeLog | None:
    """Return the log that the source's server keeps for this connection alone; one that another connection reads is not
    its own, whatever its settings say."""
    if (
        context.log is None
        or context.log_taken()
        or not isinstance(context.source, Logs)
        or context.source.kind != "postgres"
    ):
        return None
    return context.source.log(context.log)


def _clear(
    context: SyncContext, run: Run, owned: OwnedObjects, table_action: TableAction, left: DeletedConnection
) -> None:
    """Take away what runs have left beside the tables, and if asked for the tables with their views and copies."""
    runs = {r.id: r.fence for r in context.store.runs.history(context.name, limit=10_000) if r.id != run.id}
    for table in context.destination.schema.inspect(owned.tables).tables:
        context.destination.write.claim(table.ref, run.fence)
        context.destination.lifecycle.remove_uncommitted_files(table.ref, runs)
        if table_action == "keep":
            left.kept.append(table.ref)
            continue
        with _or_left(left, bool(context.shard), f"table {'.'.join(table.ref)}"):  # other shards may have rows in it
            views = context.destination.views
            if views is not None and not views.why_none:
                for name, view in views.all().items():
                    if view.table == table.ref:
                        views.drop(name)
            gone = [step(table.ref, TableRemoved(table))]
            context.destination.schema.execute(table.ref, gone, None, Commit(run.id, run.fence))
            left.dropped.append(table.ref)
            crashpoint("leave.table.after")
    if table_action == "drop":
        _purge(context, run, owned.copies, left)


def _purge(context: SyncContext, run: Run, copies: Sequence[Copy], left: DeletedConnection) -> None:
    for copy in copies:
        if (clones := context.destination.lifecycle.clones) is not None:
            clones.purge_clone(copy.place, run.fence)
            left.dropped.append(copy.place)


def purge(context: SyncContext, copies: Sequence[Copy]) -> None:
    """Delete them as one run, the destination's side first: one that is gone there is fine. Blocked if four_eyes want
    a second person."""
    what = listed(sorted(".".join(copy.place) for copy in copies))
    with two_people(context, "table purge", what), claimed(context, "apply") as run:
        context = replace(context, run=run)
        for copy in copies:
            if (clones := context.destination.lifecycle.clones) is not None:
                clones.purge_clone(copy.place, run.fence)
            with context.transaction():
                context.store.copies.end(copy.number)
                path, place = ".".join(filter(None, copy.table)), ".".join(copy.place)
                context.store.events.add(CopyPurged(context.name, path, place, context.who))


def forget_sent(context: SyncContext, name: str) -> Table:
    """Drop the destination's table of that name (`schema.table` or `table`) and forgets what was sent of it, and the
    connector's state: its next run sends everything again. InstepError if there is no such table."""
    table = _named(context, name)
    with claimed(context, "delete") as run, context.destination_open():
        place = context.store.names.of(context.name).get(table.ref)
        for table_there in context.destination.schema.inspect([place] if place else []).tables:
            context.destination.write.claim(table_there.ref, run.fence)
            context.destination.schema.execute(
                table_there.ref, [step(table_there.ref, TableRemoved(table_there))], None, Commit(run.id, run.fence)
            )
        states = context.store.connectors
        seen = SeenTables.from_dict(states.shape(context.name)).tables
        with context.transaction():
            remaining = context.store.accepted.catalog(context.name).drop(table.ref)
            context.store.accepted.add(
                context.name, remaining, who=context.who, why=f"table {table.path} was forgotten", run=run.id
            )
            left = SeenTables({ref: seen_table for ref, seen_table in seen.items() if ref != table.ref})
            states.keep_shape(context.name, left.to_dict())
            states.save(context.name, {})
            states.release(
                [operation.number for operation in states.pending(context.name) if operation.table == table.ref]
            )
    return table


def _named(context: SyncContext, name: str) -> Table:
    tables = {t.path: t for t in context.store.accepted.catalog(context.name).tables}
    if name in tables:
        return tables[name]
    hint = did_you_mean(name, tables, f"there are: {first_of([*tables]) or 'none'}")
    raise InstepError(f"no run has loaded a table {name}", hint=hint)
