"""What reads the rows of a sync: one Spark job, or threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from instep.stage.inline import extract_inline
from instep.stage.spec import Chunk, ChunkResult, Reader, StageSpec
from instep.stage.task import Counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = Callable[[Counts], None]


class Engine(Protocol):
    """Turns chunks into staged files. `session` is for destinations that merge by Spark; None: there is no JVM, and
    a merge that needs one fails for its table."""

    @property
    def session(self) -> SparkSession | None: ...

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told
    ) -> list[ChunkResult]:
        """One result per chunk, or one with an `error` per failed table; InstepError if all failed together."""
        ...


@dataclass(frozen=True)
class OnSpark:
    """One Spark job over all chunks."""

    session: SparkSession

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told
    ) -> list[ChunkResult]:
        from instep.spark.extract import extract

        return extract(self.session, reader, specs, chunks, progress=progress)


@dataclass(frozen=True)
class Inline:
    """In this process; `threads` 0: one a core. Tables that the destination cannot merge by itself fail."""

    threads: int = 0
    session: None = None

    def extract(
        self, reader: Reader, specs: Iterable[StageSpec], chunks: Sequence[Chunk], progress: Told
    ) -> list[ChunkResult]:
        return extract_inline(reader, specs, chunks, threads=self.threads, progress=progress)
