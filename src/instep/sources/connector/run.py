"""One run of a connector: its segments, taken in groups, and what becomes of their folders.

The child may be a few segments ahead: a checkpoint returns to it once its operations are here, and its state is saved
once everything before it is at the destination. Segments that are ready together are one group, so that many small
checkpoints do not cost a commit each; it has at most as many as the child may be ahead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

from instep.crash import crashpoint
from instep.sources.connector.cluster.runner import RemoteSegments
from instep.sources.connector.dialect import ConnectorDialect
from instep.sources.connector.sealed import key_of, new_half, seal, unseal
from instep.sources.connector.seen import SeenTables
from instep.sources.connector.segment import (
    LogLine,
    OperationCounts,
    Segment,
    SegmentTable,
    declared_table,
    read_manifest,
    write_manifest,
)
from instep.sources.connector.snapshot import counts_of
from instep.sources.connector.spool import Segments
from instep.sources.stream import ReceivedCallback, StreamFailure, StreamScope, TableCounts
from instep.store.catalogs.connector_states import PendingOperations

if TYPE_CHECKING:
    from instep.sources.connector.source import Memory


def seal_pending(segment: Segment, table: SegmentTable, place: Path, key: bytes) -> None:
    """Move the table's part of a segment to its own folder, sealed, that only its owner can read."""
    place.mkdir(parents=True, mode=0o700)
    for path in table.paths:
        seal(Path(segment.folder) / path, place / path, key)
    write_manifest(replace(segment, folder=str(place), state=None, ends=False, tables=(table,), warnings=()))


def pending_table(place: str) -> SegmentTable:
    """Return what `seal_pending` has stored; raises StageError if it is gone."""
    (table,) = read_manifest(place).tables
    return table


def opened(place: str, key: bytes, folder: Path) -> None:
    """Unseal its files for as long as a run reads them."""
    folder.mkdir(parents=True, mode=0o700)
    for path in pending_table(place).paths:
        unseal(Path(place) / path, folder / path, key)


Ref = tuple[str, str]
GROUP_BYTES = 256 << 20
"""Of files, after which a group takes no more segments."""
_ENDING = 60.0  # seconds that a child which was ended may take to give back what it holds


class ConnectorRun:
    """See the module. `seen` and `folders` are those of the group at hand."""

    def __init__(
        self,
        dialect: ConnectorDialect,
        folder: str,
        memory: Memory,
        salt: bytes,
        *,
        from_start: bool,
        scope: StreamScope,
        on_counts: Callable[[OperationCounts], None],
        on_received: ReceivedCallback,
        log: Callable[[LogLine], None],
        remote: Callable[..., RemoteSegments] | None = None,
    ) -> None:
        """Prepare a run; `remote` makes its segments where the child runs on other machines. Without it, it runs
        beside us."""
        self.memory, self.salt = memory, salt
        self.root = Path(folder)
        self.place = self.root / f"run-{uuid4().hex[:12]}"
        self.seen = self.before = SeenTables.from_dict(memory.shape())
        self.group: tuple[Segment, ...] = ()
        self.number = 0
        self.pending: list[PendingOperations] = memory.pending()
        self._fresh: list[tuple[Ref, str, int, str]] = []
        self._ended = self._looked = self._has_new_types = False
        self._tidy()
        for line in dialect.notices():
            log(line)
        state = memory.state().state
        self._dialect, self._scope = dialect, scope
        self._state = dialect.restarted(state) if from_start else state
        place, ahead = str(self.place), dialect.limits.ahead
        if remote is None:
            segments: Segments | RemoteSegments = Segments(
                dialect,
                place,
                self._state,
                on_counts,
                log,
                gather=ahead > 1,
                scope=scope,
                on_received=on_received,
            )
        else:
            segments = remote(place, self._state, on_counts, log)
        self._segments = _Ahead(segments, ahead)

    def starts(self, ref: Ref) -> bool:
        if self._dialect.omits(ref):
            return False
        return ".".join(filter(None, ref)) in self._scope.again or self._dialect.starts(self._state, ref)

    def _tidy(self) -> None:
        """Delete what dead runs have left: a connection has one run at a time."""
        names = {Path(h.place).name for h in self.pending}
        for folder in self.root.glob("run-*"):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in self.root.glob("held-*"):
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)
        self.place.mkdir(parents=True, mode=0o700)

    def next(self) -> bool:
        if self._ended:
            self.group, self.number = (), self.number + 1
            return self._looked_again()
        self.group = self._segments.next_segments()
        self._ended = not self.group or self.group[-1].ends
        self.before = self.seen
        for segment in self.group:
            self.seen = self.seen.after(segment.tables, every=self._dialect.lists_all)
        if self.group:
            self._has_new_types = self.seen != self.seen.by_declaration(self.before)
        if self.seen != self.before:
            self.memory.keep_shape(self.seen.to_dict())
        self.number = self.group[-1].number if self.group else self.number + 1
        return bool(self.group) or self._looked_again()

    def _looked_again(self) -> bool:
        """Return whether the connector declares something else now, or has sent values of other types in columns that
        were new, which one more group without rows brings."""
        looked, self._looked = self._looked, True
        documents = None if looked else self._dialect.look_again()
        if looked or (documents is None and not self._has_new_types):
            return False
        self.before = self.seen
        if documents is not None:
            self.seen = self.seen.after(map(declared_table, documents), every=self._dialect.lists_all)
        self.memory.keep_shape(self.seen.to_dict())
        return True

    @property
    def failed(self) -> Mapping[Ref, StreamFailure]:
        return self._segments.failed

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(w for s in self.group for w in s.warnings)

    @property
    def folders(self) -> dict[Ref, list[tuple[str, SegmentTable]]]:
        """Operations that were held come first."""
        table_folders: dict[Ref, list[tuple[str, SegmentTable]]] = {}
        for pending in self.pending:
            table_folders.setdefault(pending.table, []).append((pending.place, pending_table(pending.place)))
        for segment in self.group:
            for table in segment.tables:
                if counts_of(table):
                    table_folders.setdefault((table.schema, table.name), []).append((segment.folder, table))
        return table_folders

    @property
    def tables(self) -> Mapping[Ref, TableCounts]:
        return {ref: sum((counts_of(t) for _, t in some), TableCounts()) for ref, some in self.folders.items()}

    @property
    def received_tables(self) -> frozenset[Ref]:
        return frozenset((t.schema, t.name) for s in self.group for t in s.tables if counts_of(t))

    @property
    def left(self) -> frozenset[Ref]:
        return self.seen.left

    def leave(self, refs: frozenset[Ref]) -> None:
        if refs != self.seen.left:
            self.seen = replace(self.seen, left=refs)
            self.memory.keep_shape(self.seen.to_dict())

    def readable(self, folder: str) -> str:
        """Return where the files of one of `folders` can be read, until the run ends."""
        pending = next((h for h in self.pending if h.place == folder), None)
        if pending is None:
            return folder
        place = self.place / Path(folder).name
        if not place.is_dir():
            opened(folder, key_of(pending.key, self.salt), place)
        return str(place)

    def make_pending(self, refs: frozenset[Ref]) -> None:
        """Seal the files of these tables; their records come with the state."""
        self._fresh = []
        for segment in self.group:
            for table in segment.tables:
                ref = (table.schema, table.name)
                if ref in refs and counts_of(table):
                    place = self.root / f"held-{uuid4().hex[:12]}"
                    half = new_half()
                    seal_pending(segment, table, place, key_of(half, self.salt))
                    self._fresh.append((ref, str(place), table.rows + len(table.truncates), half))

    def done(self, loaded: frozenset[Ref], *, run: str, fence: int) -> None:
        states = [s.state for s in self.group if s.state is not None]
        over = [h for h in self.pending if h.table in loaded]
        crashpoint("connector.segment.saved.before")
        self.memory.done(states[-1] if states else None, self._fresh, [h.number for h in over], run, fence)
        crashpoint("connector.segment.saved.after")
        self._fresh = []
        self.pending = self.memory.pending()
        for pending in over:
            shutil.rmtree(pending.place, ignore_errors=True)
            shutil.rmtree(self.place / Path(pending.place).name, ignore_errors=True)
        for segment in self.group:
            shutil.rmtree(segment.folder, ignore_errors=True)

    def close(self) -> None:
        self._segments.close()
        shutil.rmtree(self.place, ignore_errors=True)


def takes_back(segment: Segment, before: Segment) -> bool:
    """Return whether it deletes from a table that the one before has rows of. Together these rows would never land, one
    after the other they land and are marked as deleted: what is ready by chance must not decide about that."""
    wrote = {(t.schema, t.name) for t in before.tables if t.upserts or t.updates}
    return any((t.deletes or t.truncates) and (t.schema, t.name) in wrote for t in segment.tables)


def _size(segment: Segment) -> int:
    """Return the size in bytes."""
    return sum(f.bytes for t in segment.tables for f in t.files)


class _Ahead:
    """The child's segments, taken by a thread, which answers each checkpoint."""

    def __init__(self, segments: Segments | RemoteSegments, ahead: int) -> None:
        self._segments, self._most = segments, max(ahead, 1)
        self._ready: Queue[Segment | BaseException | None] = Queue(self._most)
        self._next: BaseException | None = None
        self._later: Segment | None = None
        self._over = False
        self._stop = Event()
        self._thread = Thread(target=self._follow, name="connector", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while (segment := self._segments.next()) is not None:
                self._segments.acknowledge(segment)
                self._put(segment)
                if self._stop.is_set():
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Segment | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.2)
                return
            except Full:  # the one who takes them is busy with a commit
                continue

    @property
    def failed(self) -> Mapping[Ref, StreamFailure]:
        return self._segments.failed

    def next_segments(self) -> tuple[Segment, ...]:
        """Return at least one segment and all others that are ready; () at the end. Raises the connector's error once
        all segments before it were taken."""
        segments = [self._later] if self._later else []
        self._later = None
        if not segments and self._next is not None:
            raise self._next
        if self._over:
            return tuple(segments)
        size = sum(map(_size, segments))
        while len(segments) < self._most and size < GROUP_BYTES:
            try:
                item = self._ready.get(block=not segments)
            except Empty:
                break
            if isinstance(item, BaseException):
                self._next = item
            if not isinstance(item, Segment):
                self._over = True
                break
            if any(takes_back(item, before) for before in segments):
                self._later = item
                break
            segments.append(item)
            size += _size(item)
        if not segments and self._next is not None:
            raise self._next
        return tuple(segments)

    def close(self) -> None:
        """Stop the thread before what it reads is closed: a descriptor that is closed under it may be somebody
        else's by then. A thread that does not end leaves what the next run removes."""
        self._stop.set()
        self._segments.stop()
        self._thread.join(_ENDING)
        if not self._thread.is_alive():
            self._segments.close()
