"""Runs a function over parts of work as one Spark job, one task a part: what is not read from a source."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.spark.extract import ExtractTask, RunningJob
from instep.spark.payload import packed, unpacked
from instep.spark.watch import TaskProgress, collect
from instep.stage.task import Counts, Report
from instep.temporary import temporary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[Any, int, Report | None], Any]
"""(part, attempt, report) to a result; a function of a module, so that workers find it by its name."""


def run_parts(
    spark: SparkSession,
    work: Work,
    parts: Sequence[Any],
    progress: Callable[[Counts], None] | None = None,
    what: str = "rewrite",
) -> list[Any]:
    """The results in the order of the parts, which are picklable and may hold credentials. `what` names the job.

    `progress` is told rows and bytes by table about twice a second; what it raises cancels the job. A task whose worker
    dies runs again with a higher attempt. Raises InstepError when the job fails; KeyboardInterrupt cancels it first.
    """
    if not parts:
        return []
    with temporary("progress") as folder:
        payload = tuple(packed((work, number, part)) for number, part in enumerate(parts))
        job = RunningJob(spark, _RewritePart(payload, folder), what)
        found = dict(pickle.loads(row) for row in job.run(lambda: progress(collect(folder)) if progress else None))
    return [found[number] for number in range(len(parts))]


@dataclass(frozen=True)
class _RewritePart(ExtractTask):
    def one(self, number: int) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        work, place, part = unpacked(self.work[number])
        progress = TaskProgress(self.folder, number) if Path(self.folder).is_dir() else None
        return pickle.dumps((place, work(part, context.attemptNumber() if context else 0, progress)))
