"""The end of a connection: what a server keeps for it at the source, its tables, and all that is recorded of it.

Every part may be done already: a deletion that was stopped is begun again and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from instep.crash import crashpoint
from instep.destinations.base import Commit, Keeps
from instep.destinations.facets import HoldsViews
from instep.errors import Blocked, InstepError
from instep.events import ConnectionDeleted
from instep.model import Run
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from instep.sources.log import ChangeLog, Logs
from instep.store.catalogs.clones import Copy
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.two_people import two_people

Ref = tuple[str, str]
Fate = Literal["keep", "drop"]
DELETION = "connection delete"


@dataclass(frozen=True)
class Belongings:
    """What there is of a connection: the `log` kept at the source ("" if none), its tables at the destination, copies
    beside these."""

    connection: str
    log: str = ""
    tables: tuple[Ref, ...] = ()
    copies: tuple[Copy, ...] = ()


@dataclass
class DeletedConnection:
    """What became of it. `dropped` tables can be brought back by the destination's own means only. `behind`: what
    could not be taken away, and why."""

    connection: str
    log: str = ""
    dropped: list[Ref] = field(default_factory=list)
    kept: list[Ref] = field(default_factory=list)
    records: Mapping[str, int] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)


def belongings(pipe: SyncContext) -> Belongings:
    """From the store alone: nothing is asked of source and destination."""
    log = pipe.log.slot if pipe.log and not pipe.log_taken() else ""
    return Belongings(
        pipe.name, log, tuple(sorted(pipe.store.names.of(pipe.name).values())),
        tuple(pipe.store.copies.standing(pipe.name)),
    )  # fmt: skip


def leave(pipe: SyncContext, fate: Fate, *, named: str, abandon: bool = False) -> DeletedConnection:
    """Ends a connection. Its tables stay, or are dropped; rows of other shards are never touched.

    Blocked unless `named` is its name, and if four_eyes want a second person; RunInProgress while a run of it is alive.
    A source or destination that cannot be reached is an error, and nothing is forgotten; with `abandon` what is there
    is left behind, and told."""
    if named != pipe.name:
        raise Blocked(
            f"connection {pipe.name} is deleted only by its name, which was not given", hint=f"name it: {pipe.name}"
        )
    with two_people(pipe, DELETION, leaving(fate, abandon=abandon)):
        return _leave(pipe, fate, abandon=abandon)


def leaving(fate: Fate, *, abandon: bool) -> str:
    """What matters of a deletion, for four_eyes."""
    return f"its tables are {'DROPPED' if fate == 'drop' else 'kept'}{', what is not reached stays behind' * abandon}"


def _leave(pipe: SyncContext, fate: Fate, *, abandon: bool) -> DeletedConnection:
    left, there = DeletedConnection(pipe.name), belongings(pipe)
    with claimed(pipe, "delete", paused_too=True) as run:
        with _or_left(left, abandon, f"slot {there.log}"):
            left.log = _drop_log(pipe)
        if pipe.log and (other := pipe.log_taken()):
            left.behind.append(f"slot {pipe.log.slot}: connection {other} reads it")
        crashpoint("leave.log.after")
        with _or_left(left, abandon, "tables"), pipe.destination_open():
            _clear(pipe, run, there, fate, left)
        crashpoint("leave.tables.after")
    crashpoint("leave.records.before")
    with pipe.store.transaction():
        left.records = pipe.store.connections.forget(pipe.name)
        done = len(left.dropped) if fate == "drop" else len(left.kept)
        told = ConnectionDeleted(
            pipe.name, pipe.who, done, _fate(fate, left), left.log, tuple(left.behind), pipe.source.kind,
            pipe.destination_name, pipe.naming.namespace,
        )  # fmt: skip
        pipe.store.events.add(told)
    return left


@contextmanager
def _or_left(left: DeletedConnection, abandon: bool, what: str) -> Iterator[None]:
    """Errors of ours end the deletion, or under `abandon` are noted as what is left behind."""
    try:
        yield
    except InstepError as error:
        if not abandon:
            raise
        left.behind.append(f"{what}: {error.message}")


def _fate(fate: Fate, left: DeletedConnection) -> str:
    if any(said.startswith("tables: ") for said in left.behind):
        return "left"
    return "dropped" if fate == "drop" else "kept"


def _drop_log(pipe: SyncContext) -> str:
    """The slot that is gone now, "" if there was none."""
    log = log_of(pipe)
    return pipe.log.slot if log is not None and pipe.log and log.drop() else ""


def log_of(pipe: SyncContext) -> ChangeLog | None:
    """The log that the source's server keeps for this connection alone; one that another connection reads is not its
    own, whatever its settings say."""
    if pipe.log is None or pipe.log_taken() or not isinstance(pipe.source, Logs) or pipe.source.kind != "postgres":
        return None
    return pipe.source.log(pipe.log)


def _clear(pipe: SyncContext, run: Run, there: Belongings, fate: Fate, left: DeletedConnection) -> None:
    """Takes away what runs have left beside the tables, and if asked for the tables with their views and copies."""
    runs = {r.id: r.fence for r in pipe.store.runs.history(pipe.name, limit=10_000) if r.id != run.id}
    for table in pipe.destination.inspect(there.tables).tables:
        pipe.destination.claim(table.ref, run.fence)
        pipe.destination.remove_uncommitted_files(table.ref, runs)
        if fate == "keep":
            left.kept.append(table.ref)
            continue
        with _or_left(left, bool(pipe.shard), f"table {'.'.join(table.ref)}"):  # other shards may have rows in it
            _drop_views(pipe, table.ref)
            gone = [step(table.ref, TableRemoved(table))]
            pipe.destination.execute(table.ref, gone, None, Commit(run.id, run.fence))
            left.dropped.append(table.ref)
            crashpoint("leave.table.after")
    if fate == "drop":
        _purge(pipe, run, there.copies, left)


def _drop_views(pipe: SyncContext, ref: Ref) -> None:
    if isinstance(pipe.destination, HoldsViews) and not pipe.destination.why_no_views:
        for name, view in pipe.destination.views().items():
            if view.table == ref:
                pipe.destination.drop_view(name)


def _purge(pipe: SyncContext, run: Run, copies: Sequence[Copy], left: DeletedConnection) -> None:
    for copy in copies:
        if isinstance(pipe.destination, Keeps):
            pipe.destination.purge(copy.place, run.fence)
            left.dropped.append(copy.place)
