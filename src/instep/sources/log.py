"""A source's log: the keys of the rows that changed since a position.

The log says which rows, a snapshot what they are: the rows of the keys are read in the snapshot of the sync like all
others, with the same casts and the same schema. So a row lands as the source has it at the read point, whatever the
log holds of it: values that were not logged, versions in between, columns that came or went meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from instep.errors import InstepError
from instep.model import LogNames
from instep.schema.planning.projection import TableRead
from instep.sources.base import Snapshot
from instep.stage.spec import Chunk

Ref = tuple[str, str]


class LogUnreadable(InstepError):
    """The server has a log that it cannot decode any more: only a new one can be followed."""


PART = "part "
"""Begins the names of partitions in a shape."""
FILE = "file"
"""Names the file of the rows in a shape."""
OWN_FILE = f"{FILE} "
"""Begins the names of tables in a shape that rows of the table are in, each with its file."""
SINCE = "since "
"""Begins the names of columns in a shape, each with the transaction that defined it last."""
PLACE = ("key", "publication", "membership", "namespace")
"""Facts of a shape that tell whether the log has had all changes of the table since."""
Key = tuple[str, ...]


@dataclass(frozen=True)
class LogState:
    """State of the log at the server. `server` is what positions are valid within; `confirmed` is the position that
    the server may forget what is before ("" without a slot), `behind` and `retained` are bytes that were not read
    yet and bytes of log that the server keeps for it. `trouble` says why nothing can be read, `hint` what to do.
    A log that is not `ours` is kept by the server's own rule (`wal_status`), wherever we are: `confirmed` is then the
    lowest of our places, and `late` the age of the first change behind it in seconds. A slot is `foreign` if it is
    another program's or another database's."""

    server: str
    exists: bool = False
    confirmed: str = ""
    restart: str = ""
    behind: int = 0
    retained: int = 0
    wal_status: str = ""
    active: bool = False
    trouble: str = ""
    hint: str = ""
    ours: bool = True
    late: float = 0.0
    foreign: bool = False


@dataclass(frozen=True)
class FollowedTable:
    """A table whose changes are in the log, or `why` they are not."""

    shape: Mapping[str, str] = field(default_factory=dict)
    """A position from before says nothing any more once something of the `shape` of then is otherwise: the key, the
    type of a column, what stands for a partition."""
    why: str = ""
    pending: bool = False
    """True if it was added after the snapshot at hand began."""
    born: frozenset[str] = frozenset()
    """Partitions that were `born` as such brought no rows."""

    def holds(self, before: Mapping[str, str]) -> bool:
        """Return whether positions of the time of that shape still count; what only one of the two has does no harm."""
        columns = {n: value for n, value in before.items() if n != FILE and not n.startswith((PART, SINCE, OWN_FILE))}
        return all(self.shape.get(name, value) == value for name, value in columns.items())

    def keeps_place(self, before: Mapping[str, str]) -> bool:
        """Return whether the log has had every change of the table since: a transaction that was open when the table
        came back to it may have changed rows before."""
        return all(self.shape.get(name) == before.get(name) for name in PLACE)

    def is_rewritten(self, before: Mapping[str, str]) -> bool:
        """Return whether ALTER TABLE may have given rows other values: their file is another one, and a column of then
        was defined anew. A file alone is another one after VACUUM FULL or CLUSTER, too, which keep every value."""
        both = [n for n in before.keys() & self.shape.keys() if before[n] != self.shape[n]]
        return FILE in both and any(n.startswith(SINCE) for n in both)

    def was_attached(self, before: Mapping[str, str]) -> bool:
        """Return whether the table may have been a partition of another one for a while, under whose name its changes
        were logged: attaching and detaching define every column anew."""
        since = [n for n in before.keys() & self.shape.keys() if n.startswith(SINCE)]
        return bool(since) and all(before[n] != self.shape[n] for n in since)

    def parts_hold(self, before: Mapping[str, str]) -> bool:
        """Return whether no partition has come, gone or changed since then with rows of which the log has nothing."""
        now, then = _parts(self.shape), _parts(before)
        return then.items() <= now.items() and now.keys() - then.keys() <= self.born

    def has_grown(self, before: Mapping[str, str]) -> bool:
        """Return whether there are partitions that have to be written down, for the day on which they go."""
        return _parts(self.shape).keys() != _parts(before).keys()


def _parts(shape: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in shape.items() if name.startswith(PART)}


@dataclass(frozen=True)
class ChangedKeys:
    """The keys of a table's rows that changed, by its source columns `columns`; `whole` says why they are not enough
    and the table has to be read as a whole."""

    columns: tuple[str, ...]
    keys: Collection[Key] = field(default=(), repr=False)
    whole: str = ""


@dataclass(frozen=True)
class LogRead:
    """Changed keys by source table. Everything that the snapshot shows is in there up to the position `reached`;
    there is `more` behind it. Not `ready`: a transaction that began before the tables were taken in is still
    running, so the log may lack rows of it."""

    reached: str
    tables: Mapping[Ref, ChangedKeys]
    more: bool = False
    ready: bool = True
    since: Mapping[Ref, str] = field(default_factory=dict)
    """Position from which it was read for a table, where that is not the log's `confirmed`."""


class ChangeLog(Protocol):
    """The log of one connection. Positions are text; `order` makes them comparable. Raises InstepError that says what
    is missing at the server."""

    def state(self) -> LogState: ...

    def create(self) -> None:
        """Make what is missing of it; nothing of a row's change before this is in it."""
        ...

    def drop(self) -> bool:
        """Remove it from the server; whether there was one. What was made by somebody else stays."""
        ...

    def position_error(self, position: str) -> str:
        """Return why the log cannot be read on from this position of the same server, "" if it can.

        `state` and `read` have looked at the log. Where the server keeps the log for us, `LogState.confirmed` tells
        how far.
        """
        ...

    def resume(self, places: Mapping[Ref, str]) -> None:
        """Set the positions of tables: `read` continues from there, unless the server itself stores the position."""
        ...

    def follow(self, reads: Sequence[TableRead]) -> Mapping[Ref, FollowedTable]:
        """Take the tables in that can be followed by their accepted key; by source table."""
        ...

    def begin(self, *, wait: bool) -> None:
        """Follow tables; call this before a snapshot begins, so that the log is complete once `ready`. `wait`
        a moment for that."""
        ...

    def read(self, snapshot: Snapshot, reads: Sequence[TableRead]) -> LogRead:
        """Return the changes in these followed tables that were not released yet."""
        ...

    def rows(self, read: TableRead, key: str, changed: ChangedKeys) -> list[Chunk]:
        """Return queries for the rows of these keys that exist, under `Chunk.table = key`."""
        ...

    def keys(self, read: TableRead, key: str, changed: ChangedKeys) -> list[Chunk]:
        """Return queries that yield these keys as a read of the key columns would."""
        ...

    def release(self, position: str) -> None:
        """Allow the source to discard its log before the position."""
        ...

    def close(self) -> None:
        """End what the reads of a run have opened."""
        ...

    def order(self, position: str) -> int: ...


@runtime_checkable
class ReplicaPositions(Protocol):
    """A log that is followed on another server of those that replicate from each other."""

    def covered(self) -> str:
        """Return the transactions that rows read until now may show, "" if that cannot be told."""
        ...

    def place_of(self, position: str, covered: str) -> str:
        """Return the place in this server's log from which on it has all that is behind a position in another server's
        log; "" if that cannot be told, or if this server lacks one of the transactions that are `covered`."""
        ...


def source_key(read: TableRead) -> Key:
    """Return the accepted key by its names at the source; empty if a column of it has no source."""
    names = {c.column.name: c.source.name for c in read.columns if c.source is not None}
    return tuple(names[k] for k in read.table.key) if names.keys() >= set(read.table.key) else ()


@runtime_checkable
class Logs(Protocol):
    """A source that has a log of its rows' changes."""

    def log(self, names: LogNames) -> ChangeLog: ...
