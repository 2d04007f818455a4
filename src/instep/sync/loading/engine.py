"""Engines that read the rows of a sync: Spark jobs (`engine: spark`), or threads of this process (`engine: local`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol

from instep.model import EngineUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.stage.fold import Fold, Scan
    from instep.stage.key_hashes import ColumnSides, ColumnTotals, Hashes, KeyTotals, Side
    from instep.stage.spec import Chunk, ChunkResult, Reader, StageSpec

RowsCallback = Callable[["Mapping[str, tuple[int, int]]"], None]
Done = Callable[["list[ChunkResult]"], None]
Say = Callable[[str], None]
Start = Callable[[], "SparkSession"]


MOST_NAMED = 20
"""Large operations that a run names."""


@dataclass
class LargeOperations:
    """Operations that were too large for one process, as `table: operation`; several threads add to it."""

    names: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, what: str) -> None:
        with self.lock:
            if what not in self.names:
                self.names.append(what)

    def __str__(self) -> str:
        with self.lock:
            more = len(self.names) - MOST_NAMED
            return "; ".join([*self.names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


class Engine(Protocol):
    """Turns chunks into staged files."""

    @property
    def session(self) -> SparkSession | None:
        """The Spark session, if there is one yet; for destinations that can use it."""
        ...

    @property
    def use(self) -> EngineUse:
        """Return the engine that reads the rows, and where; with the address of Spark's page once it runs."""
        ...

    def begin(self) -> None:
        """Start what reading rows will need, beside whatever is done meanwhile; again does nothing."""
        ...

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        """Wait until this much work can begin; `say` is told what is waited for."""
        ...

    def spark(self, say: Say) -> SparkSession | None:
        """Return a session for what only Spark can do; None where there is none."""
        ...

    def for_large(self, say: Say, what: str) -> SparkSession | None:
        """Return `spark` for an operation on a large table, which `use` then names."""
        ...

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: RowsCallback, done: Done
    ) -> list[ChunkResult]:
        """Return one result per chunk, or one with an `error` per failed table; InstepError if all failed together.
        `done` is given results, from this thread, while others are still read; those that it was not given come at the
        end."""
        ...

    def fold(
        self, scan: Scan, fold: Fold, *, returned: float = 0, progress: RowsCallback | None = None
    ) -> Iterator[Any]:
        """Yield the results of tasks on the rows of a scan, in no order. `returned`: the expected share of the rows
        in the results."""
        ...

    def count_keys(self, scan: Scan, hashes: Fold) -> KeyTotals:
        """Count the rows of a scan by what `hashes` makes of their keys: batches of HASHED."""
        ...

    def differing(self, left: Side, right: Side, most: int) -> Hashes | None:
        """Return the hashes of the keys whose rows one of two sides has alone; None if they are more than `most`."""
        ...

    def count_columns(self, now: Scan, then: Scan, sides: ColumnSides) -> ColumnTotals:
        """Count the values of columns, and those that are other ones in the row that had the same key."""
        ...


@dataclass
class OnSpark:
    """One Spark job over all chunks."""

    start: Start
    """Gives the session, on a thread of its own."""
    where: str = ""
    """Place where Spark runs."""
    large: LargeOperations = field(default_factory=LargeOperations, init=False)
    _session: Future[SparkSession] | None = field(default=None, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    @property
    def use(self) -> EngineUse:
        return EngineUse("spark", self.where, self._page(), str(self.large))

    def _page(self) -> str:
        if self._session is None or not self._session.done() or self._session.exception() is not None:
            return ""
        context = getattr(self._session.result(), "_sc", None)  # over Connect nothing tells it
        try:
            return str(context.uiWebUrl or "") if context is not None else ""
        except Exception:  # its JVM has ended
            return ""

    def begin(self) -> None:
        self._starting()

    def _starting(self) -> Future[SparkSession]:
        with self._lock:  # tables are committed by several threads
            if self._session is None:
                self._session = Future()
                # a daemon: a command that is done, or was interrupted, waits for no cluster that does not answer
                Thread(target=_start, args=(self.start, self._session), name="session", daemon=True).start()
            return self._session

    @property
    def session(self) -> SparkSession | None:
        return self._session.result() if self._session is not None and self._session.done() else None

    def spark(self, say: Say) -> SparkSession:
        if not (session := self._starting()).done():
            say("starting Spark")
        return session.result()

    def for_large(self, say: Say, what: str) -> SparkSession:
        self.large.add(what)
        return self.spark(say)

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        self.spark(say)

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: RowsCallback, done: Done
    ) -> list[ChunkResult]:
        from instep.spark.extract import extract

        return extract(self.spark(_silent), reader, specs, chunks, progress=progress, done=done)

    def fold(
        self, scan: Scan, fold: Fold, *, returned: float = 0, progress: RowsCallback | None = None
    ) -> Iterator[Any]:
        from instep.spark.fold import fold_on_spark

        return fold_on_spark(self.spark(_silent), scan, fold, returned=returned, progress=progress)

    def count_keys(self, scan: Scan, hashes: Fold) -> KeyTotals:
        from instep.spark.fold import count_keys_on_spark

        return count_keys_on_spark(self.spark(_silent), scan, hashes)

    def differing(self, left: Side, right: Side, most: int) -> Hashes | None:
        from instep.spark.fold import differing_on_spark

        return differing_on_spark(self.spark(_silent), left, right, most)

    def count_columns(self, now: Scan, then: Scan, sides: ColumnSides) -> ColumnTotals:
        from instep.spark.fold import count_columns_on_spark

        return count_columns_on_spark(self.spark(_silent), now, then, sides)


def _start(start: Start, session: Future[SparkSession]) -> None:
    try:
        session.set_result(start())
    except BaseException as error:
        session.set_exception(error)


@dataclass(frozen=True)
class LocalEngine:
    """Engine in this process; `threads` 0: one per core. Tables that the destination cannot merge by itself fail."""

    threads: int = 0
    session: None = None
    large: LargeOperations = field(default_factory=LargeOperations, compare=False)

    @property
    def use(self) -> EngineUse:
        return EngineUse("local", large=str(self.large))

    def begin(self) -> None:
        pass

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        pass

    def spark(self, say: Say) -> None:
        return None

    def for_large(self, say: Say, what: str) -> None:
        self.large.add(what)

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: RowsCallback, done: Done
    ) -> list[ChunkResult]:
        from instep.stage.local import extract_locally

        return extract_locally(reader, specs, chunks, threads=self.threads, progress=progress, done=done)

    def fold(
        self, scan: Scan, fold: Fold, *, returned: float = 0, progress: RowsCallback | None = None
    ) -> Iterator[Any]:
        from instep.stage.fold import fold_locally

        return fold_locally(scan, fold, threads=self.threads, progress=progress)

    def count_keys(self, scan: Scan, hashes: Fold) -> KeyTotals:
        from instep.stage.key_hashes import key_totals

        return key_totals(self.fold(scan, hashes))

    def differing(self, left: Side, right: Side, most: int) -> Hashes | None:
        from instep.stage.key_hashes import differing

        return differing(self.fold(*left), self.fold(*right), most)

    def count_columns(self, now: Scan, then: Scan, sides: ColumnSides) -> ColumnTotals:
        from instep.stage.key_hashes import count_columns

        return count_columns(self.fold(now, sides.now), self.fold(then, sides.then), sides)


@dataclass
class DriverReads(OnSpark):
    """Threads of this process read, because the rows are on this machine's disk and Spark is on others. It merges what
    was staged, and starts when that takes it."""

    def begin(self) -> None:
        pass

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        pass

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: RowsCallback, done: Done
    ) -> list[ChunkResult]:
        return LocalEngine().extract(reader, specs, chunks, progress, done)

    def fold(
        self, scan: Scan, fold: Fold, *, returned: float = 0, progress: RowsCallback | None = None
    ) -> Iterator[Any]:
        return LocalEngine().fold(scan, fold, returned=returned, progress=progress)

    def count_keys(self, scan: Scan, hashes: Fold) -> KeyTotals:
        return LocalEngine().count_keys(scan, hashes)

    def differing(self, left: Side, right: Side, most: int) -> Hashes | None:
        return LocalEngine().differing(left, right, most)

    def count_columns(self, now: Scan, then: Scan, sides: ColumnSides) -> ColumnTotals:
        return LocalEngine().count_columns(now, then, sides)


def _silent(step: str) -> None:
    pass


def at_the_end(results: list[ChunkResult]) -> None:
    """Return a consumer for `extract` that does nothing before everything is read."""
