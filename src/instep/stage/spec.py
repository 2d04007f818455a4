"""Records that travel to tasks and back: the contract between sources, tasks and destinations.

Everything here is picklable and travels to tasks; a `Reader` may hold credentials, so none of these
classes shows its content in `repr`.

Divides chunks among tasks.
"""

from __future__ import annotations

import builtins
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import DataType
from instep.stage.partition import Partition, Partitioning

InvalidValue = Literal["quarantine", "null", "fail"]


@dataclass(frozen=True)
class Chunk:
    """A part of one table that one query reads: about a million rows or 256 MB.

    `query` yields the columns of the table's StageSpec that have a source, in that order. Chunks with the
    same `lane` are read in order on one connection (a consistent view that cannot be shared). `largest`: a query for
    the key and size of the largest row, for errors. `pieces`: queries that together yield what `query` does, each short
    and small enough for memory; a chunk without a query is read by them. `probe`: a query that needs the same locks and
    reads nothing. `connections`: how many may read the lane's chunks at a time, if they show one state; `lock`: a
    statement that keeps writers of the table away while they begin.
    """

    table: str
    number: int
    query: str
    rows: int = 0
    bytes: int = 0
    lane: str = ""
    largest: str = field(default="", repr=False)
    pieces: tuple[str, ...] = field(default=(), repr=False)
    probe: str = field(default="", repr=False)
    connections: int = 1
    lock: str = field(default="", repr=False)


class ReadSession(Protocol):
    """One open connection inside a task."""

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Return the chunk's rows; columns by position."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """A session whose read can be ended from another thread."""

    def stop(self) -> None:
        """End what is being read at once: it fails then, and so does all that is read later."""
        ...


@dataclass(frozen=True)
class SourceLimits:
    """Limits of one sync at its source, over all tasks together: connections at a time and rows a second; 0 means
    no bound."""

    connections: int = 0
    rows_per_second: float = 0


class Reader(Protocol):
    """Opens a source in a task; picklable, made by `Source.snapshot()`. One that has Limits calls them `limits`."""

    def open(self) -> AbstractContextManager[ReadSession]: ...


@dataclass(frozen=True)
class SharedView:
    """Sessions that show one state of the tables of a lane."""

    sessions: tuple[ReadSession, ...]
    basis: str
    """Basis of the guarantee, for people, or why there is one session only."""


@runtime_checkable
class SharesView(Protocol):
    """A reader that can read one lane by several connections."""

    def open_shared(self, chunk: Chunk, count: int) -> AbstractContextManager[SharedView]:
        """Open at most `count` sessions for the lane of this chunk."""
        ...


def limits_of(reader: Reader) -> SourceLimits:
    """Return the reader's own, or none."""
    limits = getattr(reader, "limits", None)
    return limits if isinstance(limits, SourceLimits) else SourceLimits()


@dataclass(frozen=True)
class StageColumn:
    """One accepted column on its way into a file.

    `name` is the destination's name. `source` is the type that the query yields, None for a column that the
    query does not have (written as NULL). `path` is the source column's name, for quarantine and messages.
    """

    name: str
    type: DataType
    source: DataType | None
    path: str
    nullable: bool = True
    key: int = 0
    hashed: bool = False


@dataclass(frozen=True)
class SystemColumns:
    """The names of the system columns that this table has; empty for one that it lacks.

    synced: timestamptz, the run's time. deleted: boolean, false on staged rows. id: string, SHA-256 of the
    row with an occurrence number (keyless tables). meta: string (json), per-row changes and errors. extra: string
    (json), values of columns that have no place in the table. valid_from, valid_to: timestamptz, current: boolean, of a
    table that keeps its history: staged rows are current, and valid from the read point on.
    """

    synced: str = ""
    deleted: str = ""
    id: str = ""
    meta: str = ""
    extra: str = ""
    valid_from: str = ""
    valid_to: str = ""
    current: str = ""

    @classmethod
    def of(cls, table: Table, prefix: str) -> SystemColumns:
        """Return the system columns of a destination table: they have the prefix and come from no source column."""
        names = {c.name for c in table.columns if not c.alias}
        roles = (f.name for f in fields(cls))
        return cls(**{role: prefix + role for role in roles if prefix + role in names})


@dataclass(frozen=True)
class StageSpec:
    """Specification of the staged files of one table.

    `schema` is the destination table's own Arrow schema, names, types, units and field ids included (`PARQUET:field_id`
    metadata): what a task writes must equal it. `location` is a folder URI for data files, `quarantine` one for values
    that do not fit; `io` are file-system properties for both (may hold credentials). `synced` and `read_at` are
    microseconds since 1970 UTC. `salt` is the secret for hashed columns. `path` is the accepted table's, for
    quarantine; without a `quarantine` nothing is held. `holds`: (change id, rule) by `path` of the columns whose new
    type was not accepted. `extra` are columns that the query yields after the others, and that go into the system
    column of that name (see stage/overflow.py). `notes` are the destination's column names by those of the source; if
    there are any, the query yields what the source says about a row's values as its last column (JSON list of changes).
    `partition`: a file holds rows of one partition only.
    """

    table: str
    columns: tuple[StageColumn, ...]
    system: SystemColumns
    schema: pa.Schema
    location: str
    quarantine: str
    run: str
    synced: int
    on_invalid_value: InvalidValue = "quarantine"
    read_at: int = 0
    file_bytes: int = 256 << 20
    io: Mapping[str, str] = field(default_factory=dict, repr=False)
    salt: bytes = field(default=b"", repr=False)
    compression: str = "zstd"
    path: str = ""
    holds: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    extra: tuple[StageColumn, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    partition: Partitioning | None = None


@dataclass(frozen=True)
class StagedFile:
    """One Parquet file that a task has finished."""

    table: str
    chunk: int
    path: str
    rows: int
    bytes: int
    footer: builtins.bytes = field(repr=False)
    """Metadata of the file as `write_metadata_file` writes it."""
    partition: Partition | None = field(default=None, repr=False)
    """Partition of all of its rows, if they were divided."""


@dataclass(frozen=True)
class ChunkResult:
    """Result of one chunk. `read` rows came from the source; they are in `files` or in `rejected`.

    `casts` counts lossy conversions by column and reason, `invalid_values` the values held in `quarantine`
    (a Parquet file of key, column, original, reason; empty when none), `rejected` whole rows held there
    because their key is NULL, `unkeyed` of them because a value of it does not fit. `error` is set when the chunk could
    not be read: the other tables go on; `kind` is the error's class. `again`: only because others wanted the table.
    `basis`: what it rests on that several connections have read one state, or why there was only one.
    """

    table: str
    chunk: int
    read: int
    files: tuple[StagedFile, ...]
    casts: Mapping[str, int] = field(default_factory=dict)
    invalid_values: int = 0
    rejected: int = 0
    quarantine: str = ""
    error: str = ""
    unkeyed: int = 0
    again: bool = False
    basis: str = ""
    kind: str = ""


_CHUNK_COST = 50_000  # bytes: a chunk costs a query and a file even when it is empty
_ROW_BYTES = 100


def weight(chunk: Chunk) -> int:
    """Return about how long a chunk takes, in bytes."""
    return max(chunk.bytes, chunk.rows * _ROW_BYTES) + _CHUNK_COST


def pack(chunks: Iterable[Chunk], tasks: int) -> list[list[Chunk]]:
    """Return at most `tasks` lists of about equal weight, the heaviest first.

    Chunks of one lane stay together and in order; within a list the largest come first.
    """
    units = sorted(lane_units(chunks), key=lambda unit: -sum(map(weight, unit)))
    loads = [(0, at) for at in range(min(tasks, len(units)))]
    packed: list[list[Chunk]] = [[] for _ in loads]
    for unit in units:
        load, at = heapq.heappop(loads)
        packed[at].extend(unit)
        heapq.heappush(loads, (load + sum(map(weight, unit)), at))
    return sorted(packed, key=lambda part: -sum(map(weight, part)))


def lane_units(chunks: Iterable[Chunk]) -> list[Sequence[Chunk]]:
    """Return the chunks of each lane together, and those without a lane by themselves."""
    lanes: dict[str, list[Chunk]] = {}
    units: list[Sequence[Chunk]] = []
    for chunk in chunks:
        if not chunk.lane:
            units.append([chunk])
            continue
        if chunk.lane not in lanes:
            units.append(lanes.setdefault(chunk.lane, []))
        lanes[chunk.lane].append(chunk)
    return units
