"""One task: reads chunks over one connection, conforms them, writes files, reports what became of them.

Keeps the tasks of one sync within what it may ask of the source.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from instep.errors import AccessDenied, ConnectError, InstepError, LockYielded, ReadError, StageError
from instep.redaction import error_line
from instep.stage.conform import TEXT, Conformer, QuarantinedValue, compact_json, refused
from instep.stage.files.partitioned import writer_for
from instep.stage.files.place import disk_hint
from instep.stage.lanes import read_lane
from instep.stage.quarantine import QuarantineFile
from instep.stage.spec import (
    Chunk,
    ChunkResult,
    Reader,
    ReadSession,
    SharesView,
    SourceLimits,
    StageSpec,
    lane_units,
)


@dataclass(frozen=True)
class ChunkProgress:
    """Rows read and bytes written of one table so far, and whether `done` chunks were finished."""

    table: str
    rows: int
    bytes: int
    done: int = 0


YIELDS, CLOSINGS = 8, 2
"""Number of times that a chunk is tried again whose table others want, or whose connection the server closes."""
_LONGEST = 5.0
Report = Callable[[ChunkProgress], None]
Counts = Mapping[str, tuple[int, int]]
"""Per table: rows read and bytes written so far."""


def totals(results: Iterable[ChunkResult]) -> dict[str, tuple[int, int]]:
    """Return rows read and bytes written per table."""
    total: dict[str, tuple[int, int]] = {}
    for result in results:
        rows, size = total.get(result.table, (0, 0))
        total[result.table] = (rows + result.read, size + sum(f.bytes for f in result.files))
    return total


def run_chunks(
    reader: Reader,
    specs: Mapping[str, StageSpec],
    chunks: Sequence[Chunk],
    attempt: int,
    progress: Report | None = None,
    rows_per_second: float = 0,
) -> Iterator[ChunkResult]:
    """Read `chunks` in order over one connection, at no more than `rows_per_second` (0: no bound), and yields what
    became of each. A lane whose chunks say so is read by several connections, where the reader can share a view.

    A chunk that fails yields a result with its `error`; the rest of its table is skipped, other tables go on.
    A chunk without a lane is read once more on a new connection first, if its error may pass.
    """
    with _Task(reader, specs, attempt, progress, RateLimit(rows_per_second)) as task:
        for unit in lane_units(chunks):
            count = min(len(unit), max(chunk.connections for chunk in unit))
            if count > 1 and isinstance(reader, SharesView):
                yield from task.shared(reader, unit, count)
            else:
                yield from task.each(iter(unit))


class _Task(AbstractContextManager["_Task"]):
    def __init__(
        self,
        reader: Reader,
        specs: Mapping[str, StageSpec],
        attempt: int,
        progress: Report | None,
        rate_limit: RateLimit,
    ) -> None:
        self.reader, self.specs, self.attempt, self.progress, self.rate_limit = (
            reader,
            specs,
            attempt,
            progress,
            rate_limit,
        )
        self._broken: set[str] = set()
        self._suspect: str | None = None  # the lane of the last failed chunk: its connection may be unusable
        self._stack = ExitStack()
        self._session: ReadSession | None = None
        self._conformers: dict[str, Conformer] = {}
        self._lanes: set[str] = set()
        self._gave_way = False

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # everything was read; a lost connection need not be reported again
            self._stack.close()

    def each(self, chunks: Iterator[Chunk]) -> Iterator[ChunkResult]:
        for chunk in chunks:
            result = self.run(chunk)
            if result is not None:
                yield result

    def shared(self, reader: SharesView, unit: Sequence[Chunk], count: int) -> Iterator[ChunkResult]:
        """Read one lane by several sessions that show one state. A session that is lost cannot be had again, for a new
        one shows another state. Those that still read share the rows a second."""
        self._reopen()  # its connection is not needed meanwhile
        try:
            with reader.open_shared(unit[0], count) as view:

                def work(
                    session: ReadSession, next_chunk: Callable[[], Chunk | None], progress: Report
                ) -> Iterator[ChunkResult]:
                    with _Task(self.reader, self.specs, self.attempt, progress, self.rate_limit) as task:
                        task._session, task._broken, task._lanes = session, self._broken, {unit[0].lane}
                        for result in task.each(iter(next_chunk, None)):
                            yield replace(result, basis=view.basis)

                yield from read_lane(view.sessions, unit, work, self.progress)
        except InstepError as error:
            for table in dict.fromkeys(chunk.table for chunk in unit):
                if table not in self._broken:
                    yield self._failed(next(chunk for chunk in unit if chunk.table == table), error)

    def run(self, chunk: Chunk) -> ChunkResult | None:
        if chunk.table in self._broken:
            return None
        try:
            return self._try(chunk)
        except LockYielded as error:
            return self._behind_others(chunk, error)
        except Exception as error:
            failure = error if isinstance(error, InstepError) else unexpected(chunk, error)
            if may_pass(failure) and not chunk.lane and not self.specs[chunk.table].system.id:
                return self._retry(chunk)
            return self._failed(chunk, failure)

    def _behind_others(self, chunk: Chunk, error: LockYielded) -> ChunkResult:
        """Let statements that wait for the table go first, then read the chunk from its beginning, in pieces if it
        has some."""
        small = replace(chunk, query="") if chunk.pieces else chunk
        if error.broken and not self._is_new(chunk):
            return self._failed(chunk, error)
        for tried in range(YIELDS):
            if error.closed and tried == CLOSINGS:
                return self._failed(chunk, error.closed)
            time.sleep(pause(tried))
            try:
                return self._try(small)
            except LockYielded as again:
                error = again
            except Exception as failure:
                return self._failed(chunk, failure if isinstance(failure, InstepError) else unexpected(chunk, failure))
        return self._failed(chunk, error)

    def _retry(self, chunk: Chunk) -> ChunkResult | None:
        try:
            return self._try(chunk)
        except Exception as error:
            return self._failed(chunk, error if isinstance(error, InstepError) else unexpected(chunk, error))

    def _failed(self, chunk: Chunk, error: InstepError) -> ChunkResult:
        self._broken.add(chunk.table)
        again = isinstance(error, LockYielded)
        return ChunkResult(chunk.table, chunk.number, 0, (), error=str(error), again=again, kind=type(error).__name__)

    def _try(self, chunk: Chunk) -> ChunkResult:
        is_another = not chunk.lane or chunk.lane != self._suspect or (self._gave_way and self._is_new(chunk))
        if self._suspect is not None and is_another:
            self._reopen()
        try:
            result = self._chunk(chunk)
            self._lanes.add(chunk.lane)
            return result
        except Exception as error:
            if not isinstance(error, LockYielded) or error.broken:
                self._suspect, self._gave_way = chunk.lane, isinstance(error, LockYielded)
            raise

    def _is_new(self, chunk: Chunk) -> bool:
        """Return whether another connection will do, because nothing was read yet of what it has to be of one view
        with."""
        return not chunk.lane or chunk.lane not in self._lanes

    def _reopen(self) -> None:
        self._suspect, self._session = None, None
        old, self._stack = self._stack, ExitStack()
        with suppress(Exception):  # a broken connection may refuse to close; its error is told already
            old.close()

    def session(self) -> ReadSession:
        if self._session is None:
            self._session = self._stack.enter_context(self.reader.open())
        return self._session

    def conformer(self, spec: StageSpec) -> Conformer:
        """Return one per table: row ids of keyless tables count on from chunk to chunk."""
        if spec.table not in self._conformers:
            self._conformers[spec.table] = Conformer(spec)
        return self._conformers[spec.table]

    def _chunk(self, chunk: Chunk) -> ChunkResult:
        spec = self.specs[chunk.table]
        conformer = self.conformer(spec)
        mark = conformer.mark()
        run = _ChunkRun(spec, chunk, self.attempt, conformer, self.progress)
        try:
            with closing(read_chunk(self.session(), chunk)) as batches:
                for batch in batches:
                    run.add_batch(batch)
                    for wait in self.rate_limit.waits(len(batch)):
                        time.sleep(wait)
                        run.tell()
            return run.finish()
        except BaseException:
            run.abort()
            conformer.reset(mark)
            raise


def read_chunk(session: ReadSession, chunk: Chunk) -> Generator[pa.RecordBatch, None, None]:
    """Yield the chunk's batches; whatever the driver raises becomes a ReadError that names the table."""
    try:
        batches: Any = session.read(chunk)
        yield from batches
    except InstepError:
        raise
    except Exception as error:
        raise ReadError(
            f"{chunk.table}: reading failed in chunk {chunk.number}: {error_line(error)}",
            hint="check the connection with `instep source test`, then sync again",
        ) from error


class _ChunkRun:
    """One chunk on its way: counts, files and quarantine."""

    def __init__(
        self, spec: StageSpec, chunk: Chunk, attempt: int, conformer: Conformer, progress: Report | None
    ) -> None:
        self.spec, self.chunk, self.conformer, self.progress = spec, chunk, conformer, progress
        self.writer = writer_for(spec, chunk.number, attempt)
        self.quarantine = QuarantineFile(spec, chunk.number, attempt)
        self.read = self.written = self.invalid_values = self.rejected = self.unkeyed = 0
        self.casts: Counter[str] = Counter()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch. Rows are not quarantined where only some of their columns are read, with their notes, for
        existing rows."""
        done = self.conformer.conform(batch)
        self.writer.write(done.batch)
        partial = bool(self.spec.system.meta and not self.spec.system.synced)
        no_rows = [] if partial else refused_records(batch, self.spec)
        self.quarantine.add([h for h in done.quarantined if h.column] if partial else [*done.quarantined, *no_rows])
        self.read += len(batch) + len(no_rows)
        self.written += len(done.batch)
        self.invalid_values += done.invalid_values
        self.rejected += done.rejected + len(no_rows)
        self.unkeyed += done.unkeyed
        self.casts.update(done.casts or {})
        self.tell()

    def finish(self) -> ChunkResult:
        files = self.writer.close()
        quarantined = self.quarantine.close()
        stored = sum(f.rows for f in files)
        if stored + self.rejected != self.read:
            raise StageError(
                f"{self.spec.table}: {self.read} rows were read, {stored} staged and {self.rejected} rejected",
                hint="nothing was committed: sync again, and report this if it stays",
            )
        self.tell(1)
        return ChunkResult(
            self.spec.table,
            self.chunk.number,
            self.read,
            files,
            dict(self.casts),
            self.invalid_values,
            self.rejected,
            quarantined,
            unkeyed=self.unkeyed,
        )

    def abort(self) -> None:
        self.writer.abort()
        self.quarantine.abort()

    def tell(self, done: int = 0) -> None:
        """Report rows and bytes so far; raises what the listener raises to stop."""
        if self.progress is not None:
            self.progress(ChunkProgress(self.spec.table, self.read, self.writer.bytes, done))


def refused_records(batch: pa.RecordBatch, spec: StageSpec) -> list[QuarantinedValue]:
    """Return the records of which the source could make no rows; raises StageError under the policy `fail`."""
    quarantined = []
    for file, (line, text, why) in refused(batch):
        if spec.on_invalid_value == "fail":
            raise StageError(
                f"{spec.path or spec.table}: record {line} of {file} is not a row: {why}",
                hint="correct the file, or set `on_invalid_value: quarantine` to quarantine such records",
            )
        key = compact_json({"_file": file, "_line": str(line)})
        quarantined.append(QuarantinedValue(key, "", compact_json({TEXT: text}), why, f"{file}:{line}"))
    return quarantined


def pause(tried: int) -> float:
    """Return for how many seconds others go first, after so many tries."""
    return min(0.25 * float(2**tried), _LONGEST)


def may_pass(error: InstepError) -> bool:
    """Return whether trying again on a new connection can help."""
    return isinstance(error, ReadError | ConnectError) and not isinstance(error, AccessDenied)


def unexpected(chunk: Chunk, error: BaseException) -> InstepError:
    """Return an error that no room foresaw, with the table it happened in."""
    if isinstance(error, OSError) and (hint := disk_hint(error)):
        return StageError(f"{chunk.table}: chunk {chunk.number} cannot be written: {error_line(error)}", hint=hint)
    return StageError(
        f"{chunk.table}: chunk {chunk.number} failed: {type(error).__name__}: {error_line(error)}",
        hint="nothing was committed: sync again, and report this if it stays",
    )


_SLICE = 0.5
"""Seconds: a task that waits can still be stopped and heard."""


def task_count(limits: SourceLimits, requested: int, at_once: int) -> int:
    """Return how many tasks to make. Each has one connection, and the driver holds one of those that are allowed. With
    a bound of rows a second no more than run `at_once`, so that none keeps a share that it cannot use."""
    if limits.rows_per_second:
        requested = min(requested, at_once)
    return max(1, min(requested, limits.connections - 1)) if limits.connections else max(1, requested)


class RateLimit:
    """A task's share of the rows a second, for all of its threads; 0: no bound."""

    def __init__(self, rows_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rows_per_second, clock
        self._free, self._lock = clock(), threading.Lock()

    def waits(self, rows: int) -> Iterator[float]:
        """Yield the seconds to sleep after `rows` more rows, in slices."""
        if not self._rate:
            return
        with self._lock:
            self._free = free = max(self._free, self._clock() - 1 / self._rate) + rows / self._rate
        while (left := free - self._clock()) > 0:
            yield min(left, _SLICE)
