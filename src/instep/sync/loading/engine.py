"""What reads the rows of a sync: Spark jobs, threads of this process, or whichever of the two the work asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.stage.spec import Chunk, ChunkResult, Reader, StageSpec

Told = Callable[["Mapping[str, tuple[int, int]]"], None]
Done = Callable[["list[ChunkResult]"], None]
Say = Callable[[str], None]
Start = Callable[[], "SparkSession"]

SMALL = 1 << 30
"""Bytes of a source, as its statistics have them, up to which `Auto` reads in this process: there a JVM takes longer to
start than Spark could gain."""


class Engine(Protocol):
    """Turns chunks into staged files."""

    @property
    def session(self) -> SparkSession | None:
        """The Spark session, if there is one yet; for destinations that can use it."""
        ...

    def begin(self) -> None:
        """Start what will be needed whatever the work is, beside whatever is read meanwhile."""
        ...

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        """Wait until this much work can begin; `say` is told what is waited for."""
        ...

    def spark(self, say: Say) -> SparkSession | None:
        """A session for what only Spark can do; None where there is none to be had."""
        ...

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told, done: Done
    ) -> list[ChunkResult]:
        """Return one result per chunk, or one with an `error` per failed table; InstepError if all failed together.
        `done` is given results, from this thread, while others are still read; those that it was not given come at the
        end."""
        ...


@dataclass
class OnSpark:
    """One Spark job over all chunks. `start` gives the session, on a thread of its own."""

    start: Start
    _session: Future[SparkSession] | None = field(default=None, init=False, repr=False)

    def begin(self) -> None:
        if self._session is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="session")
            self._session = pool.submit(self.start)
            pool.shutdown(wait=False)

    @property
    def session(self) -> SparkSession | None:
        return self._session.result() if self._session is not None and self._session.done() else None

    def spark(self, say: Say) -> SparkSession:
        self.begin()
        assert self._session is not None
        if not self._session.done():
            say("starting Spark")
        return self._session.result()

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        self.spark(say)

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told, done: Done
    ) -> list[ChunkResult]:
        from instep.spark.extract import extract

        return extract(self.spark(_silent), reader, specs, chunks, progress=progress, done=done)


@dataclass(frozen=True)
class Inline:
    """Engine in this process; `threads` 0: one per core. Tables that the destination cannot merge by itself fail."""

    threads: int = 0
    session: None = None

    def begin(self) -> None:
        pass

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        pass

    def spark(self, say: Say) -> None:
        return None

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told, done: Done
    ) -> list[ChunkResult]:
        from instep.stage.inline import extract_inline

        return extract_inline(reader, specs, chunks, threads=self.threads, progress=progress, done=done)


@dataclass
class Auto:
    """Engine that runs in this process while the work is small, and on Spark from the first large table on."""

    start: Start
    small: int = SMALL
    _spark: OnSpark = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._spark = OnSpark(self.start)

    @property
    def session(self) -> SparkSession | None:
        return self._spark.session

    def begin(self) -> None:
        pass

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        from instep.stage.pack import weight

        if sum(map(weight, chunks)) > self.small:
            self.spark(say)

    def spark(self, say: Say) -> SparkSession:
        return self._spark.spark(say)

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told, done: Done
    ) -> list[ChunkResult]:
        by: Engine = Inline() if self.session is None else self._spark
        return by.extract(reader, specs, chunks, progress, done)


@dataclass
class DriverEngine(Auto):
    """Engine that runs in this process whatever the size, because the rows are on this machine's disk and Spark may be
    on others. What only Spark can do is done there: it reads what was staged, never what it was staged from."""

    def ready(self, chunks: Iterable[Chunk], say: Say) -> None:
        pass

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told, done: Done
    ) -> list[ChunkResult]:
        return Inline().extract(reader, specs, chunks, progress, done)


def _silent(step: str) -> None:
    pass


def at_the_end(results: list[ChunkResult]) -> None:
    """Return a consumer for `extract` that does nothing before everything is read."""
