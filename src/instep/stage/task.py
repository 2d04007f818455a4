"""What one task does: read chunks over one connection, conform them, write files, tell what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from instep.errors import InstepError, ReadError, StageError
from instep.stage.conform import Conformer
from instep.stage.quarantine import Quarantine
from instep.stage.spec import Chunk, ChunkResult, Reader, ReadSession, StageSpec
from instep.stage.writer import ChunkWriter


@dataclass(frozen=True)
class Progress:
    """Rows read and bytes written of one table so far, and whether `done` chunks were finished."""

    table: str
    rows: int
    bytes: int
    done: int = 0


Report = Callable[[Progress], None]
Failed = Callable[[Chunk, InstepError], None]


def run_chunks(
    reader: Reader,
    specs: Mapping[str, StageSpec],
    chunks: Sequence[Chunk],
    attempt: int,
    progress: Report | None = None,
    failed: Failed | None = None,
) -> Iterator[ChunkResult]:
    """Reads `chunks` in order, one connection for all, and yields one result each.

    Without `failed` the first error is raised. With it a table's error is told there, the rest of that table
    is skipped and the others go on, on a new connection unless they share the lane.
    """
    task = _Task(reader, specs, attempt, progress, failed)
    with task:
        for chunk in chunks:
            result = task.run(chunk)
            if result is not None:
                yield result


class _Task(AbstractContextManager["_Task"]):
    def __init__(
        self,
        reader: Reader,
        specs: Mapping[str, StageSpec],
        attempt: int,
        progress: Report | None,
        failed: Failed | None,
    ) -> None:
        self.reader, self.specs, self.attempt = reader, specs, attempt
        self.progress, self.failed = progress, failed
        self.broken: set[str] = set()
        self.stale_lane: str | None = None
        self._stack = ExitStack()
        self._session: ReadSession | None = None
        self._conformers: dict[str, Conformer] = {}

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, chunk: Chunk) -> ChunkResult | None:
        if chunk.table in self.broken:
            return None
        if self.stale_lane is not None and (not chunk.lane or chunk.lane != self.stale_lane):
            self._reopen()
        try:
            return self._chunk(chunk)
        except Exception as error:
            self.stale_lane = chunk.lane
            self.broken.add(chunk.table)
            if self.failed is None:
                raise
            self.failed(chunk, error if isinstance(error, InstepError) else unexpected(chunk, error))
            return None

    def _reopen(self) -> None:
        self.stale_lane, self._session = None, None
        old, self._stack = self._stack, ExitStack()
        try:
            old.close()
        except Exception:
            return

    def session(self) -> ReadSession:
        if self._session is None:
            self._session = self._stack.enter_context(self.reader.open())
        return self._session

    def conformer(self, spec: StageSpec) -> Conformer:
        """One per table: row ids of keyless tables count on from chunk to chunk."""
        if spec.table not in self._conformers:
            self._conformers[spec.table] = Conformer(spec)
        return self._conformers[spec.table]

    def _chunk(self, chunk: Chunk) -> ChunkResult:
        spec = self.specs[chunk.table]
        run = _ChunkRun(spec, chunk, self.attempt, self.conformer(spec), self.progress)
        try:
            with closing(_read(self.session(), chunk)) as batches:
                for batch in batches:
                    run.take(batch)
            return run.finish()
        except BaseException:
            run.abort()
            raise


def _read(session: ReadSession, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """The chunk's batches; whatever the driver raises becomes a ReadError that names the table."""
    try:
        batches: Any = session.read(chunk)
        yield from batches
    except InstepError:
        raise
    except Exception as error:
        raise ReadError(
            f"{chunk.table}: reading failed in chunk {chunk.number}: {_first_line(error)}",
            hint="check the connection with `instep source test`, then sync again",
        ) from error


class _ChunkRun:
    """One chunk on its way: counts, files and quarantine."""

    def __init__(
        self, spec: StageSpec, chunk: Chunk, attempt: int, conformer: Conformer, progress: Report | None
    ) -> None:
        self.spec, self.chunk, self.conformer, self.progress = spec, chunk, conformer, progress
        self.writer = ChunkWriter(spec, chunk.number, attempt)
        self.quarantine = Quarantine(spec, chunk.number, attempt)
        self.read = self.written = self.misfits = self.rejected = 0
        self.casts: Counter[str] = Counter()

    def take(self, batch: pa.RecordBatch) -> None:
        done = self.conformer.conform(batch)
        self.writer.write(done.batch)
        self.quarantine.add(done.held)
        self.read += len(batch)
        self.written += len(done.batch)
        self.misfits += done.misfits
        self.rejected += done.rejected
        self.casts.update(done.casts or {})
        self._tell(0)

    def finish(self) -> ChunkResult:
        files = self.writer.close()
        held = self.quarantine.close()
        stored = sum(f.rows for f in files)
        if stored + self.rejected != self.read:
            raise StageError(
                f"{self.spec.table}: {self.read} rows were read, {stored} staged and {self.rejected} rejected",
                hint="nothing was committed: sync again, and report this if it stays",
            )
        self._tell(1)
        return ChunkResult(
            self.spec.table, self.chunk.number, self.read, files, dict(self.casts), self.misfits, self.rejected, held
        )

    def abort(self) -> None:
        self.writer.abort()
        self.quarantine.abort()

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(Progress(self.spec.table, self.read, self.writer.bytes, done))


def unexpected(chunk: Chunk, error: BaseException) -> InstepError:
    """An error that no room foresaw, with the table it happened in."""
    return StageError(
        f"{chunk.table}: chunk {chunk.number} failed: {type(error).__name__}: {_first_line(error)}",
        hint="nothing was committed: sync again, and report this if it stays",
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
